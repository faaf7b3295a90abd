"""Peers that disconnect before the application has read their messages. The messages stay readable,
reading costs time in proportion to their size, and the receive high-water marks bound them."""

import time

import pytest
from rawzmtp import RawPeer, frame
from waiting import until

import mqcore as mq
from mqcore.spi.drop import DROP_REASONS


class All:
    """The receiving side of all peers together, those that have ended and the others."""

    def __init__(self, s):
        facts = s._accounts()
        every = [facts["total"], *(fact for _, fact in facts["live"])]
        self.read, self.delivered = (sum(f[k] for f in every) for k in ("read", "delivered"))
        self.dropped = {name: count for name, count in zip(
            (name for name, _ in DROP_REASONS),
            map(sum, zip(*(f["in_dropped"] for f in every), strict=True)), strict=True) if count}
        self.queued = self.read - self.delivered - sum(self.dropped.values())


def short_lived(ctx, s, n: int, bodies=(b"left",)) -> None:
    """Peers that say something and leave, one after the other; and all of it has arrived."""
    url = s.endpoints[0].url
    before = All(s).read
    for _ in range(n):
        if url.startswith("inproc"):
            with ctx.socket("push", connect=url) as push:
                for body in bodies:
                    push.send(body, timeout=5)
        else:
            peer = RawPeer.connect(url)
            peer.shake("PUSH")
            peer.say(b"".join(frame(body) for body in bodies))
            peer.sock.close()
    until(lambda: All(s).read == before + n * len(bodies) and not s._attached(), 20)


def test_all_that_departed_peers_left_is_read(ctx, url):
    with ctx.socket("pull", bind=url) as pull:
        short_lived(ctx, pull, 30, [b"a", b"b", b"c"])
        assert sorted(pull.recv(timeout=5) for _ in range(90)) == sorted([b"a", b"b", b"c"] * 30)
        end = All(pull)
        assert (end.read, end.delivered, end.dropped) == (90, 90, {})
        assert not pull._accounts()["live"]


def test_a_peer_ends_with_the_last_message_that_it_left(ctx, url):
    with ctx.socket("pull", bind=url) as pull:
        short_lived(ctx, pull, 10)
        for n in range(10):
            assert len(pull._accounts()["live"]) == 10 - n
            assert pull.recv(timeout=5) == b"left"
        assert not pull._accounts()["live"]


@pytest.mark.parametrize("marks, body, kept", [
    ({"recv_hwm": 40}, b"left", 40),
    ({"recv_hwm_bytes": 4000}, b"x" * 100, 40),
    ({"recv_hwm": None, "recv_hwm_bytes": None}, b"left", 100),
], ids=["messages", "bytes", "no limit"])
def test_departed_peers_together_leave_no_more_than_the_marks(ctx, url, marks, body, kept):
    with ctx.socket("pull", bind=url, **marks) as pull:
        short_lived(ctx, pull, 100, [body])
        left = All(pull)
        assert left.queued == kept
        assert left.dropped == ({"full": 100 - kept} if kept < 100 else {})
        assert pull.recv_many(200, timeout=5) == [body] * kept
        short_lived(ctx, pull, 20, [body])       # there is room again
        assert [pull.recv(timeout=5) for _ in range(20)] == [body] * 20
        assert All(pull).queued == 0


def test_of_one_that_leaves_too_much_the_newest_are_kept(ctx, url):
    with ctx.socket("pull", bind=url, recv_hwm=10) as pull:
        short_lived(ctx, pull, 1, [b"a%d" % n for n in range(6)])
        short_lived(ctx, pull, 1, [b"b%d" % n for n in range(6)])
        got = pull.recv_many(100, timeout=5)
        assert sorted(got) == [b"a%d" % n for n in range(6)] + [b"b%d" % n for n in range(2, 6)]
        assert All(pull).dropped == {"full": 2}


def test_one_message_always_fits_however_large(ctx, url):
    with ctx.socket("pull", bind=url, recv_hwm_bytes=1000) as pull:
        short_lived(ctx, pull, 1, [b"x" * 50_000])
        assert len(pull.recv(timeout=5)) == 50_000


def test_a_half_read_peer_gives_its_room_back_message_by_message(ctx, url):
    with ctx.socket("pull", bind=url, recv_hwm=10) as pull:
        short_lived(ctx, pull, 1, [b"a"] * 9)
        assert [pull.recv(timeout=5) for _ in range(4)] == [b"a"] * 4
        short_lived(ctx, pull, 1, [b"b"] * 6)
        assert All(pull).dropped == {"full": 1}


def test_a_stream_that_does_not_fit_is_dropped_whole(ctx):
    """Bytes with a hole in front are worth nothing."""
    with ctx.socket("stream", bind="tcp://127.0.0.1:0", recv_hwm_bytes=100) as s:
        for n in (1, 2):
            peer = RawPeer.connect(s.endpoints[0].url)
            s.wait_peers(1, 5)
            peer.sock.sendall(b"x" * 90)
            until(lambda n=n: All(s).read == n)
            peer.sock.close()
            until(lambda: not s._attached())
        assert s.recv_parts(timeout=5)[1] == b"x" * 90
        with pytest.raises(mq.RecvTimeout):
            s.recv_parts(timeout=0)
        assert All(s).dropped == {"full": 1}


def test_requests_of_departed_peers_are_bounded_too(ctx):
    with ctx.socket("rep", bind="tcp://127.0.0.1:0", recv_hwm=5) as rep:
        for n in range(12):
            peer = RawPeer.connect(rep.endpoints[0].url)
            peer.shake("REQ")
            peer.say(frame(b"", 1) + frame(b"question"))
            until(lambda n=n: All(rep).read == n + 1)
            peer.sock.close()
        until(lambda: not rep._attached())
        assert (All(rep).queued, All(rep).dropped) == (5, {"full": 7})
        assert [rep.recv_msg(timeout=5).body for _ in range(5)] == [b"question"] * 5


def cost(ctx, n: int) -> float:
    """CPU seconds of this thread to read what so many departed peers left, one message each."""
    with ctx.socket("pull", bind="inproc://cost", recv_hwm=None) as pull:
        short_lived(ctx, pull, n)
        before = time.thread_time()
        for _ in range(n):
            pull.recv(timeout=0)
        return time.thread_time() - before


def test_reading_costs_what_was_left_not_its_square(ctx):
    """Four times the peers: about four times the work, where it was sixteen times."""
    few, many = (min(cost(ctx, n) for _ in range(3)) for n in (500, 2000))
    assert many / few < 10
