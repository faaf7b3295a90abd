"""All options in one table; everything that knows an option by name is derived from it.

`TABLE` is literal: name, type, unit, default, range, scope, patterns, meaning. From it come the
defaults, the checks of keyword arguments and attributes, the parser of a URL's query, the table in
the README and the TypedDicts of the stubs. Patterns and transports bring rows of their own
(`rows_of`); the registry merges them and refuses a name that is claimed twice.

Seconds are floats, sizes are bytes, `None` is "no limit", "for ever" or "off", as the row says.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from mqcore import _unknown as unknown
from mqcore.errors import OptionError
from mqcore.security import Security

SOCKET = ("socket",)
LINK = ("socket", "endpoint", "url")  # the starred ones: also per endpoint and in the URL query
ONE_LINK = ("endpoint", "url")  # what would mean nothing for all of a socket's
INT_MAX = 2**31 - 1
FAR = 1e9  # seconds; what fits nanoseconds in 64 bits with room to spare


class Option(NamedTuple):
    """One row. `range` is (least, most) for numbers, the allowed words for choice and choices."""

    name: str
    type: str  # a key of CHECKS
    unit: str
    default: Any
    range: tuple[Any, ...]
    none: str | None  # what None means; without it None is refused
    scope: tuple[str, ...]
    patterns: tuple[str, ...]  # empty: all
    doc: str


def _o(name, type, unit, default, range, none, scope, doc, patterns=()):
    return Option(name, type, unit, default, range, none, scope, patterns, doc)


# fmt: off
TABLE: tuple[Option, ...] = (
    # -- time and queues ---------------------------------------------------------------------------
    _o("send_timeout", "seconds", "s", None, (0, FAR), "for ever", SOCKET,
       "how long a send waits for room or for a peer"),
    _o("recv_timeout", "seconds", "s", None, (0, FAR), "for ever", SOCKET,
       "how long a receive waits for a message"),
    _o("linger", "seconds", "s", 1.0, (0, FAR), "for ever", SOCKET,
       "how long close() goes on delivering what was sent; 0 throws it away"),
    _o("send_hwm", "int", "messages", 10_000, (1, INT_MAX), "no limit", SOCKET,
       "messages queued per peer before the pattern blocks or drops"),
    _o("recv_hwm", "int", "messages", 10_000, (1, INT_MAX), "no limit", SOCKET,
       "received messages queued per peer before we stop reading from it"),
    _o("send_hwm_bytes", "size", "B", 16 << 20, (1, 1 << 50), "no limit", SOCKET,
       "the same mark in bytes; one message always fits"),
    _o("recv_hwm_bytes", "size", "B", 16 << 20, (1, 1 << 50), "no limit", SOCKET,
       "the same mark in bytes; one message always fits"),
    _o("on_full", "choice", "", "pattern",
       ("pattern", "block", "drop_new", "disconnect"), None, SOCKET,
       "what happens at a full peer; 'pattern' is the pattern's own rule"),
    _o("conflate", "bool", "", False, (), None, SOCKET,
       "keep only the newest message per peer (single-part)"),
    _o("immediate", "bool", "", False, (), None, SOCKET,
       "never queue for an endpoint that is not connected"),
    _o("max_message_size", "size", "B", 1 << 30, (0, 1 << 50), "no limit", LINK,
       "a larger message from a peer ends its connection"),
    # -- connections -------------------------------------------------------------------------------
    _o("connect_timeout", "seconds", "s", 10.0, (0.001, FAR), "the system's own", LINK,
       "how long one attempt to one address may take"),
    _o("handshake_timeout", "seconds", "s", 10.0, (0.001, FAR), "for ever", LINK,
       "how long a peer may take from the connection to the end of the handshake"),
    _o("reconnect", "seconds", "s", 0.1, (0.001, FAR), "never", LINK,
       "pause before the first new attempt; doubles, less a random half"),
    _o("reconnect_max", "seconds", "s", 10.0, (0.001, FAR), None, LINK,
       "longest pause between attempts"),
    _o("reconnect_stop", "choices", "", (), ("refused", "handshake"), None, LINK,
       "what ends the attempts for good: nobody listens, the handshake fails"),
    _o("heartbeat", "seconds", "s", 15.0, (0.001, FAR), "off", LINK,
       "a silent peer is asked for a sign of life this often"),
    _o("heartbeat_timeout", "seconds", "s", 30.0, (0.001, FAR), "for ever", LINK,
       "a peer silent for so long after the question is given up"),
    _o("heartbeat_ttl", "seconds", "s", 0.0, (0, 6553.5), None, LINK,
       "tells the peer to give us up after so much silence; 0 tells it nothing"),
    _o("backlog", "int", "connections", 1024, (1, INT_MAX), None, LINK,
       "connections that may wait to be accepted"),
    _o("max_handshakes", "int", "connections", 1024, (1, INT_MAX), "no limit", LINK,
       "connections per listener that may be in the middle of their handshake; a further one "
       "takes the place of the oldest"),
    _o("prio", "int", "", 8, (1, 16), None, LINK,
       "peers of the best level that can take a message get it; 1 is best"),
    _o("wire", "choice", "", None, ("zmtp", "sp"), "the pattern's natural one", LINK,
       "which protocol a connecting socket speaks"),
    _o("send_buffer", "size", "B", None, (1, INT_MAX), "the system's own", LINK,
       "the kernel's send buffer"),
    _o("recv_buffer", "size", "B", None, (1, INT_MAX), "the system's own", LINK,
       "the kernel's receive buffer"),
    _o("keepalive", "bool", "", True, (), None, LINK,
       "TCP keep-alive: the kernel probes a silent peer and ends the connection if it is dead"),
    _o("keepalive_idle", "int", "s", 60, (1, 32767), "the system's own", LINK,
       "TCP keep-alive: silence before the first probe"),
    _o("keepalive_interval", "int", "s", 10, (1, 32767), "the system's own", LINK,
       "TCP keep-alive: pause between probes"),
    _o("keepalive_count", "int", "probes", 6, (1, 127), "the system's own", LINK,
       "TCP keep-alive: unanswered probes before the connection ends"),
    _o("idle_after", "seconds", "s", 60.0, (0.001, FAR), "never", LINK,
       "silence of a peer after which events() reports Idle, once per silence; for sockets that "
       "receive"),
    _o("bind_device", "text", "", None, (), "any", LINK,
       "tcp and udp: the network device that all packets must use (SO_BINDTODEVICE)"),
    _o("tos", "int", "", 0, (0, 255), None, LINK,
       "IP type-of-service byte of outgoing packets"),
    # -- identity ----------------------------------------------------------------------------------
    _o("routing_id", "bytes", "", b"", (0, 255), None, SOCKET,
       "the name under which peers know this socket (ROUTER's messages, `Peer.routing_id`), not "
       "over SP; may not start with a zero byte"),
    _o("peer_id", "bytes", "", b"", (0, 255), None, ONE_LINK,
       "the routing id that the peer at this address goes by, whatever it announces",
       ("router", "stream")),
    _o("metadata", "metadata", "", MappingProxyType({}), (), None, SOCKET,
       "names and values that peers see in Peer.metadata"),
    _o("security", "security", "", None, (), "NULL: any peer may come, and everything is readable",
       ("socket", "endpoint"),
       "who may come in and what is sealed: Null(), Plain() or Curve(); ZMTP over streams"),
    _o("max_hops", "int", "devices", 8, (1, 255), None, SOCKET,
       "a message that passed more devices is dropped, so that a loop of them ends"),
    # -- who gets a message ------------------------------------------------------------------------
    _o("strategy", "text", "", "priority", (), None, SOCKET,
       "which peer gets a message: 'priority', 'round_robin', 'least_loaded', 'two_choices', one "
       "that is installed, or 'module:Name'", ("push", "req", "dealer", "client", "scatter")),
    # -- request and reply -------------------------------------------------------------------------
    _o("correlate", "bool", "", None, (), "automatic: SP yes, ZMTP no", SOCKET,
       "number requests, so that a late answer is known without a new connection", ("req",)),
    _o("strict", "bool", "", False, (), None, SOCKET,
       "refuse a second send before the answer instead of abandoning the first", ("req",)),
)
# fmt: on

CORE: Mapping[str, Option] = MappingProxyType({row.name: row for row in TABLE})


# -- rows of plug-ins ------------------------------------------------------------------------------

PLUGIN_TYPES: dict[str, tuple[Any, ...] | None] = {  # of a plug-in's row: its range, unless given
    "bool": (),
    "int": (-(1 << 63), (1 << 63) - 1),
    "size": (0, 1 << 50),
    "seconds": (0, FAR),
    "bytes": (0, 1 << 30),
    "text": (),
    "secret": (),  # text that is never shown
    "choice": None,  # the allowed words
    "object": None,  # the classes that it may be of
}
NOT_IN_URLS = ("secret", "object")  # URLs are shown and logged, and are text


def rows_of(rows: Iterable[tuple[Any, ...]], pattern: str = "") -> tuple[Option, ...]:
    """A plug-in's own rows, (name, type, default, doc) or with the range behind, in the form of
    TABLE.

    A default of None makes None allowed. A pattern's options belong to the socket, a transport's
    (no pattern named) also to an endpoint and a URL; secrets and objects cannot stand in a URL.
    """
    made = []
    for name, type_, default, doc, *span in rows:
        if type_ not in PLUGIN_TYPES:
            raise OptionError(f"option {name!r} has the unknown type {type_!r}",
                              hint=f"use one of {', '.join(PLUGIN_TYPES)}")
        range_ = span[0] if span else PLUGIN_TYPES[type_]
        if range_ is None:
            raise OptionError(f"option {name!r} of type {type_!r} lacks its range",
                              hint="give it as the fifth item: words, or classes")
        scope = SOCKET if pattern else LINK
        if type_ in NOT_IN_URLS:
            scope = tuple(word for word in scope if word != "url")
        made.append(Option(name, type_, "", default, range_,
                           "not set" if default is None else None, scope,
                           (pattern,) if pattern else (), doc))
    return tuple(made)


def table(extra: Iterable[Option] = ()) -> dict[str, Option]:
    """The core's rows and these, by name; on a doubled name the core's row stays."""
    return {**{row.name: row for row in extra}, **CORE}


# -- checking --------------------------------------------------------------------------------------


def _wrong(row: Option, value: Any, want: str) -> OptionError:
    hint = f"None means {row.none}" if row.none else ""
    return OptionError(f"option {row.name!r} must be {want}, not {value!r}", hint=hint)


def _range(row: Option, value: Any, kind: str) -> Any:
    least, most = row.range
    if not least <= value <= most:
        unit = f" {row.unit}" if row.unit else ""
        raise _wrong(row, value, f"{kind} from {least:g} to {most:g}{unit}")
    return value


def _seconds(row: Option, value: Any) -> float:
    if isinstance(value, (str, bytes, bool)):
        raise _wrong(row, value, "a number of seconds")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise _wrong(row, value, "a number of seconds") from None
    if not math.isfinite(number):
        raise _wrong(row, value, "a finite number of seconds")
    return _range(row, number, "a number of seconds")


def _int(row: Option, value: Any) -> int:
    if isinstance(value, bool):
        raise _wrong(row, value, "a whole number")
    try:
        number = operator.index(value)
    except TypeError:
        raise _wrong(row, value, "a whole number") from None
    return _range(row, number, "a whole number")


def _bool(row: Option, value: Any) -> bool:
    if value is True or value is False:
        return value
    if type(value).__name__ in ("bool", "bool_"):  # NumPy's
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
        raise _wrong(row, value, "something that starts with no zero byte (those are automatic)")
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
    """Names as ZMTP has them (1 to 255 of letters, digits, "-", "_", ".", "+"), values as bytes."""
    if not isinstance(value, Mapping):
        raise _wrong(row, value, "a mapping of names to bytes")
    clean = {}
    for name, data in value.items():
        if not (isinstance(name, str) and 1 <= len(name) <= 255 and name.isascii()
                and all(c.isalnum() or c in "-_.+" for c in name)):
            raise _wrong(row, name, "given names of 1 to 255 letters, digits, '-', '_', '.', '+'")
        if name.lower() in ("socket-type", "identity"):
            raise _wrong(row, name, "without the names Socket-Type and Identity, which are set")
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
    """The row of this name, which can be set at this scope; OptionError says where it belongs, or
    which known one is the nearest."""
    rows = table(extra)
    if name not in rows:
        raise unknown.unknown(name, rows, scope, pattern)
    if scope not in rows[name].scope:
        raise unknown.misplaced(rows[name], scope)
    return rows[name]


def validate(name: str, value: Any, *, extra: Iterable[Option] = (), scope: str = "socket",
             pattern: str = "") -> Any:
    """The value in its clean form, or OptionError. `scope`: socket, endpoint or url."""
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
    """Every option of this pattern (all, if none is named) with its default."""
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
    """The value that `text` stands for; "none" is None where the option has it."""
    row = lookup(name, extra, scope)
    if row.none and text.lower() == "none":
        return validate(name, None, extra=extra, scope=scope)
    try:
        value = READERS[row.type](text) if row.type in READERS else text
    except (ValueError, KeyError):
        raise _wrong(row, text, f"written as {_type_word(row)}") from None
    return validate(name, value, extra=extra, scope=scope)


def parse_query(pairs: Iterable[tuple[str, str]], *, extra: Iterable[Option] = ()) -> dict:
    """The options in a URL, from its decoded (name, value) pairs."""
    extra = tuple(extra)
    return {name: from_text(name, text, extra=extra) for name, text in pairs}


def for_link(socket_values: Mapping[str, Any], query: Iterable[tuple[str, str]],
             keywords: Mapping[str, Any], *, extra: Iterable[Option] = (),
             pattern: str = "") -> dict[str, Any]:
    """What holds for one endpoint: its keywords over its URL's query over the socket's clean
    values over the defaults. `extra`: the rows of its transport."""
    extra = tuple(extra)
    return {**defaults(extra), **socket_values, **parse_query(query, extra=extra),
            **validate_all(keywords, extra=extra, scope="endpoint", pattern=pattern)}


# -- what is rendered from the table ---------------------------------------------------------------


TYPE_WORDS = {"int": "whole number", "size": "bytes", "bytes": "binary", "secret": "text"}


def _type_word(row: Option) -> str:
    if row.type in ("choice", "choices"):
        word = " or ".join(row.range) if row.type == "choice" else "some of " + ", ".join(row.range)
    elif row.type == "object":
        word = _classes(row)
    else:
        word = TYPE_WORDS.get(row.type, row.type)
    return word + (" or none" if row.none else "")


def _default_word(row: Option) -> str:
    if row.type == "size" and row.default and row.default % (1 << 20) == 0:
        mib = row.default >> 20
        return f"{mib >> 10} GiB" if mib % 1024 == 0 else f"{mib} MiB"
    if row.type == "metadata":
        return "{}"
    return repr(row.default)


def render_table(extra: Iterable[Option] = ()) -> str:
    """The table as Markdown, for the README. A star: also per endpoint and, unless its meaning
    says otherwise, in the URL."""
    lines = ["| option | type | default | range | patterns | meaning |",
             "|---|---|---|---|---|---|"]
    for row in table(extra).values():
        numeric = row.type in ("seconds", "int", "size") and abs(row.range[1]) < 1 << 62
        span = ""
        if numeric:  # a bound that nobody will meet says nothing
            low, high = row.range
            span = f"from {low:g}" if high >= 1e9 else f"{low:g} to {high:g}"
        doc = row.doc
        if row.none and "None: " not in doc:
            doc += f"; None: {row.none}"
        star = "*" if "endpoint" in row.scope else ""
        unit = f" ({row.unit})" if row.unit and row.type == "int" else ""
        lines.append(f"| `{row.name}`{star} | {_type_word(row)}{unit} | `{_default_word(row)}` "
                     f"| {span} | {', '.join(row.patterns) or 'all'} | {doc} |")
    return "\n".join(lines) + "\n"


HINTS = {"seconds": "float", "int": "int", "size": "int", "bool": "bool", "bytes": "bytes",
         "text": "str", "secret": "str", "object": "object",
         "metadata": "Mapping[str, bytes | str]", "security": "Security"}


def _annotation(row: Option) -> str:
    words = ", ".join(f'"{word}"' for word in row.range)
    if row.type == "choice":
        hint = f"Literal[{words}]"
    elif row.type == "choices":
        hint = f"Collection[Literal[{words}]]"
    else:
        hint = HINTS[row.type]
    return hint + (" | None" if row.none else "")


def render_stub(extra: Iterable[Option] = ()) -> str:
    """The TypedDicts for the stubs: keyword arguments of sockets and of bind() and connect()."""
    rows = table(extra).values()
    text = ""
    for cls, scope in (("Options", "socket"), ("EndpointOptions", "endpoint")):
        text += f"class {cls}(TypedDict, total=False):\n"
        text += "".join(f"    {r.name}: {_annotation(r)}\n" for r in rows if scope in r.scope)
        text += "\n"
    return text
