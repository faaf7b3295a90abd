"""Errors for names that are unknown where they are used: options and schemes. Each error says where
the name belongs, or what the user may have meant. Only error paths import this module.

The registry fills `ELSEWHERE` with functions that return the options of plug-ins that are not
involved in the current call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from mqcore.errors import OptionError

Option: TypeAlias = Any  # the class is in options.py, which imports this module

ELSEWHERE: list[Callable[[], Iterable[Option]]] = []

#: arguments that people pass as options by mistake, and option names of other libraries
ARGUMENTS = {
    "timeout": "give timeout= to the call, as in recv(timeout=1), or set send_timeout and "
               "recv_timeout for the whole socket",
    "wait": "wait= belongs to connect(): sock.connect(url, wait=3)",
    "topics": "topics= belongs to sub",
    "topic": "topics=[...] belongs to sub, topic= to subscribe() and wait_subscribers()",
    "groups": "groups= belongs to dish",
    "bind": "bind= belongs to the socket's constructor; bind() is the call",
    "connect": "connect= belongs to the socket's constructor; connect() is the call",
    "context": "pass context= to the socket's constructor",
    "io_threads": "io_threads= belongs to Context()",
    "url": "give the address as bind= or connect=",
    "address": "give the address as bind= or connect=",
    "hwm": "set send_hwm and recv_hwm",
    "identity": "did you mean 'routing_id'?",
}
PLACES = {"socket": "per socket", "endpoint": "per endpoint",
          "url": "per endpoint or in a URL"}


def misplaced(row: Option, scope: str) -> OptionError:
    """The option exists, but it cannot be set at this scope."""
    place = "in a URL" if scope == "url" and "endpoint" in row.scope else PLACES[scope]
    where = " or ".join(row.scope)
    if row.scope == ("socket",):
        kinds = f" ({', '.join(row.patterns)})" if row.patterns else ""
        where = f"socket{kinds}: give it to the constructor, or set the attribute"
    return OptionError(f"option {row.name!r} cannot be set {place}",
                       hint=f"it belongs to the {where}")


def foreign(row: Option, pattern: str) -> OptionError:
    """The option exists, but only for other patterns."""
    return OptionError(f"option {row.name!r} does not apply to {pattern}",
                       hint=f"it belongs to {', '.join(row.patterns)}")


def unknown(name: str, rows: Mapping[str, Option], scope: str, pattern: str) -> OptionError:
    """The error for a name that is not in `rows`."""
    if name in ARGUMENTS:
        return OptionError(f"unknown option {name!r}", hint=ARGUMENTS[name])
    others = {row.name: row for ask in ELSEWHERE for row in ask()}
    if name in others:
        row = others[name]
        if scope not in row.scope:
            return misplaced(row, scope)
        if row.patterns:
            return foreign(row, pattern or "these sockets")
        return OptionError(f"option {name!r} does not apply to this address",
                           hint=f"it belongs to other transports ({row.doc})")
    from difflib import get_close_matches  # slow to import, and only errors need it

    close = get_close_matches(name, {**others, **rows}, n=1, cutoff=0.6)
    return OptionError(
        f"unknown option {name!r}",
        hint=f"did you mean {close[0]!r}?" if close else f"known ones: {', '.join(sorted(rows))}")


#: schemes that people try, and what to write instead
SCHEMES = {
    "tls": "TLS is a filter over a stream: write tls+tcp://",
    "ssl": "write tls+tcp://",
    "tcps": "write tls+tcp://",
    "http": "for WebSocket write ws://; there is no plain HTTP",
    "https": "for WebSocket over TLS write wss://; there is no plain HTTP",
    "unix": "write ipc://",
    "abstract": "write ipc://@name",
    "zmq": "write tcp://",
    "zmtp": "write tcp://",
    "nng": "write tcp://",
}


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint: the installed name that is closest to `name`, and all installed names."""
    known = sorted(known)
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=1, cutoff=0.6)
    return (f"did you mean {close[0]}? " if close else "") + (
        f"installed: {', '.join(known) or 'none'}")


def scheme(name: str, known: Iterable[str]) -> str:
    """The same hint for a URL's transport."""
    if name in SCHEMES:
        return SCHEMES[name]
    return nearest(name, known) + "; filters stand in front of it, as in tls+tcp://"
