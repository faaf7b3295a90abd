"""Surveys, buses and one-to-many pairs between sockets: iterators that end at the deadline, take
turns, are left early; contexts; raw ends in devices."""

import threading
import time

import pytest

import mqcore as mq
from mqcore.testing.traffic import laws
from mqcore.testing.watch import until

LIMIT = 60.0


class Crowd:
    """Respondents that answer on threads with their number and the survey."""

    def __init__(self, ctx, url, n, pause=0.0):
        self.socks = [ctx.socket("respondent", connect=url) for _ in range(n)]
        self.threads = [threading.Thread(target=self.serve, args=(i, sock))
                        for i, sock in enumerate(self.socks)]
        self.hold = threading.Event()      # set: they answer
        self.hold.set()
        for thread in self.threads:
            thread.start()

    def serve(self, i, sock):
        try:
            for message in sock.messages():
                self.hold.wait(LIMIT)
                message.reply(b"%d:%s" % (i, bytes(message)))
        except mq.Error:                   # the surveyor has left
            pass

    def close(self):
        self.hold.set()
        for sock in self.socks:
            sock.close(0)
        for thread in self.threads:
            thread.join(LIMIT)


@pytest.fixture
def crowd(ctx, url):
    """crowd(n): a surveyor and n who answer it."""
    made = []

    def make(n, **options):
        ask = ctx.socket("surveyor", bind=url, **options)
        made.append(Crowd(ctx, ask.endpoints[0].url, n))
        ask.wait_peers(n, LIMIT)
        return ask, made[-1]

    yield make
    for one in made:
        one.close()


def answers(n, question):
    return sorted(b"%d:%s" % (i, question) for i in range(n))


def first(n, survey):
    """The first n answers, and the survey left early."""
    return sorted(next(survey) for _ in range(n))


@pytest.mark.parametrize("pattern", ["bus", "surveyor", "respondent", "pair1"])
def test_transports_that_cannot_say_the_pattern(ctx, pattern, tmp_path):
    with ctx.socket(pattern) as sock:
        for way in (sock.bind, sock.connect):
            with pytest.raises(mq.NotSupported, match=rf"a {pattern} socket .* shm.* use ipc://"):
                way(f"shm://{tmp_path}/s")
            with pytest.raises(mq.UsageError, match=f"udp:// cannot carry a {pattern} socket"):
                way("udp://127.0.0.1:5555")
        sock.bind(f"ipc://{tmp_path}/s")


# -- surveys ---------------------------------------------------------------------------------------

def test_a_survey_ends_normally(crowd):
    ask, _ = crowd(3, deadline=0.3)
    begun = time.monotonic()
    assert sorted(ask.survey(b"who?")) == answers(3, b"who?")
    assert time.monotonic() - begun >= 0.3
    got = list(ask.survey_msg([b"in", b"parts"], deadline=0.2))
    assert sorted(bytes(m) for m in got) == answers(3, b"inparts")
    assert {m.peer for m in got} == set(ask.peers())
    assert list(ask.survey(b"no time", deadline=0)) == []
    laws(ask)


def test_leaving_early_cancels(crowd):
    ask, who = crowd(2, deadline=LIMIT)
    for answer in ask.survey(b"1"):
        assert answer.endswith(b":1")
        break
    who.hold.clear()
    with pytest.raises(ZeroDivisionError):
        survey = ask.survey(b"2", deadline=0.02)
        assert next(survey, None) is None            # over, and nobody had answered
        who.hold.set()
        survey = ask.survey(b"3")
        next(survey)
        raise ZeroDivisionError
    survey.close()
    assert list(survey) == []
    assert first(2, ask.survey(b"4")) == answers(2, b"4")
    until(lambda: sum(p.dropped_in.get("late_answer", 0) + p.delivered
                      for p in ask.stats().peers.values()) == 8)
    laws(ask)


def test_plain_calls_are_told_that_it_is_over(crowd):
    ask, _ = crowd(1, deadline=0.2)
    with pytest.raises(mq.StateError, match="no survey"):
        ask.recv()
    ask.send(b"q")
    assert ask.recv() == b"0:q"
    with pytest.raises(mq.RecvTimeout, match="survey is over"):
        ask.recv()                                   # no time-out of its own
    with pytest.raises(mq.StateError, match="no survey"):
        ask.recv()
    ask.send(b"q")
    assert ask.recv() == b"0:q"
    assert mq.poll([ask], LIMIT) == [(ask, mq.Ready.READ)]      # that it is over, too
    with pytest.raises(mq.RecvTimeout):
        ask.recv(timeout=0)


