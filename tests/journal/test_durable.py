"""Reading what is durable, and readers beside a disk that is full or a file that is cut."""

import asyncio
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading

import pytest
from journal_case import contents, segment_files
from mqcore.testing.native.journal_disk import Disk
from waiting import until

import mqcore as mq
from mqcore import journal
from mqcore.journal.store.durable import NAME

LIMIT = 20.0


def read(reader, **how):
    return [m for records in reader.batches(**how) for m in records.to_list()]


def test_only_what_the_writer_has_synced(tmp_path):
    with journal.open(tmp_path, "a", fsync="never") as writer, journal.open(tmp_path) as reader:
        assert reader.durable == 0 and len(reader.read(0, durable=True)) == 0
        for i in range(5):
            writer.append_many([b"%d" % i] * 10)
            writer.flush()
            assert reader.end == 10 * i + 10 and reader.durable == writer.durable == 10 * i
            assert read(reader, durable=True) == read(reader)[:10 * i]
            assert len(reader.read(10 * i, durable=True)) == 0
            with pytest.raises(mq.RecvTimeout):
                next(reader.follow(10 * i, timeout=0, durable=True))
            writer.commit()
            assert reader.durable == writer.durable == 10 * i + 10
            assert reader.read(10 * i, durable=True).next == 10 * i + 10
        with pytest.raises(mq.UsageError):
            reader.read(51, durable=True)
        writer.append(b"x")
        writer.flush()
        with journal.open(tmp_path) as careful, journal.open(tmp_path, durable=False) as hasty:
            assert len(read(careful)) == 50 and len(read(careful, durable=False)) == 51
            assert len(read(hasty)) == 51 and len(read(hasty, durable=True)) == 50


def test_without_the_file_after_a_look_at_the_end(tmp_path):
    """A reader that has seen the last segment's end remembers what the blocks there said."""
    with journal.open(tmp_path, "a") as writer:
        writer.append_many([b"1", b"2"])
        writer.rotate()
        writer.append_many([b"3", b"4"])
    (tmp_path / "default" / "0" / NAME).unlink()
    with journal.open(tmp_path) as reader:
        assert reader.end == 4 and read(reader) == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("fsync", ["always", "interval"])
def test_a_follower_is_woken_by_a_sync(tmp_path, fsync):
    """And sees each message, also the last one, though nothing follows it."""
    with journal.open(tmp_path, "a", fsync=fsync, fsync_interval=0.01) as writer, \
            journal.open(tmp_path) as reader:
        for i in range(20):
            writer.append(b"%d" % i)
            found = next(reader.follow(i, timeout=LIMIT, durable=True))
            assert found[0] == b"%d" % i
            until(lambda: writer.durable >= found.next)     # told after the readers

        async def one():
            async for records in reader.afollow(20, timeout=LIMIT, durable=True):
                return records[0]

        async def main():
            waiting = asyncio.ensure_future(one())
            await asyncio.sleep(0)
            writer.append(b"late")
            return await waiting
        assert asyncio.run(main()) == b"late"


@pytest.mark.parametrize("damage", ["missing", "empty", "torn", "of another"])
def test_without_a_good_file_the_blocks_say_it(tmp_path, damage, copy):
    with journal.open(tmp_path / "j", "a", fsync="never") as writer:
        for i in range(3):
            writer.append(b"%d" % i)
            writer.commit()
        writer.append(b"3")
        writer.flush()
        where = copy(tmp_path / "j")
    path = where / "default" / "0" / NAME
    raw = bytearray(path.read_bytes())
    assert len(raw) == 32
    if damage == "missing":
        path.unlink()
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "torn":
        path.write_bytes(raw[:20] + b"\x07" + raw[21:])
    else:
        raw[0] ^= 1
        raw[16:24] = (1000).to_bytes(8, "little")
        raw[24:28] = journal.checksum(raw[:24]).to_bytes(4, "little")
        path.write_bytes(raw)
    with journal.open(where) as reader:
        assert reader.durable == 3      # the last block says that those before it were synced
        assert len(read(reader, durable=True)) == reader.durable
    with journal.open(where, "a") as writer, journal.open(where) as reader:
        assert reader.durable == writer.durable == 4


