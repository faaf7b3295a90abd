"""shm's message engine through its table: what goes in comes out, and nonsense is refused."""

import ctypes
import mmap
import os
import random
import struct

import pytest
from mqcore.testing.native.shm_bench import ShmEnd
from mqcore.transports.shm_engine import RING_LEAST, RING_MOST, attach, map_size

from mqcore.errors import UsageError

OK, AGAIN, PROTOCOL = 0, 1, 18
MORE, SUBSCRIBE, CANCEL = 1, 2, 4
RING = RING_LEAST
PAGE = 4096
# control words: the ring from the connecting side, then the other's (shm.md)
TAIL, HEAD = 1024, 1024 + 128
BACK = 512
SIZES = [0, 1, 7, 8, 9, 56, 57, 64, 300, 4087, 4088, 4089, 5000, 16_000, RING - 8, RING,
         3 * RING + 5]


class Pair:
    def __init__(self, ring=RING, **limits):
        self.memory = os.memfd_create("test", os.MFD_CLOEXEC)
        os.ftruncate(self.memory, map_size(ring))
        self.map = mmap.mmap(self.memory, map_size(ring))
        wakes = [os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) for _ in range(2)]
        self.a = ShmEnd(attach(self.memory, ring, True, wakes[0], os.dup(wakes[1])), **limits)
        self.b = ShmEnd(attach(self.memory, ring, False, wakes[1], os.dup(wakes[0])), **limits)

    def close(self):
        self.a.close()
        self.b.close()
        self.map.close()
        os.close(self.memory)

    def word(self, at, value=None):
        if value is not None:
            self.map[at:at + 8] = struct.pack("<Q", value & (1 << 64) - 1)
        return struct.unpack("<Q", self.map[at:at + 8])[0]


@pytest.fixture
def pair():
    pair = Pair()
    yield pair
    pair.close()


def rung(end):
    """Has the other side woken this one since the last look?"""
    try:
        return os.eventfd_read(end.wake) > 0
    except BlockingIOError:
        return False


def exchange(out, into, parts, flags=0):
    """One message through, in pieces if need be, with no more looks than there are wake-ups."""
    got = []
    rc = out.write(parts, flags)
    while True:
        out.flush()
        status, some = into.read()
        got += some
        assert status in (OK, AGAIN)
        if rc == AGAIN:
            assert rung(out), "the writer sleeps, and there is room"
            rc = out.write(parts, flags)
            assert rc in (OK, AGAIN)
        elif status == AGAIN:
            return got


def body(size, seed=1):
    return random.Random(seed).randbytes(size)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("turn", [False, True])
def test_a_body_of_any_size(pair, size, turn):
    out, into = (pair.b, pair.a) if turn else (pair.a, pair.b)
    for seed in range(3):
        assert exchange(out, into, [body(size, seed)]) == [(body(size, seed), 0)]
    assert out.pending() == 0 and into.live == 0 and out.live == 0


def test_parts_of_all_sizes_in_one_message(pair):
    parts = [body(size) for size in SIZES]
    flags = [MORE] * (len(parts) - 1) + [0]
    assert exchange(pair.a, pair.b, parts) == list(zip(parts, flags, strict=True))


def test_many_parts(pair):
    parts = [b""] * 60
    assert len(exchange(pair.a, pair.b, parts)) == 60


@pytest.mark.parametrize("flag", [SUBSCRIBE, CANCEL])
def test_subscriptions(pair, flag):
    assert exchange(pair.a, pair.b, [b"topic"], flag) == [(b"topic", flag)]


def test_random_messages_stay_in_order(pair, seed):
    dice = random.Random(seed)
    sent, got = [], []
    waiting = None
    while len(got) < 3000 or got[-1][-1] is not None:   # the last one has several parts
        if len(sent) < 3000 and dice.random() < 0.6:
            waiting = waiting or [body(int(dice.expovariate(1 / 900)), dice.random())
                                  for _ in range(dice.choice([1, 1, 1, 2, 5]))]
            if pair.a.write(waiting) == OK:
                sent.append(waiting)
                waiting = None
            if dice.random() < 0.3:
                pair.a.flush()
        else:
            if len(sent) == 3000:
                pair.a.flush()
            _, some = pair.b.read(dice.randrange(1, 64))
            for data, flags in some:
                if got and got[-1][-1] is not None:
                    got[-1].append(data)
                else:
                    got.append([data])
                if not flags & MORE:
                    got[-1].append(None)
    assert [message[:-1] for message in got] == sent


