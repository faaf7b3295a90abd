"""The leak watch of the test kit sees what it is there to see."""

import os
import threading

import pytest

import mqcore.testing
from mqcore.testing import until, watch


def test_an_open_descriptor():
    before = watch.before()
    ends = os.pipe()
    try:
        [line] = watch.wait_until_clean(before, grace=0.05)
        assert line.startswith("2 more descriptors") and "pipe:" in line
        assert watch.wait_until_clean(before, 2, grace=0.05) == [], "unless the test may keep them"
    finally:
        for end in ends:
            os.close(end)
    assert watch.wait_until_clean(before, grace=0.05) == []


def test_a_running_thread_and_its_end():
    go = threading.Event()
    thread = threading.Thread(target=go.wait)
    thread.start()

    def look():
        before = watch.before()
        before.threads.remove(thread.native_id)
        return before, watch.wait_until_clean(before, grace=0.05)
    # A thread of an earlier test that is about to end hides one that begins.
    before, [line] = until(lambda: (seen := look())[1] and " wait" in seen[1][0] and seen)
    assert line.startswith("1 more thread") and "threading.py" in line
    threading.Timer(0.05, go.set).start()
    assert watch.wait_until_clean(before) == [], "it waits for threads that are about to end"
    thread.join()


def test_counters_of_the_library(monkeypatch):
    monkeypatch.setattr(watch, "leaks", lambda: {"handles": 0, "slabs": 2})
    lines = watch.wait_until_clean(watch.before(), grace=0.05)
    assert lines == ["2 x slabs alive in mqcore"]
    monkeypatch.undo()
    assert mqcore.testing.leaks().keys() == {"engines", "links", "slabs"}


@pytest.mark.keeps(fds=1, why="this test is about it")
def test_what_a_test_may_keep(request):
    end = os.open("/dev/null", os.O_RDONLY)
    request.session.config.add_cleanup(lambda: os.close(end))
