"""Owners and their pool: classes, recycling, counters, growth, and Python objects that wait for
the GIL."""

import os
import signal
import sys
import threading

import pytest
from mqcore.testing.native.base_bench import SIZES, BaseLanding, BasePool

SLAB, HEAP, PYOBJ = range(3)
CAPACITY = [8 * 1024 - 64, 64 * 1024 - 64, 256 * 1024 - 64]
KEPT_AT_MOST = [64, 32, 16]


@pytest.fixture
def pool():
    pool = BasePool()
    yield pool
    assert pool.live == 0 and pool.live_bytes == 0


@pytest.mark.parametrize("klass", range(SIZES["SLAB_CLASSES"]))
def test_slab_classes(pool, klass):
    slab = pool.slab(klass)
    assert (slab.kind, slab.capacity, slab.refs) == (SLAB, CAPACITY[klass], 1)
    assert (pool.live, pool.live_bytes) == (1, CAPACITY[klass])
    slab.write(b"\xff" * slab.capacity)  # all of it is ours
    assert slab.read(slab.capacity) == b"\xff" * slab.capacity
    slab.release()


def test_payload_is_aligned(pool):
    owners = [pool.slab(0), pool.slab(2), pool.heap(1)]
    assert [owner.address % 16 for owner in owners] == [0, 0, 0]
    for owner in owners:
        owner.release()


@pytest.mark.parametrize("klass", range(SIZES["SLAB_CLASSES"]))
def test_a_freed_slab_is_used_again(pool, klass):
    first = pool.slab(klass)
    address = first.address
    first.release()
    assert pool.kept(klass) == 1
    made = pool.allocations
    for _ in range(100):
        again = pool.slab(klass)
        assert again.address == address and again.refs == 1
        again.release()
    assert pool.allocations == made, "a steady stream allocates nothing"


LARGE = 300_000


