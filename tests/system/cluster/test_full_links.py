"""Links that are full, loops that are busy, members that lie: each request ends, each place of a
service is given back, nobody else is harmed."""

import asyncio
import contextlib
import logging
import threading
import time

import pytest

from mqcore import Router, cluster
from mqcore.binding.sleep import sleep
from mqcore.cluster import frames, link, links, node, session
from mqcore.cluster.link import UNSENT
from mqcore.cluster.replies import MOST
from mqcore.cluster.services import Service
from mqcore.errors import UsageError
from mqcore.testing import SlowLink, until

pytestmark = pytest.mark.keeps(threads=2, why="trio keeps its threads for ten seconds")
LIMIT = 50.0


class Large:
    """Answers with as many bytes as it is asked for."""

    def __init__(self):
        self.runs = 0
        self.dead = 0       # that began though nobody waited

    async def request(self, req):
        self.runs += 1
        self.dead += req.cancelled
        return bytes(int(req.body))

    async def broadcast(self, msg):
        return bytes(int(msg.body))

    async def tunnel(self, tun):
        async for message in tun:
            await tun.asend(message)


def beside(function):
    """function(server, client, handler, the server's link): `server` serves "it"."""
    async def main(key):
        handler = Large()
        async with cluster.ajoin(key) as server, server.aserve("it", handler):
            async with cluster.ajoin(key, seeds=[server.url]) as client:
                await client.await_members("it", timeout=LIMIT)
                [member] = server.directory.members.values()
                await function(server, client, handler, member.link)

    return main


async def all_of(net, calls):
    """What each of these coroutine functions returns."""
    found = [None] * len(calls)

    async def one(number, call):
        found[number] = await call()

    for number, call in enumerate(calls):
        net.loop.spawn(one, number, call)
    assert await net.until(lambda: all(value is not None for value in found), LIMIT)
    return found


def test_large_answers_wait_for_the_link(run, key):
    """Many times what a link keeps of large frames."""
    @beside
    async def main(server, client, handler, link):
        async def ask():
            return len(await client.arequest("it", b"300000", timeout=LIMIT))

        async def survey():
            return [len(reply.body) async for reply
                    in client.asurvey("it", b"300000", deadline=LIMIT)]

        assert await all_of(client, [ask] * 120) == [300_000] * 120
        assert await all_of(client, [survey] * 120) == [[300_000]] * 120
        assert handler.runs == 120 and not link.answers and not link.answers.bytes
        assert "replies_lost" not in server.counts

    run(lambda: main(key))


def test_answers_to_who_takes_none_have_a_bound(once, key):
    """Then its requests are refused before they run, and run again when it has taken them."""
    @beside
    async def main(server, client, handler, link):
        link.unsent_bytes += UNSENT + 1     # as if the socket were full
        async def ask():
            try:
                return len(await client.arequest("it", b"5000000", timeout=LIMIT))
            except cluster.Overloaded:
                return -1

        asked = []
        while not link.clogged:
            asked.append(asyncio.ensure_future(ask()))
            await sleep(0.005)
        assert MOST < link.answers.bytes < MOST + 25_000_000
        assert await ask() == -1
        link.unsent_bytes -= UNSENT + 1
        link.answers.go_on()
        assert set(await asyncio.gather(*asked)) <= {5_000_000, -1}
        assert await ask() == 5_000_000

    once(lambda: main(key))


def test_a_full_link_still_carries_what_ends_a_wait(run, key):
    @beside
    async def main(server, client, handler, link):
        link.unsent_bytes += UNSENT + 1
        async with client.atunnel("it", timeout=LIMIT):
            pass
        with pytest.raises(cluster.NoSuchService):
            await client.arequest("other", b"", timeout=LIMIT)
        server.services["it"].draining = True
        with pytest.raises(cluster.ClusterError) as caught:
            await client.arequest("it", b"1", timeout=LIMIT)
        assert not isinstance(caught.value, cluster.RequestTimeout)
        server.services["it"].draining = False
        answers = all_of(client, [lambda: client.arequest("it", b"1", timeout=LIMIT)])
        link.unsent_bytes -= UNSENT + 1
        assert await answers == [b"\0"]

    run(lambda: main(key))


def test_answers_that_wait_are_counted_if_the_link_breaks(once, key):
    @beside
    async def main(server, client, handler, link):
        link.unsent_bytes += UNSENT + 1
        asked = asyncio.ensure_future(client.arequest("it", b"5", timeout=LIMIT))
        assert await server.until(lambda: link.answers, LIMIT)
        server.links.socket._links.end_peer(link.peer)
        with pytest.raises(cluster.MemberLost):
            await asked
        assert await server.until(lambda: server.counts.get("replies_lost") == 1, LIMIT)

    once(lambda: main(key))


