"""W3C Trace Context, level 1: what is read, what is ignored and counted, what travels on."""

import contextvars
import threading

import pytest

from mqcore import trace
from mqcore.errors import UsageError
from mqcore.trace import TraceContext, TraceMalformed
from mqcore.trace.carry import joined, merged
from mqcore.trace.flow import received, step
from mqcore.trace.recent import CAPACITY, RING, Ring, SpanRecord
from mqcore.trace.traceparent import LONGEST_STATE

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
GOOD = [
    (PARENT, True),
    (f"00-{TRACE}-{SPAN}-00", False),
    (f"00-{TRACE}-{SPAN}-ff", True),            # other flags are reserved
    (f"01-{TRACE}-{SPAN}-01", True),            # a later version, without and with more fields
    (f"cc-{TRACE}-{SPAN}-01-what-comes-later", True),
]
BAD = [
    "", "00", PARENT.upper(), PARENT + " ", " " + PARENT, PARENT + "-", PARENT + "-01", PARENT[:-1],
    f"ff-{TRACE}-{SPAN}-01", f"01-{TRACE}-{SPAN}-01.more", f"00-{'0' * 32}-{SPAN}-01",
    f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE[:-1]}g-{SPAN}-01", f"00-{TRACE}-{SPAN}-0x",
    f"00_{TRACE}-{SPAN}-01", f"0-{TRACE}-{SPAN}-01", PARENT + "\n", PARENT.replace("4", "\u0664"),
    f"cc-{TRACE}-{SPAN}-01-" + "x" * 5000,
]
STATES = [
    ("a=1", "a=1"), ("a=1,b=2", "a=1,b=2"), (" a=1 ,\tb=2 ,", "a=1,b=2"), ("", ""), (",,", ""),
    ("t@v=1", "t@v=1"), ("0t@v=1", "0t@v=1"), ("a-*/_0=x y", "a-*/_0=x y"),
    ("a" * 256 + "=" + "v", None), ("a" * 257 + "=v", "bad"),
    ("A=1", "bad"), ("a", "bad"), ("=1", "bad"), ("a=", "bad"), ("a=1=2", "bad"), ("0a=1", "bad"),
    ("t@0v=1", "bad"), ("a=\u00e9", "bad"), ("a=1,a=2", "bad"), ("a=\x01", "bad"),
    (",".join(f"k{i}=1" for i in range(33)), "bad"),
]


@pytest.mark.parametrize(("text", "sampled"), GOOD)
def test_a_traceparent_is_read(text, sampled):
    found = TraceContext.parse(text)
    assert (found.trace_id, found.span_id, found.sampled) == (TRACE, SPAN, sampled)
    assert TraceContext.parse(found.traceparent) == found


@pytest.mark.parametrize("text", BAD)
def test_a_malformed_traceparent_is_refused_and_ignored(text):
    with pytest.raises(TraceMalformed):
        TraceContext.parse(text)
    before = trace.stats()["malformed"]
    assert trace.extract({"traceparent": text.encode()}) is None
    assert trace.extract([("traceparent", text)]) is None
    assert trace.stats()["malformed"] == before + 2


@pytest.mark.parametrize(("text", "wanted"), STATES)
def test_a_malformed_tracestate_is_left_out(text, wanted):
    before = trace.stats()["malformed"]
    found = trace.extract({"traceparent": PARENT, "tracestate": text})
    assert found.trace_id == TRACE
    assert found.state == ("" if wanted == "bad" else text if wanted is None else wanted)
    assert trace.stats()["malformed"] == before + (wanted == "bad")


def test_a_long_tracestate_loses_large_members_first():
    small = [f"s{i}=" + "v" * 40 for i in range(9)]
    text = ",".join([small[0], "large=" + "x" * 200, *small[1:]])
    assert TraceContext.parse(PARENT, text).state == ",".join(small)
    many = [f"k{i}=" + "v" * 60 for i in range(20)]
    kept = TraceContext.parse(PARENT, ",".join(many)).state
    assert len(kept) <= LONGEST_STATE and kept.split(",") == many[:8]


def test_headers_of_several_values():
    rows = [("TraceParent", PARENT.encode()), ("tracestate", b"a=1"), ("other", b"x"),
            ("Tracestate", b"b=2")]
    assert trace.extract(rows).state == "a=1,b=2"
    assert trace.extract([*rows, ("traceparent", PARENT.encode())]) is None
    assert trace.extract([("tracestate", b"a=1")]) is None
    assert trace.extract({"traceparent": b"\xff" * 55}) is None
    assert trace.extract({"traceparent": 7}) is None
    assert trace.extract(None) is None and trace.extract({}) is None


def test_one_text_for_both_headers():
    for context in (None, TraceContext(TRACE, SPAN), TraceContext(TRACE, SPAN, False, "a=x y,b=2")):
        assert trace.from_text(trace.to_text(context)) == context
    before = trace.stats()["malformed"]
    assert trace.from_text("nonsense") is None
    assert trace.stats()["malformed"] == before + 1


