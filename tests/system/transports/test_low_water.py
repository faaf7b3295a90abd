"""Large bodies over tcp, of which the kernel tells in large pieces: whatever a peer does in the
middle of one, the socket reads what has come."""

import random
import struct

import pytest
from rawzmtp import RawPeer, frame, message
from waiting import until

import mqcore as mq

MIB = 1 << 20
LIMIT = 20
HEAD = b"\2" + struct.pack(">Q", MIB)
SMALL = 16 * 1024  # less than the kernel would tell of


@pytest.fixture
def pull(ctx, request):
    return ctx.socket("pull", bind="tcp://127.0.0.1:0", recv_timeout=LIMIT,
                      **getattr(request, "param", {}))


@pytest.fixture
def peer(pull):
    with RawPeer.connect(pull.endpoints[0].url, limit=LIMIT) as peer:
        peer.shake("PUSH")
        for n in range(4):  # fast ones first: the kernel has told of 128 KiB together
            peer.say(frame(bytes([n]) * MIB))
            assert pull.recv() == bytes([n]) * MIB
        yield peer


def bytes_in(pull):
    return next(iter(pull.stats().peers.values())).bytes_in


def read_all(pull, before, n):
    return until(lambda: bytes_in(pull) >= before + n, LIMIT)


def test_the_rest_comes_in_small_pieces(pull, peer, seed):
    rng = random.Random(seed)
    body = rng.randbytes(MIB)
    data = frame(body)
    start = rng.randrange(MIB // 2)
    peer.say(data[:start])
    while start < len(data):
        n = rng.randrange(1, 2 * SMALL)
        peer.say(data[start:start + n])
        start += n
    assert pull.recv() == body


@pytest.mark.parametrize("left", [1, SMALL, 64 * 1024, 64 * 1024 + 1, 128 * 1024, 200_000])
def test_a_rest_of_any_size_ends_the_message(pull, peer, left):
    """What comes before the last segment is read without it: a sender's kernel may hold that back
    until the rest is acknowledged (Nagle's algorithm)."""
    before = bytes_in(pull)
    peer.say(HEAD + bytes(MIB - left))
    if left <= 64 * 1024:     # else it may wait in the kernel until more is here
        assert read_all(pull, before, MIB - left)
    peer.say(b"x" * left)
    assert pull.recv() == bytes(MIB - left) + b"x" * left
    peer.say(message(b"small"))
    assert pull.recv() == b"small"


def test_small_messages_behind_a_large_one_come_at_once(pull, peer):
    for n in range(50):
        peer.say(frame(bytes(MIB)) + message(b"%d" % n))
        assert pull.recv() == bytes(MIB)
        assert pull.recv() == b"%d" % n
        peer.say(message(b"alone"))
        assert pull.recv() == b"alone"


@pytest.mark.parametrize("pull", [{"heartbeat": 0.2, "heartbeat_timeout": 0.5}], indirect=True,
                         ids=["heartbeats"])
def test_a_peer_that_is_slow_in_the_middle_of_a_body_lives(pull, peer):
    """What it sends within a time-out is less than the kernel tells of: the timer reads it."""
    body = bytes(MIB)
    peer.say(HEAD + body[:MIB // 2])
    sent = MIB // 2
    peers = [p.id for p in pull.peers()]
    for _ in range(8):
        seen = bytes_in(pull)
        peer.say(body[sent:sent + SMALL])
        sent += SMALL
        assert read_all(pull, seen, 1)
    peer.say(body[sent:])
    assert pull.recv() == body
    assert [p.id for p in pull.peers()] == peers


@pytest.mark.parametrize("end", [RawPeer.close, RawPeer.reset])
def test_a_peer_that_ends_in_the_middle_of_a_body_is_gone_at_once(pull, peer, end):
    peer.say(HEAD + bytes(MIB // 2))
    peer.say(bytes(SMALL))
    end(peer)
    assert until(lambda: not pull.peers(), LIMIT)


def test_our_end_in_the_middle_of_a_body(pull, peer):
    peer.say(HEAD + bytes(MIB // 2))
    peer.say(bytes(SMALL))
    report = pull.close(linger=0)
    assert report is not None and peer.ended()


def test_bodies_of_all_sizes_over_both_ends(ctx, seed):
    rng = random.Random(seed)
    sizes = [rng.choice([10, 70_000, 300_000, MIB, 3 * MIB]) + rng.randrange(100)
             for _ in range(120)]
    with mq.Pull(bind="tcp://127.0.0.1:0", recv_timeout=LIMIT, context=ctx) as pull, \
            mq.Push(connect=pull.endpoints[0].url, send_timeout=LIMIT, context=ctx) as push:
        sent = 0
        for i, size in enumerate(sizes):
            while sent < len(sizes) and sent < i + 5:
                push.send(bytes([sent]) * sizes[sent])
                sent += 1
            assert pull.recv() == bytes([i]) * size
