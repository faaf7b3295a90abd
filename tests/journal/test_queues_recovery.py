"""A queue server that was killed between the note that old records are of no use and their
removal: the next one starts although they go while it reads."""

import shutil

import pytest

from mqcore.journal import QueueLimits, QueueOptions
from mqcore.journal.queues import store as module
from mqcore.journal.queues.replay import Replay
from mqcore.journal.queues.store import GROUP, Store
from mqcore.journal.store import clock
from mqcore.journal.store.place import partition_folder, segments

SEGMENT = 1 << 16


def opened(where, now=0.0):
    return Store(str(where), "never", QueueOptions(), QueueLimits(), now, segment_bytes=SEGMENT)


@pytest.fixture
def killed(tmp_path):
    """The folder of a server that was killed there, with one job that is left."""
    where = tmp_path / "j"
    store = opened(where)
    for number in range(50):
        store.book.put("work", [bytes(8192)], 0.0)
        [entry] = store.book.take("work", 1, 1 << 20, "me", 0.0)
        store.book.ack([entry.id], [entry.attempts])
        store.settle(always=False)
    store.book.put("work", [b"left"], 0.0)
    needed = min(next(iter(store.book.jobs.values())).place, store.book.snapshot())
    store.settle(always=True)
    store._reader.commit_offset(GROUP, needed)
    shutil.copytree(where, tmp_path / "k", ignore=shutil.ignore_patterns("*lock*"))
    store.close()
    folder = partition_folder(str(tmp_path / "k"), module.TOPIC, 0)
    assert len([first for first in segments(folder) if first <= needed]) > 2
    return tmp_path / "k"


def test_records_go_while_it_recovers(killed, monkeypatch):
    writers = []

    class Watched(module.Writer):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            writers.append(self)

    record = Replay.record

    def slow(self, *args):
        writers[-1].retain()            # as the writer's own thread does, now and then
        record(self, *args)

    monkeypatch.setattr(module, "Writer", Watched)
    monkeypatch.setattr(Replay, "record", slow)
    store = opened(killed)
    try:
        [entry] = store.book.take("work", 9, 1 << 20, "me", 0.0)
        assert store.load(entry) == b"left"
    finally:
        store.close()


@pytest.mark.parametrize("jump", [1e8, -1e8])
@pytest.mark.parametrize("when", ["running", "stopped"])
def test_a_clock_that_is_set_changes_no_delay_and_no_expiry(tmp_path, monkeypatch, jump, when):
    """Set while a server runs: nothing changes, after a restart neither. Set while none does: only
    time that passes can be believed, so a clock that is put back stands still."""
    wall = 1.5e9
    monkeypatch.setattr(clock, "wall", lambda: wall)
    store = opened(tmp_path, wall)
    store.book.put("work", [b"delayed"], store.now, delay=60.0)
    store.book.put("work", [b"expiring"], store.now, ttl=120.0)
    if when == "running":
        wall += jump
    store.close()
    if when == "stopped":
        wall += jump
    store = opened(tmp_path, wall)
    try:
        past = when == "stopped" and jump > 0
        assert store.now == pytest.approx(1.5e9 + (jump if past else 0.0), abs=30.0)
        store.book.tick(store.now)
        assert len(store.book.jobs) == (1 if past else 2)
        store.book.tick(store.now + 70.0)
        assert len(store.book.take("work", 9, 1 << 20, "me", store.now + 70.0)) == 2 - past
    finally:
        store.close()


def test_a_snapshot_of_before_it_had_clocks(tmp_path):
    store = opened(tmp_path, 1e9)
    store.book.snapshot()
    store.writer.close()
    store.book.close()
    store._reader.close()
    store = opened(tmp_path, 2e9)
    assert store.now == 2e9
    store.close()
