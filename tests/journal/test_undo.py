"""What a writer may still take back: no reader sees it before it is certain. So memory that a
reader has handed out never changes, and no reader is ever beyond an end that moves back."""

import subprocess
import sys
import threading

import pytest
from journal_case import arrays, contents, segment_files
from mqcore.testing.native.journal_disk import Disk
from waiting import until

from mqcore import journal
from mqcore.errors import RecvTimeout
from mqcore.journal.errors import JournalFull, JournalWriteError

BEFORE = [b"before %d" % i for i in range(5)]
HELD = [bytes([65 + i]) * 40_000 for i in range(6)]
SIZES = (1, 40, 70_000, 300)
LIMIT = 60.0

# Holds everything that it has ever been given, as Records and as an Arrow table, beside a copy.
READER = """
import sys
from mqcore import journal

held = []

def look(log):
    at = held[-1][0].next if held else 0
    for records in log.batches(at, durable=False):
        table = records.to_arrow()
        held.append((records, table, records.to_list(), table.to_pydict()))
    return held[-1][0].next if held else 0

with journal.open(sys.argv[1], durable=False) as log:
    print(look(log), flush=True)
    for line in sys.stdin:
        end = look(log)
        for records, table, messages, rows in held:
            assert records.to_list() == messages, "the records have changed"
            assert table.to_pydict() == rows, "the table has changed"
        print(end, flush=True)
"""


@pytest.fixture
def disk():
    return Disk()


class Child:
    """A reader in another process, which a change of its maps would end."""

    def __init__(self, where):
        self.process = subprocess.Popen([sys.executable, "-c", READER, where], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == "5\n"

    def look(self):
        """It reads on; its offset."""
        self.process.stdin.write("look\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        code = self.process.wait(LIMIT)
        self.process.stdout.close()
        assert code == 0


def begun(where, **how):
    """A writer with messages that are certain."""
    writer = journal.open(where, "a", fsync="never", **how)
    writer.append_many(BEFORE)
    writer.commit()
    return writer


def held(where, messages=HELD, **how):
    """A writer that has written messages which it may take back."""
    writer = begun(where, **how)
    writer._hold()
    writer.append_batch(*arrays(messages))
    writer.flush()
    return writer


@pytest.mark.parametrize("size", SIZES)
def test_memory_that_a_reader_has_handed_out_never_changes(tmp_path, size):
    pytest.importorskip("pyarrow")
    with begun(tmp_path, block_bytes=4096) as writer, Child(tmp_path) as child:
        for _ in range(3):
            writer._hold()
            writer.append_many([b"x" * size] * 20)
            writer.flush()
            assert child.look() == 5
            assert writer._undo()
            assert child.look() == 5
        writer.append_many([b"y" * size] * 7)
        writer.flush()
        assert child.look() == 12
        writer._hold()
        writer.append_many([b"z" * size] * 9)
        writer.commit()
        assert child.look() == 21
    assert contents(tmp_path) == [*BEFORE, *[b"y" * size] * 7, *[b"z" * size] * 9]


def test_what_is_held_is_not_there(tmp_path):
    """Whatever a reader asks, and it goes on with what comes in its place."""
    with held(tmp_path) as writer, journal.open(tmp_path, durable=False) as log:
        assert writer.next == 11 and writer.written == writer.durable == 5
        found = []
        for _ in range(2):
            assert (log.end, log.durable, log.last) == (5, 5, 4)
            assert [m for records in log.batches() for m in records] == BEFORE
            assert not len(log.read(5)) and log.at(2e9) == 5
            with pytest.raises(RecvTimeout):
                next(log.follow(5, timeout=0))
            assert journal.verify(tmp_path).findings == []
            writer._undo()
        for records in log.follow(3, timeout=LIMIT):
            found += records
            if len(found) == 2:
                writer._hold()
                writer.append_many([b"6", b"7"])
                writer.flush()
                assert not len(log.read(5))
                writer.commit()
            elif len(found) == 4:
                break
        assert found == [*BEFORE[3:], b"6", b"7"] and log.end == 7
    assert contents(tmp_path) == [*BEFORE, b"6", b"7"]


def test_readers_that_ask_all_the_time(tmp_path):
    """One follows, one asks for the end, while transactions are kept and taken back."""
    writer, wrong, found = begun(tmp_path, block_bytes=4096), [], []
    expected, stop = list(BEFORE), threading.Event()
    log = journal.open(tmp_path, durable=False)

    def follow():
        try:
            for records in log.follow(0):
                found.extend(records)
        except BaseException as error:
            wrong.append(error)

    def ask():
        try:
            end = 0
            with journal.open(tmp_path, durable=False) as other:
                while not stop.is_set():
                    assert end <= other.end
                    end = other.end
                    assert not len(other.read(end)) or other.end > end
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=call) for call in (follow, ask)]
    for thread in threads:
        thread.start()
    for i in range(60):
        messages = [b"%d %d " % (i, k) + b"x" * (37 * i * k % 9000) for k in range(8)]
        writer._hold()
        writer.append_many(messages)
        if i % 3:
            writer.flush()
            assert writer._undo()
        else:
            writer.commit()
            expected += messages
    until(lambda: len(found) >= len(expected) or wrong)
    stop.set()
    log.close()
    for thread in threads:
        thread.join(LIMIT)
        assert not thread.is_alive()
    writer.close()
    assert wrong == [] and found == expected == contents(tmp_path)


