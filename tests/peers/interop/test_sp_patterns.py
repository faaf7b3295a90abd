"""What is particular to bus, pair1 and surveys, with pynng at the other end: several peers at one
pair, deadlines, late answers, no way on from a bus."""

import pytest

import mqcore as mq
from mqcore.testing.watch import until

pynng = pytest.importorskip("pynng")
LIMIT = 60.0
MS = int(LIMIT * 1000)


def port(endpoint):
    return f"tcp://127.0.0.1:{endpoint.url.rpartition(':')[2]}"


def test_survey_of_both_kinds_of_respondents(ctx):
    ask = ctx.socket("surveyor", bind="tcp://127.0.0.1:0", wire="sp", deadline=LIMIT)
    at = port(ask.endpoints[0])
    ours = ctx.socket("respondent", connect=at, wire="sp")
    with pynng.Respondent0(dial=at, recv_timeout=MS) as theirs:
        ask.wait_peers(2, LIMIT)
        for n in range(2):
            ask.send(b"%d" % n)
            assert (ours.recv(timeout=LIMIT), theirs.recv()) == (b"%d" % n, b"%d" % n)
            ours.send(b"ours")
            theirs.send(b"theirs")
            assert {ask.recv(timeout=LIMIT), ask.recv(timeout=LIMIT)} == {b"ours", b"theirs"}
        ask.send(b"again")
        theirs.recv()
        ask.send(b"meanwhile")
        theirs.send(b"late")
        theirs.recv()
        theirs.send(b"in time")
        assert ask.recv(timeout=LIMIT) == b"in time"
        until(lambda: sum(p.dropped_in.get("late_answer", 0)
                          for p in ask.stats().peers.values()) == 1)


def test_their_survey(ctx):
    ours = ctx.socket("respondent", bind="tcp://127.0.0.1:0")
    with pynng.Surveyor0(dial=port(ours.endpoints[0]), recv_timeout=MS) as ask:
        ours.wait_peers(1, LIMIT)
        ask.survey_time = 300
        ask.send(b"who")
        message = ours.recv_msg(timeout=LIMIT)
        message.reply(b"we")
        assert ask.recv() == b"we"
        with pytest.raises(pynng.Timeout):
            ask.recv()


def test_a_bus_of_both(ctx):
    hub = ctx.socket("bus", bind="tcp://127.0.0.1:0")
    at = port(hub.endpoints[0])
    ours = ctx.socket("bus", connect=at)
    with pynng.Bus0(dial=at, recv_timeout=MS) as theirs:
        hub.wait_peers(2, LIMIT)
        hub.send(b"to all")
        assert (ours.recv(timeout=LIMIT), theirs.recv()) == (b"to all", b"to all")
        theirs.send(b"to the hub")
        assert hub.recv(timeout=LIMIT) == b"to the hub"
        with pytest.raises(mq.RecvTimeout):
            ours.recv(timeout=0.05)


@pytest.mark.parametrize("poly", ["ours", "theirs"])
def test_one_pair_with_many(ctx, poly):
    if poly == "ours":
        hub = ctx.socket("pair1", bind="tcp://127.0.0.1:0", poly=True)
        at = port(hub.endpoints[0])
        with pynng.Pair1(dial=at, recv_timeout=MS, polyamorous=False) as one, \
                pynng.Pair1(dial=at, recv_timeout=MS, polyamorous=False) as two:
            hub.wait_peers(2, LIMIT)
            for sock, name in ((one, b"one"), (two, b"two")):
                sock.send(name)
                message = hub.recv_msg(timeout=LIMIT)
                assert bytes(message) == name
                hub.send_to(message.peer, b"hello " + name)
                assert sock.recv() == b"hello " + name
        return
    ours = ctx.socket("pair1", bind="tcp://127.0.0.1:0")
    with pynng.Pair1(dial=port(ours.endpoints[0]), recv_timeout=MS, polyamorous=True) as hub:
        ours.send(b"m", timeout=LIMIT)
        message = hub.recv_msg()
        message.pipe.send(b"back")
        assert ours.recv(timeout=LIMIT) == b"back"