@pytest.mark.parametrize("fields", [("x", SPAN), (TRACE, "y"), (TRACE, SPAN, True, "A=1"),
                                    (TRACE, SPAN, True, "a=" + "b" * 600), (0, SPAN)])
def test_no_context_is_malformed(fields):
    with pytest.raises(TraceMalformed):
        TraceContext(*fields)


def test_spans_nest_and_end():
    assert trace.current() is None and trace.headers() == {}
    with trace.span("outer") as outer:
        assert trace.current() == outer.context and outer.parent is None
        with trace.span("inner") as inner:
            assert inner.context.trace_id == outer.context.trace_id
            assert inner.parent == outer.context != inner.context
            assert trace.headers() == {"traceparent": inner.context.traceparent.encode()}
        with trace.span("new", parent=None) as new:
            assert new.context.trace_id != outer.context.trace_id
        with trace.use(None):
            assert trace.current() is None
        assert trace.current() == outer.context
    assert trace.current() is None


def test_a_span_continues_what_came():
    came = TraceContext(TRACE, SPAN, False, "a=1")
    with trace.span("work", parent=came) as span:
        assert span.context.trace_id == TRACE and span.parent is came
        assert (span.context.sampled, span.context.state) == (False, "a=1")
    assert trace.headers(came) == {"traceparent": came.traceparent.encode(), "tracestate": b"a=1"}


def test_misuse_is_named():
    for wrong in ({"name": ""}, {"name": "x", "kind": "?"}, {"name": "x", "parent": PARENT}):
        with pytest.raises(UsageError):
            trace.span(**wrong)
    with pytest.raises(UsageError):
        trace.use(PARENT)
    for wrong in (PARENT.encode(), 5, None):
        with pytest.raises(UsageError):
            trace.from_text(wrong)


def test_a_message_without_a_trace_has_none_in_its_handler():
    with trace.span("of the task that receives"):
        with received(None, "serve", "server"):
            assert trace.current() is None
        assert trace.current() is not None
    with received(None, "serve", "server"), step("call", "client"):
        assert trace.current() is None


def test_a_span_may_end_in_another_thread():
    span = trace.span("elsewhere")
    span.__enter__()
    thread = threading.Thread(target=lambda: contextvars.copy_context().run(
        span.__exit__, None, None, None))
    thread.start()
    thread.join()
    span.__exit__(None, None, None)
    assert trace.current() is None


def test_headers_of_the_caller_come_first():
    with trace.span("x") as span:
        own = {"TRACEPARENT": b"mine"}
        assert merged(own, 32) == own
        assert joined([("Traceparent", b"mine")]) == [("Traceparent", b"mine")]
        assert joined({"a": b"1"}) == [
            ("a", b"1"), ("traceparent", span.context.traceparent.encode())]
        full = {str(i): b"" for i in range(32)}
        before = trace.stats()["left_out"]
        assert merged(full, 32) == full and trace.stats()["left_out"] == before + 1
        assert joined(5) == 5         # the callee refuses it
    assert joined(None) is None and merged({}, 32) == {}


def test_the_ring_is_bounded_and_needs_a_monitor():
    ring = Ring()
    record = SpanRecord(TRACE, SPAN, "", "x", "internal", 0.0, 0.0)
    ring.add(record)
    assert not ring.kept
    ring.begin("a")
    for _ in range(CAPACITY + 5):
        ring.add(record)
    assert len(ring.kept) == CAPACITY
    assert ring.counts["recorded"] == CAPACITY + 5 and ring.counts["overwritten"] == 5
    ring.begin("b")
    ring.end("a")
    assert len(ring.kept) == CAPACITY
    ring.end("b")
    ring.end("b")
    assert not ring.kept


def test_a_signal_handler_may_have_spans_at_any_moment():
    """Also in the middle of a call that holds the ring's lock."""
    ring = Ring()
    ring.begin("a")
    done = []

    def interrupted():
        with ring.lock:
            ring.add(SpanRecord(TRACE, SPAN, "", "x", "internal", 0.0, 0.0))
            ring.count("malformed")
        done.append(True)

    thread = threading.Thread(target=interrupted, daemon=True)
    thread.start()
    thread.join(60)
    assert done and len(ring.kept) == ring.counts["malformed"] == 1


def test_what_is_recorded():
    RING.begin("test")
    try:
        with pytest.raises(KeyError), trace.span("n" * 500, kind="server") as span:
            raise KeyError
        with trace.span("unsampled", parent=TraceContext.new(sampled=False)) as other:
            pass
        kept, = trace.spans(span.context.trace_id)
        assert (kept.name, kept.kind, kept.error) == ("n" * 200, "server", "KeyError")
        assert kept.duration >= 0 and kept.parent_id == ""
        assert not trace.spans(other.context.trace_id)
    finally:
        RING.end("test")
