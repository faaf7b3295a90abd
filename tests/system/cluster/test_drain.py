"""What adrain() says, and what it waits for."""

import asyncio

import pytest

from mqcore import cluster
from mqcore.binding.sleep import sleep
from mqcore.testing import SlowLink

pytestmark = pytest.mark.keeps(threads=2, why="trio keeps its threads for ten seconds")
LIMIT = 50.0
NOWHERE = "tcp://127.0.0.1:1"     # where nothing listens


class Work:
    """Each method waits for `go`."""

    def __init__(self):
        self.go = asyncio.Event()
        self.runs = 0

    async def request(self, req):
        self.runs += 1
        await self.go.wait()
        return req.body

    broadcast = request

    async def tunnel(self, tun):
        self.runs += 1
        await self.go.wait()
        for _ in range(10):
            await tun.asend(bytes(5_000))


async def begun(part):
    """A node or a service has begun to drain."""
    while not part.draining:
        await asyncio.sleep(0)


def linked(function):
    """function(server, client, work, slow): the client reaches the server over a link that can be
    cut, and in no other way."""
    async def main(key):
        work = Work()
        async with cluster.ajoin(key, udp=False, url=NOWHERE) as server, \
                server.aserve("it", work):
            with SlowLink(server.links.urls[0]) as slow:
                async with cluster.ajoin(key, udp=False, url=NOWHERE, seeds=[slow.url]) as client:
                    await client.await_members("it", timeout=LIMIT)
                    await function(server, client, work, slow)

    return main


@pytest.mark.parametrize("drains", [False, True])
def test_what_a_node_has_published_has_arrived_when_it_leaves(once, key, drains):
    """The link is slow, and what the other side says of what it has taken comes back over it."""
    async def main():
        async with cluster.ajoin(key, udp=False, url=NOWHERE) as taker, \
                taker.asubscribe("t") as feed:
            with SlowLink(taker.links.urls[0], rate=1e6) as slow:
                async with cluster.ajoin(key, udp=False, url=NOWHERE, seeds=[slow.url]) as net:
                    assert await net.until(lambda: net.topics.remote.takers("t"), LIMIT)
                    for _ in range(500):
                        assert await net.apublish("t", bytes(3000)) == 1
                    if drains:
                        assert await net.adrain(LIMIT)
                for _ in range(500):
                    await feed.arecv(timeout=LIMIT)
                assert net.links.dropped == {}

    once(main)


@pytest.mark.parametrize("resume", [0, 0.2])
def test_messages_of_a_tunnel_that_have_not_arrived(once, key, resume):
    async def use(server, client, work, slow):
        tunnel = await client.atunnel("it", timeout=LIMIT, resume=resume)
        assert await server.until(lambda: work.runs, LIMIT)
        slow.stall()
        work.go.set()
        draining = asyncio.ensure_future(server.adrain(LIMIT))
        assert await server.until(lambda: not server.services["it"].busy, LIMIT)
        if not resume:
            await sleep(0.1)
            assert not draining.done()
        slow.shut()
        assert await draining is False
        tunnel.reset()

    once(lambda: linked(use)(key))


@pytest.mark.parametrize("resume", [0, 10])
def test_messages_of_a_tunnel_that_have_arrived(once, key, resume):
    async def use(server, client, work, slow):
        tunnel = await client.atunnel("it", timeout=LIMIT, resume=resume)
        work.go.set()
        draining = asyncio.ensure_future(server.adrain(LIMIT))
        got = [message async for message in tunnel]
        await tunnel.aclose()
        assert got == [bytes(5_000)] * 10 and await draining is True

    once(lambda: linked(use)(key))


@pytest.mark.parametrize("how", ["leaves", "resets"])
def test_messages_of_a_tunnel_that_nobody_wants(once, key, how):
    async def use(server, client, work, slow):
        tunnel = await client.atunnel("it", timeout=LIMIT)
        assert await server.until(lambda: work.runs, LIMIT)
        draining = asyncio.ensure_future(server.adrain(LIMIT))
        await begun(server)
        if how == "leaves":
            await client.aclose()
        else:
            tunnel.reset("enough")
        assert await server.until(lambda: not server.tunnels.open, LIMIT)
        work.go.set()
        assert await draining is True

    once(lambda: linked(use)(key))


