"""The watch of conftest.py sees what it is there to see."""

import importlib.util
import os
import sys
import threading
import types
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def watch():
    path = Path(__file__).with_name("conftest.py")
    spec = importlib.util.spec_from_file_location("the_watch", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_open_descriptor(watch):
    before = watch.descriptors(), watch.threads()
    ends = os.pipe()
    try:
        [line] = watch.wait_until_clean(*before, grace=0.05)
        assert line.startswith("2 more descriptors") and "pipe:" in line
        assert watch.wait_until_clean(*before, 2, grace=0.05) == [], "unless the test may keep them"
    finally:
        for end in ends:
            os.close(end)
    assert watch.wait_until_clean(*before, grace=0.05) == []


def test_a_running_thread_and_its_end(watch):
    before = watch.descriptors(), watch.threads()
    go = threading.Event()
    thread = threading.Thread(target=go.wait)
    thread.start()
    [line] = watch.wait_until_clean(*before, grace=0.05)
    assert line.startswith("1 more thread")
    threading.Timer(0.05, go.set).start()
    assert watch.wait_until_clean(*before) == [], "it waits for threads that are about to end"
    thread.join()


def test_counters_of_the_library(watch, monkeypatch):
    testing = types.ModuleType("mqcore.testing")
    testing.leaks = lambda: {"handles": 0, "slabs": 2}
    package = sys.modules.get("mqcore", types.ModuleType("mqcore"))
    monkeypatch.setitem(sys.modules, "mqcore", package)
    monkeypatch.setitem(sys.modules, "mqcore.testing", testing)
    assert watch.counters() == {"slabs": 2}
    lines = watch.wait_until_clean(watch.descriptors(), watch.threads(), grace=0.05)
    assert lines == ["2 x slabs alive in mqcore"]


@pytest.mark.keeps(fds=1, why="this test is about it")
def test_what_a_test_may_keep(request):
    end = os.open("/dev/null", os.O_RDONLY)
    request.session.config.add_cleanup(lambda: os.close(end))
