"""Renames beside remote readers, listings, backups, signal handlers, writers and repairs."""

import fcntl
import os
import shutil

import pytest
from journal_case import contents, segment_files
from renames import MESSAGES, fill, ids

from mqcore import journal
from mqcore.journal import listing, renaming
from mqcore.journal.server import answers
from mqcore.journal.store import exclusive
from mqcore.journal.store.topic_names import NAME, names_of


@pytest.fixture
def where(tmp_path):
    return tmp_path / "j"


def test_a_remote_reader_stays_with_its_journal(where, serve, ctx):
    """Also a commit: for the journal that took the name it would skip messages."""
    fill(where)
    fill(where, "next")
    [url] = serve(where, groups=True).urls
    with journal.open(url, topic="a", context=ctx) as reader:
        assert len(reader.read(0)) == 6
        for topic, to in (("a", "was"), ("next", "a")):
            journal.rename(where, topic=topic, to=to)
        for call in (lambda: reader.commit_offset("g", 5), lambda: reader.read(0),
                     lambda: reader.end, lambda: reader.groups(), lambda: reader.at(0.0),
                     lambda: list(reader.batches()), lambda: next(reader.follow(0))):
            with pytest.raises(journal.JournalNotFound):
                call()
    for topic in ("a", "was"):
        with journal.open(where, topic=topic) as local:
            assert local.groups() == {}


def test_a_swap_between_a_remote_commit_and_its_write(where, serve, ctx, monkeypatch):
    fill(where)
    fill(where, "next")
    [url] = serve(where, groups=True).urls
    before = answers.commit

    def late(*args):
        for topic, to in (("a", "was"), ("next", "a")):
            journal.rename(where, topic=topic, to=to)
        before(*args)
    monkeypatch.setattr(answers, "commit", late)
    with journal.open(url, topic="a", context=ctx) as reader:
        with pytest.raises(journal.JournalNotFound):
            reader.commit_offset("g", 5)
    with journal.open(where, topic="a") as local:
        assert local.groups() == {}


def test_a_listing_beside_a_rename_has_the_topic(where, tmp_path, monkeypatch):
    """Under one of its names, once; and a backup has all of it."""
    for topic in "dmv":
        fill(where, topic)
    real = listing.Listing._partitions

    def at(name, topic, to):
        """Renamed in the moment in which the listing looks at `name`."""
        def look(self, folder, bad):
            if folder == name and (where / topic).exists() and not (where / to).exists():
                journal.rename(where, topic=topic, to=to)
            return real(self, folder, bad)
        return look

    def names():
        return [row.topic for row in journal.list_partitions(where) if row.partition == 0]
    for name, topic, to, expected in [
            ("d", "m", "a", ["a", "d", "v"]), ("v", "a", "z", ["d", "v", "z"]),
            ("z", "z", "m", ["d", "m", "v"])]:
        with monkeypatch.context() as patch:
            patch.setattr(listing.Listing, "_partitions", at(name, topic, to))
            assert names() == expected
    with monkeypatch.context() as patch:
        patch.setattr(listing.Listing, "_partitions", at("d", "m", "a"))
        done = journal.backup(where, tmp_path / "to")
    assert [one.topic for one in done] == ["a", "a", "d", "d", "v", "v"]


def test_topics_that_change_places_while_they_are_listed(where, monkeypatch):
    for topic in "am":
        fill(where, topic)
    before = ids(where)
    real, done = listing.Listing._partitions, []

    def look(self, name, bad):
        if name == "m" and not done:        # "a" has been looked at
            done.append(name)
            for topic, to in (("a", "x"), ("m", "a"), ("x", "m")):
                journal.rename(where, topic=topic, to=to)
        return real(self, name, bad)
    monkeypatch.setattr(listing.Listing, "_partitions", look)
    found = ids(where)
    assert found == {("a", n): before["m", n] for n in range(2)} | {
        ("m", n): before["a", n] for n in range(2)}


def test_a_handler_that_commits_in_the_middle_of_a_rename(where, monkeypatch):
    fill(where)
    real, caught = renaming.write_names, []

    def write_names(*args):
        with journal.open(where, topic="a") as reader, \
                pytest.raises(journal.JournalBusy, match="signal handler") as error:
            reader.commit_offset("g", 1)
        caught.append(error)
        real(*args)
    monkeypatch.setattr(renaming, "write_names", write_names)
    journal.rename(where, topic="a", to="b")
    assert caught
    with journal.open(where, topic="b") as reader:
        reader.commit_offset("g", 1)


def test_a_commit_does_not_wait_for_ever(where, monkeypatch):
    monkeypatch.setattr(exclusive, "PATIENCE", 0.05)
    fill(where)
    fd = os.open(where / "a", os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)      # a rename by a process that was stopped
        with journal.open(where, topic="a") as reader, \
                pytest.raises(journal.JournalBusy, match="is being renamed"):
            reader.commit_offset("g", 1)
    finally:
        os.close(fd)


def test_a_folder_that_is_renamed_while_a_writer_makes_it(where, monkeypatch):
    fill(where)
    real, tried = exclusive.make_folder, []

    def make(folder):
        if not tried:
            tried.append(folder)
            journal.rename(where, topic="a", to="b")
            raise FileNotFoundError(2, "gone", str(folder))
        real(folder)
    monkeypatch.setattr(exclusive, "make_folder", make)
    with journal.open(where, "a", topic="a", partition=5) as log:
        log.append(b"x")
    assert tried and contents(where, topic="a", partition=5) == [b"x"]


@pytest.mark.parametrize("damaged", [False, True])
def test_a_repair_without_the_names(where, damaged):
    """A partition that was copied without that file is still its own."""
    fill(where)
    journal.rename(where, topic="a", to="b")
    (where / "b" / NAME).unlink()
    with pytest.raises(journal.JournalCorrupt):
        contents(where, topic="b")
    if damaged:
        path = segment_files(where, "b")[0]
        path.write_bytes(b"?" * 30 + path.read_bytes()[30:])
    journal.repair(where, topic="b")
    assert contents(where, topic="b") == MESSAGES
    assert names_of(where / "b") == ["a", "b"]


def test_a_repair_does_not_adopt_another_journal(where):
    fill(where)
    fill(where, "b", messages=[b"other"] * 6)
    for path in segment_files(where, "a"):
        shutil.copy(path, where / "b" / "0")
    journal.repair(where, topic="b")
    assert b"0" not in contents(where, topic="b") and names_of(where / "b") == []