def test_what_a_killed_writer_had_not_synced_is_not_read(tmp_path):
    program = """
import os, sys
from mqcore import journal
writer = journal.open(sys.argv[1], "a", fsync="never")
writer.append(b"synced")
writer.commit()
writer.append(b"only written")
writer.flush()
os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", program, tmp_path]).returncode == -signal.SIGKILL
    with journal.open(tmp_path, durable=False) as reader:
        assert read(reader) == [b"synced", b"only written"]
        assert read(reader, durable=True) == [b"synced"]
        journal.open(tmp_path, "a").close()
        assert read(reader, durable=True) == [b"synced", b"only written"]


def test_a_rotation_and_retention(tmp_path):
    with journal.open(tmp_path, "a", fsync="never", retain_bytes=0) as writer, \
            journal.open(tmp_path) as reader:
        for i in range(4):
            writer.append(b"%d" % i)
            writer.rotate()
            assert reader.durable == i + 1
        writer.retain()
        assert (reader.first, reader.durable) == (4, 4)


def test_a_full_disk_and_then_room(tmp_path):
    disk = Disk()
    with journal.open(tmp_path, "a", fsync="never", block_bytes=1024) as writer, \
            journal.open(tmp_path) as reader:
        disk.attach(writer)
        writer.append(b"one")
        writer.commit()
        disk.fail(room=100)
        writer.append(b"two")
        with pytest.raises(journal.JournalFull):
            writer.commit()
        assert read(reader) == read(reader, durable=True) == [b"one"]
        disk.fail(room=-1)
        writer.commit()
        assert read(reader, durable=True) == [b"one", b"two"]


def test_a_failed_sync_shows_nothing(tmp_path):
    disk = Disk()
    writer = journal.open(tmp_path, "a", fsync="never")
    disk.attach(writer)
    writer.append(b"one")
    writer.commit()
    writer.append(b"two")
    disk.fail(syncs_left=0)
    with pytest.raises(journal.JournalWriteError):
        writer.commit()
    with journal.open(tmp_path) as reader:
        assert read(reader, durable=True) == [b"one"]
    with pytest.raises(journal.JournalWriteError):
        writer.close()


def test_a_mirror_copies_what_is_durable(tmp_path):
    with journal.open(tmp_path / "from", "a", fsync="never") as source, \
            journal.open(tmp_path / "to", "a") as writer:
        source.append(b"synced")
        source.commit()
        source.append(b"written")
        source.flush()
        for durable, n in ((True, 1), (False, 2)):
            with journal.open(tmp_path / "from", durable=durable) as reader, \
                    journal.open(tmp_path / "to") as copy:
                with mq.device(reader, writer) as mirror:
                    for _ in copy.follow(n - 1, timeout=LIMIT):
                        break
                    assert mirror.error is None
                assert copy.end == n and reader._durable == durable
    with journal.open(tmp_path / "from") as reader, journal.open(tmp_path / "to", "a") as writer:
        reader.close()
        with pytest.raises(journal.JournalClosed, match="reader of the mirror"):
            mq.device(reader, writer)


def test_from_a_server(ctx, tmp_path):
    with journal.open(tmp_path, "a", fsync="never") as writer:
        writer.append(b"synced")
        writer.commit()
        writer.append(b"written")
        writer.flush()
        with journal.serve(tmp_path, f"ipc://{tmp_path}/s", context=ctx) as server:
            for durable in (False, True):
                with journal.open(server.urls[0], topic="default", context=ctx,
                                  durable=durable) as reader:
                    assert reader.durable == 1
                    assert read(reader) == [b"synced", b"written"][:1 if durable else 2]
                    assert len(reader.read(0)) == (1 if durable else 2)


# -- readers do not die ----------------------------------------------------------------------------

READS = """
import sys
from mqcore import journal
with journal.open(sys.argv[1]) as reader:
    at = 0
    print("go", flush=True)
    while at < int(sys.argv[2]):
        for records in reader.follow(at, timeout=20):
            at = records.next
            break
        try:
            reader.end, reader.durable
        except journal.JournalCorrupt:
            sys.exit(3)
"""
FILLS = """
import resource, signal, sys
from mqcore import journal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
where, n = sys.argv[1], int(sys.argv[2])
writer = journal.open(where, "a", fsync="never", block_bytes=8192, segment_bytes=1 << 30)
top = resource.RLIM_INFINITY
for i in range(n):
    writer.append(bytes(i * 37 % 3000))
    if i % 7 == 6:
        size = writer._counters()["pos"]
        for more in (1, 64, 128, 150, 4096):        # cut in headers and columns, again and again
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + more, top))
            try:
                writer.flush()
            except journal.JournalFull:
                pass
        resource.setrlimit(resource.RLIMIT_FSIZE, (top, top))
        writer.flush()
