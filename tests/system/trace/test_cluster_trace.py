"""Requests, broadcasts, surveys, publications and tunnels carry the current trace."""

import asyncio

import pytest
import trio

import mqcore as mq
from mqcore import cluster, trace
from mqcore.binding.sleep import sleep
from mqcore.cluster import frames

MALFORMED = "00-not-a-trace"


class Seen:
    """What a handler finds: the kind of call, its `trace_context`, and the current trace."""

    def __init__(self):
        self.found = []

    def add(self, kind, context):
        self.found.append((kind, context, trace.current()))

    async def request(self, req):
        self.add("request", req.trace_context)
        return b"done"

    async def broadcast(self, msg):
        self.add("broadcast", msg.trace_context)
        return b"heard"

    async def tunnel(self, tun):
        self.add("tunnel", tun.trace_context)
        async for message in tun:
            await tun.asend(message)


class Plain(Seen):
    """The same, in a thread of the pool."""

    def request(self, req):
        self.add("request", req.trace_context)
        return b"done"


@pytest.fixture(autouse=True)
def _no_default_context():
    yield
    mq.Context.default().close(0)


@pytest.fixture(params=["asyncio", "trio"])
def pair(request):
    """pair(main): main(net, other, handler), where `other` serves "seen"."""
    async def joined(main, handler):
        key = cluster.Key.generate()
        with trace.span("of whoever joined"):       # no message belongs to it
            first = cluster.ajoin(key)
            async with first as other, cluster.ajoin(key, seeds=[other.url]) as net:
                async with other.aserve("seen", handler):
                    with trace.use(None):
                        await net.await_members("seen", 1, 60)
                        await main(net, other, handler)

    async def on_trio(main, handler):
        with trio.fail_after(120):
            await joined(main, handler)

    def run(main, handler):
        if request.param == "asyncio":
            asyncio.run(asyncio.wait_for(joined(main, handler), 120))
        else:
            trio.run(on_trio, main, handler)
    return run


async def heard(handler, count):
    """Handlers run as tasks of their own."""
    while len(handler.found) < count:
        await sleep(0.001)


async def calls(net, feed):
    assert await net.arequest("seen", b"", timeout=60) == b"done"
    assert await net.abroadcast("seen", b"") == 1
    assert [reply.body async for reply in net.asurvey("seen", b"", deadline=60)] == [b"heard"]
    async with net.atunnel("seen", timeout=60) as tunnel:
        await tunnel.asend(b"x")
        assert await tunnel.arecv(timeout=60) == b"x"
    assert await net.apublish("news.one", b"") == 1
    return await feed.arecv(timeout=60)


def test_a_handler_in_a_thread_continues_the_trace():
    """asyncio alone: trio's threads outlive their work."""
    async def main():
        key = cluster.Key.generate()
        handler = Plain()
        async with cluster.ajoin(key) as net, net.aserve("seen", handler):
            with trace.span("traced") as span:
                assert await net.arequest("seen", b"", timeout=60) == b"done"
        (_, context, now), = handler.found
        assert context.trace_id == now.trace_id == span.context.trace_id

    asyncio.run(asyncio.wait_for(main(), 120))


def test_all_calls_carry_the_trace(pair):
    async def main(net, other, handler):
        async with other.asubscribe("news.*") as feed:
            with trace.span("traced") as span:
                published = await calls(net, feed)
            await heard(handler, 4)
            assert published.trace_context.trace_id == span.context.trace_id
            kinds = [kind for kind, _, _ in handler.found]
            assert sorted(kinds) == ["broadcast", "broadcast", "request", "tunnel"]
            for _, context, now in handler.found:
                assert context.trace_id == now.trace_id == span.context.trace_id
                assert context.span_id != now.span_id != span.context.span_id
            handler.found.clear()
            assert (await calls(net, feed)).trace_context is None
            await heard(handler, 4)
            assert [row[1:] for row in handler.found] == [(None, None)] * 4

    pair(main, Seen())


def test_malformed_traces_are_ignored_and_counted(pair):
    async def main(net, other, handler):
        link = net.members("seen")[0].link
        before = trace.stats()["malformed"]
        async with other.asubscribe("news.*") as feed:
            assert await net.arequest("seen", b"", timeout=60,
                                      headers={"traceparent": b"\xff"}) == b"done"
            link.send(frames.Broadcast(1 << 40, "seen", b"", MALFORMED))
            link.send(frames.Publish(1 << 60, "news.x", b"body", True, (), MALFORMED))
            got = await feed.arecv(timeout=60)
            assert (got.body, got.trace_context) == (b"body", None)
        await heard(handler, 2)
        assert [row[1:] for row in handler.found] == [(None, None)] * 2
        assert trace.stats()["malformed"] == before + 3
        assert net.members("seen")[0].link is link      # no reason to end it

    pair(main, Seen())


def test_frames_of_nodes_without_traces():
    """A frame without the last field is read, and one with further fields."""
    import msgspec

    old = msgspec.msgpack.encode([13, 1, "seen", b"body"])
    assert frames.decode(old) == frames.Broadcast(1, "seen", b"body")
    new = msgspec.msgpack.encode([13, 1, "seen", b"body", "", "of a later version"])
    assert frames.decode(new) == frames.Broadcast(1, "seen", b"body")


def test_full_headers_go_without_a_trace(pair):
    async def main(net, other, handler):
        full = {f"h{i}": b"" for i in range(frames.HEADERS)}
        with trace.span("x"):
            assert await net.arequest("seen", b"", headers=full, timeout=60) == b"done"
        assert [row[1:] for row in handler.found] == [(None, None)]

    pair(main, Seen())
