"""Spans through OpenTelemetry: through its API alone, so the program brings its SDK and exporters.

    from mqcore.trace import otel

    otel.use()

From then on OpenTelemetry's current span is the current trace of mqcore, and each span of mqcore is
one of OpenTelemetry, too.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from mqcore.errors import NotSupported
from mqcore.trace.flow import FLOW, Flow, Span
from mqcore.trace.traceparent import TraceContext, TraceMalformed, parse_state

try:
    from opentelemetry import context as contexts
    from opentelemetry import trace as api
except ImportError as error:
    raise NotSupported(f"OpenTelemetry's traces need {error.name}",
                       hint='pip install "mqcore[metrics]"') from error

SCOPE = "mqcore"


def use(provider: api.TracerProvider | None = None) -> None:
    """Make spans with OpenTelemetry, in the whole process. provider: None (default) is the global
    one. Call it once, before traces begin; a second call replaces the provider."""
    tracer = api.get_tracer(SCOPE, tracer_provider=provider)

    def begin(span: Span) -> tuple[Any, TraceContext]:
        inside = None       # the current context: a sampler tells local parents from remote ones
        if span.parent is None:
            inside = contexts.Context()
        elif span.parent != _get():
            inside = api.set_span_in_context(_foreign(span.parent), contexts.Context())
        made = tracer.start_span(span.name, inside, api.SpanKind[span.kind.upper()])
        context = _own(made)
        if context is None or span.parent is not None and context.span_id == span.parent.span_id:
            # A tracer without an SDK makes no ids: the trace goes on with ours.
            return _foreign(span.context), span.context
        return made, context

    FLOW.get, FLOW.set, FLOW.reset = _get, _set, contexts.detach
    FLOW.begin, FLOW.end = begin, _end


def stop() -> None:
    """Keep traces without OpenTelemetry again."""
    vars(FLOW).update(vars(Flow()))


def _get() -> TraceContext | None:
    return _own(api.get_current_span())


def _set(what: Any) -> Any:
    """A span of OpenTelemetry, a TraceContext, or None."""
    span = api.INVALID_SPAN if what is None else \
        _foreign(what) if isinstance(what, TraceContext) else what
    return contexts.attach(api.set_span_in_context(span))


def _end(span: Any, error: BaseException | None) -> None:
    try:
        if error is not None and span.is_recording():
            span.set_status(api.Status(api.StatusCode.ERROR, type(error).__name__))
            span.record_exception(error)        # last, since it calls the error's __str__
    finally:
        span.end()


def _own(span: api.Span) -> TraceContext | None:
    found = span.get_span_context()
    if not found.is_valid:
        return None
    state = ""
    with suppress(TraceMalformed):      # one that OpenTelemetry takes and level 1 does not
        state = parse_state(found.trace_state.to_header())
    return TraceContext(f"{found.trace_id:032x}", f"{found.span_id:016x}",
                        bool(found.trace_flags & api.TraceFlags.SAMPLED), state)


def _foreign(context: TraceContext) -> api.Span:
    return api.NonRecordingSpan(api.SpanContext(
        int(context.trace_id, 16), int(context.span_id, 16), is_remote=True,
        trace_flags=api.TraceFlags(int(context.sampled)),
        trace_state=api.TraceState.from_header([context.state] if context.state else [])))
