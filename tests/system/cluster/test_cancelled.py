"""Calls that are cancelled at any await, and nodes that end in any state: nothing is left."""

import asyncio
import contextlib
import gc
import os
import socket
import threading

import pytest
import trio
from echoing import Echo

import mqcore as mq
from mqcore import cluster
from mqcore.binding.sleep import sleep
from mqcore.cluster import node

LIMIT = 50.0
FEDERATION = cluster.Key.generate()
TURNS = 24      # of the loop; more than a call takes on loopback is fine


async def cut(call, turns):
    """Cancel call() after so many turns of the loop. True: it was over before."""
    task = asyncio.ensure_future(call())
    for _ in range(turns):
        await asyncio.sleep(0)
    if task.done():
        task.result()
        return True
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return False
    return True


def leftovers(net):
    stats = net.stats()
    return {"services": dict(net.services), "feeds": net.topics.feeds, "own": net.topics.own,
            "pending": stats["requests"]["pending"], "tunnels": dict(net.tunnels.open),
            "surveys": net.surveys.open, "naps": net._naps, "pings": net.links.pings,
            "adopted": net.adopted, "gateways": net.gateways,
            "attempts": [link.attempts for link in net.links.by_rid.values() if link.attempts]}


def nothing(net):
    return not any(leftovers(net).values())


async def serve(net, rep):
    async with net.aserve("mine", Echo()):
        pass


async def subscribe(net, rep):
    async with net.asubscribe("a.>"):
        pass


async def request(net, rep):
    assert await net.arequest("echo", b"x", timeout=LIMIT, hedge=0.001) == b"x"


async def tunnel(net, rep):
    async with net.atunnel("echo", timeout=LIMIT) as tun:
        await tun.asend(bytes(100_000))
        await tun.arecv(timeout=LIMIT)


async def survey(net, rep):
    [reply async for reply in net.asurvey("echo", b"x", deadline=LIMIT)]


async def adopt(net, rep):
    async with await net.aadopt("old", rep):
        pass


async def members(net, rep):
    await net.await_members("echo", timeout=LIMIT)


async def federate(net, rep):
    async with net.afederate("east", FEDERATION, exports="echo"):
        pass


@pytest.mark.parametrize("call", [serve, subscribe, request, tunnel, survey, adopt, members,
                                  federate])
def test_a_call_that_is_cancelled_anywhere(once, key, call):
    async def main():
        async with cluster.ajoin(key) as one, cluster.ajoin(key, seeds=[one.url]) as two, \
                one.aserve("echo", Echo()):
            with mq.Rep(bind="tcp://127.0.0.1:0") as rep:
                await two.await_members("echo", timeout=LIMIT)
                for turns in range(TURNS):
                    await cut(lambda: call(two, rep.endpoints[0].url), turns)
                    assert await two.until(lambda: nothing(two), LIMIT), (turns, leftovers(two))
                assert await one.until(lambda: not one.tunnels.open
                                       and not one.services["echo"].busy, LIMIT)
                await call(two, rep.endpoints[0].url)

    once(main)


async def quiet(before):
    """Whether all tasks but these are over."""
    for _ in range(1000):
        left = asyncio.all_tasks() - before
        if not left:
            return True
        await asyncio.sleep(0.01)
    return left


def test_joining_and_leaving_that_is_cancelled_anywhere(once, key):
    async def main():
        async with cluster.ajoin(key) as one:
            before = asyncio.all_tasks()
            for turns in (*range(TURNS), 40, 80, 160):
                made = cluster.ajoin(key, seeds=[one.url])
                await cut(made.__aenter__, turns)
                if not made.closed:
                    await cut(made.aclose, turns or 1)      # else it has not begun
                assert made.closed, turns
                assert not hasattr(made, "links") or made.links.socket.closed, turns
                assert await quiet(before) is True, turns
            # each has said goodbye, or is found dead
            assert await one.until(lambda: not one.directory.members, LIMIT)

    once(main)


def test_a_scope_that_ends_while_nodes_are_joined():
    """In trio, everything that a block does on its way out of a cancelled scope is cancelled."""
    key = cluster.Key.generate()

    async def main():
        for seconds in (0.0, 0.001, 0.01, 0.05, 0.1):
            with trio.move_on_after(seconds):
                async with cluster.ajoin(key) as one, one.aserve("echo", Echo()), \
                        cluster.ajoin(key, seeds=[one.url]) as two, two.asubscribe("a"):
                    await two.await_members("echo", timeout=LIMIT)
                    async with two.atunnel("echo"):
                        await trio.sleep_forever()
        nodes = [made for made in gc.get_objects() if isinstance(made, cluster.Node)]
        assert all(node.closed for node in nodes if hasattr(node, "links"))
        assert all(node.links.socket.closed for node in nodes if hasattr(node, "links"))

    trio.run(main)


