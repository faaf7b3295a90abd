"""eventfd and futex, as the reactor uses them."""

import os
import select

import pytest
from mqcore.testing.native import reactor_bench as bench


def test_an_eventfd_is_readable_from_signal_to_clear(events):
    fd = events()
    assert not select.select([fd], [], [], 0)[0]
    bench.clear_eventfd(fd)  # nothing there: does not block
    bench.signal_eventfd(fd)
    bench.signal_eventfd(fd)
    assert select.select([fd], [], [], 0)[0]
    bench.clear_eventfd(fd)
    assert not select.select([fd], [], [], 0)[0]


def test_an_eventfd_is_not_inherited_and_does_not_block(events):
    fd = events()
    assert not os.get_inheritable(fd)
    assert not os.get_blocking(fd)


def test_a_futex_whose_word_has_changed_does_not_sleep():
    assert bench.futex_sleep(2, 1, 60) < 30


@pytest.mark.parametrize("timeout", [0.0, 0.001, 0.05])
def test_a_futex_gives_up_in_time(timeout):
    took = bench.futex_sleep(1, 1, timeout)
    assert timeout <= took + 1e-4 and took < timeout + 5


def test_two_threads_wake_each_other():
    played, lost = bench.futex_ping_pong(2000)
    assert (played, lost) == (4000, 0)
