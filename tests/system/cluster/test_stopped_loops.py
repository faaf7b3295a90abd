"""The program's own event loop stops while other threads are in blocking calls of its node."""

import asyncio
import subprocess
import sys
import threading

import pytest
from programs import environment
from waiting import until

import mqcore as mq
from mqcore import cluster
from mqcore.base.waits import Event
from mqcore.cluster import calling, loops

LIMIT = 50.0


class Call:
    """A blocking call in a thread of its own."""

    def __init__(self, function):
        self.result = None
        self.thread = threading.Thread(target=self._run, args=(function,))
        self.thread.start()

    def _run(self, function):
        try:
            self.result = function()
        except BaseException as error:
            self.result = error

    def over(self):
        self.thread.join(LIMIT)
        return not self.thread.is_alive()


class Reader:
    async def tunnel(self, tun):
        async for _ in tun:
            pass


@pytest.fixture
def runner():
    """runner.run() stops the loop and leaves it open."""
    with asyncio.Runner() as made:
        yield made


@pytest.mark.parametrize("close", [False, True], ids=["stopped", "closed"])
@pytest.mark.parametrize(("what", "result"), [("drain", True), ("close", None)])
def test_a_call_that_has_ended_the_node_returns(key, runner, what, result, close):
    """The main coroutine is over before the node's tasks are."""
    async def main():
        async with cluster.ajoin(key, udp=False) as net:
            call = Call(lambda: getattr(net, what)())
            while not net.ended:
                await asyncio.sleep(0)
        return call

    call = runner.run(main())
    if close:
        runner.close()
    assert call.over() and call.result is result


@pytest.mark.parametrize("what", ["drain", "close"])
def test_a_call_whose_node_has_only_begun_to_leave_returns(key, runner, what):
    async def main():
        net = await cluster.ajoin(key, udp=False).__aenter__()
        call = Call(lambda: getattr(net, what)())
        while not net.closed:
            await asyncio.sleep(0)
        return net, call

    net, call = runner.run(main())
    assert call.over() and call.result is (True if what == "drain" else None) and net.ended


def test_what_a_stopped_loop_has_left_ends_quietly(key, runner, monkeypatch):
    monkeypatch.setattr(loops, "LOOK", 0.01)
    monkeypatch.setattr(loops, "SILENCE", 0.05)

    async def main():
        net = await cluster.ajoin(key, udp=False).__aenter__()
        service = await net.aserve("echo", Reader()).astart()
        tunnel = await net.atunnel("echo", timeout=LIMIT)
        ends = (await net.asubscribe("t").astart()).close, service.stop, tunnel.close
        call = Call(net.close)
        while not net.closed:
            await asyncio.sleep(0)
        return call, ends

    call, ends = runner.run(main())
    calls = [Call(end) for end in ends]
    assert call.over() and all(one.over() for one in calls)
    assert [one.result for one in calls] == [None, True, None]


def test_a_thread_that_has_the_ident_of_the_one_that_ran_the_loop(key, runner, monkeypatch):
    """That one has ended: the new one's call would stop no event loop."""
    monkeypatch.setattr(loops, "LOOK", 0.01)
    monkeypatch.setattr(loops, "SILENCE", 0.05)

    async def leave():
        net = await cluster.ajoin(key, udp=False).__aenter__()
        feed = await net.asubscribe("t").astart()
        made.append(asyncio.ensure_future(net.aclose()))
        while not net.closed:
            await asyncio.sleep(0)
        with pytest.raises(mq.StateError, match="would stop the event loop"):
            feed.close()
        return feed, threading.get_ident()

    made = []
    first = Call(lambda: runner.run(leave()))
    assert first.over()
    feed, ident = first.result
    go, calls = Event(), []
    while not calls or calls[-1].thread.ident != ident and len(calls) < 500:
        calls.append(Call(lambda: feed.close() if threading.get_ident() == ident else go.wait()))
    go.set()            # until then they keep their own, so that one gets the ident at last
    assert all(call.over() for call in calls)
    if calls[-1].thread.ident != ident:
        pytest.skip("the system gave the ident to no other thread")
    assert calls[-1].result is None


