"""The table of all options. Everything that knows an option by name derives from it.

`TABLE` holds literal rows: name, type, unit, default, range, scope, patterns, meaning. From them
come the defaults, the checks of keyword arguments and attributes, the parser of a URL's query, the
documentation's table and the types in the stubs (`tools/stubs.py`). Patterns and transports add
rows of their own (`rows_of`). The registry merges them and refuses a name that two plug-ins claim.

Times are floats in seconds and sizes are integers in bytes. The row says what `None` means: "no
limit", "for ever" or "off".
"""

from __future__ import annotations

import math
import operator
import reprlib
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from mqcore import _unknown as unknown
from mqcore.errors import OptionError
from mqcore.security import Security

SOCKET = ("socket",)
LINK = ("socket", "endpoint", "url")  # also per endpoint and in a URL
ONE_LINK = ("endpoint", "url")  # options that have no meaning for a whole socket
INT_MAX = 2**31 - 1
T = TypeVar("T", int, float)
FAR = 1e9  # seconds; as nanoseconds it fits a signed 64-bit integer with space to spare


class Option(NamedTuple):
    """One row. `range` is (minimum, maximum) for numbers and the allowed words for choices."""

    name: str
    type: str  # a key of CHECKS
    unit: str
    default: Any
    range: tuple[Any, ...]
    none: str | None  # what None means; if this is None, the option refuses None
    scope: tuple[str, ...]
    patterns: tuple[str, ...]  # empty: all
    doc: str


def _o(name: str, type: str, unit: str, default: Any, range: tuple[Any, ...], none: str | None,
       scope: tuple[str, ...], doc: str, patterns: tuple[str, ...] = ()) -> Option:
    return Option(name, type, unit, default, range, none, scope, patterns, doc)


