"""Handlers that misbehave: they raise what they should not, return what cannot be sent, or never
return. The caller hears of each, and the node goes on."""

import asyncio
import contextlib
import threading

import pytest
import trio
import trio.testing
from echoing import Echo

import mqcore as mq
from mqcore import cluster
from mqcore.binding.sleep import sleep
from mqcore.cluster import frames, loops
from mqcore.cluster.node import LOG

pytestmark = pytest.mark.keeps(threads=4, why="trio keeps its threads for ten seconds")
LIMIT = 50.0


class Unsayable(Exception):
    def __str__(self):
        raise ValueError("an error in an error")


class Stop(BaseException):
    """No Exception, and nothing that an event loop knows."""


class Raises:
    """Raises, in whatever it is asked to do."""

    def __init__(self, error):
        self.error = error

    async def request(self, req):
        raise self.error

    async def broadcast(self, msg):
        raise self.error

    async def tunnel(self, tun):
        raise self.error


class RaisesInThread(Raises):
    def request(self, req):
        raise self.error

    def broadcast(self, msg):
        raise self.error

    def tunnel(self, tun):
        raise self.error


@pytest.mark.parametrize("kind", [Raises, RaisesInThread])
@pytest.mark.parametrize(("make", "named"), [   # an error made here would keep its frames for ever
    (Unsayable, "Unsayable"), (StopIteration, "RuntimeError"),
    (lambda: OSError("no file \udcff"), "OSError"),
    (lambda: ExceptionGroup("many", [OSError("x")]), "ExceptionGroup"), (Stop, "Stop"),
    (lambda: BaseExceptionGroup("many", [Stop()]), "BaseExceptionGroup")])
def test_every_error_is_told(run, key, kind, make, named, monkeypatch):
    """With no time-out, so that an answer that is not sent fails."""
    monkeypatch.setattr(LOG, "propagate", False)    # pytest cannot carry all of these texts
    async def main():
        async with cluster.ajoin(key) as one, cluster.ajoin(key, seeds=[one.url]) as two, \
                one.aserve("it", kind(make())):
            await two.await_members("it", timeout=LIMIT)
            with pytest.raises(cluster.RemoteError) as caught:
                await two.arequest("it", b"", timeout=None)
            assert caught.value.kind == named
            survey = two.asurvey("it", b"", deadline=LIMIT)
            assert [reply async for reply in survey] == [] and survey.silent == 1
            tunnel = await two.atunnel("it", timeout=LIMIT)
            with pytest.raises(cluster.TunnelClosed, match=named) as ended:
                await tunnel.arecv(timeout=LIMIT)
            assert ended.value.reason == "fault"
            assert not one.services["it"].busy and not one.links.dropped

    run(main)


def test_a_handler_that_is_cancelled_answers(once, key):
    """As when it awaits a task that another one has cancelled."""
    async def main():
        async with cluster.ajoin(key) as one, cluster.ajoin(key, seeds=[one.url]) as two, \
                one.aserve("it", Raises(asyncio.CancelledError())):
            await two.await_members("it", timeout=LIMIT)
            with pytest.raises(cluster.RemoteError) as caught:
                await two.arequest("it", b"", timeout=None)
            assert caught.value.kind == "CancelledError"
            tunnel = await two.atunnel("it", timeout=LIMIT)
            with pytest.raises(cluster.TunnelClosed) as ended:
                await tunnel.arecv(timeout=LIMIT)
            assert ended.value.reason == "fault"

    once(main)


async def another_tasks_cancelled():
    """What cancelled a task that has ended; trio makes no such exception by itself."""
    caught = []

    async def child():
        try:
            await trio.sleep_forever()
        except trio.Cancelled as error:
            caught.append(error)
            raise

    async with trio.open_nursery() as nursery:
        nursery.start_soon(child)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    return caught[0]


