"""Members that fail too often are left out for a while: what tells of it comes in pairs. Members
that were idle get their share."""

import contextlib
import random
import time
from types import SimpleNamespace

import pytest

from mqcore import cluster
from mqcore.binding.sleep import sleep
from mqcore.cluster import balance
from mqcore.cluster.requests import Attempt, Call, Requests

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


def ejected(now, times=1, score=None):
    """A score that has just been ejected so many times in succession, and when."""
    score = score or balance.Score()
    for _ in range(times):
        now = max(now, score.until)
        for number in range(balance.EJECT):
            score.sent(now)
            assert score.failed(now) is (number == balance.EJECT - 1)
    return score, now


def test_one_request_finds_out_whether_a_member_with_a_new_link_answers():
    score, now = ejected(100.0)
    assert score.ejected(now + 1)
    score.linked(now + 1)
    assert not score.ejected(now + 1) and score.cost(1.0, now + 1) == 0
    score.sent(now + 1)
    score.linked(now + 2)       # no link brings the next one forward
    assert score.ejected(now + 2) and score.in_flight == 1
    assert not score.failed(now + 3) and score.ejected(now + 3)
    again = now + 1 + balance.PROBE
    assert not score.ejected(again)
    score.sent(again)
    score.answered(0.1, 0, again + 1)
    assert not score.ejected(again + 1) and score.until == again + 1 and not score.in_flight


def test_after_repeated_ejections_a_new_link_shows_little():
    for times in (2, 3, 50):
        score, now = ejected(100.0, times)
        length = score.until - now
        assert length == min(times * balance.EJECTED, balance.EJECTED_MAX)
        score.linked(now + 1)
        assert score.ejected(now + length - balance.EJECTED - 1)
        assert not score.ejected(now + length - balance.EJECTED)


def test_ejections_succeed_each_other_unless_the_member_has_served_for_as_long():
    score, _ = ejected(100.0, 2)
    for served, times in ((2 * balance.EJECTED, 3), (3 * balance.EJECTED + 1, 1)):
        back = score.until
        score.sent(back)
        score.answered(0.1, 0, back + served)
        _, now = ejected(back + served, score=score)
        assert score.until - now == times * balance.EJECTED


def test_a_link_may_be_new_before_the_loss_of_the_old_one_is_found():
    told, old, new = [], SimpleNamespace(attempts={}), SimpleNamespace()
    asking = Requests(SimpleNamespace(directory=SimpleNamespace(event=lambda *event: told.append(
        event[0]))))
    score, member = balance.Score(), SimpleNamespace(id="", link=new)
    for number in range(balance.EJECT):
        score.sent(0.0)
        call = Call("it", b"", None, None, False, {}, "", SimpleNamespace(wake=lambda: None))
        old.attempts[number] = Attempt(call, number, member, old, score, 0.0)
        call.attempts.append(old.attempts[number])
    asking.unlinked(old, member, "")
    now = time.monotonic()
    assert told == ["ejected"] and score.until > now and not score.ejected(now)


class Counts:
    """Counts requests, and answers none until it is told to."""

    def __init__(self, answers):
        self.answers, self.requests = answers, 0

    async def request(self, req):
        self.requests += 1
        while not self.answers:
            await sleep(0.01)


def test_an_ejected_member_comes_back_with_a_new_link(once, key, fails, monkeypatch):
    monkeypatch.setattr(balance, "EJECTED", 1e6)
    monkeypatch.setattr(balance, "EJECTED_MAX", 1e6)

    async def main():
        here, there = Counts(False), Counts(True)
        async with cluster.ajoin(key) as net, cluster.ajoin(key, seeds=[net.url]) as one, \
                cluster.ajoin(key, seeds=[net.url]) as two, one.aserve("it", here):
            await net.await_members("it", timeout=LIMIT)
            monkeypatch.setattr(net.requests, "_stands", lambda now: False)
            events = net.events()
            await fails(net, balance.EJECT)
            await told(events, "ejected")
            here.answers, here.requests = True, 0
            member = net.members("it")[0]
            await two.aserve("it", there).astart()
            await net.await_members("it", 2, timeout=LIMIT)
            for _ in range(20):
                await net.arequest("it", b"", timeout=LIMIT)
            assert not here.requests
            member.link.session._seal(b"\xc1")      # which ends it
            while not here.requests:
                with contextlib.suppress(cluster.MemberLost):
                    await net.arequest("it", b"", timeout=LIMIT)
            await told(events, "restored")
            assert not net.requests._ejected

    once(main)


