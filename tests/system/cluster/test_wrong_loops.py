"""Calls outside of the node's event loop, and of nodes whose loop has ended, are refused or end:
none touches what another thread is at work on, and none waits for ever."""

import asyncio
import enum
import socket
import threading

import echoing
import pytest
import trio

import mqcore as mq
from mqcore import cluster
from mqcore.binding.sleep import sleep
from mqcore.cluster.identity import Identity
from mqcore.testing import until

pytestmark = pytest.mark.keeps(threads=2, why="trio keeps its threads for ten seconds")
LIMIT = 50.0


class Echo(echoing.Echo):
    async def broadcast(self, msg):
        return msg.body


async def survey(net):
    return [reply async for reply in net.asurvey("echo", b"", deadline=LIMIT)]


CALLS = {
    "request": lambda net: net.arequest("echo", b"x", timeout=LIMIT),
    "publish": lambda net: net.apublish("t", b"x"),
    "broadcast": lambda net: net.abroadcast("echo", b"x"),
    "survey": survey,
    "tunnel": lambda net: net.atunnel("echo", timeout=LIMIT)._open(),
    "subscribe": lambda net: net.asubscribe("t").astart(),
    "serve": lambda net: net.aserve("other", Echo()).astart(),
    "members": lambda net: net.await_members("nobody", timeout=LIMIT),
    "adopt": lambda net: net.aadopt("old", "tcp://127.0.0.1:1"),
    "federate": lambda net: net.afederate("west", cluster.Key.generate()).astart(),
    "events": lambda net: net.events().anext(LIMIT),
    "drain": lambda net: net.adrain(LIMIT),
    "close": lambda net: net.aclose(),
}


@pytest.mark.parametrize("run", [asyncio.run, trio.run], ids=["asyncio", "trio"])
def test_an_awaited_call_in_another_loop_than_the_nodes(key, run):
    """The node of join() lives in a thread. Nothing has been sent, or begun."""
    with cluster.join(key) as one, one.serve("echo", Echo()), \
            cluster.join(key, seeds=[one.url]) as two:
        two.wait_members("echo", timeout=LIMIT)
        feed = two.subscribe("t").start()
        tunnel = two.tunnel("echo", timeout=LIMIT).__enter__()

        async def main():
            for name, call in CALLS.items():
                with pytest.raises(mq.StateError, match="another event loop"):
                    await call(two)
                assert not two.closed and not two.draining, name
            for call in (feed.arecv, tunnel.arecv):
                with pytest.raises(mq.StateError, match="another event loop"):
                    await call(timeout=LIMIT)

        run(main) if run is trio.run else run(main())
        assert two.stats()["requests"]["asked"] == 0 and not two.gateways and not two.adopted
        assert not two.services and two.topics.feeds == {feed} and two.topics.published == 0
        tunnel.send(b"on")
        assert tunnel.recv(timeout=LIMIT) == b"on"
        assert two.request("echo", b"on", timeout=LIMIT) == b"on"
        assert not one.links.dropped and not two.links.dropped


@pytest.mark.parametrize("run", [asyncio.run, trio.run], ids=["asyncio", "trio"])
def test_a_node_whose_loop_has_ended_without_it(key, run, tmp_path):
    """close() releases its port and its identity all the same."""
    nodes = []

    async def join():
        nodes.append(await cluster.ajoin(key, identity=tmp_path / "identity").__aenter__())

    async def use(net):
        with pytest.raises(cluster.NodeClosed):
            await net.arequest("echo", b"")
        await net.aclose()

    for close in ("close", "aclose"):
        run(join) if run is trio.run else run(join())
        net = nodes.pop()
        with pytest.raises(cluster.NodeClosed):
            net.request("echo", b"")
        if close == "close":
            net.close()
        elif run is trio.run:
            run(use, net)
        else:
            run(use(net))
        net.close()
        assert net.closed and net.links.socket.closed
        with socket.create_server(("127.0.0.1", int(net.url.rpartition(":")[2]))):
            pass


def started(net, call):
    """Have a task make the call; what comes of it is added to the list."""
    found = []

    async def go():
        try:
            found.append(await call())
        except Exception as error:
            found.append(error)

    net.loop.spawn(go)
    return found


def test_a_call_that_waits_ends_with_its_node(run, key):
    async def main():
        async with cluster.ajoin(key) as one:
            net = await cluster.ajoin(key).__aenter__()
            waits = [started(one, lambda: net.await_members("nobody")),
                     started(one, net.events().anext)]
            await sleep(0)
            await net.aclose()
            assert await one.until(lambda: all(waits), LIMIT)
            assert isinstance(waits[0][0], cluster.NodeClosed) and waits[1] == [None]
            assert await net.events().anext(LIMIT) is None      # of a node that has left

    run(main)