def test_nothing_is_seen_before_a_flush(pair):
    assert pair.a.write([b"one"]) == OK
    assert pair.b.read() == (AGAIN, [])
    pair.a.flush()
    assert pair.a.pending() == 16
    assert pair.b.read() == (AGAIN, [(b"one", 0)])
    assert pair.a.pending() == 0


def test_a_wake_up_only_for_a_sleeper(pair):
    pair.a.write([b"one"])
    pair.a.flush()
    assert not rung(pair.b)
    assert pair.b.read()[1]
    for _ in range(2):
        pair.a.write([b"more"])
        pair.a.flush()
    assert rung(pair.b) and not rung(pair.b)
    assert len(pair.b.read()[1]) == 2


def test_a_full_ring_takes_nothing_and_wakes_when_there_is_room(pair):
    count = 0
    while pair.a.write([bytes(1000)]) == OK:
        count += 1
    assert count == RING // 1008
    assert pair.a.write([bytes(1000)]) == AGAIN
    assert not rung(pair.a)
    assert pair.b.read(1)[1]
    assert not rung(pair.a), "one of sixty-five is not worth a wake-up"
    while not rung(pair.a):
        assert pair.b.read(1)[1]
        count -= 1
    assert pair.a.write([bytes(1000)]) == OK


def test_a_body_that_is_cut_off_counts_for_nothing(pair):
    assert pair.a.write([body(3 * RING)]) == AGAIN
    assert pair.b.read() == (AGAIN, [])
    pair.b.close()


def test_max_message_size():
    pair = Pair(max_message_size=1000)
    pair.a.write([bytes(1000)])
    pair.a.write([bytes(1001)])
    pair.a.flush()
    status, got = pair.b.read()
    assert status == PROTOCOL and len(got) == 1
    assert pair.b.reason == "the peer announced a part of 1001 bytes, the limit is 1000"
    pair.close()


# -- a peer that writes what it likes --------------------------------------------------------------


@pytest.mark.parametrize("tail", [8 + RING, RING + 16, 1 << 63, -8, 4, 1])
def test_an_impossible_end_is_refused(pair, tail):
    pair.word(TAIL, tail)
    assert pair.b.read() == (PROTOCOL, [])
    assert "impossible position" in pair.b.reason


def test_a_position_that_goes_back_is_refused(pair):
    for _ in range(20):
        exchange(pair.a, pair.b, [bytes(200)])
    pair.word(TAIL, 16)
    assert pair.b.read() == (PROTOCOL, [])


@pytest.mark.parametrize("head", [8, RING, 1 << 63, -8, 3])
def test_room_that_cannot_be_is_refused(pair, head):
    """Nothing was published, so nothing can have been taken."""
    pair.word(HEAD, head)
    while (rc := pair.a.write([bytes(1000)])) == OK:
        pass
    assert rc == PROTOCOL and "impossible position" in pair.a.reason
    assert pair.a.pending() == 0


@pytest.mark.parametrize("word, why", [
    (5 << 8 | 8, "unknown flags"),
    (5 << 8 | 0x80, "unknown flags"),
    (5 << 8 | SUBSCRIBE | CANCEL, "subscription"),
    (5 << 8 | SUBSCRIBE | MORE, "subscription"),
    (100 << 8, "small record"),
])
def test_a_record_that_cannot_be_is_refused(pair, word, why):
    pair.word(PAGE, word)
    pair.word(TAIL, 16)
    assert pair.b.read() == (PROTOCOL, [])
    assert why in pair.b.reason