writer.close()
"""


def test_readers_beside_a_writer_that_runs_out_of_room(tmp_path):
    if resource.getrlimit(resource.RLIMIT_FSIZE)[1] != resource.RLIM_INFINITY:
        pytest.skip("files are limited here already")
    journal.open(tmp_path, "a").close()
    n = 3000
    readers = [subprocess.Popen([sys.executable, "-c", READS, tmp_path, str(n)],
                                stdout=subprocess.PIPE) for _ in range(3)]
    for process in readers:
        assert process.stdout.readline() == b"go\n"
    filled = subprocess.run([sys.executable, "-c", FILLS, tmp_path, str(n)], capture_output=True)
    assert filled.returncode == 0, filled.stderr.decode()
    for process in readers:
        process.communicate()
    assert [process.returncode for process in readers] == [0] * 3
    assert contents(tmp_path) == [bytes(i * 37 % 3000) for i in range(n)]


def test_a_tail_that_is_cut_while_it_is_read(tmp_path):
    """The file grows by half a block and is cut again, at all places in a page, as by the recovery
    of a torn tail; what is whole stays readable."""
    with journal.open(tmp_path, "a", fsync="never") as writer:
        for i in range(40):
            writer.append(bytes(i * 101 % 5000))
            writer.flush()
    [path] = segment_files(tmp_path)
    whole = path.read_bytes()
    program = f"""
import os, sys
size, path = {len(whole)}, sys.argv[1]
half = open(path, "rb").read()[512:5000]
fd = os.open(path, os.O_RDWR)
print("go", flush=True)
while not os.path.exists(path + ".stop"):
    for more in (64, 128, 192, 3000, 4400):
        os.pwrite(fd, half[:more], size)
        os.ftruncate(fd, size)
"""
    cutter = subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE)
    assert cutter.stdout.readline() == b"go\n"
    child = os.fork()
    if child == 0:                          # SIGBUS ends it, not the tests
        code = 1
        try:
            for _ in range(300):
                with journal.open(tmp_path) as reader:
                    assert reader.end == 40 and len(reader.read(39)) == 1
                    assert len(reader.read(40)) == 0 and reader.at(2**40) == 40
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    path.with_suffix(".mqj.stop").touch()
    cutter.communicate()
    assert os.waitstatus_to_exitcode(status) == 0 and cutter.returncode == 0


# -- descriptors -----------------------------------------------------------------------------------


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_descriptors_are_released_when_nothing_reads(tmp_path):
    with journal.open(tmp_path, "a") as writer:
        writer.append(b"x")
    before = descriptors()
    readers = [journal.open(tmp_path) for _ in range(20)]
    assert descriptors() == before
    for reader in readers:
        next(reader.follow(0))
        assert reader.end == 1
        reader.release()
    assert descriptors() == before
    for reader in readers:
        assert reader.read(0)[0] == b"x"
        reader.close()
    assert descriptors() == before


def test_close_ends_all_that_follow(tmp_path):
    journal.open(tmp_path, "a").close()
    reader = journal.open(tmp_path)
    before = descriptors()
    ends = [threading.Thread(target=lambda: list(reader.follow(0))) for _ in range(3)]
    for thread in ends:
        thread.start()
    while reader._followers < 3:
        pass
    reader.close()
    for thread in ends:
        thread.join(LIMIT)
        assert not thread.is_alive()
    assert descriptors() <= before and reader._closing == -1
    with pytest.raises(journal.JournalClosed):
        next(reader.follow(0))


@pytest.mark.parametrize("time", ["yesterday", None, b"1", float("nan"), [1]])
def test_times_that_cannot_be(tmp_path, time):
    journal.open(tmp_path, "a").close()
    with journal.open(tmp_path) as reader, pytest.raises(mq.UsageError, match="seconds"):
        reader.at(time)


def test_times_out_of_range(tmp_path):
    with journal.open(tmp_path, "a") as writer:
        writer.append(b"x")
    with journal.open(tmp_path) as reader:
        for far in (float("inf"), 1e300, 10**30):
            assert (reader.at(far), reader.at(-far)) == (1, 0)


def test_a_copy_by_hard_links_stays_as_it_is(tmp_path):
    """As `cp -al` and many backup programs make it, while no writer runs."""
    a, b = tmp_path / "a", tmp_path / "b"
    with journal.open(a, "a") as writer:
        writer.append_many([b"0", b"1"])
    shutil.copytree(a, b, copy_function=os.link)
    for folder, messages in ((a, [b"0", b"1", b"of a"]), (b, [b"0", b"1", b"of b", b"too"])):
        with journal.open(folder, "a") as writer:
            writer.append_many(messages[2:])
        assert contents(folder) == messages
    assert contents(a) == [b"0", b"1", b"of a"]
    assert not journal.verify(a).findings and not journal.verify(b).findings
