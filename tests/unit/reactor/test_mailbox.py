"""The mailbox: order, the wake-up of a reader that sleeps, many writers."""

import select

import pytest
from mqcore.testing.native.reactor_bench import Box, mailbox_stress


def readable(box):
    return bool(select.select([box.fileno()], [], [], 0)[0])


def test_notes_come_out_in_order_and_once():
    box = Box()
    assert box.take() == []
    for kind in range(10):
        box.put(kind)
    assert box.take() == list(range(10))
    assert box.take() == []


def test_readable_exactly_while_there_are_notes():
    box = Box()
    assert not readable(box)
    for _ in range(3):
        box.put(1)
        assert readable(box)
        box.put(2)
        assert readable(box)
        assert box.take() == [1, 2]
        assert not readable(box)


@pytest.mark.parametrize("writers", [1, 2, 8])
def test_many_writers_and_a_reader_that_sleeps(writers):
    each = 20_000 // writers
    seen, wrong, wakes = mailbox_stress(writers, each)
    assert seen == [each] * writers, f"notes or a wake-up were lost: {seen}"
    assert wrong == 0, "a writer's notes were out of order"
    assert 0 < wakes <= each * writers, "it woke for nothing"
