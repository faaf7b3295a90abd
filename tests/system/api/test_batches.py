"""Batches of messages that have more than one part."""

import asyncio

import numpy as np
import pyarrow  # noqa: F401  its threads start with the import: before anything is counted
import pytest
from waiting import until

import mqcore as mq
from mqcore.binding import arrays


def test_a_batch_of_messages_with_first_parts(linked):
    """split says where they end; -1: there is one part alone."""
    pull, push = linked("pull", "push")
    data, offsets = b"abcdefgh", [0, 3, 3, 5, 8]
    assert push.send_batch(data, offsets, split=[1, 3, -1, 8]) == 4
    wanted = [[b"a", b"bc"], [b"", b""], [b"de"], [b"fgh", b""]]
    assert [pull.recv_parts(timeout=5) for _ in range(4)] == wanted
    assert asyncio.run(push.asend_batch(data, offsets, split=[1, 3, -1, 8])) == 4
    assert [pull.recv_parts(timeout=5) for _ in range(4)] == wanted
    for split, what in (([1, 2, 3], "3 entries for 4"), ([4, 3, 5, 8], "split.0. = 4"),
                        ([1, 3, 2, 8], "split.2. = 2")):
        with pytest.raises(mq.UsageError, match=what):
            push.send_batch(data, offsets, split=split)


# -- what cannot be meant --------------------------------------------------------------------------

@pytest.mark.parametrize("data, offsets, what", [
    ("abc", [0, 3], "data is bytes, not str"),
    (np.arange(4.0), [0, 1, 2, 3], "must hold bytes"),
    (np.arange(4), [0, 1], "must hold bytes"),
    (np.zeros(4, bool), [0, 4], "must hold bytes"),
    (np.zeros(8, np.uint8)[::2], [0, 4], "C-contiguous"),
    (np.zeros((4, 4), np.uint8).T[:2], [0, 4], "C-contiguous"),
    (5, [0, 1], "not int"),
    (b"abc", [0.0, 3.0], "array of integers"),
    (b"abc", np.array([0, 3], bool), "array of integers"),
    (b"abc", [[0, 3]], "array of integers"),
    (b"abc", ["0", "3"], "array of integers"),
    (b"abc", [0, None], "array of integers"),
    (b"abc", np.array([0, 2**63], np.uint64), "above 2"),
    (b"abc", [], "got none"),
    (b"abc", 3, "array of integers"),
], ids=str)
def test_arrays_that_cannot_be_meant_are_refused(linked, data, offsets, what):
    pull, push = linked("pull", "push")
    with pytest.raises(mq.UsageError, match=what):
        push.send_batch(data, offsets)
    assert push.stats().sent == 0
    if isinstance(data, bytes) and what != "got none":
        with pytest.raises(mq.UsageError):
            push.send_batch(b"abc", [0, 3], split=offsets)


def _kind(value):
    return type(value).__name__


@pytest.mark.parametrize("data", [
    b"abcd", bytearray(b"abcd"), memoryview(b"abcd"), np.frombuffer(b"abcd", np.uint8),
    np.frombuffer(b"abcd", np.int8), np.frombuffer(b"abcd", np.uint8).reshape(2, 2)], ids=_kind)
@pytest.mark.parametrize("offsets", [[0, 1, 4], (0, 1, 4), np.array([0, 1, 4], np.uint16),
                                     np.array([0, 9, 1, 9, 4])[::2]], ids=_kind)
def test_arrays_that_can_be_meant_are_taken(linked, data, offsets):
    pull, push = linked("pull", "push")
    assert push.send_batch(data, offsets) == 2
    assert [pull.recv(timeout=5) for _ in range(2)] == [b"a", b"bcd"]


@pytest.mark.parametrize("limit", ["abc", None, 1.5, True, 0, -1, 1 << 63])
def test_limits_of_a_batch_are_whole_numbers(linked, limit):
    pull, _ = linked("pull", "push")
    for call in (lambda: pull.recv_batch(limit), lambda: pull.recv_batch(max_bytes=limit),
                 lambda: pull.recv_many(limit)):
        with pytest.raises(mq.UsageError, match="whole number|between 1 and"):
            call()


