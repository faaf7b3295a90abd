"""The current trace, which follows the flow of the program in a context variable, and its spans.

A span is recorded when it ends, and only if its trace is sampled. Nothing here waits or fails for
the sake of a trace.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from contextvars import ContextVar, Token
from types import EllipsisType
from typing import Any, Self

from mqcore.base.described import report
from mqcore.base.rarely import Rarely
from mqcore.errors import UsageError
from mqcore.trace.recent import LONGEST_NAME, RING, SpanRecord
from mqcore.trace.traceparent import TraceContext

KINDS = ("internal", "client", "server", "producer", "consumer")
_log = logging.getLogger("mqcore.trace")
_log.addFilter(Rarely())
_current: ContextVar[TraceContext | None] = ContextVar("mqcore_trace", default=None)


class Flow:
    """Where the current trace is kept: here, or in OpenTelemetry's context (mqcore.trace.otel).

    get() returns it, set() replaces it and returns a token for reset(). begin(span) returns the
    span of another library that stands for this one, with its context, and end() ends that.
    """

    def __init__(self) -> None:
        self.get: Callable[[], TraceContext | None] = _current.get
        self.set: Callable[[TraceContext | None], Any] = _current.set
        self.reset: Callable[[Any], None] = _current.reset
        self.begin: Callable[[Span], tuple[Any, TraceContext]] | None = None
        self.end: Callable[[Any, BaseException | None], None] | None = None


FLOW = Flow()


def current() -> TraceContext | None:
    """The span that the caller's work belongs to, or None. Tasks inherit it from the task that
    starts them. Threads do so if they run in a copy of the context (contextvars.copy_context)."""
    return FLOW.get()


class use:      # noqa: N801 - called like a function
    """Within `with`, `context` is the current trace, without a span of its own. None: there is no
    current trace."""

    __slots__ = ("_token", "context")

    def __init__(self, context: TraceContext | None) -> None:
        self.context = checked(context, "context")

    def __enter__(self) -> TraceContext | None:
        self._token = FLOW.set(self.context)
        return self.context

    def __exit__(self, *_: object) -> None:
        _reset(self._token)


class Span:
    """Made by `span`. `context`: what messages of this span carry. `with` begins and ends it."""

    __slots__ = ("_began", "_other", "_start", "_token", "context", "kind", "name", "parent")

    def __init__(self, name: str, kind: str, parent: TraceContext | None) -> None:
        self.name = name[:LONGEST_NAME]
        self.kind = kind
        self.parent = parent
        self.context = TraceContext.new() if parent is None else parent.child()

    def __enter__(self) -> Self:
        self._start, self._began = time.time(), time.monotonic()
        self._other = None
        if FLOW.begin is not None:
            try:
                self._other, self.context = FLOW.begin(self)
            except Exception:       # of the program's SDK
                _complain("OpenTelemetry cannot begin a span")
        self._token = FLOW.set(self.context if self._other is None else self._other)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None = None,
                 *_: object) -> None:
        _reset(self._token)
        if self._other is not None and FLOW.end is not None:
            try:
                FLOW.end(self._other, error)
            except Exception:
                _complain("OpenTelemetry cannot end a span")
        if self.context.sampled and RING.users:
            RING.add(SpanRecord(
                self.context.trace_id, self.context.span_id,
                "" if self.parent is None else self.parent.span_id, self.name, self.kind,
                self._start, time.monotonic() - self._began,
                "" if kind is None else kind.__name__[:LONGEST_NAME]))

    def __repr__(self) -> str:
        return f"<Span {self.name!r} {self.context.traceparent}>"


def _complain(what: str) -> None:
    """Log the exception that is handled now. A handler that fails, too, costs the program's work
    nothing. Ctrl-C and its like pass."""
    try:
        _log.exception(what)
    except Exception:       # logging has no better place for it
        pass
    except SystemExit:      # the handler's: the caller has not asked to end
        report()


def _reset(token: Any) -> None:
    # ValueError: the block has ended in another task or thread, whose trace is its own.
    # OpenTelemetry would write that to the log, so its token is reset here, too.
    with suppress(ValueError):
        if isinstance(token, Token):
            token.var.reset(token)
        else:
            FLOW.reset(token)


def span(name: str, *, parent: TraceContext | EllipsisType | None = ...,
         kind: str = "internal") -> Span:
    """Within `with`, a span of the current trace. If there is none, it begins a trace.

    parent: the context to continue, such as extract(headers). Left out, it is the current one.
    None begins a new trace. kind: "internal", "client", "server", "producer" or "consumer", as
    in OpenTelemetry. Names are cut to 200 characters. Raises UsageError.
    """
    if not isinstance(name, str) or not name:
        raise UsageError(f"a span called {name!r:.80}", hint="a name is a text")
    if kind not in KINDS:
        raise UsageError(f"kind={kind!r:.80}", hint=f"it is one of {', '.join(KINDS)}")
    return Span(name, kind, current() if parent is ... else checked(parent, "parent"))


def checked(context: Any, what: str) -> TraceContext | None:
    if context is not None and not isinstance(context, TraceContext):
        raise UsageError(f"{what}= is a {type(context).__name__}, not a TraceContext",
                         hint="trace.extract(headers) reads one")
    return context


def step(name: str, kind: str) -> Any:
    """A span if there is a current trace, else nothing."""
    parent = current()
    return nullcontext() if parent is None else Span(name, kind, parent)


def received(context: TraceContext | None, name: str, kind: str) -> Any:
    """Work on a message: a span that continues its trace. A message without one has no trace,
    whatever the task that received it was started in."""
    if context is not None:
        return Span(name, kind, context)
    return nullcontext() if current() is None else use(None)
