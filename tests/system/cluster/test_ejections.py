"""Members that fail too often are left out for a while: what tells of it comes in pairs. Members
that were idle get their share."""

import random
from types import SimpleNamespace

import pytest

from mqcore import cluster
from mqcore.binding.sleep import sleep
from mqcore.cluster import balance

LIMIT = 50.0


class Stuck:
    async def request(self, req):
        await sleep(LIMIT)


class Late(Stuck):
    async def request(self, req):
        await sleep(0.5)


async def told(events, *kinds):
    """The kinds of events up to the last one of these, in their order."""
    seen = []
    while kinds[-1] not in seen:
        event = await events.anext(LIMIT)
        assert event is not None, seen
        if event.kind in kinds:
            seen.append(event.kind)
            assert event.kind not in ("ejected", "restored") or event.reason == "it"
    return seen


@pytest.fixture
def fails(key):
    """fails(net, number): so many requests that are not answered in time."""
    async def fail(net, number):
        for _ in range(number):
            with pytest.raises(cluster.RequestTimeout):
                await net.arequest("it", b"", timeout=0.01)

    return fail


def test_an_ejected_member_is_restored_when_its_time_is_up(once, key, fails, monkeypatch):
    monkeypatch.setattr(balance, "EJECTED", 0.1)

    async def main():
        async with cluster.ajoin(key) as one, cluster.ajoin(key, seeds=[one.url]) as net, \
                one.aserve("it", Late()):
            await net.await_members("it", timeout=LIMIT)
            events = net.events()
            for _ in range(2):
                await fails(net, balance.EJECT)
                assert await told(events, "ejected", "restored") == ["ejected", "restored"]
            assert not net.requests._ejected

    once(main)


def test_requests_that_a_broken_link_fails_eject_as_others_do(once, key, monkeypatch):

    async def main():
        async with cluster.ajoin(key) as one, cluster.ajoin(key, seeds=[one.url]) as net, \
                one.aserve("it", Stuck()):
            await net.await_members("it", timeout=LIMIT)
            monkeypatch.setattr(net.requests, "_stands", lambda now: False)
            events, errors = net.events(), []

            async def ask():
                try:
                    await net.arequest("it", b"", timeout=LIMIT)
                except cluster.MemberLost as error:
                    errors.append(error)

            for _ in range(balance.EJECT):
                net.loop.spawn(ask)
            assert await net.until(lambda: net.requests.pending == balance.EJECT, LIMIT)
            net.members("it")[0].link.session._seal(b"\xc1")    # which ends it
            assert await net.until(lambda: len(errors) == balance.EJECT, LIMIT)
            await one.aclose()
            assert await told(events, "ejected", "restored", "left") == \
                ["ejected", "restored", "left"]
            assert not net.requests._ejected

    once(main)


def test_a_burst_after_a_pause_goes_to_all():
    """However much longer one of them has been idle."""
    offer = SimpleNamespace(weight=1.0, hops=0)
    those, scores = [], []
    for number, at in enumerate((10.0, 30.0)):
        score = balance.Score()
        score.sent()
        score.answered(0.2, 0, at)
        scores.append(score)
        those.append(SimpleNamespace(
            score=lambda service, score=score: score,
            record=SimpleNamespace(id=bytes([number]), zone="", services={"it": offer})))
    balancer = balance.Balancer("", random.Random(4))
    for _ in range(64):
        balancer.choose(those, "it", 40.0).score("it").sent()
    assert abs(scores[0].in_flight - scores[1].in_flight) < 5