# fmt: off
TABLE: tuple[Option, ...] = (
    # -- time and queues ---------------------------------------------------------------------------
    _o("send_timeout", "seconds", "s", None, (0, FAR), "for ever", SOCKET,
       "how long a send waits for a peer or for space in its queue"),
    _o("recv_timeout", "seconds", "s", None, (0, FAR), "for ever", SOCKET,
       "how long a receive waits for a message"),
    _o("linger", "seconds", "s", 1.0, (0, FAR), "for ever", SOCKET,
       "how long close() keeps sending queued messages; 0 discards them"),
    _o("send_hwm", "int", "messages", 10_000, (1, INT_MAX), "no limit", SOCKET,
       "messages queued per peer before the pattern blocks or drops"),
    _o("recv_hwm", "int", "messages", 10_000, (1, INT_MAX), "no limit", SOCKET,
       "received messages queued per peer before the socket stops reading from it. Messages of "
       "peers that have disconnected stay readable"),
    _o("send_hwm_bytes", "size", "B", 16 << 20, (1, 1 << 50), "no limit", SOCKET,
       "the same limit in bytes; a single message always fits"),
    _o("recv_hwm_bytes", "size", "B", 16 << 20, (1, 1 << 50), "no limit", SOCKET,
       "the same limit in bytes; a single message always fits"),
    _o("on_full", "choice", "", "pattern",
       ("pattern", "block", "drop_new", "disconnect"), None, SOCKET,
       "what happens when a peer's queue is full; 'pattern' is the pattern's own rule"),
    _o("conflate", "bool", "", False, (), None, SOCKET,
       "keep only the newest message per peer (single-part)"),
    _o("immediate", "bool", "", False, (), None, SOCKET,
       "never queue for an endpoint that is not connected"),
    _o("max_message_size", "size", "B", 1 << 30, (0, 1 << 50), "no limit", LINK,
       "a larger message from a peer ends its connection"),
    _o("max_unfinished", "size", "B", 1 << 30, (0, 1 << 50), "no limit", SOCKET,
       "total size of incomplete messages from all peers. A peer that exceeds it is disconnected. "
       "The first 64 KiB of a message do not count, and a single message always fits"),
    _o("max_departed", "int", "peers", 8192, (1, INT_MAX), "no limit", SOCKET,
       "disconnected peers whose messages are still unread. At this number, or when these messages "
       "take `recv_hwm_bytes`, the socket accepts no connection until some have been received"),
    # -- connections -------------------------------------------------------------------------------
    _o("connect_timeout", "seconds", "s", 10.0, (0.001, FAR), "the system's own", LINK,
       "time limit of one attempt to connect to one address"),
    _o("handshake_timeout", "seconds", "s", 10.0, (0.001, FAR), "for ever", LINK,
       "time limit from the connection to the end of the handshake"),
    _o("reconnect", "seconds", "s", 0.1, (0.001, FAR), "never", LINK,
       "pause before the first reconnect; doubles each time, less a random part of up to half"),
    _o("reconnect_max", "seconds", "s", 10.0, (0.001, FAR), None, LINK,
       "longest pause between attempts"),
    _o("reconnect_stop", "choices", "", (), ("refused", "handshake"), None, LINK,
       "errors after which the socket stops trying: connection refused, handshake failed"),
    _o("heartbeat", "seconds", "s", 15.0, (0.001, FAR), "off", LINK,
       "interval of pings to the peer"),
    _o("heartbeat_timeout", "seconds", "s", 30.0, (0.001, FAR), "for ever", LINK,
       "disconnect a peer from which nothing arrives for this long after a ping; time in which a "
       "full queue keeps the socket from reading does not count"),
    _o("heartbeat_ttl", "seconds", "s", 0.0, (0, 6553.5), None, LINK,
       "asks the peer to disconnect us after this much silence; 0 does not ask"),
    _o("backlog", "int", "connections", 1024, (1, INT_MAX), None, LINK,
       "connections that may wait to be accepted"),
    _o("max_handshakes", "int", "connections", 1024, (1, INT_MAX), "no limit", LINK,
       "connections per listener that may be in their handshake. One more disconnects the oldest "
       "of them"),
    _o("prio", "int", "", 8, (1, 16), None, LINK,
       "messages go to the best level that has a peer with space; 1 is best"),
    _o("wire", "choice", "", None, ("zmtp", "sp"), "the pattern's natural one", LINK,
       "which protocol a connecting socket speaks"),
    _o("upgrade", "bool", "", False, (), None, LINK,
       "tcp and ipc: use shared memory with a peer of the same user on this machine that has this "
       "option, too"),
    _o("send_buffer", "size", "B", None, (1, INT_MAX), "the system's own", LINK,
       "the kernel's send buffer"),
    _o("recv_buffer", "size", "B", None, (1, INT_MAX), "the system's own", LINK,
       "the kernel's receive buffer"),
    _o("keepalive", "bool", "", True, (), None, LINK,
       "TCP keep-alive: the kernel probes an idle peer and ends the connection if it is dead"),
    _o("keepalive_idle", "int", "s", 60, (1, 32767), "the system's own", LINK,
       "TCP keep-alive: idle time before the first probe"),
    _o("keepalive_interval", "int", "s", 10, (1, 32767), "the system's own", LINK,
       "TCP keep-alive: time between probes"),
    _o("keepalive_count", "int", "probes", 6, (1, 127), "the system's own", LINK,
       "TCP keep-alive: unanswered probes before the connection ends"),
    _o("idle_after", "seconds", "s", 60.0, (0.001, FAR), "never", LINK,
       "sockets that receive: time without a message from a peer after which events() reports "
       "Idle, once per pause"),
    _o("bind_device", "text", "", None, (), "any", LINK,
       "tcp and udp: the network device that all packets must use (SO_BINDTODEVICE)"),
    _o("tos", "int", "", 0, (0, 255), None, LINK,
       "IP type-of-service byte of outgoing packets"),
    _o("congestion_control", "text", "", None, (),
       "the system's own, but 'reno' instead of BBR within one machine", LINK,
       "TCP's congestion control, by the kernel's name (TCP_CONGESTION)"),
    # -- identity ----------------------------------------------------------------------------------
    _o("routing_id", "bytes", "", b"", (0, 255), None, SOCKET,
       "the name under which peers know this socket (ROUTER's messages, `Peer.routing_id`); not "
       "sent over SP; must not start with a zero byte"),
    _o("peer_id", "bytes", "", b"", (0, 255), None, ONE_LINK,
       "use this routing id for the peer at this address, whatever it announces",
       ("router", "stream")),
    _o("metadata", "metadata", "", MappingProxyType({}), (), None, SOCKET,
       "names and values that peers see in Peer.metadata"),
    _o("security", "security", "", None, (), "NULL: any peer may come, and everything is readable",
       ("socket", "endpoint"),
       "ZMTP over streams: authentication and encryption by Null(), Plain() or Curve()"),
    _o("max_hops", "int", "devices", 8, (1, 255), None, SOCKET,
       "a message that has passed more devices is dropped, which ends routing loops"),
    # -- who gets a message ------------------------------------------------------------------------
    _o("strategy", "text", "", "priority", (), None, SOCKET,
       "how to choose the peer for a message: 'priority', 'round_robin', 'least_loaded', "
       "'two_choices', an installed strategy, or 'module:Name'",
       ("push", "req", "dealer", "client", "scatter")),
    # -- request and reply -------------------------------------------------------------------------
    _o("correlate", "bool", "", None, (), "automatic: SP yes, ZMTP no", SOCKET,
       "number requests, so that a late reply is recognized without a new connection", ("req",)),
    _o("strict", "bool", "", False, (), None, SOCKET,
       "refuse a second send before the reply instead of abandoning the first", ("req",)),
)
# fmt: on