@pytest.mark.parametrize("grouped", [False, True], ids=["alone", "in-a-group"])
@pytest.mark.parametrize("kind", [Raises, RaisesInThread])
def test_a_handler_that_raises_another_tasks_cancelled_ends_nothing_else(key, kind, grouped,
                                                                         monkeypatch):
    monkeypatch.setattr(LOG, "propagate", False)

    async def main():
        error = await another_tasks_cancelled()
        if grouped:
            error = BaseExceptionGroup("of several", [error])
        async with cluster.ajoin(key) as one, cluster.ajoin(key, seeds=[one.url]) as two, \
                one.aserve("it", kind(error)), one.aserve("other", Returns(b"fine")):
            await two.await_members("it", timeout=LIMIT)
            await two.await_members("other", timeout=LIMIT)
            with pytest.raises(cluster.RemoteError):
                await two.arequest("it", b"", timeout=None)
            survey = two.asurvey("it", b"", deadline=LIMIT)
            assert [reply async for reply in survey] == [] and survey.silent == 1
            tunnel = await two.atunnel("it", timeout=LIMIT)
            with pytest.raises(cluster.TunnelClosed) as ended:
                await tunnel.arecv(timeout=LIMIT)
            assert ended.value.reason == "fault"
            assert one.counts["trouble"] == 3 and not one.closed
            assert await two.arequest("other", b"", timeout=LIMIT) == b"fine"

    trio.run(main)


def test_a_handler_that_raises_while_its_node_leaves(key, monkeypatch):
    """What it raises comes in a group with what cancels it."""
    monkeypatch.setattr(LOG, "propagate", False)

    class Leaves:
        running = False

        async def request(self, req):
            async def child():
                try:
                    await trio.sleep_forever()
                finally:
                    raise Stop

            async with trio.open_nursery() as nursery:
                nursery.start_soon(child)
                self.running = True
                await trio.sleep_forever()

    async def main():
        handler = Leaves()
        async with cluster.ajoin(key) as one, cluster.ajoin(key, seeds=[one.url]) as two, \
                trio.open_nursery() as nursery:
            await one.aserve("it", handler).astart()
            await two.await_members("it", timeout=LIMIT)

            async def ask():
                with pytest.raises(cluster.ClusterError):
                    await two.arequest("it", b"", timeout=None)

            nursery.start_soon(ask)
            assert await one.until(lambda: handler.running, LIMIT)
            await one.aclose()
            assert one.counts["trouble"] == 1

    trio.run(main)


class Returns:
    def __init__(self, value):
        self.value = value

    async def request(self, req):
        return self.value

    broadcast = request


@pytest.mark.parametrize("value", ["text", 5, [b"x"], bytes(frames.BODY + 1)],
                         ids=["text", "number", "list", "long"])
def test_what_cannot_be_sent(once, key, value):
    async def main():
        async with cluster.ajoin(key) as one, cluster.ajoin(key, seeds=[one.url]) as two, \
                one.aserve("it", Returns(value)):
            await two.await_members("it", timeout=LIMIT)
            with pytest.raises(cluster.RemoteError, match="not bytes|the limit"):
                await two.arequest("it", b"", timeout=None)
            survey = two.asurvey("it", b"", deadline=LIMIT)
            assert [reply async for reply in survey] == [] and survey.silent == 1
            assert not one.links.dropped and not two.links.dropped

    once(main)


class Released:
    """Returns a view of which no bytes can be taken, if it is asked for that."""

    async def broadcast(self, msg):
        if msg.body != b"bad":
            return b"fine"
        with memoryview(bytearray(b"abc")) as view:
            return view

    request = broadcast


def test_a_view_that_was_released(run, key, monkeypatch):
    monkeypatch.setattr(LOG, "propagate", False)

    async def main():
        async with cluster.ajoin(key) as one, cluster.ajoin(key, seeds=[one.url]) as two, \
                one.aserve("it", Released(), concurrency=1) as service:
            await two.await_members("it", timeout=LIMIT)
            survey = two.asurvey("it", b"bad", deadline=LIMIT)
            assert [reply async for reply in survey] == [] and survey.silent == 1
            await two.abroadcast("it", b"bad")          # nobody wants what it returns
            assert await one.until(lambda: service.broadcasts.done == 2, LIMIT)
            answers = [reply.body async for reply in two.asurvey("it", b"", deadline=LIMIT)]
            assert answers == [b"fine"] and not service.busy and one.counts == {"trouble": 1}
            with pytest.raises(cluster.RemoteError, match="released"):
                await two.arequest("it", b"bad", timeout=None)

    run(main)


