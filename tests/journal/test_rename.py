"""A topic gets another name: its messages, offsets, groups and producers are the same."""

import os
import random
import signal
import subprocess
import sys
import threading

import pytest
from journal_case import contents, segment_files
from renames import MESSAGES, fill, ids

from mqcore import journal
from mqcore.errors import OptionError, UsageError
from mqcore.journal import backups, removal
from mqcore.journal.store import commits, exclusive, topic_names
from mqcore.journal.store.topic_names import NAME, names_of

LONG = "\u00e4" * 100       # its folder's name does not tell it


@pytest.fixture
def where(tmp_path):
    return tmp_path / "j"


def wrong(where):
    """What `verify` finds in all partitions."""
    return [finding for row in journal.list_partitions(where)
            for finding in journal.verify(where, topic=row.topic, partition=row.partition).findings]


@pytest.mark.parametrize("topic, to", [("a", "b"), ("a", LONG), (LONG, "b"), (LONG, LONG + "."),
                                       ("a/b", "..")])
def test_everything_goes_with_it(where, topic, to):
    fill(where, topic)
    with journal.open(where, topic=topic, partition=1) as reader:
        reader.commit_offset("g", 4)
    before = ids(where)
    assert journal.rename(where, topic=topic, to=to) == 2
    assert ids(where) == {(to, n): before[topic, n] for n in range(2)}
    assert contents(where, topic=to, partition=1) == MESSAGES
    with journal.open(where, topic=to, partition=1) as reader:
        assert reader.committed_offset("g") == 4
    with journal.open(where, "a", topic=to) as log:
        assert log.append(b"6") == 6
        log.rotate()
        assert log.append(b"7") == 7
    assert contents(where, topic=to) == [*MESSAGES, b"6", b"7"]
    assert wrong(where) == []
    with pytest.raises(journal.JournalNotFound):
        journal.open(where, topic=topic)


def test_again_and_back(where):
    """The file lists the names that segments have, and no others."""
    fill(where)
    for topic, to in [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]:
        journal.rename(where, topic=topic, to=to)
    assert names_of(where / "a") == ["a", "a"] or names_of(where / "a") == ["a"]
    assert contents(where, topic="a") == MESSAGES


def test_what_takes_the_former_name_is_another_journal(where):
    fill(where)
    with journal.open(where, topic="a") as reader:
        assert reader.end == 6
        journal.rename(where, topic="a", to="b")
        fill(where, messages=[b"x"] * 6)
        for use in (lambda: reader.end, lambda: reader.first, lambda: reader.at(0),
                    lambda: reader.read(0), lambda: reader.groups(),
                    lambda: reader.committed_offset("g"), lambda: reader.commit_offset("g", 1)):
            with pytest.raises(journal.JournalNotFound, match="renamed|deleted"):
                use()
    assert contents(where, topic="a") == [b"x"] * 6
    assert contents(where, topic="b") == MESSAGES
    with journal.open(where, topic="a") as reader:
        assert reader.groups() == {}


def test_a_segment_of_the_topic_that_has_the_former_name(where):
    """Its name is one that the folder had, and its journal is another."""
    fill(where)
    journal.rename(where, topic="a", to="b")
    fill(where)
    [ours, _] = segment_files(where, "b")
    ours.write_bytes(segment_files(where, "a")[0].read_bytes())
    with pytest.raises(journal.JournalCorrupt):
        contents(where, topic="b")
    assert len(journal.verify(where, topic="b").findings) == 1


def test_a_writer_keeps_its_topic(where):
    fill(where)
    with journal.open(where, "a", topic="a", partition=1) as log:
        with pytest.raises(journal.JournalLocked):
            journal.rename(where, topic="a", to="b")
        log.append(b"6")
    assert contents(where, topic="a", partition=1) == [*MESSAGES, b"6"]
    assert not (where / "b").exists() and not (where / "a" / NAME).exists()


def test_names_that_cannot_be(where):
    fill(where)
    fill(where, "b")
    for to in ("b", "a"):
        with pytest.raises(UsageError):
            journal.rename(where, topic="a", to=to)
    for to in ("", "x" * 300, None, 3):
        with pytest.raises(OptionError):
            journal.rename(where, topic="a", to=to)
    for topic in ("c", "a/0"):
        with pytest.raises(journal.JournalNotFound):
            journal.rename(where, topic=topic, to="d")
    (where / "link").symlink_to("nowhere")
    (where / "file").write_bytes(b"")
    for to in ("link", "file"):
        with pytest.raises(UsageError, match="there already"):
            journal.rename(where, topic="a", to=to)
    (where / "empty").mkdir()
    with pytest.raises(journal.JournalNotFound):
        journal.rename(where, topic="empty", to="d")
    assert journal.rename(where, topic="a", to="empty") == 2