CORE: Mapping[str, Option] = MappingProxyType({row.name: row for row in TABLE})


# -- rows of plug-ins ------------------------------------------------------------------------------

PLUGIN_TYPES: dict[str, tuple[Any, ...] | None] = {  # types of a plug-in's row: the default range
    "bool": (),
    "int": (-(1 << 63), (1 << 63) - 1),
    "size": (0, 1 << 50),
    "seconds": (0, FAR),
    "bytes": (0, 1 << 30),
    "text": (),
    "secret": (),  # text that is never shown
    "choice": None,  # the row must list the allowed words
    "object": None,  # the row must list the allowed classes
}
NOT_IN_URLS = ("secret", "object")  # a URL is text, and it is shown and logged


def rows_of(rows: Iterable[tuple[Any, ...]], pattern: str = "") -> tuple[Option, ...]:
    """Convert a plug-in's rows, (name, type, default, doc) or (name, type, default, doc, range), to
    rows of TABLE.

    A default of None allows None. Options of a pattern belong to the socket. Options of a transport
    (no pattern named) can also be set per endpoint and in a URL, except secrets and objects, which
    cannot stand in a URL. Raises OptionError for an unknown type or a missing range.
    """
    made = []
    for name, type_, default, doc, *span in rows:
        if type_ not in PLUGIN_TYPES:
            raise OptionError(f"option {name!r} has the unknown type {type_!r}",
                              hint=f"use one of {', '.join(PLUGIN_TYPES)}")
        range_ = span[0] if span else PLUGIN_TYPES[type_]
        if range_ is None:
            raise OptionError(f"option {name!r} of type {type_!r} has no range",
                              hint="add it as the fifth item: the allowed words or classes")
        scope: tuple[str, ...] = SOCKET if pattern else LINK
        if type_ in NOT_IN_URLS:
            scope = tuple(word for word in scope if word != "url")
        made.append(Option(name, type_, "", default, range_,
                           "not set" if default is None else None, scope,
                           (pattern,) if pattern else (), doc))
    return tuple(made)


def table(extra: Iterable[Option] = ()) -> dict[str, Option]:
    """The core's rows and `extra`, by name. If both have a name, the core's row wins."""
    return {**{row.name: row for row in extra}, **CORE}


UNIT_WORDS = {"s": "seconds", "B": "bytes"}
SHORT = reprlib.Repr()  # shows values in errors and truncates long ones
SHORT.maxstring = SHORT.maxother = 80


# -- checking --------------------------------------------------------------------------------------


def _wrong(row: Option, value: Any, want: str) -> OptionError:
    hint = f"None means {row.none}" if row.none else ""
    return OptionError(f"option {row.name!r} must be {want}, not {SHORT.repr(value)}", hint=hint)


def _number(row: Option, kind: str) -> str:
    """The allowed values as text: "a whole number of messages from 1 to 2147483647"."""
    least, most = row.range
    unit = f" of {UNIT_WORDS.get(row.unit, row.unit)}" if row.unit and row.type != "seconds" else ""
    return f"{kind}{unit} from {_plain(least)} to {_plain(most)}"


def _plain(bound: float) -> str:
    """The number as text, without an exponent."""
    return str(int(bound)) if bound == int(bound) else f"{bound:g}"


def _range(row: Option, value: T, kind: str) -> T:
    least, most = row.range
    if not least <= value <= most:
        raise _wrong(row, value, _number(row, kind))
    return value