@pytest.mark.parametrize("call", [
    lambda net, feed: net.publish("t", b""), lambda net, feed: feed.close(),
    lambda net, feed: net.drain(), lambda net, feed: net.close()],
    ids=["publish", "end", "drain", "close"])
def test_a_blocking_call_in_a_loop_that_another_thread_runs_now(key, runner, call):
    """It would wait for itself. The thread in which the node has joined is still refused, too."""
    async def join():
        net = await cluster.ajoin(key, udp=False).__aenter__()
        return net, await net.asubscribe("t").astart()

    async def block(leave):
        with pytest.raises(mq.StateError, match="would stop the event loop"):
            call(net, feed)
        assert await asyncio.to_thread(net.publish, "t", b"") == 1
        if leave:
            await net.aclose()
        return "raised"

    net, feed = runner.run(join())
    loop = runner.get_loop()
    moved = Call(lambda: loop.run_until_complete(block(False)))
    assert moved.over() and moved.result == "raised"
    with pytest.raises(mq.StateError, match="would stop the event loop"):
        call(net, feed)
    assert runner.run(block(True)) == "raised"


def test_a_call_that_begins_in_the_last_turn_of_a_loop(key, runner, monkeypatch):
    """It has become a task, which never takes its first step."""
    go, asks, left, asked, stopped = (Event() for _ in range(5))

    async def main():
        async with cluster.ajoin(key, udp=False) as net:
            real = net.loop.loop.call_soon_threadsafe

            def late(*args):
                if threading.current_thread() is not call.thread:
                    return real(*args)
                asks.set()
                left.wait()
                real(*args)
                asked.set()
                stopped.wait()

            call = Call(lambda: go.wait() and net.request("echo", b"", timeout=LIMIT))
            monkeypatch.setattr(net.loop.loop, "call_soon_threadsafe", late)
            go.set()
            while not asks.is_set():
                await asyncio.sleep(0)
        left.set()
        asked.wait()
        return call

    call = runner.run(main())
    stopped.set()
    assert call.over() and isinstance(call.result, cluster.NodeClosed)


def test_a_call_of_a_node_that_has_not_left_waits_for_the_next_run(key, runner, monkeypatch):
    monkeypatch.setattr(loops, "LOOK", 0.01)
    looks = []

    async def join():
        net = await cluster.ajoin(key, udp=False).__aenter__()
        real = net.loop._dead
        monkeypatch.setattr(net.loop, "_dead", lambda call: looks.append(real(call)) or looks[-1])
        return net

    net = runner.run(join())
    call = Call(lambda: net.publish("a.topic", b""))
    until(lambda: len(looks) > 5)
    assert call.thread.is_alive() and not any(looks)
    runner.run(asyncio.sleep(0.1))
    assert call.over() and call.result == 0
    runner.run(net.aclose())


def test_a_node_leaves_in_a_loop_that_runs_in_slices(key, runner, monkeypatch):
    """Looks find it stopped again and again."""
    monkeypatch.setattr(loops, "LOOK", 0.01)
    with cluster.join(key, udp=False) as other:
        net = runner.run(cluster.ajoin(key, udp=False, seeds=[other.url]).__aenter__())
        other.subscribe("t").start()
        seen = other.events()

        async def fill():
            assert await net.until(lambda: net.directory.members, LIMIT)
            while await net.apublish("t", bytes(100_000)) == 0:
                await asyncio.sleep(0.01)
            for _ in range(200):
                await net.apublish("t", bytes(100_000))

        runner.run(fill())
        call = Call(net.close)
        while call.thread.is_alive():
            runner.run(asyncio.sleep(0))
            call.thread.join(0.2)
        kinds = []
        while "left" not in kinds:
            kinds.append(seen.next(LIMIT).kind)
    assert call.result is None and not {"failed", "suspected"} & set(kinds)