def flipped(path):
    raw = bytearray(path.read_bytes())
    raw[random.randrange(len(raw))] ^= 1
    path.write_bytes(raw)


@pytest.mark.parametrize("to", ["b", LONG])
def test_a_damaged_file_of_names(where, to):
    """No segment is taken for another journal's, and a repair makes the file again."""
    fill(where)
    journal.rename(where, topic="a", to=to)
    path = next(where.glob(f"*/{NAME}"))
    flipped(path)
    with pytest.raises(journal.JournalCorrupt, match="names") as caught:
        journal.open(where, "a", topic=to)
    assert caught.value.path == str(path) and "repair" in str(caught.value)
    found = journal.verify(where, topic=to)
    assert {finding.path for finding in found.findings} == {str(path)}
    for number in range(2):
        journal.repair(where, topic=to, partition=number)
    assert wrong(where) == []
    assert not list(where.glob("*/*/*.damaged"))
    assert contents(where, topic=to) == MESSAGES


def test_a_backup_of_a_renamed_topic(where, tmp_path):
    fill(where)
    journal.backup(where, tmp_path / "before")
    journal.rename(where, topic="a", to=LONG)
    journal.backup(where, tmp_path / "after")
    assert contents(tmp_path / "after", topic=LONG, partition=1) == MESSAGES
    with journal.open(tmp_path / "after", "a", topic=LONG) as log:
        assert log.append(b"") == 6
    assert wrong(tmp_path / "after") == []
    assert contents(tmp_path / "before", topic="a") == MESSAGES


def test_a_damaged_segment_keeps_its_topic(where):
    """Its header does not tell a name, and the file of names need not have it."""
    fill(where)
    first = segment_files(where, "a")[0]
    raw = bytearray(first.read_bytes())
    raw[70] ^= 1
    first.write_bytes(raw)
    journal.rename(where, topic="a", to="b")
    assert len(journal.verify(where, topic="b").findings) == 1
    journal.repair(where, topic="b")
    assert contents(where, topic="b") == MESSAGES


@pytest.mark.parametrize("raw", [b"\xff\n", b"a\n\n", b"%00\n", b"%ff\n"])
def test_a_file_of_names_that_no_writer_made(where, raw):
    fill(where)
    journal.rename(where, topic="a", to="b")
    path = where / "b" / NAME
    path.write_bytes(b"%08x\n" % journal.checksum(raw) + raw)
    assert {finding.path for finding in wrong(where)} == {str(path)}
    journal.repair(where, topic="b")
    assert wrong(where) == [] and contents(where, topic="b") == MESSAGES


@pytest.mark.parametrize("what", ["folder", "loop"])
def test_something_else_in_place_of_the_names(where, what):
    fill(where)
    journal.rename(where, topic="a", to="b")
    path = where / "b" / NAME
    path.unlink()
    if what == "folder":
        path.mkdir()
    else:
        path.symlink_to(NAME)
    with pytest.raises(journal.JournalCorrupt, match="names"):
        contents(where, topic="b")
    journal.repair(where, topic="b")
    assert wrong(where) == [] and contents(where, topic="b") == MESSAGES


def test_segments_that_cannot_be_read_keep_their_name(where, monkeypatch):
    fill(where)
    read = topic_names.read_regular

    def fail(path, most=-1):
        if path.name.endswith("3.mqj"):
            raise PermissionError(13, "no", str(path))
        return read(path, most)
    with monkeypatch.context() as patch:
        patch.setattr(topic_names, "read_regular", fail)
        journal.rename(where, topic="a", to="b")
    assert journal.rename(where, topic="b", to="c") == 2
    assert wrong(where) == [] and contents(where, topic="c") == MESSAGES


def test_a_deleted_topic_leaves_no_names(where):
    fill(where)
    journal.rename(where, topic="a", to="b")
    assert journal.delete(where, topic="b") == 2
    assert os.listdir(where) == []


