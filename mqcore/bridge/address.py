"""The address of one side of a bridge: NAME://host/path?setting=value, or NAME+MODE:URL for our own
sockets."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from mqcore import _unknown as unknown
from mqcore.errors import AddressError, OptionError

if TYPE_CHECKING:
    from mqcore.bridge.spi import Plugin

FLAGS = {"1": True, "true": True, "yes": True, "on": True,
         "0": False, "false": False, "no": False, "off": False}


@dataclass(frozen=True)
class Address:
    """url: without NAME: in front for our own, whole for others, and without settings. mode: bind
    or connect. settings: all of the plug-in's, converted, with their defaults."""

    name: str
    mode: str
    url: str
    settings: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.settings[name]

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or "127.0.0.1"

    def port(self, usual: int) -> int:
        try:
            return urlsplit(self.url).port or usual
        except ValueError:
            raise AddressError(f"{self.shown}: the port is not a number from 0 to 65535",
                               position=0, hint="in a password, write / as %2F and # as %23"
                               ) from None

    @property
    def user(self) -> str:
        return unquote(urlsplit(self.url).username or "")

    @property
    def password(self) -> str:
        return unquote(urlsplit(self.url).password or "")

    @property
    def path(self) -> str:
        """What stands behind host and port, decoded, without the first slash."""
        return unquote(urlsplit(self.url).path.removeprefix("/"))

    @cached_property
    def shown(self) -> str:
        """The URL without a password. NATS takes a user without one as a token. A password with a
        raw / or # cuts the host off, and what stands before it is not a port."""
        parts = urlsplit(self.url)
        try:
            _ = parts.port
        except ValueError:
            if "@" in parts.path + parts.fragment:
                return f"{parts.scheme}://***@{self.url.rpartition('@')[2]}"
        where = parts.netloc.rpartition("@")[2]
        if parts.password:
            return urlunsplit(parts._replace(netloc=f"{quote(self.user)}:***@{where}"))
        if parts.username and self.name in ("nats", "natss"):
            return urlunsplit(parts._replace(netloc=f"***@{where}"))
        return self.url

    def want(self, *names: str) -> None:
        """AddressError if none of these settings was given."""
        if not any(self.settings[name] for name in names):
            raise AddressError(f"{self.shown} does not say which {' or '.join(names)}",
                               position=len(self.url), hint=f"add ?{names[0]}=NAME")


def matches(pattern: list[str], name: list[str], one: str, rest: str) -> bool:
    """Whether a pattern has this name: `one` stands for any word, `rest` for all that follow."""
    for index, word in enumerate(pattern):
        if word == rest:
            return True
        if index >= len(name) or word not in (one, name[index]):
            return False
    return len(pattern) == len(name)


def name_of(text: str) -> tuple[str, str, str]:
    """(name, mode, the rest) of "NAME+MODE:REST"."""
    name, colon, rest = text.partition(":")
    name, _, mode = name.partition("+")
    if not colon or not name.isidentifier():
        raise AddressError(f"{text!r} is no address of a bridge", position=0,
                           hint="it is NAME://host/..., or PATTERN:URL for a socket; "
                                "`mq bridge --list` shows the names")
    return name, mode, rest


def parse(text: str, plugin: Plugin) -> Address:
    """The address, with the settings that the plug-in knows."""
    name, mode, rest = name_of(text)
    if mode and mode not in plugin.modes:
        raise AddressError(f"{name}+{mode}: is no form of {name}", position=len(name),
                           hint=f"write {' or '.join(f'{name}+{m}:' for m in plugin.modes)}"
                           if plugin.modes else f"write {name}:")
    mode = mode or (plugin.modes[0] if plugin.modes else "")
    url, question, query = (rest if plugin.modes or plugin.passes else text).partition("?")
    known = {row.name: row for row in plugin.settings}
    found: dict[str, Any] = {row.name: [] if row.type == "list" else row.default
                             for row in plugin.settings}
    others = []
    for key, value in parse_qsl(query, keep_blank_values=True):
        row = known.get(key)
        if row is None:
            if not plugin.passes:
                raise OptionError(f"{name}: has no setting {key!r}",
                                  hint=unknown.nearest(key, tuple(known)))
            others.append((key, value))
        elif row.type == "list":
            found[key].append(value)
        else:
            found[key] = _converted(name, key, row.type, value)
    for row in plugin.settings:
        if row.type == "list" and not found[row.name]:
            found[row.name] = list(row.default)
    if others:
        url += question + urlencode(others, safe=":/*,")
    return Address(name, mode, url, found)


def _converted(name: str, key: str, kind: str, value: str) -> Any:
    try:
        if kind == "bool":
            return FLAGS[value.lower()]
        return {"int": int, "float": float, "text": str}[kind](value)
    except (KeyError, ValueError):
        raise OptionError(f"{name}: {key}={value!r} is not of the type {kind}",
                          hint="true or false" if kind == "bool" else "a number") from None
