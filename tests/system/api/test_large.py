"""Large bodies that keep one size: the memory they are read into is made ahead, and given back."""

import random
import sysconfig
import time

import numpy as np
import pytest

import mqcore as mq

SIZE = 300_000  # above what a slab holds
AHEAD = 4  # bodies of this size


def body(n, size=SIZE):
    return n.to_bytes(8, "big") + bytes([n % 251]) * (size - 8)


@pytest.fixture(params=["tcp://127.0.0.1:0", "ipc", "shm"])
def pair(ctx, request, tmp_path):
    url = request.param if "://" in request.param else f"{request.param}://{tmp_path}/s"
    pull = ctx.socket("pull", bind=url)
    push = ctx.socket("push", connect=pull.endpoints[0].url)
    push.wait_peers(1, 10)
    return push, pull


def held(ctx):
    return ctx._hub.plane.counters()["slab_bytes"]


def settles_at(ctx, size):
    """Another thread may be about to let go of the slab it read into."""
    limit = time.monotonic() + 10
    while held(ctx) != size and time.monotonic() < limit:
        time.sleep(0.001)
    return held(ctx) == size


def exchange(push, pull, count, size=SIZE):
    for n in range(count):
        push.send(body(n, size))
        assert pull.recv(timeout=10) == body(n, size)


def test_memory_is_made_ahead_once_the_size_is_known(ctx, pair):
    exchange(*pair, 1)
    assert settles_at(ctx, 0)
    exchange(*pair, 5)
    assert settles_at(ctx, AHEAD * SIZE)


@pytest.mark.parametrize("mib, ahead", [(5, 2), (17, 1)])
def test_bodies_above_the_bound_have_few_ahead(ctx, pair, mib, ahead):
    exchange(*pair, 3, mib << 20)
    assert settles_at(ctx, ahead * mib << 20)


def test_what_was_received_is_never_written_again(ctx, pair):
    push, pull = pair
    kept = []
    for start in range(0, 30, 10):
        for n in range(start, start + 10):
            push.send(body(n))
        kept += [pull.recv(timeout=10) for _ in range(10)]
    assert kept == [body(n) for n in range(30)]
    assert len({id(one) for one in kept}) == 30


def received(push, pull, n, size, how):
    push.send(body(n, size))
    if how == "recv":
        return pull.recv(timeout=10)
    found, = pull.recv_many(1, timeout=10) if how == "recv_many" else pull.recv_parts(timeout=10)
    return found


@pytest.mark.parametrize("how", ["recv", "recv_many", "recv_parts"])
def test_memory_of_a_body_that_nobody_has_is_used_again(pair, how):
    at = set()
    for n in range(40):
        found = received(*pair, n, SIZE, how)
        assert found == body(n)
        at.add(id(found))
    free_threaded = sysconfig.get_config_var("Py_GIL_DISABLED")
    assert len(at) < 20 or free_threaded


@pytest.mark.parametrize("how", ["recv", "recv_many", "recv_parts"])
def test_a_body_in_used_memory_has_a_hash_of_its_own(pair, how):
    for n in range(40):
        found = received(*pair, n, SIZE, how)
        assert hash(found) == hash(body(n)) and {body(n): n}[found] == n


def test_nothing_that_any_code_still_sees_is_written_again(ctx, pair, seed):
    """As a variable, in a view, in an array, in a dict's key, on its way to another socket."""
    push, pull = pair
    rng = random.Random(seed)
    sizes = [SIZE, SIZE, 1 << 20]
    kept = []
    with mq.Push(bind="inproc://again", send_timeout=10, context=ctx) as again, \
            mq.Pull(connect="inproc://again", recv_timeout=10, context=ctx) as last:
        waiting = []
        for n in range(150):
            size = rng.choice(sizes)
            found = received(push, pull, n, size, rng.choice(["recv", "recv_many", "recv_parts"]))
            how = rng.randrange(7)
            if how == 0:
                kept.append((n, size, lambda found=found: found))
            elif how == 1:
                view = memoryview(found)[:]
                kept.append((n, size, lambda view=view: bytes(view)))
            elif how == 2:
                view = np.frombuffer(found, np.uint8)
                kept.append((n, size, lambda view=view: view.tobytes()))
            elif how == 3:
                kept.append((n, size, lambda d={found: 1}: next(iter(d))))
            elif how == 4:
                again.send(found)
                waiting.append((n, size))
            del found
            view = None
            if len(waiting) > 3:
                assert last.recv() == body(*waiting.pop(0))
            while len(kept) > 10:
                kept.pop(rng.randrange(len(kept)))
            for m, had, look in kept:
                assert look() == body(m, had)
        for one in waiting:
            assert last.recv() == body(*one)