@pytest.mark.parametrize("what", ["tunnel", "request", "broadcast", "own request"])
@pytest.mark.parametrize("other", ["adrain", "aclose"])
def test_another_call_closes_the_node_first(once, key, what, other):
    async def use(server, client, work, slow):
        node = client if what == "own request" else server
        if what == "tunnel":
            await client.atunnel("it", timeout=LIMIT)
        elif what == "broadcast":
            await client.abroadcast("it", b"1")
        else:
            asking = asyncio.ensure_future(client.arequest("it", b"1", timeout=LIMIT))
        assert await server.until(lambda: work.runs, LIMIT)
        draining = asyncio.ensure_future(node.adrain(LIMIT))
        await begun(node)
        if other == "aclose":
            await node.aclose()
        else:
            assert await node.adrain(0.05) is False
        assert await draining is False
        work.go.set()
        if "request" in what:
            with pytest.raises(cluster.ClusterError):
                await asking

    once(lambda: linked(use)(key))


def test_two_calls_find_the_same(once, key):
    async def use(server, client, work, slow):
        asking = asyncio.ensure_future(client.arequest("it", b"1", timeout=LIMIT))
        assert await server.until(lambda: work.runs, LIMIT)
        drains = [asyncio.ensure_future(server.adrain(LIMIT)) for _ in range(3)]
        await begun(server)
        work.go.set()
        assert await asking == b"1"
        assert await asyncio.gather(*drains) == [True] * 3

    once(lambda: linked(use)(key))


def test_a_draining_service_takes_no_new_broadcasts_and_surveys(once, key):
    async def use(server, client, work, slow):
        await client.abroadcast("it", b"1")
        assert await server.until(lambda: work.runs == 1, LIMIT)
        service = server.services["it"]
        stopping = asyncio.ensure_future(service.astop(LIMIT))
        await begun(service)
        [member] = client.directory.members.values()
        for frame in (cluster.frames.Broadcast(1, "it", b"2"),
                      cluster.frames.Survey(2, "it", 10_000_000, b"3")):
            assert member.link.send(frame)
        assert await server.until(lambda: service.broadcasts.refused == 2, LIMIT)
        work.go.set()
        assert await stopping is True and work.runs == 1

    once(lambda: linked(use)(key))


def test_an_answer_for_a_link_that_broke_meanwhile(once, key):
    """Broken, and not yet given up: the answer is lost all the same."""
    async def use(server, client, work, slow):
        asking = asyncio.ensure_future(client.arequest("it", b"1", timeout=LIMIT))
        assert await server.until(lambda: work.runs, LIMIT)
        draining = asyncio.ensure_future(server.adrain(LIMIT))
        await begun(server)
        [member] = server.directory.members.values()
        member.link.broken = "the connection broke"
        work.go.set()
        assert await draining is False and server.counts["replies_lost"] == 1
        slow.shut()
        with pytest.raises(cluster.ClusterError):
            await asking

    once(lambda: linked(use)(key))


def test_a_tunnel_of_ones_own_is_finished(once, key):
    async def use(server, client, work, slow):
        reader = Reader()
        async with server.aserve("reader", reader):
            await client.await_members("reader", timeout=LIMIT)
            tunnel = await client.atunnel("reader", timeout=LIMIT)

            async def send():
                for _ in range(20):
                    await tunnel.asend(bytes(1000))
                    await sleep(0.01)
                await tunnel.aclose()

            sending = asyncio.ensure_future(send())
            await sleep(0.02)
            assert await client.adrain(LIMIT) is True
            await sending
            assert reader.got == 20

    once(lambda: linked(use)(key))