class Hangs:
    """`go` lets all go on."""

    def __init__(self):
        self.go = False
        self.running = 0

    async def request(self, req):
        self.running += 1
        while not self.go:
            await sleep(0.01)
        return b"late"


def test_a_service_that_never_returns_costs_itself_alone(once, key):
    async def main():
        handler = Hangs()
        async with cluster.ajoin(key) as one, cluster.ajoin(key, seeds=[one.url]) as two:
            stuck = await one.aserve("stuck", handler, concurrency=4, queue_bytes=0).astart()
            async with one.aserve("echo", Echo()):
                await two.await_members("echo", timeout=LIMIT)
                asked = [asyncio.ensure_future(two.arequest("stuck", b"x", timeout=None))
                         for _ in range(4)]
                assert await one.until(lambda: handler.running == 4, LIMIT)
                with pytest.raises(cluster.Overloaded):
                    await two.arequest("stuck", b"x", timeout=None)
                assert await two.arequest("echo", b"on", timeout=LIMIT) == b"on"
                assert "4 of 4 run" in one.explain()
                assert not await stuck.astop(0.05)
                with pytest.raises(cluster.ClusterError):
                    await two.arequest("stuck", b"x", timeout=None)
                handler.go = True
                assert await asyncio.gather(*asked) == [b"late"] * 4

    once(main)


def test_a_node_leaves_though_its_handlers_never_return(run, key):
    async def main():
        handler = Hangs()
        async with cluster.ajoin(key) as one:
            async with cluster.ajoin(key, seeds=[one.url]) as two:
                await two.aserve("stuck", handler).astart()
                await one.await_members("stuck", timeout=LIMIT)
                outcome = []

                async def ask():
                    try:
                        await one.arequest("stuck", b"", timeout=None)
                    except cluster.ClusterError as error:
                        outcome.append(type(error))

                one.loop.spawn(ask)
                assert await two.until(lambda: handler.running, LIMIT)
                assert not await two.adrain(0.05)
            assert await one.until(lambda: outcome, LIMIT)
            # it says that it is cancelled, or its link is gone
            assert set(outcome) <= {cluster.RemoteError, cluster.MemberLost}

    run(main)


class InThreads:
    """Tunnels that wait in threads for as long as they are open."""

    def __init__(self):
        self.open = threading.Semaphore(0)

    def request(self, req):
        return req.body

    def tunnel(self, tun):
        self.open.release()
        for message in tun:
            tun.send(message)


def test_tunnels_in_threads_leave_some_for_requests(once, key, monkeypatch):
    monkeypatch.setattr("mqcore.cluster.services.THREADS", 40)

    async def main():
        async with cluster.ajoin(key) as one, cluster.ajoin(key, seeds=[one.url]) as two, \
                one.aserve("it", InThreads()):
            await two.await_members("it", timeout=LIMIT)
            opened = [await two.atunnel("it", timeout=LIMIT) for _ in range(40)]
            assert await two.arequest("it", b"on", timeout=LIMIT) == b"on"
            with pytest.raises(cluster.Overloaded):
                await two.atunnel("it", timeout=LIMIT)
            assert one.stats()["services"]["it"]["tunnels_refused"] == 1
            for tunnel in opened:
                await tunnel.asend(b"x")
                assert await tunnel.arecv(timeout=LIMIT) == b"x"
                await tunnel.aclose()
            assert await one.until(lambda: not one.tunnels.threads, LIMIT)
            await (await two.atunnel("it", timeout=LIMIT)).aclose()

    once(main)


def test_a_handler_closes_its_own_node(run, key):
    class Closes:
        async def request(self, req):
            await self.net.aclose()
            return b"never"

    async def main():
        handler = Closes()
        async with cluster.ajoin(key) as one:
            async with cluster.ajoin(key, seeds=[one.url]) as handler.net, \
                    handler.net.aserve("it", handler):
                await one.await_members("it", timeout=LIMIT)
                with pytest.raises(cluster.ClusterError):
                    await one.arequest("it", b"", timeout=None)
            assert handler.net.closed
            assert await one.until(lambda: not one.directory.members, LIMIT)

    run(main)


