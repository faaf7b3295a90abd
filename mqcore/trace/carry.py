"""How a trace travels: as two headers, or as one text where a message has no headers.

What a peer sends is never an error for the message: malformed headers are ignored and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mqcore.errors import UsageError
from mqcore.trace.flow import current
from mqcore.trace.recent import RING
from mqcore.trace.traceparent import LONGEST, TraceContext, TraceMalformed, parse_state

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
_NAMES = (TRACEPARENT, TRACESTATE)
LONGEST_TRACE = 700     # bytes of both headers, with their names


def headers(context: TraceContext | None = None) -> dict[str, bytes]:
    """The headers `traceparent` and `tracestate` of a context. Without one, those of the current
    trace; {} if there is none."""
    context = current() if context is None else context
    if context is None:
        return {}
    found = {TRACEPARENT: context.traceparent.encode()}
    if context.state:
        found[TRACESTATE] = context.state.encode()
    return found


def extract(given: Mapping[str, Any] | Iterable[tuple[str, Any]] | None) -> TraceContext | None:
    """The context in a message's headers, or None. The values are bytes or texts; names match in
    upper and lower case. Malformed headers are ignored and counted in `stats()`: a malformed
    traceparent, or two of them, give None; a malformed tracestate is left out."""
    if not given:
        return None
    rows = given.items() if isinstance(given, Mapping) else given
    values: dict[str, list[str]] = {}
    for name, value in rows:
        if len(name) in (10, 11) and (name := name.lower()) in _NAMES:
            values.setdefault(name, []).append(_text(value))
    parents = values.get(TRACEPARENT)
    if parents is None:
        return None
    return _read(parents[0] if len(parents) == 1 else "", ",".join(values.get(TRACESTATE, ())))


def _text(value: Any) -> str:
    """Bytes that are not ASCII are in no valid header; U+FFFD keeps them invalid."""
    if isinstance(value, str):
        return value
    return bytes(value[:LONGEST + 1]).decode("ascii", "replace") \
        if isinstance(value, bytes | bytearray | memoryview) else ""


def _read(parent: str, state: str) -> TraceContext | None:
    try:
        context = TraceContext.parse(parent)
    except TraceMalformed:
        RING.count("malformed")
        return None
    if state:
        try:
            return TraceContext(context.trace_id, context.span_id, context.sampled,
                                parse_state(state))
        except TraceMalformed:
            RING.count("malformed")
    return context


def to_text(context: TraceContext | None) -> str:
    """One text for both headers: the traceparent, and after a space the tracestate. "" for None."""
    if context is None:
        return ""
    return f"{context.traceparent} {context.state}" if context.state else context.traceparent


def from_text(text: str) -> TraceContext | None:
    """The context in a text of to_text(). None for "", and for anything malformed, which is
    counted."""
    if not isinstance(text, str):
        raise UsageError(f"a trace is read from a text, not from {type(text).__name__}",
                         hint="decode it first")
    if not text:
        return None
    parent, _, state = text.partition(" ")
    return _read(parent, state)


def merged(own: dict[str, bytes], most: int) -> dict[str, bytes]:
    """Headers with those of the current trace, unless they name a trace already. Where that makes
    more than `most`, the message goes without its trace, and `left_out` counts it."""
    if current() is None or any(name.lower() in _NAMES for name in own):
        return own
    both = {**own, **headers()}
    if len(both) > most:
        RING.count("left_out")
        return own
    return both


def without(rows: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """Headers without those of a trace. A caller that goes on with them counts `left_out`."""
    return [row for row in rows if row[0].lower() not in _NAMES]


def joined(given: Any) -> Any:
    """merged() for headers as pairs or a mapping, as journals and queues take them."""
    if current() is None:
        return given
    try:
        rows = list(given.items() if isinstance(given, Mapping) else given or ())
    except TypeError:
        return given            # the callee says what is wrong with it
    named = any(isinstance(row, tuple) and row and str(row[0]).lower() in _NAMES for row in rows)
    return rows if named else [*rows, *headers().items()]
