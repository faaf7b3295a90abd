"""The 64-byte handle: where the body lies, and who holds it after copy, move and close."""

import pytest
from mqcore.testing.native.base_bench import SIZES, BasePool, Handle, vector_roundtrip


@pytest.fixture
def pool():
    pool = BasePool()
    yield pool
    assert pool.live == 0 and pool.live_bytes == 0


def test_layout():
    assert SIZES["Msg"] == 64
    assert SIZES["Owner"] == 64, "payloads start 64 bytes behind their owner"
    assert SIZES["Chunk"] == 64, "slots start 64 bytes behind their chunk"
    assert SIZES["YQueue"] == 3 * 64, "reader's, writer's and shared line"
    assert SIZES["YPipe"] == 6 * 64


@pytest.mark.parametrize("size", [0, 1, 55, 56])
def test_small_bodies_lie_inside(pool, size):
    before = pool.allocations
    message = Handle(pool, b"x" * size)
    assert not message.by_reference
    assert len(message) == size and bytes(message) == b"x" * size
    assert pool.allocations == before and pool.live == 0


@pytest.mark.parametrize("size", [57, 58, 64, 4096, 1 << 20])
def test_larger_bodies_have_an_owner(pool, size):
    message = Handle(pool, b"y" * size)
    assert message.by_reference and message.refs == 1
    assert bytes(message) == b"y" * size
    assert (pool.live, pool.live_bytes) == (1, size)
    message.close()
    assert len(message) == 0 and not message.by_reference


def test_a_zeroed_handle_is_an_empty_part(pool):
    message = Handle(pool)
    assert bytes(message) == b"" and message.flags == 0 and message.peer == 0
    message.close()


def test_close_twice_is_harmless(pool):
    message = Handle(pool, b"z" * 100)
    message.close()
    message.close()
    assert pool.live == 0


def test_copy_shares_the_body(pool):
    first = Handle(pool, b"a" * 100)
    second = first.copy()
    assert second.address == first.address and first.refs == second.refs == 2
    assert pool.live == 1
    first.close()
    assert second.refs == 1 and bytes(second) == b"a" * 100
    second.close()


def test_copy_of_a_small_one_is_apart(pool):
    first = Handle(pool, b"a" * 56)
    second = first.copy()
    first.close()
    assert bytes(second) == b"a" * 56


def test_move_keeps_the_count(pool):
    first = Handle(pool, b"m" * 57)
    second = first.move()
    assert second.refs == 1 and bytes(second) == b"m" * 57
    first.close()
    assert pool.live == 1, "the source has nothing to release"
    second.close()


def test_flags_and_peer_travel(pool):
    first = Handle(pool, b"p", more=True)
    first.peer = 0xFFFF_FFFF
    second = first.copy().move()
    assert second.flags == 1 and second.peer == 0xFFFF_FFFF
    second.close()
    assert second.flags == 0


def test_slices_of_one_slab(pool):
    slab = pool.slab(0)
    slab.write(bytes(range(200)))
    slices = [slab.message(start, 60) for start in (0, 60, 120)]
    assert slab.refs == 4
    slab.release()
    assert [bytes(part)[0] for part in slices] == [0, 60, 120]
    for part in slices:
        assert pool.live == 1
        part.close()
    assert pool.live == 0 and pool.kept(0) == 1


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1000])
def test_vectors_grow_and_clear(pool, count):
    bodies = [bytes([i % 256]) * (i % 120) for i in range(count)]
    assert vector_roundtrip(pool, bodies, rounds=3) == bodies