# -- a full link, and what all members are to know -------------------------------------------------


def fill(link):
    """As if the socket were full."""
    link.unsent_bytes += UNSENT + 1


def empty(link):
    link.unsent_bytes -= UNSENT + 1


def told(function):
    """function(net, link, other): two nodes without UDP, so that links alone carry the news."""
    async def main(key):
        async with cluster.ajoin(key, udp=False) as other, \
                cluster.ajoin(key, udp=False, seeds=[other.url]) as net:
            assert await other.until(lambda: other.directory.members, LIMIT)
            [member] = net.directory.members.values()
            await function(net, member.link, other)

    return main


@pytest.mark.parametrize("what", ["serve", "subscribe"])
def test_what_begins_waits_for_members_behind_full_links(run, key, what, monkeypatch):
    monkeypatch.setattr(node, "TOLD", 20.0)

    @told
    async def main(net, link, other):
        fill(link)
        net.loop.later(0.3, lambda: empty(link))
        begun = time.monotonic()
        began = net.aserve("mine", Large()) if what == "serve" else net.asubscribe("mine")
        async with began:
            assert 0.25 < time.monotonic() - begun < 15.0
            assert other.topics.remote.takers("mine") if what == "subscribe" \
                else other.directory.offering("mine")

    run(lambda: main(key))


def test_a_barrier_does_not_wait_for_a_full_link_that_does_not_move(run, key, monkeypatch):
    """Longer than for a member that hangs."""
    @told
    async def main(net, link, other):
        fill(link)
        begun = time.monotonic()
        assert await net.barrier() is False
        assert node.TOLD <= time.monotonic() - begun < node.TOLD + 5
        assert not net.links.pings
        monkeypatch.setattr(node, "TOLD", 20.0)
        net.loop.later(0.2, lambda: net.links.socket._links.end_peer(link.peer))
        begun = time.monotonic()
        assert await net.barrier() is True      # it is broken
        assert time.monotonic() - begun < 15.0
        assert not net.links.pings

    run(lambda: main(key))


def test_a_barrier_over_a_link_that_is_full_and_moves(once, key, monkeypatch):
    """What was sent before has arrived when it returns. No heartbeat passes while it stalls, which
    may last on a busy machine, and a barrier does not wait for a link that has broken."""
    monkeypatch.setattr(links, "Router", lambda **options: Router(
        **{**options, "heartbeat_timeout": LIMIT}))
    monkeypatch.setattr(link, "UNSENT", 100_000)
    monkeypatch.setattr(session, "AHEAD", 1 << 30)      # so that small ones fill the socket
    monkeypatch.setattr(node, "TOLD", 20.0)

    async def main():
        async with cluster.ajoin(key, udp=False) as other:
            with SlowLink(other.url) as slow:
                async with cluster.ajoin(key, udp=False, seeds=[slow.url]) as net, \
                        other.asubscribe("it") as feed:
                    [member] = net.directory.members.values()
                    slow.stall()
                    sent = 0
                    while not member.link.full:
                        assert await net.apublish("it", bytes(2000)) == 1
                        sent += 1
                    slow.go()
                    assert await net.barrier() is True
                    assert feed.received == sent

    once(main)


# -- members that lie ------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["udp://127.0.0.1:3", "tcp://127.0.0.1:1?foo=1", "nothing",
                                 "file:///etc/hosts"])
def test_an_address_of_no_use_is_one_members_trouble(once, key, url):
    """Any member may tell it; links and newcomers go on."""
    @beside
    async def main(server, client, handler, link):
        heard = server.events()
        [member] = client.directory.members.values()
        member.link.send(frames.Peers([frames.Record(b"\xff" * 16, url, 1 << 50)]))
        assert await server.until(lambda: b"\xff" * 16 in server.directory.members, LIMIT)
        for _ in range(3):
            server._tick(time.monotonic())
        async with cluster.ajoin(key, seeds=[server.url]) as newcomer:
            await newcomer.await_members("it", timeout=LIMIT)
            assert await newcomer.arequest("it", b"1", timeout=LIMIT) == b"\0"
        assert link.alive and not server.counts and not server.links.dropped
        troubles = 0
        while (event := await heard.anext(0.0)) is not None:
            troubles += event.kind == "trouble"
        assert troubles == 1

    once(lambda: main(key))


def test_an_address_that_nobody_could_use_is_refused(once, key):
    async def main():
        with pytest.raises(UsageError, match="udp"):
            async with cluster.ajoin(key, url="udp://127.0.0.1:3"):
                pass

    once(main)