def test_what_lasts_keeps_the_name(where, tmp_path, monkeypatch):
    """A deletion, a backup or a commit that has begun is of one topic; a rename waits, or says so.
    """
    monkeypatch.setattr(exclusive, "PATIENCE", 0.05)
    fill(where)
    tried = []

    def rename(*_, **__):
        with pytest.raises(journal.JournalLocked, match="copied, compacted, deleted, opened or"):
            journal.rename(where, topic="a", to="b")
        tried.append(1)
    for module, name, call in [
            (backups, "_copy", lambda: journal.backup(where, tmp_path / "to")),
            (commits, "_commit", lambda: journal.open(where, topic="a").commit_offset("g", 1)),
            (removal, "_remove", lambda: journal.delete(where, topic="a"))]:
        before = getattr(module, name)
        with monkeypatch.context() as patch:
            patch.setattr(module, name, lambda *a, do=before, **k: (rename(), do(*a, **k))[1])
            call()
    assert len(tried) >= 3 and not (where / "b").exists()


def test_a_server_of_a_renamed_topic(where, serve, ctx):
    fill(where)
    [url] = serve(where).urls
    with journal.open(url, topic="a", context=ctx) as reader:
        assert len(reader.read(0)) == 6
        journal.rename(where, topic="a", to="b")
        with pytest.raises(journal.JournalNotFound):
            reader.read(6 - 6)
        with journal.open(url, topic="b", context=ctx) as other:
            assert [bytes(m) for records in other.batches() for m in records.to_list()] == MESSAGES


WRITER = """
import random, sys
from mqcore import journal
for n in range(int(sys.argv[2])):
    topic = random.choice("ab")
    try:
        with journal.open(sys.argv[1], "a", topic=topic, partition=random.randrange(2)) as log:
            log.append(b"x")
            log.commit()
            print("x", flush=True)
    except journal.JournalLocked:
        pass
"""


def test_writers_that_come_and_go_beside_renames(where):
    """Each message that was acknowledged is in one of the topics."""
    fill(where, messages=[])
    fill(where, "keep", messages=[])
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, where, "40"],
                                stdout=subprocess.PIPE) for _ in range(2)]
    done = threading.Event()
    said = []
    readers = [threading.Thread(target=lambda w=w: said.extend(w.stdout)) for w in writers]
    for reader in readers:
        reader.start()
    renamed = 0
    try:
        while any(writer.poll() is None for writer in writers):
            topic, to = random.sample(["a", "b", "c"], 2)
            try:
                renamed += journal.rename(where, topic=topic, to=to) > 0
            except (journal.JournalLocked, journal.JournalNotFound, UsageError):
                pass
    finally:
        done.set()
        for writer in writers:
            if writer.poll() is None:
                writer.kill()
            writer.wait()
        for writer, reader in zip(writers, readers, strict=True):
            reader.join()
            writer.stdout.close()
    assert renamed and [writer.returncode for writer in writers] == [0, 0]
    found = [message for row in journal.list_partitions(where)
             for message in contents(where, topic=row.topic, partition=row.partition)]
    assert found.count(b"x") == len(said)
    assert wrong(where) == []


def test_readers_beside_swaps(where):
    """They see one of the two journals, whole, or an error of ours."""
    fill(where, "a")
    fill(where, "b", messages=[b"y%d" % i for i in range(20)])
    wanted = {"a": MESSAGES, "b": [b"y%d" % i for i in range(20)]}
    done = threading.Event()

    def swap():
        while not done.wait(random.choice((0, 0, 0.001))):
            for topic, to in [("a", "c"), ("b", "a"), ("c", "b")]:
                journal.rename(where, topic=topic, to=to)
    swapping = threading.Thread(target=swap)
    swapping.start()
    seen = 0
    try:
        for _ in range(3000):
            try:
                with journal.open(where, topic="a") as reader:
                    size = reader.end
                    assert reader.at(0) == 0
                    found = [m for records in reader.batches() for m in records.to_list()]
                assert found in wanted.values() and size == len(found)
                seen += 1
                assert journal.verify(where, topic="b").findings == []
            except journal.JournalNotFound:
                pass
    finally:
        done.set()
        swapping.join()
    assert seen


def test_a_rename_that_is_killed(where):
    """One name or the other, at whichever point; the next call does it."""
    fill(where)
    for _ in range(10):
        topics = {row.topic for row in journal.list_partitions(where)}
        [topic] = topics
        to = "b" if topic == "a" else "a"
        child = subprocess.Popen([sys.executable, "-c", f"""
import sys
from mqcore import journal
print(flush=True)
journal.rename(sys.argv[1], topic={topic!r}, to={to!r})
""", where], stdout=subprocess.PIPE)
        child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        [now] = {row.topic for row in journal.list_partitions(where)}
        assert contents(where, topic=now) == MESSAGES
    assert not [name for name in os.listdir(where) if name not in ("a", "b")]
