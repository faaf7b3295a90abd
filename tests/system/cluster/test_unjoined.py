"""Nodes that have not joined yet, and event loops that end without their nodes."""

import asyncio
import signal
import threading
from contextlib import suppress

import pytest
import trio

import mqcore as mq
from mqcore import cluster
from mqcore.binding.sleep import sleep
from mqcore.cluster import node, trio_loop
from mqcore.testing import until

pytestmark = pytest.mark.keeps(threads=2, why="trio keeps its threads for ten seconds")
LIMIT = 50.0
LOOKS = {"members": lambda net: net.members(), "stats": lambda net: net.stats(),
         "url": lambda net: net.url, "id": lambda net: net.id}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_what_a_node_does_not_know_before_it_has_joined(once, key, look):
    net = cluster.ajoin(key)
    with pytest.raises(mq.StateError, match="not joined yet"):
        look(net)
    assert net.explain() == "this node has not joined"
    net.close()
    with pytest.raises(cluster.NodeClosed):
        look(net)
    assert "closed" in net.explain()

    async def main():
        async with cluster.ajoin(key) as other:
            before = look(other)
        assert type(look(other)) is type(before)    # and what it knew when it left

    once(main)


@pytest.mark.parametrize("where", ["here", "thread"])
def test_who_waits_for_events_of_a_node_that_never_joins(run, key, where):
    async def main():
        net = cluster.ajoin(key)
        events, found = net.events(), []

        async def wait():
            found.append(await events.anext())

        async with cluster.ajoin(key) as other:
            other.loop.spawn(wait)
            assert await other.until(lambda: events._bells, LIMIT)
            if where == "here":
                await net.aclose()
            else:
                await other.loop.in_thread(net.close)
            assert await other.until(lambda: found, LIMIT)
        assert found == [None] and events.next() is None and list(net.events()) == []

    run(main)


class Stuck:
    async def request(self, req):
        await sleep(LIMIT)

    async def tunnel(self, tun):
        await sleep(LIMIT)


WAITS = {"request": lambda net: net.request("it", b"", timeout=None),
         "members": lambda net: net.wait_members("nobody"),
         "events": lambda net: net.events().next(),
         "feed": lambda net: net.subscribe("t").start().recv(),
         "tunnel": lambda net: net.tunnel("it").__enter__().recv()}


@pytest.mark.parametrize("run", [asyncio.run, trio.run], ids=["asyncio", "trio"])
def test_threads_that_wait_when_the_event_loop_ends(key, run):
    """Its end cancels what they wait for, which is not theirs to know."""
    found = {}

    def wait(name, call, net):
        try:
            found[name] = call(net)
        except BaseException as error:
            found[name] = error

    async def main():
        net = await cluster.ajoin(key).__aenter__()
        await net.aserve("it", Stuck()).astart()
        begun = [threading.Thread(target=wait, args=(name, call, net))
                 for name, call in WAITS.items()]
        for thread in begun:
            thread.start()
        assert await net.until(lambda: net.requests.pending and net.tunnels.open and net._streams
                               and net.topics.feeds and net._naps, LIMIT)
        return net, begun

    net, begun = run(main) if run is trio.run else run(main())
    for thread in begun:
        thread.join(LIMIT)
    net.close()
    assert {name: type(error) for name, error in found.items()} == \
        dict.fromkeys(WAITS, cluster.NodeClosed)


@pytest.mark.parametrize("part", ["Pulse", "Balancer", "Requests", "Topics", "Tunnels"])
def test_a_join_that_fails_while_its_parts_are_made(run, key, monkeypatch, part):
    """Ctrl-C may come anywhere. It raises that, and nothing of the node is left."""
    def fail(*args):
        raise KeyboardInterrupt

    async def main():
        net = cluster.ajoin(key)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(node, part, fail)
            await net.__aenter__()
        assert net.ended and net.links.socket.closed

    run(main)


class Ends:
    def __init__(self, error):
        self.error = error

    async def request(self, req):
        raise self.error


