"""Compaction beside others: a writer, retention, readers, another compaction; kills, damage, a full
disk."""

import errno
import os
import resource
import signal
import subprocess
import sys
import threading

import pytest
from compact_case import SMALL, closed_end, expected, fill, folder_of, left_of, rows_of, state_of
from journal_case import segment_files

from mqcore import journal
from mqcore.journal import compaction
from mqcore.journal.store.exclusive import CompactionLock


@pytest.fixture
def where(tmp_path):
    return tmp_path / "j"


def names(where):
    return sorted(os.listdir(folder_of(where)))


def test_beside_a_writer(where, rng):
    with journal.open(where, "a", **SMALL) as log:
        told = fill(where, rng, 300, log=log)
        log.commit()
        for _ in range(4):
            end = closed_end(where)
            journal.compact(where, keep_tombstones=0)
            assert left_of(where) == expected(told, end)
            told = left_of(where) | fill(where, rng, 100, log=log)
            log.commit()
        assert log.error is None
    assert left_of(where).keys() == told.keys()
    assert journal.verify(where).findings == []


def test_a_writer_a_reader_and_compaction_at_once(where, rng):
    """The reader sees a value of each key, or what came later."""
    told, errors = {}, []
    fill(where, rng, 1)
    over = threading.Event()

    def compact():
        try:
            while not over.is_set():
                journal.compact(where)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=compact)
    with journal.open(where, "a", **SMALL, retain_bytes=1 << 30) as log, \
            journal.open(where) as reader:
        thread.start()
        try:
            for _ in range(30):
                told |= fill(where, rng, 50, log=log)
                log.commit()
                found = rows_of(reader.batches(1))
                assert found.items() <= told.items()
                assert state_of(found) == state_of(told)
        finally:
            over.set()
            thread.join()
    assert errors == []
    journal.compact(where, keep_tombstones=0)
    assert journal.verify(where).findings == []


def test_what_is_not_durable_supersedes_nothing(where):
    with journal.open(where, "a", **SMALL) as log:
        log.append(bytes(3000), key=b"k")
        log.rotate()
        log.append(b"x", key=b"l")
        log.commit()
        log.append(b"new", key=b"k")
        log.flush()
        [done] = journal.compact(where)
        assert done.removed == 0
        log.commit()
        [done] = journal.compact(where)
        assert done.removed == 1


def test_a_reader_goes_on_in_the_file_that_it_has_open(where, rng):
    told = fill(where, rng, 300)
    with journal.open(where) as reader:
        walk = reader.batches(max_bytes=1000)
        found = rows_of([next(walk)])
        journal.compact(where)
        found |= rows_of(walk)
    assert found.items() <= told.items() and state_of(found) == state_of(told)
    assert len(found) > len(left_of(where))


def test_retention_removes_a_segment_meanwhile(where, rng, monkeypatch):
    """It is not brought back, though its new file is just to take its place."""
    with journal.open(where, "a", **SMALL) as log:
        fill(where, rng, 400, log=log)
        log.commit()
        firsts = [int(path.stem) for path in segment_files(where)]
        real = compaction._Compaction._write

        def write(self, new, segment, *more):
            done = real(self, new, segment, *more)
            if segment.first == firsts[0]:
                assert log.truncate_before(firsts[2]) == firsts[2]
            return done

        monkeypatch.setattr(compaction._Compaction, "_write", write)
        journal.compact(where, keep_tombstones=0)
        assert [int(path.stem) for path in segment_files(where)] == firsts[2:]
        assert log.truncate_before(firsts[3]) == firsts[3]
    assert journal.verify(where).findings == []
    assert not [name for name in names(where) if name.endswith(".compact")]


def test_a_removal_waits_for_the_names(where, rng):
    with journal.open(where, "a", **SMALL) as log:
        fill(where, rng, 300, log=log)
        log.flush()
        firsts = [int(path.stem) for path in segment_files(where)]
        with CompactionLock(folder_of(where)) as lock:
            with lock.changing():
                thread = threading.Thread(target=log.truncate_before, args=[firsts[1]])
                thread.start()
                thread.join(0.1)
                assert thread.is_alive() and segment_files(where)[0].stem.endswith("0" * 9)
            thread.join()
        assert [int(path.stem) for path in segment_files(where)] == firsts[1:]