def test_threads_take_turns_and_contexts_need_not(crowd):
    ask, who = crowd(3, deadline=LIMIT)
    got = {}

    def run(name, line):
        got[name] = [first(3, line.survey(b"%s %d" % (name, k))) for k in range(10)]

    contexts = [ask.new_context() for _ in range(2)]
    lines = [(b"a", ask), (b"b", ask), (b"c", contexts[0]), (b"d", contexts[1])]
    threads = [threading.Thread(target=run, args=line) for line in lines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert got == {name: [answers(3, b"%s %d" % (name, k)) for k in range(10)] for name, _ in lines}
    outer = ask.survey(b"mine", deadline=None)
    next(outer)
    with pytest.raises(mq.StateError, match="take turns"):
        next(ask.survey(b"would wait for ever"))
    assert first(3, contexts[0].survey(b"inside")) == answers(3, b"inside")
    outer.close()
    for context in contexts:
        context.close()
    laws(ask)


def test_each_context_ends_at_its_own_deadline(crowd):
    ask, who = crowd(1)
    who.hold.clear()
    with ask.new_context() as short, ask.new_context() as long:
        waiting = long.survey(b"long", deadline=LIMIT)
        thread = threading.Thread(target=lambda: next(waiting))
        thread.start()
        until(lambda: ask.stats().sent == 1)
        assert list(short.survey(b"short", deadline=0.05)) == []
        assert list(ask.survey(b"own", deadline=0.05)) == []
        who.hold.set()
        thread.join(LIMIT)
        assert not thread.is_alive()
        waiting.close()
    until(lambda: laws_of(ask).dropped_in == {"late_answer": 2})


def laws_of(sock):
    [account] = laws(sock).peers.values()
    return account


@pytest.mark.parametrize("context", [False, True])
def test_awaited(crowd, loop, context):
    ask, _ = crowd(3, deadline=0.3)
    line = ask.new_context() if context else ask

    async def main():
        got = sorted([answer async for answer in line.asurvey(b"1")])
        async for message in line.asurvey_msg(b"2", deadline=LIMIT):
            got.append(message.peer)
            break

        async def never():
            return [answer async for answer in line.asurvey(b"3", deadline=None)]

        got.append(await loop.cut(0.05, never))
        async for answer in line.asurvey(b"4"):
            got.append(answer[1:])
            break
        return got

    got = loop.run(main)
    assert got[:3] == answers(3, b"1") and got[3] in ask.peers() and got[4:] == [None, b":4"]
    line.close()


@pytest.mark.parametrize("context", [False, True])
def test_a_survey_inside_a_survey_of_the_same_task(crowd, loop, context):
    ask, _ = crowd(1, deadline=LIMIT)

    async def main():
        line = ask.new_context() if context else ask
        async for _ in line.asurvey(b"outer", deadline=None):
            with pytest.raises(mq.StateError, match=r"this task .* new_context\(\)"):
                await anext(line.asurvey(b"would wait for ever"))
            with pytest.raises(mq.StateError, match="this thread"):
                next(line.survey(b"would stop the loop for ever"))
            with ask.new_context() as other:
                async for answer in other.asurvey(b"inner"):
                    break
            break
        assert [answer async for answer in line.asurvey(b"next", deadline=0.05)] == [b"0:next"]
        return answer

    assert loop.run(main) == b"0:inner"


def test_nobody_there_and_who_comes_later(ctx, url):
    with ctx.socket("surveyor", bind=url) as ask:
        assert list(ask.survey(b"nobody", deadline=0.01)) == [] and ask.stats().unmatched == 1
        ask.send(b"missed")
        with ctx.socket("respondent", connect=ask.endpoints[0].url) as late:
            ask.wait_peers(1, LIMIT)
            with pytest.raises(mq.RecvTimeout):
                late.recv(timeout=0.05)
            ask.send(b"heard")
            assert late.recv(timeout=LIMIT) == b"heard"
            late.send(b"yes")
            assert ask.recv(timeout=LIMIT) == b"yes"
            with pytest.raises(mq.StateError):
                late.send(b"twice")


def test_two_hundred_answer_and_nothing_is_left(ctx):
    ask = ctx.socket("surveyor", bind="inproc://many", deadline=LIMIT)
    socks = [ctx.socket("respondent", connect="inproc://many") for _ in range(200)]
    ask.wait_peers(200, LIMIT)
    for n in range(5):
        ask.send(bytes(100) + b"%d" % n)
        for sock in socks:
            sock.recv(timeout=LIMIT)
            sock.send(bytes(200) + b"%d" % n)
        got = [ask.recv(timeout=LIMIT) for _ in range(150 if n < 4 else 200)]
        assert set(got) == {bytes(200) + b"%d" % n}
        del got
    stats = laws(ask)
    assert sum(p.delivered for p in stats.peers.values()) == 4 * 150 + 200
    assert sum(p.dropped_in.get("late_answer", 0) for p in stats.peers.values()) == 4 * 50
    assert sum(p.queued_in for p in stats.peers.values()) == 0


def test_a_closed_surveyor_ends_its_surveys(crowd):
    ask, who = crowd(1, deadline=LIMIT)
    who.hold.clear()
    threading.Timer(0.05, lambda: ask.close(0)).start()
    with pytest.raises(mq.SocketClosed):
        list(ask.survey(b"q"))


# -- buses -----------------------------------------------------------------------------------------

def test_a_bus_hears_everybody_else(ctx, url):
    hub = ctx.socket("bus", bind=url)
    rest = [ctx.socket("bus", connect=hub.endpoints[0].url) for _ in range(3)]
    hub.wait_peers(3, LIMIT)
    hub.send(b"to all")
    assert [one.recv(timeout=LIMIT) for one in rest] == [b"to all"] * 3
    for one in rest:
        one.send(b"to the hub alone")
    assert [hub.recv(timeout=LIMIT) for _ in rest] == [b"to the hub alone"] * 3
    for one in rest:
        with pytest.raises(mq.RecvTimeout):
            one.recv(timeout=0)
    laws(hub)


def test_a_raw_bus_mirrors(ctx, url):
    hub = ctx.socket("bus", bind=url, raw=True)
    rest = [ctx.socket("bus", connect=hub.endpoints[0].url) for _ in range(3)]
    hub.wait_peers(3, LIMIT)
    rest[0].send(b"m")
    message = hub.recv_msg(timeout=LIMIT)
    assert message.parts == (b"m",) and len(message.routing_id) == 5
    hub.send_parts([message.routing_id, *message.parts])
    assert [one.recv(timeout=LIMIT) for one in rest[1:]] == [b"m"] * 2
    rest[0].send(b"n")
    with pytest.raises(mq.UsageError, match="routing id"):
        hub.recv(timeout=LIMIT)
    assert hub.recv_parts(timeout=LIMIT)[1:] == [b"n"]
    with pytest.raises(mq.RecvTimeout):
        rest[0].recv(timeout=0)


def test_on_full(ctx):
    """As for a publisher: it drops, unless it is told to wait or to close the slow one's link."""
    hub = ctx.socket("bus", bind="inproc://b", on_full="block", send_hwm=2)
    slow = ctx.socket("bus", connect="inproc://b", recv_hwm=2)
    hub.wait_peers(1, LIMIT)
    with pytest.raises(mq.SendTimeout) as caught:
        hub.send_many([b"m"] * 9, timeout=0)
    assert (caught.value.sent, caught.value.why) == (4, "full")
    hub.on_full = "pattern"
    hub.send(b"dropped")
    assert laws_of(hub).dropped_out == {"full": 1}
    events = hub.events()
    hub.on_full = "disconnect"
    hub.send(b"too much")
    assert events.get(LIMIT).kind in ("TooSlow", "Dropped")
    assert [slow.recv(timeout=LIMIT) for _ in range(4)] == [b"m"] * 4


# -- pairs -----------------------------------------------------------------------------------------

def test_pair1_to_many(ctx, url):
    hub = ctx.socket("pair1", bind=url, poly=True)
    rest = [ctx.socket("pair1", connect=hub.endpoints[0].url) for _ in range(3)]
    hub.wait_peers(3, LIMIT)
    for n, one in enumerate(rest):
        one.send(b"%d" % n)
    heard = {bytes(m): m for m in (hub.recv_msg(timeout=LIMIT) for _ in rest)}
    for n, one in enumerate(rest):
        message = heard[b"%d" % n]
        hub.send_to(message.peer, b"named")
        hub.send_to(message.peer.id, b"by id")
        message.reply(b"replied")
        assert [one.recv(timeout=LIMIT) for _ in range(3)] == [b"named", b"by id", b"replied"]
    gone = heard[b"1"].peer
    rest[1].close(0)
    until(lambda: len(hub.peers()) == 2)
    with pytest.raises(mq.NoSuchPeer):
        hub.send_to(gone, b"x")
    for wrong in ("name", b"id", True, 0, None):
        with pytest.raises(mq.UsageError, match="the peer must be"):
            hub.send_to(wrong, b"x")
    hub.send(b"first")
    laws(hub)


# -- devices ---------------------------------------------------------------------------------------

def chain(ctx, url, n, kinds, **options):
    """A socket of kinds[0], and n devices behind it; the last one's far address."""
    at = url
    devices = []
    for _ in range(n):
        front = ctx.socket(kinds[1], bind="tcp://127.0.0.1:0" if "tcp" in url else
                           f"inproc://{len(ctx.kept)}", raw=True, **options)
        back = ctx.socket(kinds[0], connect=at, raw=True, **options)
        back.wait_peers(1, LIMIT)
        devices.append(mq.device(front, back))
        at = front.endpoints[0].url
    return devices, at


def unheard(sock):
    """It looks, and there is nothing."""
    with pytest.raises(mq.RecvTimeout):
        sock.recv(timeout=0)
    return True


@pytest.mark.parametrize("max_hops, arrives", [(8, True), (3, False)])
def test_surveys_through_devices(ctx, url, max_hops, arrives):
    """Three devices put three words in front of the id; the respondent minds the limit."""
    answer = ctx.socket("respondent", bind=url, max_hops=max_hops)
    # built from the respondent's side: fronts are respondents, backs surveyors that connect on
    devices, at = chain(ctx, answer.endpoints[0].url, 3, ("surveyor", "respondent"))
    ask = ctx.socket("surveyor", connect=at, deadline=LIMIT)
    ask.wait_peers(1, LIMIT)
    answer.wait_peers(1, LIMIT)
    survey = ask.survey(b"far", deadline=LIMIT if arrives else 0.2)
    if arrives:
        thread = threading.Thread(target=lambda: answer.recv_msg(timeout=LIMIT).reply(b"away"))
        thread.start()
        assert next(survey) == b"away"
        thread.join(LIMIT)
        survey.close()
    else:
        assert list(survey) == []
        until(lambda: unheard(answer) and laws_of(answer).dropped_in == {"hop_limit": 1})
    for device in devices:
        device.stop(0)


@pytest.mark.parametrize("max_hops, arrives", [(3, True), (2, False)])
def test_pairs_through_devices(ctx, url, max_hops, arrives):
    there = ctx.socket("pair1", bind=url, max_hops=max_hops)
    devices, at = chain(ctx, there.endpoints[0].url, 2, ("pair1", "pair1"))
    here = ctx.socket("pair1", connect=at)
    here.wait_peers(1, LIMIT)
    here.send(b"m")
    if arrives:
        assert there.recv(timeout=LIMIT) == b"m"
        there.send(b"back")
        assert here.recv(timeout=LIMIT) == b"back"
    else:
        until(lambda: unheard(there) and laws_of(there).dropped_in == {"hop_limit": 1})
    for device in devices:
        device.stop(0)


def test_raw_may_be_switched_at_any_time(ctx, url):
    ask = ctx.socket("surveyor", bind=url)
    answer = ctx.socket("respondent", connect=ask.endpoints[0].url)
    ask.wait_peers(1, LIMIT)
    answer.wait_peers(1, LIMIT)
    ask.send(b"cooked")
    answer.raw = True
    hop, number, empty, body = answer.recv_parts(timeout=LIMIT)
    assert (len(hop), len(number), empty, body) == (5, 4, b"", b"cooked")
    answer.send_parts([hop, number, b"", b"answer"])
    assert ask.recv(timeout=LIMIT) == b"answer"
    ask.raw, answer.raw = True, False
    ask.send_parts([b"\x80mq!", b"", b"raw"])
    assert answer.recv(timeout=LIMIT) == b"raw"
    answer.send(b"answer")
    assert ask.recv_parts(timeout=LIMIT) == [b"\x80mq!", b"", b"answer"]
    assert (ask.raw, answer.raw) == (True, False)


def test_a_survey_reaches_whoever_an_endpoint_waited_for(ctx):
    """Once wait_ready() has returned, the pattern has the peer."""
    for _ in range(50):
        with ctx.socket("surveyor") as asking, ctx.socket("respondent") as answering:
            url = answering.bind("tcp://127.0.0.1:0").url
            asking.connect(url).wait_ready(LIMIT)
            sent = asking.survey(b"?", deadline=LIMIT)
            thread = threading.Thread(target=lambda one=answering: one.recv_msg(
                timeout=LIMIT).reply(b"!"))
            thread.start()
            assert next(iter(sent)) == b"!"
            thread.join()
