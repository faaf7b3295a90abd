"""A partition's folder that is moved while its writer is open, and another journal that gets its
place: the writer goes on in the folder that it has, and touches nothing of the other."""

import os

import pytest
from copies import fill, mirroring
from journal_case import contents
from waiting import until

from mqcore import journal
from mqcore.journal.errors import JournalNotFound
from mqcore.journal.store.epoch import read_epochs

HOW = {"segment_bytes": 4096, "block_bytes": 1024}
STAMPED = {"stamps": True, "deduplicate": True}


def several(label, n=60):
    return [b"%s %d " % (label, i) * 20 for i in range(n)]


def stamped(first, n):
    return [journal.stamp(7, i) + b"%d " % i * 60 for i in range(first, first + n)]


def state(where):
    """Of the partition's folder: names, sizes, times."""
    return {path.name: (path.stat().st_size, path.stat().st_mtime_ns)
            for path in sorted((where / "default" / "0").iterdir()) if path.is_file()}


@pytest.fixture
def moved(tmp_path):
    """moved(writer) -> where it is by now; another journal has its place."""
    def move(where):
        os.rename(where, tmp_path / "moved")
        with journal.open(where, "a", **HOW, **STAMPED) as other:
            other.append_many(stamped(0, 60))
        return tmp_path / "moved"
    return move


@pytest.mark.parametrize("call", [
    lambda writer: writer.retain(), lambda writer: writer.truncate_before(50),
    lambda writer: writer.truncate_before(writer.next)])
def test_retention_stays_out_of_the_other(tmp_path, moved, call):
    where = tmp_path / "j"
    writer = journal.open(where, "a", retain_bytes=8192, **HOW)
    writer.append_many(several(b"ours"))
    writer.commit()
    there = moved(where)
    before = state(where)
    with pytest.raises(JournalNotFound, match="was moved"):
        call(writer)
    writer.append_many(several(b"more"))
    until(lambda: isinstance(writer.error, JournalNotFound))      # the flusher's retention, too
    writer.close()
    assert state(where) == before
    assert contents(where) == [b"%d " % i * 60 for i in range(60)]
    assert contents(there)[-60:] == several(b"more")


def test_what_is_known_of_producers_stays_out_of_the_other(tmp_path, moved, caplog):
    where = tmp_path / "j"
    writer = journal.open(where, "a", **HOW, **STAMPED)
    writer.append_many(stamped(0, 10))
    there = moved(where)
    before = state(where)
    writer.append_many(stamped(10, 100))
    writer.close()
    assert "was moved" in caplog.text
    assert state(where) == before
    for place, n in ((where, 60), (there, 110)):
        with journal.open(place, "a", **HOW, **STAMPED) as writer:
            writer.append_many(stamped(0, n + 1))
            assert writer.next == n + 1


def test_a_fence_stays_out_of_the_other(tmp_path, moved):
    a, b = tmp_path / "a", tmp_path / "b"
    fill(a, b"0")
    with mirroring(a, b) as (_, copy):
        until(lambda: copy.next == 1)
    journal.promote(b)
    writer = journal.open(a, "a")
    moved(a)
    with pytest.raises(JournalNotFound):
        writer._fence(read_epochs(b / "default" / "0").own)
    with pytest.raises(journal.JournalFenced):
        writer.append(b"1")
    writer.close()
    assert not (a / "default" / "0" / "epoch").exists()


def test_groups_of_a_mirror_stay_out_of_the_other(tmp_path, moved):
    a, b = tmp_path / "a", tmp_path / "b"
    fill(a, b"0")
    with mirroring(a, b) as (device, copy):
        until(lambda: copy.next == 1)
        moved(b)
        with journal.open(a) as reader:
            reader.commit_offset("g", 1)
        until(lambda: device.error is not None)
        assert isinstance(device.error, JournalNotFound)
    with journal.open(b) as reader:
        assert reader.groups() == {}
