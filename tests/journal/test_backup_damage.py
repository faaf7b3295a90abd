"""Backups of what is damaged: an error that names it, and nothing is left behind."""

import os
import shutil

import pytest
from copies import files_in, fill
from journal_case import segment_files

from mqcore import journal
from mqcore.errors import AddressError
from mqcore.journal.errors import JournalCorrupt, JournalNotFound
from mqcore.journal.store import place, segment
from mqcore.journal.store.place import topic_folder


@pytest.fixture
def where(tmp_path):
    return tmp_path / "original"


@pytest.fixture
def to(tmp_path):
    return tmp_path / "copy"


@pytest.mark.parametrize("what", ["end", "block", "header"])
def test_damage_is_an_error(where, to, what):
    with journal.open(where, "a") as log:
        for text in (b"0", b"1", b"2"):
            log.append(text)
            log.commit()
    path = segment_files(where)[-1]
    raw = bytearray(path.read_bytes())
    if what == "end":
        del raw[-256:]
    else:
        raw[512 + 8 if what == "block" else 20] ^= 1
    path.write_bytes(raw)
    with pytest.raises(JournalCorrupt):
        journal.backup(where, to)
    assert files_in(to) == []


def damage_missing(path, tmp_path):
    path.unlink()


def damage_cut(path, tmp_path):
    os.truncate(path, 300)


def damage_foreign(path, tmp_path):
    in_segments(tmp_path / "other", [b"0", b"1", b"2"])
    [other] = (tmp_path / "other").rglob(path.name)
    shutil.copy(other, path)


def damage_link(path, tmp_path):
    path.unlink()
    path.symlink_to("nowhere")


def damage_pipe(path, tmp_path):
    path.unlink()
    os.mkfifo(path)


def in_segments(where, messages):
    """Each in one of its own."""
    with journal.open(where, "a") as log:
        for message in messages:
            log.append(message)
            log.rotate()


@pytest.mark.parametrize("damage, which", [
    (damage, which) for damage in (damage_missing, damage_cut, damage_foreign, damage_link,
                                   damage_pipe)
    for which in (0, 1) if (damage, which) != (damage_missing, 0)])     # retention does this
def test_damage_in_front_is_an_error(where, to, tmp_path, damage, which):
    in_segments(where, [b"0", b"1", b"2"])
    path = segment_files(where)[which]
    damage(path, tmp_path)
    with pytest.raises(JournalCorrupt, match="the next segment begins at 2"
                       if damage is damage_missing else path.name):
        journal.backup(where, to)
    assert files_in(to) == []
    with journal.open(where) as reader:
        assert reader.first == 0        # an error when it is read, not here


@pytest.mark.parametrize("name", ["epoch", "producers"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_small_files_that_are_none(where, to, name, make):
    fill(where, b"0")
    odd = segment_files(where)[0].parent / name
    make(odd)
    with pytest.raises(JournalCorrupt, match=f"{odd} is not a regular file"):
        journal.backup(where, to)
    if name == "producers":             # which messages tell, too
        with journal.open(where, "a", stamps=True, deduplicate=True) as log:
            assert log.append(journal.stamp(7, 0) + b"1") == 1


def test_a_damaged_group_stays_one(where, to):
    """So that retention keeps everything for it there, too."""
    fill(where, b"0")
    with journal.open(where) as reader:
        reader.commit_offset("g", 1)
        reader.commit_offset("whole", 1)
    path = segment_files(where)[0].parent / "groups" / "g"
    path.write_bytes(path.read_bytes()[:-4])
    journal.backup(where, to)
    with journal.open(to) as copy:
        assert copy.committed_offset("whole") == 1
        with pytest.raises(JournalCorrupt, match="how far this consumer group"):
            copy.committed_offset("g")


def test_a_topic_whose_name_is_damaged(where, to, caplog):
    """A folder that has only a part of a long name."""
    topic = "\u00e9" * 60
    fill(where, b"0")
    with journal.open(where, "a", topic=topic) as log:
        log.append(b"1")
    [path] = (where / topic_folder(topic) / "0").glob("*.mqj")
    raw = bytearray(path.read_bytes())
    raw[64] ^= 1
    path.write_bytes(raw)
    with pytest.raises(JournalCorrupt, match="does not say which topic"):
        journal.backup(where, to)
    assert [row.topic for row in journal.list_partitions(where)] == ["default"]
    assert "does not say which topic" in caplog.text
    journal.repair(where, topic=topic)
    assert {row.topic for row in journal.backup(where, to)} == {"default", topic}


def test_what_is_not_asked_for_may_be_damaged(where, to, tmp_path, monkeypatch):
    fill(where, b"0")
    for topic, partition in (("t", 0), ("t", 1)):
        with journal.open(where, "a", topic=topic, partition=partition) as log:
            log.append(b"1")
    broken = where / "t" / "1"
    real = place.segments

    def segments(folder):
        if folder == broken:
            raise PermissionError(13, "Permission denied", str(folder))
        return real(folder)
    for module in (place, segment):
        monkeypatch.setattr(module, "segments", segments)
    with pytest.raises(PermissionError):
        journal.backup(where, to)
    with pytest.raises(PermissionError):
        journal.backup(where, to, topic="t")
    assert files_in(to) == []
    journal.backup(where, to, topic="default")
    journal.backup(where, to, topic="t", partition=0)


def test_a_folder_of_the_file_system_that_only_root_can_read(where, to, monkeypatch):
    fill(where, b"0")
    (where / "lost+found").mkdir()
    real = os.scandir

    def scandir(folder):
        if folder == where / "lost+found":
            raise PermissionError(13, "Permission denied", str(folder))
        return real(folder)
    monkeypatch.setattr(os, "scandir", scandir)
    assert len(journal.backup(where, to)) == 1
    (where / "lost+found").rename(where / "topic")
    monkeypatch.setattr(os, "scandir", lambda folder: scandir(
        where / "lost+found" if folder == where / "topic" else folder))
    with pytest.raises(PermissionError):
        journal.backup(where, where.parent / "other")


def test_there_is_nothing_to_copy(where, to, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for odd in (where, tmp_path / "file", tmp_path / "empty"):
        with pytest.raises(JournalNotFound, match="has no journal"):
            journal.backup(odd, to)
    fill(where, b"0")
    for kind in ({"topic": "x"}, {"partition": 1}, {"partition": -1}):
        with pytest.raises(JournalNotFound):
            journal.backup(where, to, **kind)
    for args in (("tcp://127.0.0.1:1", to), (where, "tcp://127.0.0.1:1")):
        with pytest.raises(AddressError, match="is not a folder"):
            journal.backup(*args)
    assert journal.backup(os.fsencode(where), os.fsencode(to))[0].end == 1