def _seconds(row: Option, value: Any) -> float:
    kind = "a number of seconds"
    if isinstance(value, (str, bytes, bool)):
        raise _wrong(row, value, _number(row, kind))
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise _wrong(row, value, _number(row, kind)) from None
    if not math.isfinite(number):
        raise _wrong(row, value, _number(row, "a finite number of seconds"))
    return _range(row, number, kind)


def _int(row: Option, value: Any) -> int:
    kind = "a whole number"
    if isinstance(value, bool):
        raise _wrong(row, value, _number(row, kind))
    try:
        number = operator.index(value)
    except TypeError:
        raise _wrong(row, value, _number(row, kind)) from None
    return _range(row, number, kind)


def _bool(row: Option, value: Any) -> bool:
    if value is True or value is False:
        return value
    if type(value).__name__ in ("bool", "bool_"):  # NumPy's booleans
        return bool(value)
    raise _wrong(row, value, "True or False")


def _bytes(row: Option, value: Any) -> bytes:
    if isinstance(value, str):
        raise _wrong(row, value, "bytes: encode the text first (.encode())")
    try:
        data = bytes(memoryview(value))
    except TypeError:
        raise _wrong(row, value, "bytes") from None
    least, most = row.range
    if not least <= len(data) <= most:
        raise _wrong(row, value, f"{least} to {most} bytes long")
    if row.name == "routing_id" and data[:1] == b"\0":
        raise _wrong(row, value, "bytes whose first byte is not zero (automatic ids begin so)")
    return data


