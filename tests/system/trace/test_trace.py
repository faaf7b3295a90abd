"""A trace through real processes: cluster, journal, queues, and `mq trace`."""

import asyncio
import itertools
import json
import os
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from programs import starter

import mqcore
from mqcore import cli, cluster, journal, trace
from mqcore.monitor import protocol, traces
from mqcore.monitor.protocol import Process, SpanFacts, Spans
from mqcore.trace.recent import RING

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "traced.py"


@pytest.fixture
def folder(monkeypatch):
    """A short path: the address of a Unix socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="mq") as path:
        monkeypatch.setenv("XDG_RUNTIME_DIR", path)
        monkeypatch.setenv("MQCORE_MONITOR", "1")
        yield Path(path)


def test_an_order_through_two_processes(folder, capsys):
    key = folder / "shop.key"
    cluster.Key.generate().save(key)
    with starter() as start:
        shop = start(EXAMPLE, "serve", key, folder / "orders", stdin=True)
        client = start(EXAMPLE, "order", key, shop.line(), 7, stdin=True)
        assert client.line() == "order 0"
        trace_id = client.line()
        status = cli.run(["trace", "--wait", "60", "--format", "json", trace_id])
        out, err = capsys.readouterr()
        assert status == 0, err
        spans = json.loads(out)["spans"]
        assert [(span["name"], span["kind"], span["depth"], span["pid"]) for span in spans] == [
            ("order", "internal", 0, client.process.pid),
            ("request shop", "client", 1, client.process.pid),
            ("serve shop", "server", 2, shop.process.pid),
            ("check stock", "internal", 3, shop.process.pid)]
        assert spans[0]["parent"] == "" and all(
            child["parent"] == parent["span"] for parent, child in zip(spans, spans[1:],
                                                                       strict=False))
        assert cli.run(["trace", "--wait", "60", "f" * 32]) == 1
        assert "knows the trace" in capsys.readouterr().err
        assert client.result()[0] == 0
        status, out, err = shop.result()
        assert (status, out) == (0, f"7 of trace {trace_id}\n"), err


def test_bad_ids_are_named(capsys):
    assert cli.run(["trace", "0" * 32]) == 2
    assert "neither a trace id" in capsys.readouterr().err


@pytest.mark.parametrize("trace_id", ["", "x" * 32, "A" * 32, "a" * 31, "a" * 33])
def test_a_monitor_refuses_malformed_ids(trace_id):
    with pytest.raises(protocol.Malformed, match="32 digits"):
        protocol.decode_request(protocol.encode(protocol.Trace(trace=trace_id)))


def test_a_traced_writer_adds_headers(tmp_path):
    with journal.open(tmp_path, "a", trace=True) as writer, trace.span("write") as span:
        writer.append(b"1", headers=[("type", b"order")])
        writer.append(b"2", headers={"traceparent": b"mine"})
        with trace.use(None):
            writer.append(b"3", key=b"k")
    with journal.open(tmp_path) as reader:
        records = reader.read(0)
        assert records.headers(0) == [
            ("type", b"order"), ("traceparent", span.context.traceparent.encode())]
        assert records.trace_context(0) == span.context
        assert records.trace_context(1) is None and records.trace_context(2) is None
    with journal.open(tmp_path, "a") as plain, trace.span("write"):
        assert type(plain) is journal.Writer
        plain.append(b"4")
    with pytest.raises(mqcore.OptionError, match="trace=True"):
        journal.open(tmp_path, "a", topic="t", partitions=2, trace=True)


def test_a_job_continues_its_producers_trace(tmp_path):
    with mqcore.Context() as ctx, \
            journal.serve_queues(tmp_path / "j", f"ipc://{tmp_path}/q", context=ctx) as server, \
            journal.queue(server.urls[0], "q", context=ctx) as queue:
        with trace.span("produce") as span:
            queue.put(b"1", headers={"type": "order"})
        queue.put(b"2")
        with queue.get(60) as job:
            assert job.trace_context == span.context and job.headers[0] == ("type", b"order")
            assert trace.current().trace_id == span.context.trace_id
        assert trace.current() is None
        with trace.span("another"), queue.get(60) as job:
            assert job.trace_context is None and not job.headers and trace.current() is None


def facts(span, parent="", start=0.0):
    return SpanFacts(span=span, name=span, kind="internal", start=start, duration=1.0,
                     parent=parent)


def test_a_tree_of_invented_spans():
    process = Process(pid=1, host="h", program="p", uid=0, started=0.0, python="", mqcore="")
    spans = [facts("a", "b", 1.0), facts("b", "a", 2.0), facts("c", "c", 3.0), facts("d", "a", 4.0),
             facts("e", "unknown", 0.0)]
    answer = Spans(v=1, process=process, trace="t", spans=spans)
    rows = [(depth, node.facts.name) for depth, node in traces.walk(traces.tree([answer, answer]))]
    assert rows == [(0, "e"), (0, "a"), (1, "b"), (1, "d"), (0, "c")]
    chain = [facts(str(i), str(i - 1), float(i)) for i in range(4096)]
    roots = traces.tree([Spans(v=1, process=process, trace="t", spans=chain)])
    assert len(roots) == 1 and len(traces.as_rows(roots)) == 4096
    assert os.linesep not in traces.as_rows(roots)[-1][3]


def test_a_span_may_have_begun_before_its_cause_by_another_clock():
    process = Process(pid=1, host="h", program="p", uid=0, started=0.0, python="", mqcore="")
    rows = traces.as_rows(traces.tree([Spans(v=1, process=process, trace="t", spans=[
        facts("a", start=5.0), facts("b", "a", 4.75)])]))
    assert [row[0] for row in rows] == ["+0.000", "-250.000"]


def test_a_bridge_passes_a_trace_on(tmp_path, monkeypatch):
    from mqcore.bridge import runner as of_bridges
    from mqcore.bridge.runner import Runner

    # a clock that is set back meanwhile
    monkeypatch.setattr(of_bridges, "time", SimpleNamespace(
        time=itertools.count(2e9, -1).__next__, monotonic=time.monotonic))
    sides = [f"journal:{tmp_path}/{name}?topic=t" for name in ("in", "out")]
    with journal.open(tmp_path / "in", "a", topic="t", trace=True) as writer:
        with trace.span("write") as span:
            writer.append(b"1")
        writer.append(b"2", headers={"traceparent": b"malformed"})

    async def through():
        runner = Runner(sides[0] + "&group=g", sides[1], pause=0.001)
        running = asyncio.ensure_future(runner.run())
        async with asyncio.timeout(60):
            while runner.stats().acknowledged < 2:
                await asyncio.sleep(0.001)
        runner.stop()
        await running

    RING.begin("test")
    try:
        asyncio.run(through())
        kept, = trace.spans(span.context.trace_id)
    finally:
        RING.end("test")
    assert kept.parent_id == span.context.span_id and kept.name.startswith("bridge to journal ")
    assert 0 <= kept.duration < 60 and 1e9 < kept.start <= 2e9
    with journal.open(tmp_path / "out", topic="t") as reader:
        records = reader.read(0)
        assert records.trace_context(0) == span.context
        assert records.headers(1) == [("traceparent", b"malformed")]