@pytest.mark.parametrize("taken_back", [True, False])
def test_a_process_that_is_killed_between_two_writes(tmp_path, disk, copy, taken_back):
    """All of what was held is there, or nothing; and nobody who looked meanwhile saw a part."""
    counts, copies = set(), []
    with held(tmp_path / "j", HELD[:1]) as writer, \
            journal.open(tmp_path / "j", durable=False) as log:
        disk.attach(writer)

        def look():
            counts.add(log.end)
            copies.append(copy(tmp_path / "j"))

        disk.before(look)
        for message in HELD[1:]:
            writer.append_batch(*arrays([message, message]))
        if taken_back:
            assert writer._undo()
        else:
            writer.commit()
        disk.before(None)
    ends = {5} if taken_back else {5, 16}
    assert counts == ends and len(copies) > 8
    for where in copies:
        with journal.open(where, "a") as again:
            assert again.next in ends
            again.append(b"on")
        found = contents(where)
        assert found[:5] == BEFORE and found[-1] == b"on" and len(found) - 1 in ends
        assert journal.verify(where).findings == []


def test_a_commit_on_another_thread_decides(tmp_path, disk):
    """From the moment on at which it shows what is held: then it is too late to take it back."""
    with held(tmp_path) as writer:
        disk.attach(writer)
        undone = []
        syncs = iter([True, False])

        def at_the_sync():
            if writer.written == 11 and next(syncs, False):     # the headers are there
                thread = threading.Thread(target=lambda: undone.append(writer._undo()))
                thread.start()
                thread.join(LIMIT)

        disk.before(at_the_sync)
        assert writer.commit() == 11
        disk.before(None)
        assert undone == [False] and writer.durable == writer.next == 11
    assert contents(tmp_path) == [*BEFORE, *HELD]


def test_a_commit_that_was_under_way_before(tmp_path, disk):
    """It promises what was written then, not what is held since."""
    with begun(tmp_path) as writer:
        disk.attach(writer)
        writer.append(b"6")
        undone = []

        def hold_and_undo():
            writer._hold()
            writer.append(b"7")
            writer.flush()
            undone.append(True)
            undone.append(writer._undo())       # waits for the sync that is under way

        thread = threading.Thread(target=hold_and_undo)

        def at_the_sync():
            if writer.written == 6 and thread.ident is None:
                thread.start()
                until(lambda: undone)

        disk.before(at_the_sync)
        assert writer.commit() == 6
        thread.join(LIMIT)
        disk.before(None)
        assert undone == [True, True] and writer.durable == writer.next == writer.written == 6
    assert contents(tmp_path) == [*BEFORE, b"6"]


def test_the_end_of_a_segment_shows_what_is_held(tmp_path):
    """A transaction that is larger is published up to there."""
    with held(tmp_path, segment_bytes=100_000) as writer:
        writer.append_batch(*arrays(HELD))
        writer.flush()
        assert len(segment_files(tmp_path)) > 1 and writer.durable > 5
        assert not writer._undo()
        assert writer.next == 17
    assert contents(tmp_path) == [*BEFORE, *HELD, *HELD]


def test_a_new_segment_before_anything_is_held(tmp_path):
    with begun(tmp_path) as writer:
        writer._hold()
        writer.append(b"x")
        writer.rotate()
        assert not writer._undo()       # the segment's end has shown it
        writer._hold()
        writer.rotate()
        writer.append(b"y")
        writer.flush()
        assert writer._undo() and writer.next == 6
    assert contents(tmp_path) == [*BEFORE, b"x"]