# -- large ones ------------------------------------------------------------------------------------

def test_a_batch_that_int32_cannot_index_has_int64_offsets(linked, monkeypatch):
    pull, push = linked("pull", "push")
    for limit, kind in ((10, "int32"), (9, "int64")):
        monkeypatch.setattr(arrays, "NARROW", limit)
        before = pull._accounts()["live"][0][1]["read"]
        push.send_many([b"abc", [b"de", b"fg"], b"hij"])
        until(lambda b=before: pull._accounts()["live"][0][1]["read"] == b + 3)
        batch = pull.recv_batch(3, timeout=5)
        assert (batch.offsets.dtype, batch.split.dtype) == (kind, kind)
        assert batch.to_list() == [b"abc", b"defg", b"hij"] and list(batch.split) == [3, 5, 10]
        assert bytes(batch[1]) == b"defg"
        large = str(batch.to_arrow().type) == "large_binary"
        assert large == (kind == "int64") and batch.to_arrow().to_pylist() == batch.to_list()


@pytest.mark.slow
def test_more_than_two_gibibytes_in_one_batch(ctx):
    """By reference as far as the batch, which is one copy; fewer bytes than that prove nothing."""
    body = bytes(300 << 20)
    with ctx.socket("pull", bind="inproc://large", recv_hwm_bytes=None) as pull, ctx.socket(
            "push", connect="inproc://large", send_hwm_bytes=None) as push:
        for n in range(8):
            push.send_parts([b"%d" % n, body], timeout=5)
        batch = pull.recv_batch(max_bytes=3 << 30, timeout=5)
        assert len(batch) == 8 and batch.offsets.dtype == np.int64
        assert len(batch.data) == 8 * (len(body) + 1) > 1 << 31
        assert bytes(batch.data[at] for at in batch.offsets[:-1]) == b"01234567"


@pytest.mark.parametrize("call", [
    lambda pull, push: pull.arecv_many("abc"), lambda pull, push: pull.arecv_many(None),
    lambda pull, push: pull.arecv_batch("abc"), lambda pull, push: pull.arecv_batch(1.5),
    lambda pull, push: pull.arecv_batch(max_bytes="abc"),
    lambda pull, push: pull.arecv_batch(max_bytes=[1]), lambda pull, push: push.asend_batch(b"", 5),
    lambda pull, push: push.asend_batch(b"abc", "abc"),
    lambda pull, push: push.asend_batch(b"abc", [0, 3], split=5),
    lambda pull, push: push.asend_batch(b"abc", [0, 3], split=[1, 2]),
    lambda pull, push: pull.arecv_batch(timeout="1")])
def test_wrong_arguments_of_awaitable_batches_are_refused_too(linked, call):
    pull, push = linked("pull", "push")

    async def main():
        with pytest.raises(mq.UsageError):
            await call(pull, push)
    asyncio.run(main())
    assert push.stats().sent == 0


@pytest.mark.parametrize("timeout", ["1", b"1", [1], {}, True, float("nan"), -1])
def test_a_timeout_is_a_number_of_seconds(linked, timeout):
    pull, push = linked("pull", "push")
    for call in (pull.recv, pull.recv_many, pull.recv_batch):
        with pytest.raises(mq.UsageError, match="timeout"):
            call(timeout=timeout)


def test_what_cannot_be_given_stays_for_the_next_call(linked, monkeypatch):
    """Here for want of memory."""
    pull, push = linked("pull", "push")
    push.send_many([b"a", b"b"])
    until(lambda: all(peer.read == 2 for peer in pull.stats().peers.values()))

    def empty(*_):
        raise MemoryError
    monkeypatch.setattr(np, "empty", empty)
    for _ in range(2):
        with pytest.raises(MemoryError):
            pull.recv_batch(timeout=5)
        with pytest.raises(MemoryError):
            asyncio.run(pull.arecv_batch(timeout=5))
    monkeypatch.undo()
    assert pull.recv_batch(timeout=5).to_list() == [b"a", b"b"]
    total = next(iter(pull.stats().peers.values()))
    assert (total.read, total.delivered, total.queued_in) == (2, 2, 0)
