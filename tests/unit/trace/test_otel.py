"""Spans through OpenTelemetry: its current span is ours, and ours are its."""

import contextvars
import logging

import pytest

from mqcore import trace
from mqcore.trace import TraceContext

sdk = pytest.importorskip("opentelemetry.sdk.trace")
otel = pytest.importorskip("mqcore.trace.otel")


@pytest.fixture
def exported():
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = sdk.TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    otel.use(provider)
    yield exporter.get_finished_spans, provider
    otel.stop()
    provider.shutdown()


def ids(span):
    context = span.get_span_context()
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


def test_spans_are_exported(exported):
    finished, provider = exported
    came = TraceContext.new()
    with pytest.raises(KeyError), trace.span("serve", parent=came, kind="server") as outer:
        assert trace.current() == outer.context and outer.context.trace_id == came.trace_id
        with trace.span("work") as inner:
            assert inner.parent == outer.context
        raise KeyError("x")
    assert trace.current() is None
    first, second = finished()
    assert (first.name, second.name, second.kind.name) == ("work", "serve", "SERVER")
    assert ids(first) == (inner.context.trace_id, inner.context.span_id)
    assert f"{second.parent.span_id:016x}" == came.span_id
    assert second.status.status_code.name == "ERROR" and second.events


def test_its_current_span_travels(exported):
    _, provider = exported
    with provider.get_tracer("program").start_as_current_span("of the program") as span:
        assert (trace.current().trace_id, trace.current().span_id) == ids(span)
        assert trace.extract(trace.headers()) == trace.current()
        with trace.span("ours") as ours:
            assert ours.parent.span_id == ids(span)[1]
        with trace.use(None):
            assert trace.current() is None
        came = TraceContext.new(sampled=False)
        with trace.use(came):
            assert trace.current() == came
        assert ids(span)[1] == trace.current().span_id


def test_a_parent_of_this_program_is_not_remote(exported):
    """A sampler may decide otherwise for those of other programs (ParentBased)."""
    finished, provider = exported
    with trace.span("served", parent=TraceContext.new()), trace.span("inner"), \
            provider.get_tracer("program").start_as_current_span("of the program"), \
            trace.span("innermost"):
        pass
    assert {one.name: one.parent.is_remote for one in finished()} == {
        "served": True, "inner": False, "of the program": False, "innermost": False}


def test_a_span_may_end_in_another_thread(exported, caplog):
    """Or task: its context is another."""
    finished, _ = exported
    span, use = trace.span("far"), trace.use(TraceContext.new())
    contextvars.copy_context().run(lambda: (span.__enter__(), use.__enter__()))
    use.__exit__()
    span.__exit__(None)
    assert [one.name for one in finished()] == ["far"]
    assert caplog.records == []


def test_a_processor_that_raises_costs_no_message(caplog):
    class Broken(sdk.SpanProcessor):
        def on_start(self, span, parent_context=None):
            if span.name == "start":
                raise OSError("the exporter")

        def on_end(self, span):
            raise OSError("the exporter")

    provider = sdk.TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Broken())
    otel.use(provider)
    try:
        for name in ("start", "end"):
            with trace.span(name) as span:
                assert trace.current() == span.context
            assert trace.current() is None
    finally:
        otel.stop()
    assert [record.exc_text or record.message for record in caplog.records]
    assert {record.name for record in caplog.records} == {"mqcore.trace"}


@pytest.mark.parametrize("raised", [RuntimeError, SystemExit])
def test_a_log_handler_that_raises_costs_no_message(raised, monkeypatch, capsys):
    class Handler(logging.Handler):
        def emit(self, record):
            records.append(record.getMessage())
            raise raised("the handler")

    def fail(*_):
        raise OSError("the exporter")

    records = []
    log = logging.getLogger("mqcore.trace")
    monkeypatch.setattr(log, "handlers", [Handler()])
    monkeypatch.setattr(log, "filters", [])     # which let a text pass once a minute
    monkeypatch.setattr(trace.flow.FLOW, "begin", fail)
    with trace.span("begin") as span:
        assert trace.current() == span.context
    monkeypatch.setattr(trace.flow.FLOW, "begin", lambda span: (span.context, span.context))
    monkeypatch.setattr(trace.flow.FLOW, "end", fail)
    with pytest.raises(KeyError, match="the program"), trace.span("end"):
        raise KeyError("the program")
    assert trace.current() is None
    assert records == ["OpenTelemetry cannot begin a span", "OpenTelemetry cannot end a span"]
    assert capsys.readouterr().err.count("SystemExit") == 2 * (raised is SystemExit)


def test_a_log_handler_that_is_interrupted_passes_that_on(monkeypatch):
    class Handler(logging.Handler):
        def emit(self, record):
            raise KeyboardInterrupt

    def fail(*_):
        raise OSError("the exporter")

    log = logging.getLogger("mqcore.trace")
    monkeypatch.setattr(log, "handlers", [Handler()])
    monkeypatch.setattr(log, "filters", [])
    monkeypatch.setattr(trace.flow.FLOW, "begin", fail)
    with pytest.raises(KeyboardInterrupt), trace.span("begin"):
        pass
    assert trace.current() is None


def test_without_an_sdk_traces_go_on():
    from opentelemetry.trace import NoOpTracerProvider

    otel.use(NoOpTracerProvider())
    try:
        came = TraceContext.new()
        with trace.span("x", parent=came) as span:
            assert trace.current() == span.context != came
            assert span.context.trace_id == came.trace_id
        with trace.span("new") as span:
            assert trace.current() == span.context
        assert trace.current() is None
    finally:
        otel.stop()


class Mute(Exception):
    def __str__(self):
        raise ValueError("no words")


def test_the_span_of_an_error_without_words_ends(exported):
    finished, _ = exported
    with pytest.raises(Mute), trace.span("fails"):
        raise Mute
    [span] = finished()
    assert (span.name, span.status.status_code.name) == ("fails", "ERROR")
    assert span.status.description == "Mute"