def test_a_handler_that_exits_leaves_no_complaint(key, caplog):
    """Nobody waits for the task of a handler: the end of the program tells what it raised."""
    found = []

    def ask(url):
        with cluster.join(key, seeds=[url]) as net:
            net.wait_members("it", timeout=LIMIT)
            try:
                net.request("it", b"", timeout=LIMIT)
            except cluster.ClusterError as error:
                found.append(error)

    async def main():
        async with cluster.ajoin(key) as net, net.aserve("it", Ends(SystemExit(3))):
            asking = threading.Thread(target=ask, args=(net.url,))
            asking.start()
            threads.append(asking)
            await asyncio.sleep(LIMIT)

    threads = []
    with pytest.raises(SystemExit) as ended:
        asyncio.run(main())
    threads[0].join(LIMIT)
    assert ended.value.code == 3 and found[0].code in ("remote", "member_lost")
    until(lambda: not threads[0].is_alive())
    assert not [record for record in caplog.records if "never retrieved" in record.message]


def test_a_handler_that_raises_generator_exit(once, key, caplog):
    async def main():
        async with cluster.ajoin(key) as net, net.aserve("it", Ends(GeneratorExit())):
            with pytest.raises(cluster.RemoteError) as caught:
                await net.arequest("it", b"", timeout=LIMIT)
            assert caught.value.kind == "GeneratorExit"
            assert await net.until(lambda: net.counts.get("trouble"), LIMIT)

    once(main)
    assert not [record for record in caplog.records if "never retrieved" in record.message]


class Cancels:
    async def request(self, req):
        trio.lowlevel.current_task().parent_nursery.cancel_scope.cancel()


async def handler(net):
    async with net.aserve("it", Ends(SystemExit(3))):
        with pytest.raises(cluster.RemoteError):
            await net.arequest("it", b"", timeout=LIMIT)
        await trio.sleep(LIMIT)


async def timer(net):
    net.loop.later(0, Stops().stop)
    await trio.sleep(LIMIT)


async def nursery(net):
    """Of all tasks of the node: nothing is said of that."""
    await net.aserve("it", Cancels()).astart()
    await net.arequest("it", b"", timeout=LIMIT)
    raise KeyboardInterrupt


class Stops:
    def stop(self):
        raise KeyboardInterrupt


@pytest.mark.parametrize("end", [handler, timer, nursery])
def test_a_node_leaves_that_trio_cuts_short(key, monkeypatch, end):
    """A handler has raised SystemExit, or Ctrl-C came in a task of the node's own. Calls wait for
    nothing, whether they were under way or begin later, and the other members hear of it."""
    async def main():
        async with cluster.ajoin(key, udp=False) as other:
            await other.aserve("far", Stuck()).astart()
            events = other.events()
            net = await cluster.ajoin(key, udp=False, seeds=[other.url]).__aenter__()
            feed = await net.asubscribe("t").astart()
            await net.await_members("far", timeout=LIMIT)
            errors = []

            async def call(function):
                try:
                    await function()
                except cluster.ClusterError as error:
                    errors.append(error)

            other.loop.spawn(call, lambda: net.arequest("far", b"", timeout=None))
            assert await other.until(lambda: other.services["far"].busy, LIMIT)
            with pytest.raises(KeyboardInterrupt):
                await end(net)
            assert await other.until(lambda: net.closed, LIMIT)
            later = [lambda: net.arequest("far", b""), lambda: net.apublish("t", b""),
                     lambda: net.aserve("it", Stuck()).astart(), net.adrain, feed.arecv]
            for function in later:
                with pytest.raises(cluster.NodeClosed):
                    await function()
            await net.aclose()
            assert net.ended and net.links.socket.closed
            assert await other.until(lambda: net.loop.ended.is_set() and errors, LIMIT)
            kinds = []
            while not {"left", "failed"} & set(kinds):
                kinds.append((await events.anext(LIMIT)).kind)
            assert "failed" not in kinds

    interrupts(main)