def test_one_member_does_not_use_up_the_handshakes(once, key, monkeypatch):
    """Its links are bounded, and greeted ones are no handshakes."""
    monkeypatch.setattr(links, "HALF_OPEN", 5)
    monkeypatch.setattr(links, "MANY", 8)

    @beside
    async def main(server, client, handler, link):
        for number in range(20):
            client.links.dial(f"{server.url}?connect_timeout={10 + number}")
        assert await server.until(lambda: server.links.dropped.get("many_links"), LIMIT)
        assert sum(one.usable for one in server.links.of(link.member)) <= 9
        async with cluster.ajoin(key, seeds=[server.url]) as newcomer:
            await newcomer.await_members("it", timeout=LIMIT)

    once(lambda: main(key))


# -- what need not run -----------------------------------------------------------------------------


def test_a_request_that_was_given_up_does_not_run(once, key):
    """Its Cancel lies behind it, unread by a busy loop."""
    done = []

    def ask(url):
        with cluster.join(key, seeds=[url]) as client:
            client.wait_members("it", timeout=LIMIT)
            ready.set()
            for _ in range(10):
                with contextlib.suppress(cluster.RequestTimeout):
                    client.request("it", b"1", timeout=0.02)
                done.append(1)

    async def main():
        handler = Large()
        async with cluster.ajoin(key) as server, server.aserve("it", handler):
            asking = threading.Thread(target=ask, args=(server.url,))
            asking.start()
            assert await server.until(ready.is_set, LIMIT)
            until(lambda: len(done) == 10, LIMIT)       # the loop stands still
            assert await server.until(lambda: not asking.is_alive(), LIMIT)
            accounts = server.services["it"].requests.accounts()
            assert handler.dead == 0 and accounts["running"] == 0
            assert accounts["offered"] == 10 == sum(
                accounts[how] for how in ("done", "cancelled", "expired"))

    ready = threading.Event()
    once(main)


def test_a_cancel_that_overtakes_the_pieces_of_its_request(run, key):
    @beside
    async def main(server, client, handler, link):
        class Sizes:
            def __init__(self):
                self.seen = []

            async def request(self, req):
                self.seen.append(len(req.body))
                return b""

        sizes = Sizes()
        async with server.aserve("sizes", sizes):
            await client.await_members("sizes", timeout=LIMIT)
            [member] = client.directory.members.values()
            for number in (1 << 40, 1 << 41):
                member.link.session.send(frames.Request(number, "sizes", 0, bytes(3_000_000)))
            member.link.send(frames.Cancel(1 << 40))    # in front of all but the first pieces
            assert await server.until(lambda: sizes.seen and not link.session.assembles, LIMIT)
            assert await client.arequest("sizes", b"1", timeout=LIMIT) == b""
            assert sizes.seen == [3_000_000, 1]

    run(lambda: main(key))


class Eager:
    """A loop whose handlers begin within handle(), as asyncio's do from Python 3.12 on."""

    def handle(self, function, *args):
        try:
            function(*args).send(None)
        except StopIteration:
            return
        raise AssertionError("the task waits")


class Core:
    loop = Eager()
    closed = False

    def count(self, what, number=1):
        raise AssertionError(what)


class Asking:
    """A link that counts what is sent."""

    member = object()
    clogged = False
    surveyed = 0

    def __init__(self):
        self.serving, self.sent = {}, []

    def answer(self, frame):
        self.sent.append(frame)
        return True

    control = answer


@pytest.mark.parametrize("what", ["request", "broadcast"])
def test_a_long_queue_of_tasks_that_begin_at_once(what):
    """No task runs within another."""
    service = Service(Core(), "it", Large(), concurrency=1, queue_bytes=1 << 20, weight=1.0)
    link = Asking()
    gate = service.requests if what == "request" else service.broadcasts
    assert gate.offer(None) == "run"
    for number in range(5000):
        if what == "request":
            service.request(link, frames.Request(number, "it", 0, b"1"))
        else:
            service.broadcast(link, b"1", number)
    assert len(gate.queue) == 5000
    gate.finished()
    service._next()
    assert gate.accounts() == {"offered": 5001, "running": 0, "waiting": 0, "done": 5001,
                               "refused": 0, "expired": 0, "cancelled": 0}
    assert len(link.sent) == 5000


def test_headers_count_as_bytes_that_wait():
    service = Service(Core(), "it", Large(), concurrency=1, queue_bytes=10_000, weight=1.0)
    link = Asking()
    service.requests.offer(None)
    for number in range(10):
        service.request(link, frames.Request(number, "it", 0, b"1", {"a": bytes(4000)}))
    assert len(service.requests.queue) == 2 and service.requests.refused == 8


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL, "mqcore.cluster")