@pytest.mark.parametrize("other", [5, SIZE - 1, SIZE + 1])
def test_another_size_gives_it_back(ctx, pair, other):
    push, pull = pair
    exchange(push, pull, 3)
    assert settles_at(ctx, AHEAD * SIZE)
    push.send(bytes(other))
    assert pull.recv(timeout=10) == bytes(other)
    assert settles_at(ctx, 0)
    exchange(push, pull, 3)


def test_silence_gives_it_back(ctx, pair):
    push, pull = pair
    exchange(push, pull, 3)
    with pytest.raises(mq.RecvTimeout):
        pull.recv(timeout=0.01)
    assert settles_at(ctx, 0)
    exchange(push, pull, 3)
    assert settles_at(ctx, AHEAD * SIZE)


def test_close_gives_it_back(ctx, pair):
    push, pull = pair
    exchange(push, pull, 3)
    pull.close()
    push.close(0)
    assert settles_at(ctx, 0)


def test_every_call_gives_the_same_bytes(ctx, pair):
    """Whichever call comes next may find a body in memory that was made for recv()."""
    push, pull = pair
    buffer = bytearray(SIZE)
    exchange(push, pull, 3)
    for n in range(10, 15):
        push.send(body(n))
    assert bytes(pull.recv_msg(timeout=10)) == body(10)
    assert pull.recv_into(buffer, timeout=10) == SIZE and buffer == body(11)
    assert pull.recv_parts(timeout=10) == [body(12)]
    assert pull.recv_many(1, timeout=10) == [body(13)]
    assert pull.recv(timeout=10) == body(14)


def test_parts_of_that_size_are_joined(ctx, pair):
    push, pull = pair
    exchange(push, pull, 3)
    push.send_parts([body(1), body(2), b"end"])
    assert pull.recv(timeout=10) == body(1) + body(2) + b"end"
    assert settles_at(ctx, 0)


def test_a_message_in_flight_at_the_end_leaves_nothing(ctx, pair):
    push, pull = pair
    exchange(push, pull, 3)
    for n in range(20):
        push.send(body(n))
    push.close(0)
    pull.close()
    assert settles_at(ctx, 0)


def test_inproc_hands_over_the_very_bytes(ctx):
    pull = ctx.socket("pull", bind="inproc://large")
    push = ctx.socket("push", connect="inproc://large")
    sent = body(1)
    push.send(sent)
    assert pull.recv(timeout=10) is sent


@pytest.mark.parametrize(("size", "ahead"), [(16 << 10, 16), (64 << 10, 8), (250_000, 2)])
def test_shared_memory_lands_smaller_bodies_too(ctx, tmp_path, size, ahead):
    pull = ctx.socket("pull", bind=f"shm://{tmp_path}/s")
    push = ctx.socket("push", connect=pull.endpoints[0].url)
    push.wait_peers(1, 10)
    exchange(push, pull, 30, size)
    assert settles_at(ctx, ahead * size)
    exchange(push, pull, 1, 5)
    assert settles_at(ctx, 0)


def test_over_tcp_smaller_bodies_are_copied(ctx):
    pull = ctx.socket("pull", bind="tcp://127.0.0.1:0")
    push = ctx.socket("push", connect=pull.endpoints[0].url)
    push.wait_peers(1, 10)
    exchange(push, pull, 10, 64 << 10)
    assert settles_at(ctx, 0)
