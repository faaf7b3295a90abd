"""What else may lie in a journal's folder: nothing of it is waited for, and errors name it."""

import os
import shutil
import threading
from pathlib import Path

import pytest
from journal_case import contents, segment_files
from programs import run

from mqcore import journal
from mqcore.journal.errors import JournalCorrupt

CALLS = {
    "end": lambda reader: reader.end,
    "durable": lambda reader: reader.durable,
    "at": lambda reader: reader.at(4e9),
    "read": lambda reader: [len(records) for records in reader.batches()],
}


@pytest.fixture
def folder(tmp_path):
    """Three segments, two messages each."""
    with journal.open(tmp_path, "a") as writer:
        for i in range(3):
            writer.append_many([b"%d" % (2 * i), b"%d" % (2 * i + 1)])
            if i < 2:
                writer.rotate()
    return tmp_path / "default" / "0"


def no_file(path, kind):
    if kind == "link":
        path.symlink_to("/nonexistent/segment")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
@pytest.mark.timeout(100)
def test_a_segment_that_is_no_file_is_refused(tmp_path, folder, kind, call):
    """As a link into a file system that is not mounted: no loop, no wait."""
    path = folder / f"{6:020d}.mqj"
    no_file(path, kind)
    with journal.open(tmp_path) as reader, pytest.raises(JournalCorrupt) as caught:
        CALLS[call](reader)
        reader.read(6)
    assert str(path) in str(caught.value)
    with pytest.raises(JournalCorrupt):
        journal.open(tmp_path, "a")
    found = journal.store.recovery.verify(folder).findings
    assert [finding.path for finding in found] == [str(path)]
    with pytest.raises(JournalCorrupt, match="move it out"):
        journal.store.repair.repair(folder)
    assert os.path.lexists(path)


@pytest.mark.timeout(100)
def test_a_link_in_the_middle_that_leads_nowhere(tmp_path, folder):
    path = segment_files(tmp_path)[1]
    path.rename(tmp_path / "moved")
    path.symlink_to("/nonexistent/segment")
    with journal.open(tmp_path) as reader:
        assert reader.read(0).to_list() == [b"0", b"1"] and reader.end == 6
        with pytest.raises(JournalCorrupt, match="leads nowhere"):
            reader.read(2)
    path.unlink()
    path.symlink_to(tmp_path / "moved")
    assert contents(tmp_path) == [b"%d" % i for i in range(6)]


@pytest.mark.parametrize("name", [
    "\u0660" * 20 + ".mqj", "1.mqj", f"{6:020d}.MQJ", f"{6:020d}.mqj.bak", f"{6:020d}.new",
    "x.new", "x.damaged"])
def test_files_of_other_names_are_left_alone(tmp_path, folder, name):
    (folder / name).write_bytes(b"x" * 5000)
    assert contents(tmp_path) == [b"%d" % i for i in range(6)]
    with journal.open(tmp_path, "a") as writer:
        assert writer.next == 6 and writer.recovered == ()
    assert journal.store.recovery.verify(folder).findings == []
    assert not journal.store.repair.repair(folder).kept
    assert (folder / name).read_bytes() == b"x" * 5000


@pytest.mark.parametrize("name", ["007", "\u0663", "x", "-1", ""])
def test_folders_that_are_no_partitions(tmp_path, folder, name):
    (folder.parent / name).mkdir(exist_ok=True)
    assert [(info.topic, info.partition) for info in journal.list_partitions(tmp_path)] \
        == [("default", 0)]
    assert [row[:2] for row in journal.store.topic_names.partitions(tmp_path)] == [("default", 0)]


@pytest.mark.timeout(100)
def test_a_pipe_in_the_place_of_what_is_durable(tmp_path, folder):
    (folder / "durable").unlink()
    os.mkfifo(folder / "durable")
    with journal.open(tmp_path) as reader:
        assert reader.durable == 6


def test_the_time_of_a_torn_segment(tmp_path, folder):
    """A power cut in a rotation leaves half a header: nothing is in it yet."""
    (folder / f"{6:020d}.mqj").write_bytes(b"MQJSEG")
    with journal.open(tmp_path) as reader:
        assert reader.end == reader.at(4e9) == 6


@pytest.mark.parametrize("cut", ["within a block", "behind the header", "to nothing", "removed"])
def test_a_closed_journal_that_was_cut_short(tmp_path, folder, cut):
    """Readers, writers and verify report it, and a repair keeps its offsets."""
    path = segment_files(tmp_path)[2]
    size = path.stat().st_size
    if cut == "removed":
        path.unlink()
    else:
        os.truncate(path, {"within a block": size - 200, "behind the header": 512}.get(cut, 0))
    [finding] = journal.store.recovery.verify(folder).findings
    assert (finding.offset, finding.lost) == (4, None if cut == "to nothing" else 2)
    with journal.open(tmp_path) as reader:
        for look in (lambda: reader.end, lambda: reader.read(4), lambda: list(reader.batches())):
            with pytest.raises(journal.JournalCorrupt, match="messages up to 5 were durable"):
                look()
    for _ in range(2):      # also after the writer has removed a header that was torn
        with pytest.raises(journal.JournalCorrupt, match="messages up to 5 were durable"):
            journal.open(tmp_path, "a")
    journal.store.repair.repair(folder)
    with journal.open(tmp_path, "a") as writer:
        assert writer.append(b"6") == 6 and writer.recovered == ()
    with journal.open(tmp_path) as reader:
        assert reader.read(3).to_list() == [b"3"] and reader.read(6).to_list() == [b"6"]
        with pytest.raises(journal.OffsetGone):
            reader.read(4)
    assert journal.store.recovery.verify(folder).findings == []