class Reader:
    """Counts what its tunnels bring, and keeps them and why they have ended."""

    def __init__(self):
        self.got = 0
        self.tunnels = []
        self.ends = []

    async def tunnel(self, tun):
        self.tunnels.append(tun)
        try:
            while True:
                await tun.arecv()
                self.got += 1
        except cluster.TunnelClosed as closed:
            self.ends.append(closed.reason)


def reading(function):
    """function(client, reader, tunnel, slow): the tunnel is the client's, to a reader at the other
    side of a link that can be cut."""
    def resuming(resume):
        async def use(server, client, work, slow):
            reader = Reader()
            async with server.aserve("reader", reader):
                await client.await_members("reader", timeout=LIMIT)
                tunnel = await client.atunnel("reader", timeout=LIMIT, resume=resume)
                await function(client, reader, tunnel, slow)
                for tun in reader.tunnels:
                    tun.reset()

        return linked(use)

    return resuming


async def sent(tunnel, number=5):
    """Messages that wait on their way, and the end."""
    for _ in range(number):
        await tunnel.asend(bytes(200))
    await tunnel.asend_eof()


@pytest.mark.parametrize("resume", [0, 0.2])
def test_a_tunnel_of_ones_own_whose_messages_have_not_arrived(once, key, resume):
    """It has sent all of them and its end."""
    async def use(client, reader, tunnel, slow):
        slow.stall()
        await sent(tunnel)
        draining = asyncio.ensure_future(client.adrain(LIMIT))
        await begun(client)
        assert tunnel in client.tunnels.open.values() and not tunnel._arrived
        slow.shut()
        assert await draining is False and reader.got == 0

    once(lambda: reading(use)(resume)(key))


@pytest.mark.parametrize("resume", [0, 10])
def test_a_tunnel_of_ones_own_whose_messages_arrive_late(once, key, resume):
    async def use(client, reader, tunnel, slow):
        slow.stall()
        await sent(tunnel)
        draining = asyncio.ensure_future(client.adrain(LIMIT))
        await begun(client)
        slow.go()
        assert await draining is True and reader.got == 5 and reader.ends == ["eof"]

    once(lambda: reading(use)(resume)(key))


@pytest.mark.parametrize("opens", [False, True])
def test_a_tunnel_of_ones_own_that_waits_for_a_link(once, key, opens):
    async def use(client, reader, tunnel, slow):
        slow.stall()
        await sent(tunnel)
        slow.shut()
        assert await client.until(lambda: tunnel._link is None, LIMIT)
        draining = asyncio.ensure_future(client.adrain(LIMIT if opens else 0.2))
        await begun(client)
        if opens:
            slow.go()
            slow.open()
        assert await draining is opens and reader.got == 5 * opens

    once(lambda: reading(use)(60)(key))


def test_a_member_fails_in_the_middle_of_a_message(once, key):
    async def use(client, reader, tunnel, slow):
        sending = asyncio.ensure_future(tunnel.asend(bytes(30_000_000)))
        assert await client.until(lambda: tunnel._begun, LIMIT)
        slow.stall()
        draining = asyncio.ensure_future(client.adrain(LIMIT))
        await begun(client)
        client.buried(tunnel.peer.record.id, "failed")
        assert await draining is False
        with pytest.raises(cluster.TunnelClosed):
            await sending

    once(lambda: reading(use)(10)(key))


def test_the_other_process_does_not_know_the_tunnel_any_more(once, key):
    """What was sent to the one before is lost."""
    async def use(client, reader, tunnel, slow):
        slow.stall()
        await sent(tunnel)
        draining = asyncio.ensure_future(client.adrain(LIMIT))
        await begun(client)
        tunnel._took(cluster.frames.Reset(tunnel._stream, False, "lost", "who is that?"))
        assert await draining is False

    once(lambda: reading(use)(10)(key))


class Chain:
    """Each request and each tunnel ends when the next one has come."""

    def __init__(self):
        self.last = asyncio.Event()

    async def request(self, req):
        self.last.set()
        self.last = mine = asyncio.Event()
        await mine.wait()
        return b"done"

    async def tunnel(self, tun):
        await self.request(None)


