"""Requests that are on their way to a member when it drains."""

import asyncio
import contextlib
from types import SimpleNamespace

import pytest

from mqcore import cluster
from mqcore.cluster import drain, frames, pings
from mqcore.testing import SlowLink

LIMIT = 50.0
NOWHERE = "tcp://127.0.0.1:1"     # where nothing listens
LARGE = bytes(3_000_000)


class Named:
    def __init__(self, name):
        self.name = name
        self.runs = 0

    async def request(self, req):
        self.runs += 1
        return self.name


def calling(function, rate=2e6):
    """function(server, client, work, slow): the client calls the server over a slow link, and
    knows no other member."""
    async def main(key):
        work = Named(b"server")
        async with cluster.ajoin(key, udp=False, url=NOWHERE) as server:
            await server.aserve("it", work).astart()
            with SlowLink(server.links.urls[0], rate=rate) as slow:
                async with cluster.ajoin(key, udp=False, url=NOWHERE, seeds=[slow.url]) as client:
                    await client.await_members("it", timeout=LIMIT)
                    await function(server, client, work, slow)

    return main


@contextlib.asynccontextmanager
async def publishing(net, pause):
    """It sends all the time."""
    async def publish():
        while True:
            await net.apublish("a.topic", b"x")
            await asyncio.sleep(pause)

    task = asyncio.ensure_future(publish())
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()


async def under_way(server, client, body=LARGE):
    """A request, a part of which has come."""
    asking = asyncio.ensure_future(client.arequest("it", body, timeout=LIMIT))
    assert await server.until(
        lambda: any(link.session.assembles for link in server.links.by_rid.values()), LIMIT)
    return asking


def test_a_large_request_goes_to_another_member(once, key):
    async def use(server, client, work, slow):
        asking = await under_way(server, client)
        other = Named(b"other")
        async with cluster.ajoin(key, udp=False, seeds=[client.links.urls[0]]) as net, \
                net.aserve("it", other):
            await client.await_members("it", 2, timeout=LIMIT)
            assert await server.adrain(LIMIT) is True
            assert await asking == b"other" and other.runs == 1 and work.runs == 0
            assert client.requests.counts["lost"] == client.requests.pending == 0
            assert client.budget.refused == 0

    once(lambda: calling(use)(key))


def test_a_large_request_that_no_other_member_takes(once, key):
    """It has not run, and its caller learns that."""
    async def use(server, client, work, slow):
        asking = await under_way(server, client)
        assert await server.adrain(LIMIT) is True
        with pytest.raises(cluster.Overloaded):
            await asking
        assert work.runs == 0

    once(lambda: calling(use)(key))


@pytest.mark.parametrize("how", ["stop", "withdraw"])
def test_a_service_alone_takes_no_more_requests(once, key, how):
    """The member stays. What is on its way to the other services goes on."""
    async def use(server, client, work, slow):
        async with server.aserve("else", Named(b"else")):
            await client.await_members("else", timeout=LIMIT)
            asking = await under_way(server, client)
            another = asyncio.ensure_future(client.arequest("else", LARGE, timeout=LIMIT))
            if how == "stop":
                assert await server.services["it"].astop(LIMIT) is True
            else:
                server.services["it"]._withdraw(1)     # its first start
            with pytest.raises(cluster.Overloaded):
                await asking
            assert await another == b"else" and work.runs == 0

    once(lambda: calling(use)(key))


def test_a_large_request_that_has_a_hedge(once, key):
    """The other attempt goes on."""
    async def use(server, client, work, slow):
        async with cluster.ajoin(key, udp=False, seeds=[client.links.urls[0]]) as net:
            asking = await under_way(server, client)
            go = asyncio.Event()

            class Waits:
                async def request(self, req):
                    await go.wait()
                    return b"other"

            async with net.aserve("it", Waits()):
                await client.await_members("it", 2, timeout=LIMIT)
                [link] = [link for link in client.links.by_rid.values() if link.attempts]
                [attempt] = link.attempts.values()
                assert client.requests._launch(attempt.call, hedge=True)
                assert len(attempt.call.attempts) == 2
                assert await server.adrain(LIMIT) is True
                assert len(attempt.call.attempts) == 1 and not asking.done()
                go.set()
                assert await asking == b"other"

    once(lambda: calling(use)(key))


def test_a_member_that_has_not_learnt_of_it(once, key):
    """It may send requests until it has, so nothing is certain."""
    async def use(server, client, work, slow):
        client.handlers[frames.Ping] = lambda link, frame: None
        assert await server.adrain(0.1) is False

    once(lambda: calling(use)(key))


def test_requests_over_a_link_that_is_not_the_best_one(once, key):
    """What comes over it may be later than what is said over the other one."""
    async def use(server, client, work, slow):
        asking = await under_way(server, client)
        [old] = client.links.by_rid.values()
        client.links.dial(server.links.urls[0])
        assert await server.until(lambda: len(server.links.by_rid) == 2 and all(
            link.member for link in server.links.by_rid.values()), LIMIT)
        [member] = server.directory.members.values()
        [member.link] = [link for link in server.links.by_rid.values()
                         if not link.session.assembles]
        assert await server.adrain(LIMIT) is True
        with pytest.raises(cluster.Overloaded):
            await asking
        assert work.runs == 0 and old.attempts == {}

    once(lambda: calling(use)(key))