def test_another_task_drains_the_node(run, key):
    """As a signal's handler does."""
    async def main():
        async with cluster.ajoin(key) as one:
            async with cluster.ajoin(key, seeds=[one.url]) as two, two.aserve("echo", Echo()):
                await one.await_members("echo", timeout=LIMIT)
                done = []

                async def drain():
                    done.append(await two.adrain(LIMIT))

                one.loop.spawn(drain)
                while not done:
                    await sleep(0.01)
                assert done == [True] and two.closed
            assert await one.until(lambda: not one.directory.members, LIMIT)

    run(main)


def joining(one, made):
    """Have a task join; what it finds is added to the list."""
    found = []

    async def join():
        try:
            found.append(await made.__aenter__())
        except Exception as error:
            found.append(error)

    one.loop.spawn(join)
    return found


@pytest.mark.keeps(threads=1, why="trio keeps its threads for ten seconds")
def test_a_node_that_looks_up_its_address_is_closed(run, key, monkeypatch):
    held = threading.Event()
    monkeypatch.setattr(node, "reachable",
                        lambda url, targets: held.wait(LIMIT) and "tcp://127.0.0.1:1")

    async def main():
        async with cluster.ajoin(key) as one:
            made = cluster.ajoin(key, listen="tcp://0.0.0.0:0")
            found = joining(one, made)
            assert await one.until(lambda: hasattr(made, "links"), LIMIT)
            for call in (made.adrain(1), made.arequest("echo", b"")):
                with pytest.raises(mq.StateError, match="not joined"):
                    await call
            assert not made.draining
            await made.aclose()
            held.set()
            assert await one.until(lambda: found, LIMIT)
            assert isinstance(found[0], cluster.NodeClosed) and made.links.socket.closed

    run(main)


@pytest.mark.parametrize("what", ["adrain", "aclose"])
def test_a_node_that_waits_for_its_seeds_is_closed(run, key, what):
    async def main():
        with socket.create_server(("127.0.0.1", 0)) as silent:
            async with cluster.ajoin(key) as one:
                made = cluster.ajoin(key, seeds=[f"tcp://127.0.0.1:{silent.getsockname()[1]}"])
                found = joining(one, made)
                assert await one.until(lambda: made.ready, LIMIT)
                assert await getattr(made, what)() in (True, None)
                assert await one.until(lambda: found, LIMIT)
                assert isinstance(found[0], cluster.NodeClosed) and made.links.socket.closed

    run(main)


def test_a_node_is_closed_as_it_begins_to_join(run, key):
    async def main():
        async with cluster.ajoin(key) as one:
            for _ in range(10):
                made = cluster.ajoin(key)
                found = joining(one, made)
                while not made.begun:
                    await sleep(0)
                await made.aclose()
                assert await one.until(lambda: found, LIMIT)    # noqa: B023
                assert found[0] is made or isinstance(found[0], cluster.NodeClosed)
                assert not hasattr(made, "links") or made.links.socket.closed

    run(main)


def test_things_that_have_not_begun_or_are_over(run, key):
    async def main():
        alone = cluster.ajoin(key)
        assert "not joined" in repr(alone)
        with pytest.raises(mq.StateError, match="not joined"):
            await alone.arequest("echo", b"")
        await alone.aclose()
        with pytest.raises(cluster.NodeClosed):
            await alone.arequest("echo", b"")
        with pytest.raises(mq.StateError, match="joined already"):
            await alone.__aenter__()
        async with cluster.ajoin(key) as net:
            feed = net.asubscribe("a")
            await feed.aclose()
            for _ in range(2):
                async with feed:
                    assert await net.apublish("a", b"x") == 1
                    assert (await feed.arecv(timeout=LIMIT)).body == b"x"
                assert await net.apublish("a", b"x") == 0
            service = net.aserve("echo", Echo())
            assert await service.astop()
            for _ in range(2):
                async with service:
                    assert await net.arequest("echo", b"x", timeout=LIMIT) == b"x"
                with pytest.raises(cluster.NoSuchService):
                    await net.arequest("echo", b"x", timeout=LIMIT)
            opening = net.atunnel("echo")
            await opening.__aexit__(None, None, None)
        await net.aclose()
        for start in (feed.astart, service.astart):
            with pytest.raises(cluster.NodeClosed):
                await start()
        assert not net.services and not net.topics.feeds

    run(main)