async def ask(client):
    await client.arequest("chain", b"", timeout=LIMIT)


async def stream(client):
    async with client.atunnel("chain", timeout=LIMIT) as tunnel:
        await tunnel.asend(b"1")
        with pytest.raises(cluster.TunnelClosed):
            await tunnel.arecv(timeout=LIMIT)


@pytest.mark.parametrize("call", [ask, stream])
def test_tasks_of_the_node_go_on_calling(once, key, call):
    """There is always a call under way. Those that were when it began are waited for."""
    async def use(server, client, work, slow):
        ended, calls, chain = [], [], Chain()

        async def go_on():
            with pytest.raises((cluster.ClusterError, cluster.TunnelClosed)):
                while True:
                    calls.append(asyncio.ensure_future(call(client)))
                    if len(calls) > 1:
                        await calls[-2]
                        ended.append(client.draining)

        async with server.aserve("chain", chain):
            await client.await_members("chain", timeout=LIMIT)
            going = asyncio.ensure_future(go_on())
            assert await client.until(lambda: ended, LIMIT)
            assert await client.adrain(10) is True and ended.count(True) >= 1
            await going
            chain.last.set()
            await asyncio.gather(*calls, return_exceptions=True)

    once(lambda: linked(use)(key))


def test_a_handler_under_way_calls_on(once, key):
    """What it begins while its node drains is neither refused nor forgotten."""
    reader = Reader()

    class Front:
        go = False

        async def request(self, req):
            self.go = True
            while not self.net.draining:
                await sleep(0)
            tunnel = await self.net.atunnel("reader", timeout=LIMIT)
            await sent(tunnel)
            return await self.net.arequest("echo", req.body, timeout=LIMIT)

    class Echo:
        async def request(self, req):
            return req.body

    async def use(server, client, work, slow):
        front = Front()
        front.net = client
        async with server.aserve("reader", reader), server.aserve("echo", Echo()), \
                client.aserve("front", front):
            for name in ("reader", "echo"):
                await client.await_members(name, timeout=LIMIT)
            asking = asyncio.ensure_future(server.arequest("front", b"1", timeout=LIMIT))
            assert await server.until(lambda: front.go, LIMIT)
            assert await client.adrain(LIMIT) is True
            assert await asking == b"1" and reader.got == 5

    once(lambda: linked(use)(key))


def test_a_tunnel_to_the_node_itself(once, key):
    class Answers:
        tunnels = []

        async def tunnel(self, tun):
            self.tunnels.append(tun)
            async for message in tun:
                await tun.asend(message)

    async def main():
        async with cluster.ajoin(key, udp=False) as net, net.aserve("it", Answers()):
            tunnel = await net.atunnel("it", timeout=LIMIT, resume=0)
            await sent(tunnel)
            assert len([message async for message in tunnel]) == 5
            assert await net.adrain(LIMIT) is True
            assert [tun._ended.reason for tun in Answers.tunnels] == ["eof"]

    once(main)


def test_a_request_that_meets_a_member_that_has_just_drained_is_refused(run, key):
    """It was sent before its node knew. Nobody has run it, so it is not lost."""
    async def main():
        async with cluster.ajoin(key) as client:
            for _ in range(5):
                async with cluster.ajoin(key, seeds=[client.url]) as server:
                    work = Work()
                    work.go.set()
                    await server.aserve("it", work).astart()
                    await client.await_members("it", timeout=LIMIT)
                    found = []

                    async def ask(found=found):
                        try:
                            found.append(await client.arequest("it", b"x", timeout=LIMIT))
                        except cluster.ClusterError as error:
                            found.append(error)

                    for _ in range(3):
                        client.loop.spawn(ask)
                    assert await server.adrain(LIMIT)
                    assert await client.until(lambda found=found: len(found) == 3, LIMIT)
                    assert not any(isinstance(one, cluster.MemberLost) for one in found)
                    assert await client.until(lambda: not client.members("it"), LIMIT)

    run(main)