def test_a_thread_that_waits_while_its_node_leaves(key):
    found = []

    def wait():
        try:
            net.wait_members("nobody")
        except Exception as error:
            found.append(error)

    with cluster.join(key) as net:
        thread = threading.Thread(target=wait)
        thread.start()
        until(lambda: net._naps)
    thread.join(LIMIT)
    assert isinstance(found[0], cluster.NodeClosed)


@pytest.mark.parametrize("gateway", [False, True])
@pytest.mark.parametrize("what", ["aclose", "adrain"])
def test_a_second_close_waits_for_the_first(run, key, what, gateway):
    """A program whose main task leaves while a signal's task closes the node: the end of the event
    loop would cut that off."""
    async def main():
        async with cluster.ajoin(key) as one:
            async with cluster.ajoin(key, seeds=[one.url]) as net:
                if gateway:
                    await net.afederate("west", cluster.Key.generate()).astart()
                real, go = net.links.aclose, []

                async def aclose():
                    while not go:
                        await sleep(0)
                    await real()

                net.links.aclose = aclose
                first = started(one, getattr(net, what))
                if not gateway:
                    assert await one.until(lambda: net.closed, LIMIT)
                second = started(one, net.aclose)
                assert await one.until(lambda: net.closed, LIMIT)
                await sleep(0.05)
                assert not first and not second
                go.append(True)
                assert await one.until(lambda: first and second, LIMIT)
                assert net.links.socket.closed and second == [None]

    run(main)


def test_a_node_that_has_not_joined(key):
    net = cluster.ajoin(key)
    for call in (lambda: net.request("echo", b""), lambda: net.publish("t", b""), net.drain,
                 net.wait_members, net.events().next):
        with pytest.raises(mq.StateError, match="not joined"):
            call()
    net.close()
    with pytest.raises(mq.StateError, match="joined already"):
        asyncio.run(net.__aenter__())
    joined = cluster.join(key)
    with joined as net:
        assert net.members()
    with pytest.raises(mq.StateError, match="joined already"):
        joined.__enter__()


@pytest.mark.parametrize("run", [asyncio.run, trio.run], ids=["asyncio", "trio"])
def test_a_second_close_of_a_node_that_has_not_joined(key, run):
    """Nor could it: the first one has closed it."""
    async def main():
        net = cluster.ajoin(key)
        events = net.events()
        for _ in range(2):
            await net.aclose()
        assert await events.anext(LIMIT) is None
        with pytest.raises(cluster.NodeClosed):
            await net.adrain()
        nodes.append(net)

    nodes = []
    run(main) if run is trio.run else run(main())
    for _ in range(2):
        nodes[0].close()


def test_a_node_that_could_not_begin_to_join(key):
    """A coroutine that no event loop runs."""
    net = cluster.ajoin(key)
    with pytest.raises(RuntimeError, match="no running event loop"):
        net.__aenter__().send(None)
    net.close()
    assert net.closed


def test_a_loop_that_ends_while_its_node_leaves(key, tmp_path):
    """A later close() releases what is left."""
    async def main():
        net = await cluster.ajoin(key, identity=tmp_path / "identity").__aenter__()
        net.closed = True       # so far it has come
        return net

    net = asyncio.run(main())
    net.close()
    assert net.links.socket.closed
    Identity.take(tmp_path / "identity").release()


class Ending:
    """A node's loop that ends between the look at it and the call."""

    over = False

    def __init__(self, error):
        self.error = error

    def call(self, function):
        raise self.error


def test_a_close_whose_loop_ends_just_then(key):
    with cluster.join(key) as net:
        pass
    net.ended, net.loop = False, Ending(cluster.NodeClosed("its event loop has ended"))
    net.close()
    assert net.ended


def test_a_call_of_a_thread_that_the_end_of_the_loop_cancels(key):
    """Another call has closed the node, so the main task is over before the loop's tasks are."""
    net = cluster.join(key)
    node = net.__enter__()
    found, real = [], node.loop.aclose

    async def wait():
        await asyncio.Event().wait()

    async def aclose():
        node.loop.spawn(lingers)
        await asyncio.sleep(0)
        await real()

    async def lingers():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            for _ in range(20):
                await asyncio.sleep(0.01)

    def call(function):
        try:
            found.append(function())
        except BaseException as error:
            found.append(error)

    node.loop.aclose = aclose
    threads = [threading.Thread(target=call, args=(what,))
               for what in (lambda: node.loop.call(wait), node.close)]
    threads[0].start()
    threads[1].start()
    until(lambda: node.ended)
    net.__exit__(None, None, None)
    for thread in threads:
        thread.join(LIMIT)
    assert len(found) == 2
    assert {type(one) for one in found} == {cluster.NodeClosed, type(None)}