def test_a_long_round_trip(once, key):
    """A member far away is no stuck one, also if it sends all the time."""
    async def use(server, client, work, slow):
        slow.delay = 0.4
        async with server.asubscribe("a.topic"), publishing(client, 0.05):
            assert await server.adrain(None) is True

    once(lambda: calling(use, rate=1e9)(key))


def test_a_member_that_says_nothing_is_not_waited_for(once, key, monkeypatch):
    """If the drain has no time-out. The others are."""
    monkeypatch.setattr(drain, "STALLED", 0.2)      # before the link is given up

    async def use(server, client, work, slow):
        async with cluster.ajoin(key, udp=False, url=NOWHERE,
                                 seeds=[server.links.urls[0]]) as other:
            await other.await_members("it", timeout=LIMIT)
            slow.stall()
            assert await server.adrain(None) is False
            assert await other.until(lambda: not other.members("it"), LIMIT)

    once(lambda: calling(use)(key))


def asked(net, found):
    """Note the member of each Ping from now on."""
    ping = net.links.ping

    def noted(link):
        found.append(link.member.id)
        return ping(link)

    net.links.ping = noted


def test_silent_members_are_waited_for_once_and_all_at_the_same_time(once, key, monkeypatch):
    """That of a gateway, too."""
    monkeypatch.setattr(drain, "STALLED", 0.2)

    async def use(server, client, work, slow):
        fed, found = cluster.Key.generate(), []
        async with server.afederate("west", fed, udp=False, url=NOWHERE, exports="it") as gateway:
            with SlowLink(gateway.fed.links.urls[0]) as there:
                async with cluster.ajoin(fed, udp=False, url=NOWHERE, seeds=[there.url]) as east:
                    await east.await_members("it", timeout=LIMIT)
                    slow.stall()
                    there.stall()
                    asked(server, found)
                    asked(gateway.fed, found)
                    assert await server.adrain(None) is False
                    assert found == [client.id, east.id]

    once(lambda: calling(use)(key))


@pytest.mark.parametrize("answers", [False, True])
def test_a_member_that_sends_and_answers_no_ping(once, key, monkeypatch, answers):
    """It is given up after a while, also if answers to it have not arrived for certain."""
    monkeypatch.setattr(pings, "MUTE", 0.2)

    async def use(server, client, work, slow):
        client.handlers[frames.Ping] = lambda link, frame: None
        if answers:
            assert await client.arequest("it", b"", timeout=LIMIT) == b"server"
            await server.services["it"].astop()
        async with server.asubscribe("a.topic"), publishing(client, 0.01):
            assert await server.adrain(None) is False

    once(lambda: calling(use)(key))


def test_reports_of_what_was_sent_before_are_signs_of_life(once, key, monkeypatch):
    """Those of later messages are not: who reports them has had the Ping."""
    monkeypatch.setattr(pings, "MUTE", 2 * pings.LOOK)

    async def use(server, client, work, slow):
        client.handlers[frames.Ping] = lambda link, frame: None
        [link] = server.links.by_rid.values()
        now = [0.0]
        monkeypatch.setattr(pings, "time", SimpleNamespace(monotonic=lambda: now[0]))
        window = link.session.window
        window.send(3 * pings.REPORT)
        question = pings.Question(link)
        for _ in range(2):
            for _ in range(2):
                now[0] += 1
                assert not question.over()
            window.took(pings.REPORT, 0.0)
        window.send(9 * pings.REPORT)
        while not question.over():
            now[0] += 1
            window.took(pings.REPORT, 0.0)
        monkeypatch.undo()
        question.forget()
        assert question.given_up and window.unacked > 5 * pings.REPORT

    once(lambda: calling(use)(key))


def test_members_that_answer_no_ping_are_waited_for_once(once, key, monkeypatch):
    """Also if answers to them have not arrived for certain, and those of gateways at the same
    time."""
    monkeypatch.setattr(pings, "MUTE", 0.2)

    async def use(server, client, work, slow):
        fed, found = cluster.Key.generate(), []
        async with server.afederate("west", fed, udp=False, url=NOWHERE, exports="it") as gateway:
            async with cluster.ajoin(fed, udp=False, url=NOWHERE,
                                     seeds=[gateway.fed.links.urls[0]]) as east:
                await east.await_members("it", timeout=LIMIT)
                for net in (client, east):
                    net.handlers[frames.Ping] = lambda link, frame: None
                    assert await net.arequest("it", b"", timeout=LIMIT) == b"server"
                assert any(link.owes for link in gateway.fed.links.by_rid.values())
                given_up(monkeypatch, found)
                publishing = [asyncio.ensure_future(chat(net)) for net in (client, east)]
                async with server.asubscribe("a.>"), gateway.fed.asubscribe("a.>"):
                    assert await server.adrain(None) is False
                for one in publishing:
                    one.cancel()
                assert sorted(found) == sorted([client.id, east.id])

    once(lambda: calling(use)(key))


async def chat(net):
    while True:
        await net.apublish("a.topic", b"x")
        await asyncio.sleep(0.01)


def given_up(monkeypatch, found):
    """Note the member of each question that is given up from now on."""
    look = pings.Question._look

    def noted(self):
        look(self)
        if self.given_up:
            found.append(self.link.member.id)

    monkeypatch.setattr(pings.Question, "_look", noted)