def test_retention_sees_the_new_sizes_and_the_old_age(where, rng):
    fill(where, rng, 400)
    first, following = (int(path.stem) for path in segment_files(where)[:2])
    path = segment_files(where)[0]
    before = sum(one.stat().st_size for one in segment_files(where))
    os.utime(path, (1, path.stat().st_mtime - 2000))
    journal.compact(where, keep_tombstones=0)
    after = sum(one.stat().st_size for one in segment_files(where))
    with journal.open(where, "a", **SMALL, retain_bytes=after + 1000) as log:
        assert log.retain() == [] and int(segment_files(where)[0].stem) == first and after < before
    with journal.open(where, "a", **SMALL, retain_age=1000) as log:
        log.retain()
        assert int(segment_files(where)[0].stem) == following


@pytest.mark.parametrize("call", [
    lambda where: journal.compact(where), lambda where: journal.repair(folder_of(where).parent
                                                                      .parent),
    lambda where: journal.delete(where, topic="default")])
def test_one_at_a_time(where, rng, call):
    told = fill(where, rng, 50)
    with CompactionLock(folder_of(where)):
        with pytest.raises(journal.JournalLocked, match="is being compacted"):
            call(where)
    assert left_of(where) == told
    call(where)


def test_two_at_once(where, rng):
    told = fill(where, rng, 600)
    end = closed_end(where)
    found, barrier = [], threading.Barrier(2)

    def compact():
        barrier.wait()
        try:
            found.append(journal.compact(where, keep_tombstones=0))
        except journal.JournalLocked:
            found.append(None)

    threads = [threading.Thread(target=compact) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2 and any(found) and left_of(where) == expected(told, end)


def test_one_that_was_deleted(where, rng):
    fill(where, rng, 50)
    with pytest.raises(journal.JournalNotFound):
        journal.compact(where, topic="other")
    with pytest.raises(journal.JournalNotFound):
        journal.compact(where, partition=1)
    with CompactionLock(folder_of(where)) as lock:
        assert lock.is_of(folder_of(where))
        os.rename(folder_of(where), where / "away")
        assert not lock.is_of(folder_of(where))
        fill(where, rng, 1)
        assert not lock.is_of(folder_of(where))


def test_all_partitions(where, rng):
    with journal.open(where, "a", topic="t", partitions=3, **SMALL) as logs:
        told = [fill(where, rng, 200, log=logs.writer("t", number)) for number in range(3)]
    ends = [closed_end(where, "t", number) for number in range(3)]
    [one] = journal.compact(where, topic="t", partition=1, keep_tombstones=0)
    assert one.partition == 1 and left_of(where, topic="t") == told[0]
    done = journal.compact(where, topic="t", keep_tombstones=0)
    assert [(row.topic, row.partition) for row in done] == [("t", 0), ("t", 1), ("t", 2)]
    assert done[1].removed == 0 < done[0].removed
    for number in range(3):
        assert left_of(where, topic="t", partition=number) == expected(told[number], ends[number])
    journal.rename(where, topic="t", to="u")
    assert journal.compact(where, topic="u")[0].segments == done[0].segments


# -- stamps ----------------------------------------------------------------------------------------

def stamped(where, numbers, log=None, **options):
    if log is None:
        with journal.open(where, "a", stamps=True, **SMALL, **options) as log:
            return stamped(where, numbers, log)
    for i in numbers:
        log.append(journal.stamp(7, i) + b"%d " % i + bytes(300), key=b"k%d" % (i % 3))
    log.commit()
    return log


@pytest.mark.parametrize("before", [True, False])
def test_a_writer_that_deduplicates_knows_what_was_removed(where, before):
    """It remembered it before, or no writer has remembered it yet."""
    stamped(where, range(300), deduplicate=before)
    [done] = journal.compact(where)
    assert done.removed > 200 and done.left == 0
    with journal.open(where, "a", stamps=True, deduplicate=True, **SMALL) as log:
        stamped(where, range(310), log)
        assert log.duplicates == 300 and log.next == 310
    with journal.open(where) as reader:
        left = [(records.sequences[i], records.producers[i], records.sent[i] > 0)
                for records in reader.batches() for i in range(len(records))]
        offsets = [records.offset(i) for records in reader.batches() for i in range(len(records))]
    assert left == [(at, 7, True) for at in offsets]


@pytest.mark.parametrize("deduplicate", [True, False])
def test_stamps_beside_a_writer(where, deduplicate):
    """What only a segment knows stays while a writer runs that has not remembered it."""
    with journal.open(where, "a", stamps=True, deduplicate=deduplicate, **SMALL) as log:
        stamped(where, range(300), log)
        log.retain()                # remembers, as after each rotation
        [done] = journal.compact(where)
        assert (done.removed > 200, done.left > 0) == (deduplicate, not deduplicate)
    journal.compact(where)
    with journal.open(where, "a", stamps=True, deduplicate=True, **SMALL) as log:
        stamped(where, range(300), log)
        assert log.duplicates == 300 and log.next == 300


def test_producers_are_learned_from_what_is_left(where, caplog):
    stamped(where, range(300), deduplicate=True)
    journal.compact(where)
    (folder_of(where) / "producers").unlink()
    left = sorted(left_of(where))
    with journal.open(where, "a", stamps=True, deduplicate=True, **SMALL) as log:
        stamped(where, left, log)
        assert log.duplicates == len(left) and log.next == 300


# -- kills, damage, a full disk --------------------------------------------------------------------

KILLED = """
import os, sys
from mqcore import journal
n = int(sys.argv[2])
def killing(real):
    def call(*args, **kw):
        global n
        n -= 1
        if n == 0:
            os.kill(os.getpid(), 9)
        return real(*args, **kw)
    return call
os.replace, os.fsync, os.utime = killing(os.replace), killing(os.fsync), killing(os.utime)
journal.compact(sys.argv[1], keep_tombstones=0)
"""


def test_kill_9_at_any_point(where, rng):
    told = fill(where, rng, 400)
    end, n = closed_end(where), 0
    while True:
        n += rng.randrange(1, 6)
        done = subprocess.run([sys.executable, "-c", KILLED, where, str(n)], check=False)
        assert done.returncode in (0, -signal.SIGKILL)
        found = left_of(where)
        assert found.items() <= told.items() and state_of(found) == state_of(told)
        assert journal.verify(where).findings == []
        if done.returncode == 0:
            break
    assert left_of(where) == expected(told, end)
    assert not [name for name in names(where) if name.startswith(".")]


@pytest.mark.parametrize("at", [50, 600, -300])
def test_damage(where, rng, at):
    """In any segment: nothing is changed."""
    fill(where, rng, 500)
    paths = segment_files(where)
    for path in rng.sample(paths[:-1], 2):
        whole = path.read_bytes()
        raw = bytearray(whole)
        raw[at] ^= 1
        path.write_bytes(raw)
        before = [(path.read_bytes(), path.stat().st_mtime_ns) for path in paths]
        with pytest.raises(journal.JournalCorrupt):
            journal.compact(where, keep_tombstones=0)
        assert [(path.read_bytes(), path.stat().st_mtime_ns) for path in paths] == before
        path.write_bytes(whole)
    paths[1].rename(where / "away")
    with pytest.raises(journal.JournalCorrupt, match="next segment begins"):
        journal.compact(where)


def test_lost_messages_stay_lost(where, rng):
    """What a repair has given up is no gap of compaction, and the other way round."""
    told = fill(where, rng, 500)
    path = segment_files(where)[1]
    raw = bytearray(path.read_bytes())
    starts = [i for i in range(512, len(raw), 64) if raw[i:i + 4] == b"MQB1"]
    raw[starts[2] + 140] ^= 1
    path.write_bytes(raw)
    [lost] = journal.verify(where).findings
    journal.repair(where)
    gone = range(lost.offset, lost.offset + lost.lost)
    told = {at: row for at, row in told.items() if at not in gone}
    end = closed_end(where)
    journal.compact(where, keep_tombstones=0)
    with journal.open(where) as reader:
        with pytest.raises(journal.OffsetGone) as caught:
            rows_of(reader.batches())
        assert caught.value.first >= gone[-1] + 1
        found = {records.offset(i): (records.key(i), value)
                 for records in reader.batches(gaps="skip")
                 for i, value in enumerate(records.to_list())}
        for at in gone:
            with pytest.raises(journal.OffsetGone):
                reader.read(at)
    assert found == expected(told, end)
    path = segment_files(where)[2]          # of what was compacted
    whole = path.read_bytes()
    raw = bytearray(whole)
    starts = [i for i in range(512, len(raw), 64) if raw[i:i + 4] == b"MQB1"]
    raw[starts[-2] + 140 if len(starts) > 2 else starts[0] + 9] ^= 1
    path.write_bytes(raw)
    assert journal.verify(where).findings
    journal.repair(where)
    assert journal.verify(where).findings == []
    with journal.open(where) as reader:
        found = {records.offset(i): (records.key(i), value)
                 for records in reader.batches(gaps="skip")
                 for i, value in enumerate(records.to_list())}
    assert found.items() <= expected(told, end).items()


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, journal.JournalFull),
                                              (errno.EIO, journal.JournalWriteError)])