def test_a_subscription_that_has_not_begun(run, key):
    """Without `async with`, it would wait for ever."""
    async def main():
        async with cluster.ajoin(key) as net:
            with pytest.raises(mq.StateError, match="not begun"):
                await net.asubscribe("t").arecv()

    run(main)


class Stuck:
    """Never answers."""

    heard = 0

    async def request(self, req):
        await sleep(2 * LIMIT)

    async def broadcast(self, msg):
        self.heard += 1
        await sleep(2 * LIMIT)


@pytest.mark.parametrize("timeout", [None, LIMIT])
def test_requests_of_a_node_to_itself_end_with_it(run, key, timeout):
    """Those that wait behind others as well, and none of them runs in a node that has left."""
    async def main():
        async with cluster.ajoin(key) as one:
            net = await cluster.ajoin(key).__aenter__()
            handler = Stuck()
            service = await net.aserve("it", handler, concurrency=1).astart()
            asked = [started(one, lambda: net.arequest("it", b"", timeout=timeout))
                     for _ in range(3)]
            assert await one.until(lambda: service.requests.load == 3, LIMIT)
            for _ in range(3):
                await net.abroadcast("it", b"")
            assert await one.until(lambda: service.broadcasts.load == 3, LIMIT)
            stops = started(one, lambda: service.astop(None))
            await net.aclose()
            assert await one.until(lambda: all(asked) and stops, LIMIT)
            assert {type(found) for found, in asked} == {cluster.MemberLost}
            assert await one.until(lambda: not service.requests.load, LIMIT)
            assert not net.requests.pending and handler.heard == 1

    run(main)


class Ends:
    async def request(self, req):
        raise SystemExit(3)


@pytest.mark.keeps(threads=2, why="trio keeps its threads for ten seconds")
def test_a_handler_ends_the_program_of_its_own_thread(key):
    """And not that of the main thread. On trio, SystemExit comes within an error of trio's."""
    found = []

    def live(seed):
        async def main():
            async with cluster.ajoin(key, seeds=[seed]) as net, net.aserve("it", Ends()):
                await trio.sleep_forever()

        try:
            trio.run(main)
        except BaseException as error:
            found.append(error)

    with cluster.join(key) as net:
        thread = threading.Thread(target=live, args=(net.url,))
        thread.start()
        net.wait_members("it", timeout=LIMIT)
        with pytest.raises(cluster.ClusterError):
            net.request("it", b"", timeout=None)
        thread.join(LIMIT)
        assert found and not thread.is_alive()
        until(lambda: len(net.members()) == 1)


class Names(enum.StrEnum):
    SERVICE = "it"
    TOPIC = "px.eur"


class Text(str):
    __slots__ = ()


class Octets(bytes):
    pass


@pytest.mark.parametrize("kind", [Names, Text])
def test_texts_and_bytes_of_derived_classes(once, key, kind):
    """An enum's, say: the frames that carry them know str and bytes alone."""
    service, topic = (Names.SERVICE, Names.TOPIC) if kind is Names else (Text("it"), Text("px.eur"))

    async def main():
        async with cluster.ajoin(key) as one, cluster.ajoin(
                key, seeds=[Text(one.url)], zone=Text("z"), version=Text("v")) as two, \
                one.aserve(service, Echo()), two.asubscribe(topic, queue=Text("q")) as feed:
            await two.await_members(service, timeout=LIMIT)
            assert await two.arequest(service, Octets(b"x"), timeout=LIMIT, trace=Text("t"),
                                      headers={Text("a"): Octets(b"b")}, key=Text("k")) == b"x"
            assert await two.abroadcast(service, Octets(b"x")) == 1
            assert [reply.body async for reply in
                    two.asurvey(service, Octets(b"y"), deadline=LIMIT)] == [b"y"]
            async with two.atunnel(service, timeout=LIMIT) as tunnel:
                await tunnel.asend(Octets(b"z"))
                assert await tunnel.arecv(timeout=LIMIT) == b"z"
            assert await one.apublish(topic, Octets(b"1")) == 1
            assert (await feed.arecv(timeout=LIMIT)).body == b"1"
            assert not one.links.dropped and not two.links.dropped

    once(main)


def test_a_banned_node_that_others_name(once, key):
    """They may not know of the ban: their records of it make it no member, and are not tried."""
    async def main():
        async with cluster.ajoin(key) as one, cluster.ajoin(key, seeds=[one.url]) as banned, \
                banned.aserve("it", Echo()):
            await one.await_members("it", timeout=LIMIT)
            strict = key.banning(bytes.fromhex(banned.id))
            async with cluster.ajoin(strict, seeds=[one.url]) as net:
                await net.await_members(n=2, timeout=LIMIT)
                assert [member.url for member in net.members()] == [net.url, one.url]
                assert not net.members("it") and banned.url not in net.links.dials

    once(main)