@pytest.mark.parametrize("size", [LARGE, LARGE - LARGE // 6])
def test_a_freed_large_block_is_used_again_for_what_fills_it(pool, size):
    first = pool.heap(LARGE)
    address = first.address
    first.release()
    made = pool.allocations
    for _ in range(100):
        again = pool.heap(size)
        assert (again.address, again.refs) == (address, 1) and again.capacity >= size
        again.write(b"\xff" * size)
        again.release()
    assert pool.allocations == made


@pytest.mark.parametrize("size", [LARGE // 2, LARGE + 1])
def test_no_large_block_is_used_for_what_does_not_fill_it(pool, size):
    pool.heap(LARGE).release()
    made = pool.allocations
    other = pool.heap(size)
    assert pool.allocations == made + 1 and other.capacity == size
    other.release()


def test_of_large_blocks_eight_mebibytes_are_kept(pool):
    """Of two sizes, so that blocks in the middle of the list are taken, too."""
    for size in (1 << 20, 700_000):
        blocks = [pool.heap(size) for _ in range(20)]
        for block in blocks:
            block.release()
    made = pool.allocations
    blocks = [pool.heap(1 << 20) for _ in range(20)]
    assert pool.allocations - made == 12
    for block in blocks:
        block.release()
    huge = pool.heap(5 << 20)
    huge.release()
    made = pool.allocations
    pool.heap(5 << 20).release()
    assert pool.allocations == made + 1


@pytest.mark.parametrize("klass", range(SIZES["SLAB_CLASSES"]))
def test_a_burst_is_not_kept_for_ever(pool, klass):
    slabs = [pool.slab(klass) for _ in range(KEPT_AT_MOST[klass] + 5)]
    assert pool.live == len(slabs)
    for slab in slabs:
        slab.release()
    assert pool.kept(klass) == KEPT_AT_MOST[klass]


def test_the_last_reference_frees(pool):
    slab = pool.slab(1)
    slab.retain()
    slab.retain()
    for left in (2, 1):
        slab.release()
        assert slab.refs == left and pool.live == 1
    slab.release()
    assert pool.live == 0


@pytest.mark.parametrize("sizes", [(0, 1), (100, 5000), (1 << 10, 1 << 24), (4096, 64)])
def test_growing_keeps_the_bytes(pool, sizes):
    before, after = sizes
    owner = pool.heap(before)
    owner.write(b"k" * before)
    owner.grow(after)
    assert owner.capacity == after and pool.live_bytes == after and pool.live == 1
    kept = min(before, after)
    assert owner.read(kept) == b"k" * kept
    owner.write(b"n" * after)
    assert owner.refs == 1 and owner.kind == HEAP
    owner.release()


def test_growth_that_cannot_be_leaves_it_unchanged(pool):
    owner = pool.heap(100)
    owner.write(b"u" * 100)
    with pytest.raises(MemoryError):
        owner.grow(1 << 62)
    assert owner.capacity == 100 and pool.live_bytes == 100 and owner.read(100) == b"u" * 100
    owner.release()


def test_a_python_object_is_released_with_the_gil_only(pool):
    body = bytearray(b"body")
    before = sys.getrefcount(body)
    owner = pool.pyobj(body)
    assert owner.kind == PYOBJ and sys.getrefcount(body) == before + 1
    thread = threading.Thread(target=owner.release)  # drops the GIL for the release itself
    thread.start()
    thread.join()
    assert pool.live == 0, "for the accounts it is gone"
    assert sys.getrefcount(body) == before + 1, "but nobody has touched its count"
    assert pool.drain() == 1
    assert sys.getrefcount(body) == before
    assert pool.drain() == 0


def test_many_python_objects_drain_once(pool):
    bodies = [bytearray(8) for _ in range(50)]
    before = [sys.getrefcount(body) for body in bodies]
    owners = [pool.pyobj(body) for body in bodies]
    for owner in owners:
        owner.retain()
        owner.release()
        owner.release()
    assert pool.drain() == 50
    assert [sys.getrefcount(body) for body in bodies] == before


# -- memory made ahead ----------------------------------------------------------------------------

def test_memory_made_ahead_is_taken_once_and_by_its_size(pool):
    landing = BaseLanding(pool)
    bodies = [bytes(5000) for _ in range(SIZES["LANDINGS"])]
    before = [sys.getrefcount(body) for body in bodies]
    assert landing.take(5000) is None
    for slot in range(len(bodies)):
        landing.put(slot, bodies[slot])
    assert (pool.live, pool.live_bytes) == (len(bodies), 5000 * len(bodies))
    taken = [landing.take(5000) for _ in bodies]
    assert [owner.capacity for owner in taken] == [5000] * len(bodies)
    assert landing.take(5000) is None
    for owner in taken:
        owner.release()
    assert pool.live_bytes == 0 and pool.drain() == len(bodies)
    assert [sys.getrefcount(body) for body in bodies] == before


@pytest.mark.parametrize("size", [1, 4999, 5001])
def test_memory_of_a_size_that_comes_no_more_is_let_go(pool, size):
    landing = BaseLanding(pool)
    landing.put(0, bytes(5000))
    landing.put(3, bytes(5000))
    assert landing.take(size) is None
    assert pool.live == 0 and pool.drain() == 2


def test_clearing_twice(pool):
    landing = BaseLanding(pool)
    landing.put(2, bytes(100))
    landing.clear()
    landing.clear()
    assert pool.live == 0 and pool.drain() == 1


def test_two_threads_take_and_give(pool):
    """Each thread runs through the pool; the count of owners ends where it began."""
    wrong = []

    def work(klass):
        for i in range(3000):
            slab = pool.slab(klass)
            slab.write(bytes([i % 256]) * 16)
            if slab.refs != 1 or slab.read(16) != bytes([i % 256]) * 16:
                wrong.append(i)
            slab.release()

    workers = [threading.Thread(target=work, args=(0,)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong
    assert pool.live == 0 and 1 <= pool.kept(0) <= 4


def test_a_forked_child_is_not_held_up_by_a_lock_that_the_parent_held(pool):
    slab = pool.slab(1)
    pool.lock()               # as a thread of ours that is within the pool just now
    child = os.fork()
    if child == 0:
        signal.alarm(10)      # its default action ends the child
        slab.release()
        again = pool.slab(1)
        again.write(b"x")
        again.release()
        os._exit(0 if pool.live == 0 else 1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    pool.unlock()
    slab.release()
    assert status == 0
    assert pool.live == 0 and pool.kept(1) == 1
