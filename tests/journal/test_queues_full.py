"""A queue server that starts where the disk is full, or fails."""

import pytest
from mqcore.testing.native.journal_disk import Disk
from waiting import until

from mqcore import journal
from mqcore.journal.queues import store
from mqcore.journal.writer import Writer

LIMIT = 60.0


@pytest.mark.parametrize("fsync", ["interval", "always"])
def test_a_server_that_starts_on_a_full_disk(tmp_path, ctx, monkeypatch, fsync):
    """It waits until there is room, refuses what it cannot store, and loses nothing."""
    disk = Disk()

    def serve():
        return journal.serve_queues(tmp_path / "j", f"ipc://{tmp_path}/q", fsync=fsync,
                                    context=ctx)

    def writer(*args, **options):
        made = Writer(*args, **options)
        disk.attach(made)
        disk.fail(room=room[0])
        return made

    room = [-1]
    with serve(), journal.queue(f"ipc://{tmp_path}/q", "work", context=ctx) as queue:
        queue.put_many([b"%d" % number for number in range(10)])
        queue.get(timeout=LIMIT).ack()
    monkeypatch.setattr(store, "Writer", writer)
    for room[0] in (0, 30):         # also in the middle of what it begins with
        server = serve()
        assert isinstance(server.error, journal.JournalFull) and server.running
        with journal.queue(server.urls[0], "work", timeout=0.3, context=ctx) as queue:
            for call in (lambda queue=queue: queue.put(b"x"), queue.stats,
                         lambda queue=queue: queue.get(timeout=0.3)):
                with pytest.raises(journal.JournalFull, match="make room"):
                    call()
        with pytest.raises(journal.JournalWriteError):      # its last records are not stored
            server.stop()
    room[0] = 0
    with serve() as server, journal.queue(server.urls[0], "work", context=ctx) as queue:
        assert server.error is not None
        disk.fail(room=-1)
        until(lambda: server.error is None)
        assert server._store.writer.durable >= server._store._begun
        assert [queue.get(timeout=LIMIT).body for _ in range(9)] == [
            b"%d" % number for number in range(1, 10)]
        assert queue.put(b"x") > 10


def test_a_disk_that_fails_at_the_start_ends_the_server(tmp_path, ctx, monkeypatch):
    disk = Disk()

    def writer(*args, **options):
        made = Writer(*args, **options)
        disk.attach(made)
        disk.fail(syncs_left=0)
        return made

    monkeypatch.setattr(store, "Writer", writer)
    with pytest.raises(journal.JournalWriteError):
        journal.serve_queues(tmp_path / "j", f"ipc://{tmp_path}/q", context=ctx)
    monkeypatch.undo()
    journal.serve_queues(tmp_path / "j", f"ipc://{tmp_path}/q", context=ctx).stop()
