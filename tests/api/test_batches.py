"""Batches of messages that have more than one part."""

import asyncio

import pytest

import mqcore as mq


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