def test_a_subscription_in_the_middle_is_refused(pair):
    pair.word(PAGE, MORE)
    pair.word(PAGE + 8, SUBSCRIBE)
    pair.word(TAIL, 16)
    status, got = pair.b.read()
    assert status == PROTOCOL and got == [(b"", MORE)]


def test_an_announced_size_costs_no_memory(pair):
    pair.word(PAGE, ((1 << 55) - 1) << 8)
    pair.word(TAIL, 4096)
    assert pair.b.read() == (AGAIN, [])
    assert pair.b.live == 1
    pair.b.close()


@pytest.mark.parametrize("ring", [0, RING - 8, RING + 8, 2 * RING_MOST])
def test_a_ring_has_a_power_of_two_of_bytes(ring):
    with pytest.raises(UsageError, match="power of two"):
        attach(-1, ring, True, -1, -1)


def test_what_cannot_be_mapped():
    with pytest.raises(OSError, match="could not be mapped"):
        attach(-1, RING, True, -1, -1)


# what follows runs under AddressSanitizer too: see tools/turmoil.py


def scribble(view, dice, rounds):
    """As a peer that has gone mad: control words, headers, bodies."""
    size = len(view)
    for _ in range(rounds):
        kind = dice.random()
        if kind < 0.4:
            at = 1024 + 8 * dice.randrange(128)
            value = dice.choice([dice.getrandbits(64), dice.randrange(0, 2 * RING, 8),
                                 struct.unpack_from("<Q", view, at)[0] + dice.randrange(0, 999, 8)])
            struct.pack_into("<Q", view, at, value & (1 << 64) - 1)
        elif kind < 0.8:
            at = PAGE + 8 * dice.randrange((size - PAGE) // 8)
            struct.pack_into("<Q", view, at, dice.choice(
                [dice.getrandbits(64), dice.randrange(5000) << 8 | dice.randrange(8),
                 dice.getrandbits(40) << 8]))
        else:
            at = PAGE + dice.randrange(size - PAGE - 512)
            view[at:at + 512] = dice.randbytes(512)


def test_a_peer_that_scribbles_reaches_nothing_outside(seed):
    """Each time the link ends with a reason or goes on; the bodies are what they are."""
    dice = random.Random(seed)
    ended = set()
    for _ in range(300):
        pair = Pair(max_message_size=1 << 20)
        view = memoryview(pair.map)
        rc = OK
        for _ in range(20):
            scribble(view, dice, dice.randrange(8))
            if rc == OK:
                message = [bytes(dice.choice([10, 100, 3000, 90_000]))]
            rc = pair.b.write(message)
            pair.b.flush()
            assert pair.b.pending() <= RING
            status, got = pair.b.read()
            assert all(len(data) <= 1 << 20 for data, _ in got)
            if PROTOCOL in (rc, status):
                ended.add(pair.b.reason.partition(" of ")[0])
                break
            assert rc in (OK, AGAIN) and status in (OK, AGAIN)
        view.release()
        pair.close()
    assert len(ended) >= 2, ended


def test_a_peer_that_scribbles_while_we_read():
    """Another process writes without pause what would be right one moment and wrong the next."""
    pair = Pair(max_message_size=1 << 20)
    child = os.fork()
    if child == 0:
        at = ctypes.addressof(ctypes.c_char.from_buffer(pair.map))
        dice = random.Random(7)
        words = [ctypes.c_uint64.from_address(at + where)
                 for where in (TAIL, PAGE, PAGE + 16, PAGE + 4096)]
        while os.getppid() != 1:
            words[0].value += 8
            for word in words[1:]:
                word.value = dice.choice([5 << 8, 40_000 << 8, 1 << 62, 4080 << 8])
        os._exit(0)
    try:
        reasons = set()
        rounds = 0
        while rounds < 2000 or not reasons:
            rounds += 1
            end = ShmEnd(attach(pair.memory, RING, False, os.dup(pair.b.wake),
                                os.dup(pair.a.wake)), max_message_size=1 << 20)
            pair.word(TAIL, 0)
            for _ in range(20):
                status, _ = end.read()
                if status == PROTOCOL:
                    reasons.add(end.reason)
                    break
            end.close()
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        pair.close()
