"""Routes: which path leads to which socket or topic. Nothing is reachable that is not declared.

    /orders=push:tcp://127.0.0.1:5555           PATTERN:URL connects, PATTERN+bind:URL binds
    /prices=sub:tcp://host:5556?topic=px.       settings follow the `?`
    /log=journal:data?topic=orders
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

from mqcore.errors import AddressError, OptionError
from mqcore.http.access import RECEIVE, SEND

# kind: what clients may do
KINDS: dict[str, frozenset[str]] = {
    "push": frozenset({SEND}), "pub": frozenset({SEND}), "req": frozenset({SEND}),
    "sub": frozenset({RECEIVE}), "pull": frozenset({RECEIVE}),
    "pair": frozenset({SEND, RECEIVE}), "journal": frozenset({SEND, RECEIVE}),
}
PATH = re.compile(r"/[A-Za-z0-9._~/-]{0,200}")
OWN = "/-/"     # the gateway's own pages
MODES = ("connect", "bind")

# setting: (its kinds, its default, its least value where it is a number)
SETTINGS: dict[str, tuple[tuple[str, ...], Any, float]] = {
    "topic": (("sub", "pub", "journal"), (), 0),
    "timeout": (("req",), 30.0, 0.001),
    "type": (("req", "pull", "pair"), "application/octet-stream", 0),
    "hold": (("sub",), 1000, 1),
    "hold_bytes": (("sub",), 16 << 20, 1),
    "partition": (("journal",), 0, 0),
    "append": (("journal",), True, 0),
    "send_hwm": (("push", "pub", "req", "pair"), 10_000, 1),
    "linger": (("push", "pub", "req", "pair"), 5.0, 0),
}
FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True)
class Route:
    """A path and what is behind it. `parse` makes one of its text."""

    path: str
    kind: str
    mode: str
    url: str
    settings: Mapping[str, Any]

    @property
    def rights(self) -> frozenset[str]:
        found = KINDS[self.kind]
        return found if self.settings.get("append", True) else found - {SEND}

    @property
    def topic(self) -> str:
        return self.settings["topic"][0] if self.settings["topic"] else ""


def parse(path: str, address: str) -> Route:
    """The route from a path to an address. OptionError, AddressError."""
    if not PATH.fullmatch(path) or "//" in path or {".", ".."} & set(path.split("/")):
        raise OptionError(f"{path!r} is no path of a route",
                          hint="write /name, with letters, digits, and any of . _ ~ - /")
    if path.startswith(OWN):
        raise OptionError(f"{path} is one of the gateway's own pages", hint="choose another path")
    name, colon, rest = address.partition(":")
    kind, plus, mode = name.partition("+")
    if not colon or kind not in KINDS:
        raise AddressError(f"{address!r} is no address of a route", position=0,
                           hint=f"write KIND:URL; the kinds are {', '.join(KINDS)}")
    if plus and (mode not in MODES or kind == "journal"):
        raise AddressError(f"{name}: is no form of {kind}", position=len(kind),
                           hint="write push+bind:URL or push+connect:URL; a journal has neither")
    url, settings = _settings(kind, rest)
    if kind == "journal" and "://" in url:
        raise AddressError(f"{url} is a journal server, and a route needs a folder", position=0,
                           hint="write journal:FOLDER?topic=NAME; `mq journal mirror` makes a "
                                "folder of a server's topic")
    if not url:
        raise AddressError(f"{address!r} does not say where", position=len(address),
                           hint=f"write {name}:URL")
    return Route(path, kind, mode or "connect", url, settings)


def declared(text: str) -> Route:
    """The route of "PATH=KIND:URL"."""
    path, equals, address = text.partition("=")
    if not equals:
        raise OptionError(f"{text!r} is no route", hint="write PATH=KIND:URL, as in "
                          "/orders=push:tcp://127.0.0.1:5555")
    return parse(path, address)


def _settings(kind: str, text: str) -> tuple[str, dict[str, Any]]:
    url, question, query = text.partition("?")
    found = {name: row[1] for name, row in SETTINGS.items()}
    topics: list[str] = []
    others = []
    for name, value in parse_qsl(query, keep_blank_values=True):
        row = SETTINGS.get(name)
        if row is None:
            if kind == "journal":
                raise OptionError(f"journal: has no setting {name!r}",
                                  hint="it has topic, partition and append")
            others.append((name, value))        # of the transport
        elif kind not in row[0]:
            raise OptionError(f"{kind}: has no setting {name!r}",
                              hint=f"it is one of {', '.join(row[0])}")
        elif name == "topic":
            topics.append(value)
        else:
            found[name] = _converted(name, value, *row[1:])
    if len(topics) > 1 and kind != "sub":
        raise OptionError(f"{kind}: has one topic, not {len(topics)}", hint="leave one")
    found["topic"] = tuple(topics)
    return url + (question + urlencode(others, safe=":/*,") if others else ""), found


def _converted(name: str, text: str, usual: Any, least: float) -> Any:
    try:
        if isinstance(usual, bool):
            return FLAGS[text.lower()]
        if isinstance(usual, str):
            if not text.isascii() or not text.isprintable() or not text:
                raise ValueError(text)
            return text
        value = type(usual)(text)
        if not least <= value < 1 << 40:
            raise ValueError(value)
        return value
    except (KeyError, ValueError):
        raise OptionError(f"{name}={text!r} is no value of this setting",
                          hint=f"its default is {usual!r}") from None