def _text(row: Option, value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong(row, value, "text")
    return value


def _secret(row: Option, value: Any) -> str:
    if not isinstance(value, str):
        raise OptionError(f"option {row.name!r} must be text, not {type(value).__name__}")
    return value


def _object(row: Option, value: Any) -> Any:
    if not isinstance(value, row.range):
        raise _wrong(row, value, f"of class {_classes(row)}")
    return value


def _classes(row: Option) -> str:
    return " or ".join(f"{kind.__module__}.{kind.__qualname__}" for kind in row.range)


def _security(row: Option, value: Any) -> Security:
    if not isinstance(value, Security):
        raise _wrong(row, type(value).__name__, "Null(), Plain() or Curve()")
    return value


def _choice(row: Option, value: Any) -> str:
    if isinstance(value, str) and value in row.range:
        return value
    raise _wrong(row, value, "one of " + ", ".join(map(repr, row.range)))


def _choices(row: Option, value: Any) -> tuple[str, ...]:
    try:
        words = (value,) if isinstance(value, str) else tuple(value)
    except TypeError:
        raise _wrong(row, value, "some of " + ", ".join(map(repr, row.range))) from None
    for word in words:
        if word not in row.range:
            raise _wrong(row, value, "some of " + ", ".join(map(repr, row.range)))
    return tuple(word for word in row.range if word in words)


def _metadata(row: Option, value: Any) -> Mapping[str, bytes]:
    """Names as ZMTP allows them (1 to 255 letters, digits, "-", "_", ".", "+"), values as bytes."""
    if not isinstance(value, Mapping):
        raise _wrong(row, value, "a mapping of names to bytes")
    clean = {}
    for name, data in value.items():
        if not (isinstance(name, str) and 1 <= len(name) <= 255 and name.isascii()
                and all(c.isalnum() or c in "-_.+" for c in name)):
            raise _wrong(row, name, "given names of 1 to 255 letters, digits, '-', '_', '.', '+'")
        if name.lower() in ("socket-type", "identity"):
            raise _wrong(row, name, "without Socket-Type and Identity, which mqcore sets itself")
        try:
            clean[name] = data.encode() if isinstance(data, str) else bytes(memoryview(data))
        except TypeError:
            raise _wrong(row, data, f"given bytes or text as the value of {name!r}") from None
    return MappingProxyType(clean)


CHECKS: dict[str, Callable[[Option, Any], Any]] = {
    "seconds": _seconds,
    "int": _int,
    "size": _int,
    "bool": _bool,
    "bytes": _bytes,
    "text": _text,
    "secret": _secret,
    "object": _object,
    "choice": _choice,
    "choices": _choices,
    "metadata": _metadata,
    "security": _security,
}


def lookup(name: str, extra: Iterable[Option] = (), scope: str = "socket",
           pattern: str = "") -> Option:
    """The row of this name if it can be set at this scope. OptionError says where the option
    belongs, or which known name is closest."""
    rows = table(extra)
    if name not in rows:
        raise unknown.unknown(name, rows, scope, pattern)
    if scope not in rows[name].scope:
        raise unknown.misplaced(rows[name], scope)
    return rows[name]


def validate(name: str, value: Any, *, extra: Iterable[Option] = (), scope: str = "socket",
             pattern: str = "") -> Any:
    """Return the value in its normal form, or raise OptionError. `scope`: socket, endpoint, url."""
    row = lookup(name, extra, scope, pattern)
    if pattern and row.patterns and pattern not in row.patterns:
        raise unknown.foreign(row, pattern)
    if value is None:
        if row.none is None:
            raise _wrong(row, value, f"set (default {row.default!r})")
        return None
    return CHECKS[row.type](row, value)


def validate_all(values: Mapping[str, Any], *, extra: Iterable[Option] = (),
                 scope: str = "socket", pattern: str = "") -> dict[str, Any]:
    extra = tuple(extra)
    return {name: validate(name, value, extra=extra, scope=scope, pattern=pattern)
            for name, value in values.items()}


def defaults(extra: Iterable[Option] = (), pattern: str = "") -> dict[str, Any]:
    """Every option of this pattern, or of all patterns if none is named, with its default."""
    return {row.name: row.default for row in table(extra).values()
            if not (pattern and row.patterns) or pattern in row.patterns}


# -- text: the query of a URL ----------------------------------------------------------------------

BOOLS = {"1": True, "true": True, "yes": True, "on": True,
         "0": False, "false": False, "no": False, "off": False}
UNITS = {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "kb": 10**3, "mb": 10**6, "gb": 10**9}


def _size_of(text: str) -> int:
    word = text.lower()
    for unit, factor in UNITS.items():
        if word.endswith(unit):
            return int(word[: -len(unit)]) * factor
    return int(word)


READERS: dict[str, Callable[[str], Any]] = {
    "seconds": float,
    "int": int,
    "size": _size_of,
    "bool": lambda text: BOOLS[text.lower()],
    "bytes": lambda text: text.encode("utf-8", "surrogateescape"),
    "text": str,
    "choice": str,
    "choices": lambda text: tuple(word for word in text.split(",") if word),
}


def from_text(name: str, text: str, *, extra: Iterable[Option] = (), scope: str = "url") -> Any:
    """The value that `text` stands for. "none" means None where the option allows it."""
    row = lookup(name, extra, scope)
    if row.none and text.lower() == "none":
        return validate(name, None, extra=extra, scope=scope)
    try:
        value = READERS[row.type](text) if row.type in READERS else text
    except (ValueError, KeyError):
        raise _wrong(row, text, f"written as {_type_word(row)}") from None
    return validate(name, value, extra=extra, scope=scope)


def parse_query(pairs: Iterable[tuple[str, str]], *, extra: Iterable[Option] = ()
                ) -> dict[str, Any]:
    """The options of a URL's query, from its decoded (name, value) pairs."""
    extra = tuple(extra)
    return {name: from_text(name, text, extra=extra) for name, text in pairs}


def for_link(socket_values: Mapping[str, Any], query: Iterable[tuple[str, str]],
             keywords: Mapping[str, Any], *, extra: Iterable[Option] = (),
             pattern: str = "") -> dict[str, Any]:
    """The values for one endpoint. Its keywords override its URL's query, which overrides the
    socket's checked values, which override the defaults. `extra`: the rows of its transport."""
    extra = tuple(extra)
    return {**defaults(extra), **socket_values, **parse_query(query, extra=extra),
            **validate_all(keywords, extra=extra, scope="endpoint", pattern=pattern)}


# -- as words --------------------------------------------------------------------------------------


TYPE_WORDS = {"int": "whole number", "size": "bytes", "bytes": "binary", "secret": "text"}


def _type_word(row: Option) -> str:
    if row.type in ("choice", "choices"):
        word = " or ".join(row.range) if row.type == "choice" else "some of " + ", ".join(row.range)
    elif row.type == "object":
        word = _classes(row)
    else:
        word = TYPE_WORDS.get(row.type, row.type)
    return word + (" or none" if row.none else "")


def describe(row: Option) -> str:
    """The row as a sentence, for help() and for the stubs."""
    unit = f" in {row.unit}" if row.unit and row.type != "seconds" else ""
    none = f"; None: {row.none}" if row.none and "None: " not in row.doc else ""
    return f"{row.name}: {row.type}{unit}, default {row.default!r}: {row.doc}{none}."