def interrupts(main):
    """Run it where Ctrl-C is Python's."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        trio.run(main)
    finally:
        signal.signal(signal.SIGINT, before)


class Interrupts:
    """Ctrl-C comes in one request, and in each other as it is cancelled."""

    waiting = 0

    async def request(self, req):
        if req.body == b"now":
            raise KeyboardInterrupt
        self.waiting += 1
        try:
            await trio.sleep_forever()
        finally:
            raise KeyboardInterrupt


def test_the_program_is_interrupted_once(key):
    heard, handler = [], Interrupts()

    async def ask(net, body):
        with suppress(cluster.ClusterError):
            await net.arequest("it", body, timeout=LIMIT)

    async def main():
        net = await cluster.ajoin(key, udp=False).__aenter__()
        await net.aserve("it", handler).astart()
        try:
            async with trio.open_nursery() as tasks:
                for _ in range(4):
                    tasks.start_soon(ask, net, b"later")
                await net.until(lambda: handler.waiting == 4, LIMIT)
                await ask(net, b"now")
                await trio.sleep(LIMIT)
        except* KeyboardInterrupt:
            heard.append("in time")
        while not net.loop.ended.is_set():
            try:
                await net.loop.ended.wait()
            except KeyboardInterrupt:
                heard.append("in its cleanup")

    interrupts(main)
    assert heard == ["in time"]


def test_no_ctrl_c_comes_while_a_task_begins(key, monkeypatch):
    """It would leave trio's nursery a task that never runs."""
    begun = []

    async def main():
        async with cluster.ajoin(key, udp=False) as net:
            real = net.loop.nursery

            class Nursery:
                def start_soon(self, function):
                    begun.append(trio.lowlevel.currently_ki_protected())
                    real.start_soon(function)

            assert not trio.lowlevel.currently_ki_protected()
            monkeypatch.setattr(net.loop, "nursery", Nursery())
            net.loop.spawn(trio.lowlevel.checkpoint)
            monkeypatch.setattr(net.loop, "nursery", real)

    trio.run(main)
    assert begun == [True]


def test_a_second_ctrl_c_does_not_hide_the_first(key, monkeypatch):
    """It comes while the first one is handed on."""
    protected = []

    async def main():
        net = await cluster.ajoin(key, udp=False).__aenter__()
        real = net.loop._exit

        def hand_on(error):
            protected.append(trio.lowlevel.currently_ki_protected())
            real(error)

        async def interrupted():
            raise KeyboardInterrupt

        monkeypatch.setattr(net.loop, "_exit", hand_on)
        net.loop.spawn(interrupted)
        with pytest.raises(KeyboardInterrupt):
            await trio.sleep(LIMIT)
        await net.loop.ended.wait()

    interrupts(main)
    assert protected == [True]


@pytest.mark.parametrize("moment", ["start", "aclose"])
def test_ctrl_c_while_a_node_begins_or_ends(key, monkeypatch, moment):
    """Its tasks end, although the program goes on."""
    real, made = getattr(trio_loop.TrioLoop, moment), []

    async def interrupted(self):
        made.append(self)
        self._safely(signal.raise_signal, signal.SIGINT)    # and so at the next checkpoint
        await real(self)

    async def main():
        monkeypatch.setattr(trio_loop.TrioLoop, moment, interrupted)
        with pytest.raises(KeyboardInterrupt):
            async with cluster.ajoin(key, udp=False):
                pass
        with trio.fail_after(LIMIT):
            await made[0].ended.wait()

    interrupts(main)


def test_ctrl_c_before_a_node_begins(key, monkeypatch):
    async def interrupted(self):
        raise KeyboardInterrupt

    async def main():
        monkeypatch.setattr(trio_loop.TrioLoop, "start", interrupted)
        net = cluster.ajoin(key, udp=False)
        with pytest.raises(KeyboardInterrupt):
            await net.__aenter__()
        with trio.fail_after(LIMIT):
            await net.aclose()

    trio.run(main)
