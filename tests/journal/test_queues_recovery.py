"""A queue server that was killed between the note that old records are of no use and their
removal: the next one starts although they go while it reads."""

import shutil

import pytest

from mqcore.journal import QueueLimits, QueueOptions
from mqcore.journal.queues import store as module
from mqcore.journal.queues.replay import Replay
from mqcore.journal.queues.store import GROUP, Store
from mqcore.journal.store.place import partition_folder, segments

SEGMENT = 1 << 16


def opened(where):
    return Store(str(where), "never", QueueOptions(), QueueLimits(), segment_bytes=SEGMENT)


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