def test_the_last_block_of_a_killed_writer_rots(tmp_path):
    """Nothing behind it says that it was durable, but the file `durable` does."""
    program = "import os, sys\nfrom mqcore import journal\n" \
        "writer = journal.open(sys.argv[1], 'a', fsync='always')\n" \
        "for i in range(40):\n    writer.append(b'%03d' % i)\nos._exit(1)"
    run("-c", program, tmp_path)
    [path] = segment_files(tmp_path)
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"039")] ^= 1
    path.write_bytes(raw)
    with journal.open(tmp_path) as reader:
        assert reader.read(38).to_list() == [b"038"]
        looks = (lambda: journal.open(tmp_path, "a"), lambda: reader.read(39))
        for look in looks:
            with pytest.raises(journal.JournalCorrupt, match="up to 39 were durable") as caught:
                look()
            assert caught.value.offset == 39 and "do not match their CRC" in caught.value.fault
    [finding] = journal.verify(tmp_path).findings
    assert (finding.offset, finding.lost) == (39, 1)
    journal.repair(tmp_path)
    with journal.open(tmp_path, "a") as writer:
        assert writer.next == 40


def three_segments(where, topic="default", partition=0):
    with journal.open(where, "a", topic=topic, partition=partition) as writer:
        for i in range(3):
            writer.append_many([b"other %d" % (2 * i), b"other %d" % (2 * i + 1)])
            if i < 2:
                writer.rotate()
    return where / topic / str(partition)


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("whose", [("default", 0), ("t", 0), ("default", 1)])
def test_a_segment_of_elsewhere(tmp_path, folder, which, whose):
    """Of the same name: of another journal, topic or partition. Nothing of it is taken."""
    other = three_segments(tmp_path / "other", *whose)
    name = sorted(path.name for path in folder.glob("*.mqj"))[which]
    shutil.copy(other / name, folder / name)
    with pytest.raises(journal.JournalCorrupt, match="is a segment of"):
        journal.open(tmp_path, "a")
    findings = journal.verify(tmp_path).findings
    assert [(f.offset, f.fault) for f in findings] \
        == [(2 * which, "the segment belongs elsewhere")]
    if whose != ("default", 0):
        with journal.open(tmp_path) as reader, pytest.raises(journal.JournalCorrupt):
            reader.read(2 * which)
    [kept] = journal.repair(tmp_path).kept
    assert Path(kept).read_bytes() == (other / name).read_bytes()
    assert journal.verify(tmp_path).findings == []
    with journal.open(tmp_path, "a") as writer, journal.open(tmp_path) as reader:
        assert writer.next == 6
        left = [b"%d" % i for i in range(6) if i // 2 != which]
        assert [m for r in reader.batches(0, gaps="skip") for m in r.to_list()] == left


def test_a_folder_that_was_renamed(tmp_path, folder):
    folder.parent.rename(tmp_path / "t")
    with pytest.raises(journal.JournalCorrupt, match="a segment of topic 'default', partition 0"):
        journal.open(tmp_path, "a", topic="t")
    with journal.open(tmp_path, topic="t") as reader, \
            pytest.raises(journal.JournalCorrupt, match="put the files back"):
        reader.read(0)
    assert len(journal.verify(tmp_path, topic="t").findings) == 3
    (tmp_path / "t").rename(folder.parent)
    assert contents(tmp_path) == [b"%d" % i for i in range(6)]


def test_all_segments_are_missing(tmp_path, folder):
    for path in segment_files(tmp_path):
        path.unlink()
    [finding] = journal.verify(tmp_path).findings
    assert (finding.offset, finding.lost) == (0, 6)
    for call in (lambda: journal.open(tmp_path, "a"), lambda: journal.repair(tmp_path)):
        with pytest.raises(journal.JournalCorrupt, match="no segments, and messages up to 5"):
            call()
    (folder / "durable").unlink()       # a wilful beginning
    with journal.open(tmp_path, "a") as writer:
        assert writer.next == 0


def test_verify_beside_a_writer_never_misses_an_end(tmp_path):
    """The file `durable` is read first: what a running writer adds meanwhile is not missing."""
    end, looks = threading.Event(), 0
    with journal.open(tmp_path, "a", fsync="never", segment_bytes=4096, block_bytes=1024,
                      retain_bytes=20_000) as writer, journal.open(tmp_path) as reader:
        def write():
            while not end.is_set():
                writer.append_many([b"x" * 100] * 5)
                writer.commit()
        thread = threading.Thread(target=write)
        thread.start()
        try:
            while looks < 200:
                assert journal.verify(tmp_path).findings == []
                assert reader.end >= 0
                reader.read(reader.end)
                looks += 1
        finally:
            end.set()
            thread.join()


def test_a_journal_that_is_open_is_not_called_cut_short(tmp_path):
    with journal.open(tmp_path, "a") as writer:
        writer.append(b"0")
    with journal.open(tmp_path, "a") as writer:
        writer.append(b"1")
        writer.commit()
        assert journal.store.recovery.verify(writer.path).findings == []
        assert (writer.path / "durable").read_bytes()[28:] == bytes(4)
    assert (writer.path / "durable").read_bytes()[28:] == b"\1\0\0\0"