@pytest.mark.parametrize("call", ["fsync", "replace", "open"])
def test_a_full_disk(where, rng, monkeypatch, number, kind, call):
    told = fill(where, rng, 400)
    end = closed_end(where)
    real = {"fsync": os.fsync, "replace": os.replace, "open": open}[call]

    def fail(at, *args, **kw):
        if call == "fsync" and os.path.isdir(f"/proc/self/fd/{at}") \
                or call != "fsync" and not str(at).endswith(".compact"):
            return real(at, *args, **kw)
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        if call == "open":
            patch.setattr(compaction, "open", fail, raising=False)
        else:
            patch.setattr(os, call, fail)
        with pytest.raises(kind):
            journal.compact(where, keep_tombstones=0)
        assert left_of(where) == told
    assert not [name for name in names(where) if name.startswith(".")]
    journal.compact(where, keep_tombstones=0)
    assert left_of(where) == expected(told, end)


def test_a_real_limit_of_bytes(where, rng):
    told = fill(where, rng, 400)
    done = subprocess.run([sys.executable, "-c", """
import resource, signal, sys
from mqcore import journal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
sys.dont_write_bytecode = True         # Python would leave modules cut short
resource.setrlimit(resource.RLIMIT_FSIZE, (700, resource.RLIM_INFINITY))
try:
    journal.compact(sys.argv[1], keep_tombstones=0)
except journal.JournalFull as error:
    print("full:", error)
""", where], check=True, capture_output=True, text=True)
    found = left_of(where)
    assert done.stdout.startswith("full:") and found.items() <= told.items()
    assert state_of(found) == state_of(told)
    assert not [name for name in names(where) if name.startswith(".")]