@pytest.mark.parametrize("text", ["\udc80", "a\ud800b"])
def test_texts_that_no_frame_can_carry(once, key, text):
    async def main():
        async with cluster.ajoin(key) as one, cluster.ajoin(key, seeds=[one.url]) as two, \
                one.aserve("it", Echo()), one.asubscribe(">") as feed:
            await two.await_members("it", timeout=LIMIT)
            for call in (lambda: two.arequest(text, b""),
                         lambda: two.arequest("it", b"", trace=text),
                         lambda: two.arequest("it", b"", headers={text: b""}),
                         lambda: two.apublish(text, b""), lambda: two.abroadcast(text, b"")):
                with pytest.raises(mq.UsageError):
                    await call()
            for call in (lambda: two.asubscribe(text), lambda: two.asubscribe("t", queue=text),
                         lambda: two.aserve(text, Echo()), lambda: two.atunnel(text),
                         lambda: cluster.ajoin(key, zone=text),
                         lambda: cluster.ajoin(key, version=text)):
                with pytest.raises(mq.UsageError):
                    call()
            assert not feed.received and await two.arequest("it", b"on", timeout=LIMIT) == b"on"

    once(main)


class Plainly:
    def __init__(self):
        self.runs = 0

    def request(self, req):
        self.runs += 1
        return b"done"

    broadcast = request

    def tunnel(self, tun):
        self.runs += 1


class Delegates:
    """Plain methods, such as decorators make, that return a coroutine of another object."""

    def __init__(self, to):
        self.request = lambda req: to.request(req)
        self.broadcast = lambda msg: to.request(msg)
        self.tunnel = lambda tun: to.tunnel(tun)


def test_a_plain_handler_that_returns_a_coroutine(run, key):
    async def main():
        async with cluster.ajoin(key) as net, net.aserve("it", Delegates(Echo())):
            assert await net.arequest("it", b"x", timeout=LIMIT) == b"x"
            survey = net.asurvey("it", b"y", deadline=LIMIT)
            assert [answer.body async for answer in survey] == [b"y"]
            async with net.atunnel("it", timeout=LIMIT) as tun:
                await tun.asend(b"z")
                assert await tun.arecv(timeout=LIMIT) == b"z"
            assert "trouble" not in net.stats()["counts"]

    run(main)


def test_a_process_that_ends_runs_no_plain_handler_and_says_so(once, key, monkeypatch):
    """No handler has raised."""
    def start(thread):      # as CPython does from 3.12 on
        raise RuntimeError("can't create new thread at interpreter shutdown")

    async def main():
        plain = Plainly()
        async with cluster.ajoin(key) as net, cluster.ajoin(key, seeds=[net.url]) as one, \
                one.aserve("it", plain):
            await net.await_members("it", timeout=LIMIT)
            assert await net.arequest("it", b"", timeout=LIMIT) == b"done"
            with contextlib.suppress(cluster.TunnelClosed):
                async with net.atunnel("it", timeout=LIMIT) as tun:
                    await tun.arecv(timeout=LIMIT)
            assert plain.runs == 2
            one.loop.pool.shutdown(wait=False)      # as concurrent.futures does at the end
            monkeypatch.setattr(loops.Thread, "start", start)
            with pytest.raises(cluster.Overloaded, match="drain"):
                await net.arequest("it", b"", timeout=LIMIT)
            await net.abroadcast("it", b"")
            assert await one.until(lambda: one.stats()["dropped"].get("unheard"), LIMIT)
            assert [answer async for answer in net.asurvey("it", b"", deadline=LIMIT)] == []
            with pytest.raises(cluster.TunnelClosed, match="the process ends"):
                async with net.atunnel("it", timeout=LIMIT) as tun:
                    await tun.arecv(timeout=LIMIT)
            assert plain.runs == 2 and "trouble" not in one.stats()["counts"]
            monkeypatch.undo()
            assert not one.services["it"].busy

    once(main)