def test_descriptors_stay_flat(once, key):
    async def main():
        async with cluster.ajoin(key) as one:
            async def come_and_go():
                async with cluster.ajoin(key, seeds=[one.url]) as two, two.aserve("echo", Echo()):
                    await one.await_members("echo", timeout=LIMIT)
                assert await one.until(lambda: not one.links.by_rid, LIMIT)

            await come_and_go()
            count = len(os.listdir("/proc/self/fd"))
            for _ in range(5):
                await come_and_go()
            # a loop keeps the descriptors of a socket for a moment
            assert await one.until(lambda: len(os.listdir("/proc/self/fd")) <= count, LIMIT)

    once(main)


class Waits:
    """A request waits for `go`."""

    def __init__(self):
        self.go = False
        self.bodies = []

    async def request(self, req):
        self.bodies.append(req.body)
        while not self.go:
            await sleep(0)
        return req.body


def test_requests_that_are_cancelled_keep_no_place(once, key):
    """In the queue of the service that has them, neither bytes nor a number."""
    async def main():
        handler = Waits()
        async with cluster.ajoin(key) as one, cluster.ajoin(key, seeds=[one.url]) as two, \
                one.aserve("it", handler, concurrency=1, queue_bytes=1000) as service:
            await two.await_members("it", timeout=LIMIT)
            gate = service.requests

            def ask(body):
                return asyncio.ensure_future(two.arequest("it", body, timeout=None))

            runs = ask(b"runs")
            assert await one.until(lambda: gate.running, LIMIT)
            many = [ask(bytes(100)) for _ in range(10)]
            assert await one.until(lambda: gate.bytes == 1000, LIMIT)
            with pytest.raises(cluster.Overloaded):
                await ask(b"1")
            for task in many:
                task.cancel()
            assert await one.until(lambda: gate.cancelled == 10, LIMIT)
            assert gate.bytes == 0 and gate.load == 1 and len(gate.queue) == 0
            waits = ask(bytes(1000))
            assert await one.until(lambda: gate.load == 2, LIMIT)
            runs.cancel()           # it has its place until its handler returns
            assert await one.until(lambda: two.requests.pending == 1, LIMIT)
            assert gate.running == 1 and len(gate.queue) == 1
            handler.go = True
            assert await waits == bytes(1000) and handler.bodies == [b"runs", bytes(1000)]
            assert gate.accounts() == {"offered": 13, "running": 0, "waiting": 0, "done": 2,
                                       "refused": 1, "expired": 0, "cancelled": 10}

    once(main)


@pytest.mark.parametrize("size", [200 << 10, 20 << 20])
def test_a_large_request_that_is_cancelled_is_not_sent_on(once, key, size):
    """What is left of it has no claim to the link, and the next one is not refused."""
    async def main():
        async with cluster.ajoin(key) as one, cluster.ajoin(key, seeds=[one.url]) as two, \
                one.aserve("echo", Echo()):
            await two.await_members("echo", timeout=LIMIT)
            link, = (member.link for member in two.members("echo"))
            for turns in range(TURNS):
                over = await cut(lambda: two.arequest("echo", bytes(size), timeout=LIMIT), turns)
                assert over or not link.session.waiting
                assert len(await two.arequest("echo", bytes(100_000), timeout=LIMIT)) == 100_000
            back, = (member.link for member in one.members() if not member.me)
            assert await one.until(lambda: not back.serving, LIMIT)
            assert not link.session._large and not link.session._bulks and not back.session._held
            assert link.usable and nothing(two) and not two.links.dropped and not one.links.dropped

    once(main)


class CleansUp:
    """Its first cancellation is a request to clean up, the second one ends that."""

    begun = cancelled = ended = False

    async def request(self, req):
        self.begun = True
        try:
            await asyncio.sleep(LIMIT)
        except asyncio.CancelledError as error:
            self.cancelled = True
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(LIMIT)
            self.ended = True
            raise error


def test_who_cancels_a_leave_recognizes_its_own_cancellation(key):
    """anyio's scopes look for their own text in a CancelledError."""
    async def main():
        handler = CleansUp()
        async with cluster.ajoin(key) as one, cluster.ajoin(key, seeds=[one.url]) as two:
            await one.aserve("it", handler).astart()
            await two.await_members("it", timeout=LIMIT)
            asked = asyncio.create_task(two.arequest("it", b"", timeout=LIMIT))
            assert await two.until(lambda: handler.begun, LIMIT)
            leave = asyncio.create_task(one.aclose())
            while not handler.cancelled:
                await asyncio.sleep(0)
            leave.cancel("by a scope")
            with pytest.raises(asyncio.CancelledError) as caught:
                await leave
            assert caught.value.args == ("by a scope",) and handler.ended
            with pytest.raises(cluster.ClusterError):
                await asked
            await one.aclose()

    asyncio.run(main())
