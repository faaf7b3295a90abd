"""What several packages build on: the line of messages, the arena, the growing body, spinning."""

import random
from collections import deque

import pytest
from mqcore.testing.native.base_bench import BasePool
from mqcore.testing.native.base_parts import Growing, Line, Patience, Slices, grown

KIB = 1024


@pytest.fixture
def pool():
    pool = BasePool()
    yield pool
    assert pool.live == 0 and pool.live_bytes == 0


# -- vectors ---------------------------------------------------------------------------------------


def test_room_that_is_there_is_not_made_again():
    assert grown([1, 8, 8, 3, 9, 16, 1, 40]) == [8, 8, 8, 8, 16, 16, 16, 64]


# -- the line --------------------------------------------------------------------------------------


def test_a_line_is_a_deque(pool):
    """Random puts, takes, drops and single handles, beside Python's own."""
    rng = random.Random(7)
    line, model = Line(pool), deque()
    for _ in range(5000):
        what = rng.random()
        if what < 0.5:
            parts = [bytes(rng.choice((0, 5, 56, 57, 300))) for _ in range(rng.choice((1, 1, 3)))]
            line.put(parts)
            model.append(parts)
        elif model and what < 0.7:
            assert line.take() == model.popleft()
        elif model and what < 0.8:
            line.drop()
            model.popleft()
        elif model and len(model[0]) == 1:
            assert line.front() == model[0][0]
            assert line.pop() == model.popleft()[0]
        assert line.counts == (sum(map(len, model)), len(model),
                               sum(len(part) for parts in model for part in parts))
    while model:
        assert line.take() == model.popleft()
    assert line.front() is None
    line.end()


def test_the_end_of_a_line_frees_what_waits(pool):
    line = Line(pool)
    for _ in range(20):
        line.put([bytes(100), bytes(200)])
    assert pool.live == 40
    line.end()
    assert line.counts == (0, 0, 0)


# -- the arena -------------------------------------------------------------------------------------


def test_an_arena_cuts_one_slab_into_many_bodies(pool):
    arena = Slices(pool)
    texts = [bytes([i]) * (60 + i) for i in range(100)]
    places = [arena.add(text) for text in texts]
    assert pool.live == 2, "13 KiB in slabs of 8"
    assert arena.all() == texts
    assert all(place % 8 == 0 for place in places)
    arena.end()
    assert pool.live == 2 and arena.all() == texts, "the bodies keep them"
    arena.close()


def test_a_body_that_does_not_fit_begins_another_slab(pool):
    arena = Slices(pool)
    full = 8 * KIB - 64
    first = arena.add(b"a" * full)
    assert arena.add(b"b") not in range(first, first + full + 1)
    assert pool.live == 2
    arena.end()
    arena.close()


# -- the body --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 56, 57, 5 * KIB, 60 * KIB, 100 * KIB, 5000 * KIB])
@pytest.mark.parametrize("piece", [7, 4096, 1 << 20])
@pytest.mark.parametrize("copy", [False, True])
def test_a_body_in_pieces(pool, size, piece, copy):
    if size // piece > 3000:
        piece = 4096
    text = random.Random(size).randbytes(size)
    body, at = Growing(pool), 0
    body.open(size, copy)
    while body.left:
        at += body.fill(text[at:at + piece])
    assert body.busy and body.take() == text
    assert not body.busy


def test_an_announced_body_costs_nothing_before_it_comes(pool):
    body = Growing(pool)
    body.open(1 << 40)
    assert pool.live_bytes <= 1 << 20
    for _ in range(3):
        while body.fill(bytes(1 << 20)) < 1 << 20:
            pass
    assert pool.live_bytes <= 8 << 20, "it doubles with what came"
    body.drop()


def test_what_a_peer_kept_is_believed_the_next_time(pool):
    body, text = Growing(pool), bytes(3 << 20)
    for _ in range(2):
        body.open(len(text))
        while body.left:
            body.fill(text[:body.left])
        assert len(body.take()) == len(text)
    body.open(len(text))
    assert pool.live_bytes >= len(text)
    body.drop()


def test_a_body_of_unknown_size(pool):
    body, text = Growing(pool), b""
    body.open(0, open_end=True)
    for size in (3, 50, 4000, 70_000):
        piece, at = random.Random(size).randbytes(size), 0
        body.extend(size)
        while body.left:
            at += body.fill(piece[at:])
        text += piece
    assert body.take() == text
    body.open(5, open_end=True)
    body.fill(b"small")
    assert body.take() == b"small" and pool.live == 0, "it lies in the handle after all"


# -- spinning --------------------------------------------------------------------------------------


def test_spinning_that_does_not_pay_becomes_rare():
    wait, most = Patience(), 16_000
    for expected in (16_000, 8_000, 4_000, 2_000):
        assert wait.time(most) == expected
        wait.failed()
    for skipped in (16, 32, 64, 128, 256, 512, 1024, 1024):
        assert [wait.time(most) for _ in range(skipped)] == [0] * skipped
        for expected in (16_000, 8_000, 4_000, 2_000):
            assert wait.time(most) == expected
            wait.failed()


def test_spinning_that_pays_goes_on():
    wait = Patience()
    assert wait.time(16_000) == 16_000
    wait.failed()
    assert wait.time(16_000) == 8_000
    wait.paid(16_000)
    assert wait.time(16_000) == 16_000
    assert wait.time(5_000) == 5_000, "the limit has changed"
    assert wait.time(0) == 0