def watched():
    """Calls whose look, once heard() is due, waits until the loop has taken that up, after it has
    read since when. `due` and `cleared`: so far it has come; `looks`: how many there were."""
    class Watched(calling.Calling):
        due, cleared, looks = Event(), Event(), 0
        since = 0.0

        @property
        def unheard(self):
            Watched.looks += 1
            since = self.since
            if since:
                self.due.set()
                self.cleared.wait(LIMIT)
            return since

        @unheard.setter
        def unheard(self, since):
            self.since = since
            if self.due.is_set():
                self.cleared.set()

    return Watched


def test_a_loop_that_answers_within_a_look_has_not_stopped(key, runner, monkeypatch):
    monkeypatch.setattr(loops, "LOOK", 0.01)
    monkeypatch.setattr(loops, "SILENCE", LIMIT)
    seen = watched()
    monkeypatch.setattr(loops, "Calling", seen)

    async def wait():
        await go.wait()
        return 1

    go = asyncio.Event()
    net = runner.run(cluster.ajoin(key, udp=False).__aenter__())
    net.loop.leaving = True     # as it is while the node leaves
    call = Call(lambda: net.loop.call(wait))
    assert seen.due.wait(LIMIT)
    runner.run(asyncio.sleep(0))
    assert seen.cleared.is_set()
    looks = seen.looks
    until(lambda: not call.thread.is_alive() or seen.looks > looks + 1)
    assert call.thread.is_alive()
    go.set()
    while call.thread.is_alive():
        runner.run(asyncio.sleep(0))
    assert call.result == 1
    runner.run(net.aclose())


def test_a_drain_while_another_call_leaves_has_its_result(key, monkeypatch):
    """Its turn comes when the node has closed."""
    with cluster.join(key, udp=False) as net:
        real, calls = net.loop.loop.call_soon_threadsafe, []

        def late(*args):
            if threading.current_thread() is threading.main_thread():
                calls.append(Call(net.drain))
                until(lambda: net.closed)
            return real(*args)

        monkeypatch.setattr(net.loop.loop, "call_soon_threadsafe", late)
        assert net.drain(LIMIT) is True and calls[0].over() and calls[0].result is True


def test_a_stop_that_is_cancelled_has_not_stopped(key, runner):
    """The node has not left, and its loop runs on."""
    async def main():
        async with cluster.ajoin(key, udp=False) as net:
            service = await net.aserve("echo", Reader()).astart()
            tunnel = await net.atunnel("echo", timeout=LIMIT)
            before = asyncio.all_tasks()
            call = Call(lambda: service.stop(LIMIT))
            while not service.draining:
                await asyncio.sleep(0)
            for task in asyncio.all_tasks() - before:
                task.cancel()
            while call.thread.is_alive():
                await asyncio.sleep(0.01)
            await tunnel.aclose()
            return call.result

    assert isinstance(runner.run(main()), cluster.NodeClosed)


RUNS = """
import contextlib, threading, trio
from mqcore import cluster
class Echo:
    async def request(self, req):
        served.append(1)
        return req.body
def calls(net):
    with contextlib.suppress(cluster.NodeClosed, cluster.MemberLost):
        while True:
            net.request("echo", b"x", timeout=50)
async def main():
    net = await cluster.ajoin(key, udp=False).__aenter__()
    await net.aserve("echo", Echo()).astart()
    for _ in range(8):
        threads.append(threading.Thread(target=calls, args=(net,)))
        threads[-1].start()
    while len(served) < 100:
        await trio.sleep(0)
key = cluster.Key.generate()
for _ in range(10):
    served, threads = [], []
    trio.run(main)
    for thread in threads:
        thread.join()
"""


def test_a_run_of_trio_that_ends_while_threads_call():
    """The node has not left, and what their requests begin is no error of the run."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", RUNS], env=environment(), check=True,
                   timeout=LIMIT)
