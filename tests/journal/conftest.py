"""Copies of a journal, as a crash would leave it, and servers."""

import shutil
import tempfile
from pathlib import Path

import pytest
from copies import fill, mirror

import mqcore as mq
from mqcore import journal
from mqcore.journal.store import recovery

ROOM = 2 << 30      # bytes that a folder in memory must have

try:        # its threads start with the first array: have them before anything is counted
    import pyarrow
    pyarrow.array([b"x"]).validate()
except ImportError:
    pass


@pytest.fixture
def memory():
    """A folder in memory, for tests that would wait for the disk thousands of times."""
    shm = Path("/dev/shm")
    where = shm if shm.is_dir() and shutil.disk_usage(shm).free > ROOM else None
    with tempfile.TemporaryDirectory(dir=where, prefix="mqcore-") as folder:
        yield Path(folder)


@pytest.fixture
def nobody_writes(monkeypatch):
    """What looks damaged stays so: verify() need not wait whether a writer is just making it."""
    monkeypatch.setattr(recovery, "QUIET", 0.0)


@pytest.fixture
def copy(tmp_path):
    """copy(where) -> another folder with the same journal, as a power cut would leave it."""
    made = []

    def make(where):
        made.append(tmp_path / f"copy{len(made)}")
        shutil.copytree(where, made[-1], ignore=shutil.ignore_patterns(".*"))     # half written
        return made[-1]
    return make


@pytest.fixture
def pair(tmp_path):
    """(a, b): a primary with two messages, and a mirror that has them."""
    a, b = tmp_path / "a", tmp_path / "b"
    fill(a, b"0", b"1")
    mirror(a, b)
    return a, b


@pytest.fixture
def push(ctx):
    """For a spill: it takes ten messages."""
    with mq.Push(context=ctx, bind="tcp://127.0.0.1:0", send_hwm=10) as push:
        yield push


@pytest.fixture
def serve(ctx):
    """serve(folder, ...) -> a journal server that stops after the test."""
    made = []

    def make(folder, bind="tcp://127.0.0.1:0", **how):
        made.append(journal.serve(folder, bind, context=ctx, **how))
        return made[-1]
    yield make
    for server in made:
        server.stop()
