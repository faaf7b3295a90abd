"""One port, two wires: a listener serves ZeroMQ's and nng's sockets at once."""

import socket
import time

import pynng
import pytest
from waiting import until

from mqcore.errors import HandshakeFailed, RecvTimeout

LIMIT = 10_000  # ms, for peers that would wait for ever


@pytest.fixture
def nng():
    """nng("Req0", dial=url) -> a pynng socket with limits."""
    held = []

    def make(kind, **more):
        s = getattr(pynng, kind)(recv_timeout=LIMIT, send_timeout=LIMIT, **more)
        held.append(s)
        return s
    yield make
    for s in held:
        s.close()


def test_a_rep_answers_both_on_one_port(ctx, where, zsock, nng):
    with ctx.socket("rep", recv_timeout=10) as rep:
        url = rep.bind(where).url
        old = zsock("REQ", connect=url)
        new = nng("Req0", dial=url)
        for _ in range(3):
            old.send(b"zmtp")
            new.send(b"sp")
            for _ in range(2):
                rep.send(rep.recv().upper())
            assert (old.recv(), new.recv()) == (b"ZMTP", b"SP")
        assert sorted(p.wire for p in rep.peers()) == ["sp", "zmtp/3.1"]
        assert {p.wire: p.pattern for p in rep.peers()}["sp"] == "req"


def test_a_pull_takes_from_both(ctx, where, zsock, nng):
    with ctx.socket("pull", recv_timeout=10) as pull:
        url = pull.bind(where).url
        zsock("PUSH", connect=url).send(b"zmtp")
        new = nng("Push0", dial=url)
        for body in (b"", b"x" * 57, b"y" * 300_000):
            new.send(body)
        assert sorted(pull.recv() for _ in range(4)) == sorted(
            [b"zmtp", b"", b"x" * 57, b"y" * 300_000])


def test_a_pub_serves_both(ctx, where, zsock, nng):
    with ctx.socket("pub") as pub:
        url = pub.bind(where).url
        old = zsock("SUB", connect=url, SUBSCRIBE=b"a")
        new = nng("Sub0", dial=url, topics=b"a")
        pub.wait_subscribers(b"a", 2, timeout=10)
        pub.send(b"a1")
        pub.send_parts([b"a", b"2"])
        assert old.recv() == b"a1"
        assert old.recv_multipart() == [b"a", b"2"]
        assert [new.recv() for _ in range(2)] == [b"a1", b"a2"]


def test_a_sub_hears_both(ctx, where, zsock, nng):
    with ctx.socket("sub", recv_timeout=10) as sub:
        sub.subscribe(b"a")
        url = sub.bind(where).url
        old = zsock("PUB", connect=url)
        new = nng("Pub0", dial=url)
        end = time.monotonic() + 10
        seen = set()
        while seen != {b"a zmtp", b"a sp"} and time.monotonic() < end:
            old.send(b"a zmtp")           # until the subscription is there
            new.send(b"b sp")             # not wanted: dropped here
            new.send(b"a sp")
            seen.add(sub.recv())
        assert seen == {b"a zmtp", b"a sp"}


@pytest.mark.parametrize("kind", ["zmtp", "sp"])
def test_a_pair_is_of_either_kind(ctx, where, zsock, nng, kind):
    with ctx.socket("pair", recv_timeout=10) as pair:
        url = pair.bind(where).url
        other = zsock("PAIR", connect=url) if kind == "zmtp" else nng("Pair0", dial=url)
        other.send(b"there")
        assert pair.recv() == b"there"
        pair.send(b"back")
        assert other.recv() == b"back"


def heard(ours, theirs):
    """A publisher of nng's sends to nobody until it has taken our header in."""
    theirs.send(b"over")
    try:
        return ours.recv(timeout=0.05)
    except RecvTimeout:
        return None


@pytest.mark.parametrize("ours, theirs", [("Push", "Pull0"), ("Pull", "Push0"), ("Req", "Rep0"),
                                          ("Sub", "Pub0"), ("Pub", "Sub0")])
def test_a_connecting_end_speaks_sp_if_told(ctx, where, nng, ours, theirs):
    other = nng(theirs, listen=where)
    if theirs == "Sub0":
        other.subscribe(b"")
    url = where
    if where.startswith("tcp"):
        url = f"tcp://{other.listeners[0].local_address}"
    with ctx.socket(ours.lower(), wire="sp", recv_timeout=10, send_timeout=10) as s:
        if ours == "Sub":
            s.subscribe(b"")
        s.connect(url, wait=10)
        if theirs in ("Pull0", "Rep0", "Sub0"):
            until(lambda: other.pipes)      # it may still be about to see us
            s.send(b"over")
            assert other.recv() == b"over"
        else:
            assert until(lambda: heard(s, other)) == b"over"
        if ours == "Req":
            other.send(b"answer")
            assert s.recv() == b"answer"


def test_a_peer_that_waits_is_spoken_to_in_zmtp(ctx):
    """Nothing is heard within the grace: ZMTP is spoken first, which our own connecting end and
    every ZeroMQ peer understand."""
    with ctx.socket("pull", recv_timeout=10) as pull:
        url = pull.bind("tcp://127.0.0.1:0").url
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as raw:
            raw.settimeout(10)
            assert raw.recv(10, socket.MSG_WAITALL) == bytes.fromhex("ff00000000000000017f")


def test_who_does_not_fit_is_named(ctx, nng):
    with ctx.socket("pull") as pull, ctx.socket("pub", wire="sp") as pub:
        url = pull.bind("tcp://127.0.0.1:0").url
        with pytest.raises(HandshakeFailed, match="is a PULL socket, which does not fit PUB"):
            pub.connect(url, wait=10)