def test_few_descriptors(where, rng):
    """Each number of them is enough, or nothing is lost."""
    told = fill(where, rng, 400)
    end = closed_end(where)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for spare in range(12):
        used = max(int(name) for name in os.listdir("/proc/self/fd")) + 1
        holes = [os.open("/dev/null", os.O_RDONLY) for _ in range(
            used - len(os.listdir("/proc/self/fd")) + 1)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + spare, hard))
        try:
            journal.compact(where, keep_tombstones=0)
        except (OSError, journal.JournalError):
            pass
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for hole in holes:
                os.close(hole)
        found = left_of(where)
        assert found.items() <= told.items() and state_of(found) == state_of(told)
    assert found == expected(told, end)


def test_a_segment_that_is_a_link_stays(where, rng, tmp_path):
    told = fill(where, rng, 400)
    path = segment_files(where)[1]
    os.rename(path, tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    [done] = journal.compact(where, keep_tombstones=0)
    assert done.left == 1 and path.is_symlink()
    assert state_of(left_of(where)) == state_of(told)


def test_the_new_file_is_the_old_ones(where, rng):
    fill(where, rng, 400)
    path = segment_files(where)[0]
    path.chmod(0o640)
    os.utime(path, (5, 6))
    before = path.stat()
    journal.compact(where)
    after = path.stat()
    assert (after.st_mode, after.st_uid, after.st_mtime) == (before.st_mode, before.st_uid, 6)
    assert after.st_ino != before.st_ino


def test_backups(where, rng, tmp_path, monkeypatch):
    """A backup of before stays as it was; one that is made meanwhile is of one moment."""
    told = fill(where, rng, 400)
    journal.backup(where, tmp_path / "before")
    from mqcore.journal import backups

    real, compacted = backups._link, []

    def link(path, target):
        done = real(path, target)
        if not compacted and path.stem.endswith("0" * 9):
            compacted.append(journal.compact(where, keep_tombstones=0))
        return done

    monkeypatch.setattr(backups, "_link", link)
    journal.backup(where, tmp_path / "meanwhile")
    assert compacted and left_of(tmp_path / "before") == told
    assert left_of(tmp_path / "meanwhile") == left_of(where)
    journal.compact(tmp_path / "before", keep_tombstones=0)
    assert left_of(tmp_path / "before") == left_of(where)