def test_a_burst_after_a_pause_goes_to_all():
    """However much longer one of them has been idle."""
    offer = SimpleNamespace(weight=1.0, hops=0)
    those, scores = [], []
    for number, at in enumerate((10.0, 30.0)):
        score = balance.Score()
        score.sent(0.0)
        score.answered(0.2, 0, at)
        scores.append(score)
        those.append(SimpleNamespace(
            score=lambda service, score=score: score,
            record=SimpleNamespace(id=bytes([number]), zone="", services={"it": offer})))
    balancer = balance.Balancer("", random.Random(4))
    for _ in range(64):
        balancer.choose(those, "it", 40.0).score("it").sent(0.0)
    assert abs(scores[0].in_flight - scores[1].in_flight) < 5


def pair():
    """Two members that were never asked, and what chooses."""
    def member():
        score, record = balance.Score(), SimpleNamespace(
            zone="", services={"s": SimpleNamespace(weight=1.0, hops=0)})
        return SimpleNamespace(score=lambda _: score, record=record, known=score)

    chooser = balance.Balancer("", random.Random(4))
    one, other = member(), member()
    return one, other, lambda now: chooser.choose([one, other], "s", now)


def answers(member, seconds, *times):
    for now in times:
        member.known.sent(now - seconds)
        member.known.answered(seconds, 0, now)


def test_a_member_that_has_answered_nothing_yet_is_tried_beside_a_fast_one():
    """By one request at a time. If that is lost, or withdrawn because another one answered sooner,
    the next one comes some seconds later."""
    new, fast, chosen = pair()
    for now, end in ((10.0, new.known.failed), (30.0, lambda now: new.known.released())):
        answers(fast, 0.0001, now)
        assert chosen(now) is new
        new.known.sent(now)
        assert chosen(now) is fast
        end(now + 0.1)
        answers(fast, 0.0001, now + 0.2)
        assert chosen(now + 0.2) is fast


def test_a_member_that_was_slow_once_is_tried_again():
    slow, fast, chosen = pair()
    answers(slow, 0.5, 10.0)
    answers(fast, 0.001, 10.0)
    assert chosen(10.5) is fast
    answers(fast, 0.001, 39.0)
    assert chosen(39.0) is slow


def test_a_member_that_stood_still_once_is_as_good_as_others_when_it_answers_again():
    """What it took before says little after a pause."""
    stood, fast, chosen = pair()
    answers(stood, 6.0, 10.0)
    answers(fast, 0.0003, 12.0)
    assert chosen(12.0) is fast
    answers(fast, 0.0003, 45.0)
    assert chosen(45.0) is stood            # by one request
    answers(stood, 0.0002, 45.1)
    answers(fast, 0.0003, 45.2)
    assert chosen(45.2) is stood


def test_one_slow_answer_among_many_says_little():
    one, other, chosen = pair()
    answers(one, 0.001, *(10 + n / 1000 for n in range(100)))
    answers(other, 0.0015, *(10 + n / 1000 for n in range(100)))
    answers(one, 0.002, 10.101)
    assert chosen(10.102) is one


def test_a_member_that_refuses_gets_no_more_for_the_time_since_its_last_answer():
    full, other, chosen = pair()
    answers(full, 0.001, 10.0)
    answers(other, 0.005, 10.0)
    asked = 0
    for number in range(1000):
        now = 10 + number / 20
        if chosen(now) is full:
            asked += 1
            full.known.sent(now)
            full.known.refused(10_000)
        else:
            answers(other, 0.005, now + 0.005)
    assert asked < 20


def test_tunnels_go_by_weight_and_try_a_member_that_was_never_asked_like_requests(once, key):
    """The heavier one gets most of a burst, and all of it does not go to one that is unknown."""
    class Held:
        def __init__(self):
            self.tunnels = 0

        async def request(self, req):
            return b""

        async def tunnel(self, tun):
            self.tunnels += 1

    async def main():
        light, heavy = Held(), Held()
        async with cluster.ajoin(key) as net, cluster.ajoin(key, seeds=[net.url]) as one, \
                cluster.ajoin(key, seeds=[net.url]) as two, one.aserve("s", light), \
                two.aserve("s", heavy, weight=10):
            await net.await_members("s", 2, timeout=LIMIT)
            for _ in range(20):
                async with net.atunnel("s", timeout=LIMIT):
                    pass
            assert heavy.tunnels > 3 * light.tunnels and light.tunnels + heavy.tunnels == 20
            known = next(one for one in net.members("s") if one.record.services["s"].weight > 1)
            assert not known.score("s").in_flight

    once(main)