@pytest.mark.parametrize("end", ["close", "skip", "always"])
def test_what_else_shows_what_is_held(tmp_path, end):
    with journal.open(tmp_path, "a", fsync="always" if end == "always" else "never") as writer:
        writer._hold()
        writer.append(b"1")
        if end == "skip":
            writer.skip(4)
        if end != "close":
            assert not writer._undo()
    with journal.open(tmp_path) as log:
        assert log.read(0).to_list() == [b"1"] and log.end == (4 if end == "skip" else 1)


def test_what_is_in_memory_only_is_taken_back_too(tmp_path):
    with begun(tmp_path) as writer:
        size = segment_files(tmp_path)[0].stat().st_size
        writer._hold()
        writer.append(b"x")
        assert writer._undo() and writer.next == 5
        assert segment_files(tmp_path)[0].stat().st_size == size
        assert writer.append(b"y") == 5 and not writer._undo()
    assert contents(tmp_path) == [*BEFORE, b"y"]


@pytest.mark.parametrize("room", range(0, 7 * 128, 100))
def test_a_disk_that_is_full_when_it_is_shown(tmp_path, disk, room):
    """However many of the headers there is room for, it is taken back, or shown later."""
    for later in (False, True):
        where = tmp_path / str(later)
        with begun(where, block_bytes=1024) as writer, journal.open(where, durable=False) as log:
            disk.attach(writer)
            writer._hold()
            for message in HELD:
                writer.append_batch(*arrays([message * 2]))
            writer.flush()
            disk.fail(room=room)
            if room < 6 * 128:
                with pytest.raises(JournalFull):
                    writer.commit()
                assert log.end == 5 and isinstance(writer.error, JournalFull)
            else:
                assert writer.commit() == log.end == 11
            disk.fail(room=-1)
            if not later:
                assert writer._undo() == (room < 6 * 128)
            assert writer.append(b"on") == (5 if room < 6 * 128 and not later else 11)
            writer.commit()
            assert writer.error is None
        shown = [m * 2 for m in HELD] if later or room >= 6 * 128 else []
        assert contents(where) == [*BEFORE, *shown, b"on"]
        assert journal.verify(where).findings == []


def test_a_disk_that_takes_no_checkpoints_either(tmp_path, disk):
    """Some headers are there, and cannot be covered: the writer takes nothing more, since one of
    them may fit what it would write. Opening again covers them."""
    writer = begun(tmp_path)
    disk.attach(writer)
    writer._hold()
    for _ in range(3):
        writer.append_batch(*arrays([HELD[0] * 2]))
    writer.flush()
    disk.fail(room=200)
    with pytest.raises(JournalFull):
        writer.commit()
    disk.fail(room=0)
    assert writer._undo()
    disk.fail(room=-1)
    with pytest.raises(JournalWriteError):
        writer.append_batch(*arrays([HELD[0] * 2]))
    writer.close()
    with journal.open(tmp_path, "a") as again:
        assert again.recovered and again.next == 5
        again.append_batch(*arrays([HELD[0] * 2]))
        assert again.next == 6
    assert contents(tmp_path) == [*BEFORE, HELD[0] * 2]


def test_a_reader_that_waits_searches_what_is_held_once(tmp_path, monkeypatch):
    """It looks for a block that says its place was durable, and remembers how far it has looked."""
    from mqcore.journal.store import recovery

    looked = []
    real = recovery.blocks_behind

    def counting(segment, pos, size):
        looked.append(size - pos)
        return real(segment, pos, size)

    monkeypatch.setattr(recovery, "blocks_behind", counting)
    with held(tmp_path, HELD * 5) as writer, journal.open(tmp_path, durable=False) as log:
        for _ in range(3):
            assert not len(log.read(5))
        writer.append_batch(*arrays(HELD))
        writer.flush()
        assert not len(log.read(5)) and log.end == 5
    size = segment_files(tmp_path)[0].stat().st_size
    assert sum(looked) < size + 4096


def test_damage_is_not_hidden_by_a_writer_at_work(tmp_path):
    """Messages that were durable, in front of what is held."""
    writer = held(tmp_path)
    with open(segment_files(tmp_path)[0], "r+b") as file:
        file.seek(512)
        file.write(bytes(128))
    [finding] = journal.verify(tmp_path).findings
    assert (finding.position, finding.offset, finding.lost) == (512, 0, 5)
    with journal.open(tmp_path) as log, pytest.raises(journal.JournalCorrupt):
        log.read(0)
    with pytest.raises(JournalWriteError):      # it notices, too
        writer.close()
