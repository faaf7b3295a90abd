"""Compaction where something else meets it: a writer that begins, damage, many empty segments, few
bytes of memory, and a partition that has nothing yet."""

import json
import os
import re
import time

import pytest
from click.testing import CliRunner
from compact_case import SMALL, fill, folder_of, left_of, state_of
from journal_case import segment_files

from mqcore import journal
from mqcore.cli import cli
from mqcore.journal import compaction
from mqcore.journal.store.core import checksum
from mqcore.journal.store.segment import Unfinished


@pytest.fixture
def where(tmp_path):
    return tmp_path / "j"


@pytest.mark.parametrize("keep", [0, 0.01])
def test_a_writer_that_begins_leaves_the_new_file_alone(where, monkeypatch, keep):
    """Also if its segment is older than a day, which its times tell."""
    with journal.open(where, "a", **SMALL) as log:
        log.append(b"alive", key=b"k")
        log.append_many([bytes(400)] * 20, keys=[b"filler"] * 20)
        log.rotate()
        log.append(None, key=b"k")
        log.append_many([bytes(400)] * 20, keys=[b"filler"] * 20)
        log.rotate()
        log.append(b"end", key=b"z")
    for path in segment_files(where):
        os.utime(path, (1, 1))
    fsync, opened = os.fsync, []

    def sync(fd):
        fsync(fd)
        if os.readlink(f"/proc/self/fd/{fd}").endswith(".compact"):
            opened.append(fd)
            journal.open(where, "a", **SMALL).close()

    monkeypatch.setattr(compaction.os, "fsync", sync)
    for _ in range(3):
        journal.compact(where, keep_tombstones=keep)
        time.sleep(2 * keep)
    assert opened and [key for key, _ in left_of(where).values()] == [b"filler", b"z"]


def test_a_new_file_that_is_gone_is_no_retention(where, rng, monkeypatch):
    """Somebody has removed it: the call fails, and no tombstone goes for it."""
    told = fill(where, rng, 500)
    fsync = os.fsync

    def sync(fd):
        fsync(fd)
        path = os.readlink(f"/proc/self/fd/{fd}")
        if path.endswith(".compact"):
            os.unlink(path)

    with monkeypatch.context() as patch, pytest.raises(journal.JournalWriteError):
        patch.setattr(compaction.os, "fsync", sync)
        journal.compact(where, keep_tombstones=0)
    assert not (folder_of(where) / "compacted").exists()
    journal.compact(where, keep_tombstones=0)
    assert state_of(left_of(where)) == state_of(told)


def test_what_a_kill_has_left_is_swept_by_the_next_writer(where, rng):
    fill(where, rng, 50)
    for name in (f".{'0' * 20}.compact", ".compacted.x1"):
        (folder_of(where) / name).write_bytes(b"half")
    fill(where, rng, 1)
    assert not [path for path in folder_of(where).iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("partition", [0, None])
def test_a_partition_without_a_message(where, rng, partition):
    """It is passed over: with a writer that has written nothing yet, or a folder that is empty."""
    (where / "default" / "2").mkdir(parents=True)
    told = fill(where, rng, 300, partition=1)
    with journal.open(where, "a"):
        done = journal.compact(where, partition=partition, keep_tombstones=0)
        assert done[0].segments == 0
        if partition is None:
            assert [one.partition for one in done] == [0, 1, 2] and done[1].removed
            assert state_of(left_of(where, partition=1)) == state_of(told)


def big_blocks(where, values):
    """A block for each of them, in one segment that is compacted: b"k" is there twice."""
    with journal.open(where, "a", block_bytes=65536) as log:
        for value in values:
            log.append(value + bytes(70_000), key=b"k" if value in (b"old", b"new") else None)
        log.rotate()
        log.append(b"end")
    [done] = journal.compact(where)
    assert done.removed == 1


def flip(path, what):
    raw = bytearray(path.read_bytes())
    raw[raw.index(what + bytes(1000))] ^= 1
    path.write_bytes(raw)


def salvaged(where, gaps):
    """The first three bytes of each message, and of each OffsetGone its offset and what follows."""
    found, at = [], 0
    with journal.open(where, salvage=True) as reader:
        while True:
            try:
                for records in reader.batches(at, gaps=gaps):
                    found += [value[:3].strip(b"\0") for value in records.to_list()]
                    at = records.next
                return found
            except journal.OffsetGone as gone:
                found.append((gone.offset, gone.first))
                at = gone.first


def test_salvage_where_damage_is_behind_a_gap(where):
    """The messages behind it are read, and what may be lost is told."""
    big_blocks(where, [b"a", b"old", b"b", b"c", b"new"])
    flip(segment_files(where)[0], b"b")
    assert salvaged(where, "skip") == [b"a", b"c", b"new", b"end"]
    assert salvaged(where, "raise") == [b"a", (1, 3), b"c", b"new", b"end"]


def test_salvage_of_gaps_away_from_damage(where):
    """They are no damage."""
    big_blocks(where, [b"a", b"old", b"b", b"c", b"new"])
    flip(segment_files(where)[0], b"c")
    assert salvaged(where, "raise") == [b"a", b"b", (3, 4), b"new", b"end"]


def test_bits_that_flip_before_a_segment_is_written_anew(where, monkeypatch):
    """They get no CRC that matches."""
    with journal.open(where, "a", **SMALL) as log:
        for i in range(60):
            log.append(b"value-%d" % i, key=b"k%d" % (i % 30))
        log.rotate()
        log.append(b"end", key=b"z")
    clean = compaction._Compaction._clean

    def flipped(self, first, following):
        path = segment_files(where)[0]
        raw = bytearray(path.read_bytes())
        raw[raw.index(b"value-45")] ^= 1
        path.write_bytes(raw)
        return clean(self, first, following)

    monkeypatch.setattr(compaction._Compaction, "_clean", flipped)
    with pytest.raises(journal.JournalCorrupt, match="nothing is compacted"):
        journal.compact(where)
    assert journal.verify(where).findings


def test_many_segments_of_which_nothing_is_left(where):
    """They are passed in one look, a look that has no time goes on where the last one ended, and
    nobody is told that the journal ends there."""
    with journal.open(where, "a", fsync="never") as log:
        for _ in range(40):
            log.append_many([bytes(700)] * 2, keys=[b"k"] * 2)
            log.rotate()
        log.append(b"end", key=b"k")
    journal.compact(where, keep_tombstones=0)
    with journal.open(where) as reader:
        looks = []
        listed = reader._segments
        reader._segments = lambda *args: looks.append(1) or listed(*args)
        assert (reader.read(0).since, reader.read(0).first) == (0, 80) and len(looks) < 12
    with journal.open(where) as reader:
        reader._hurry(0)
        unfinished = 0
        while True:
            try:
                records = reader.read(0)
                break
            except Unfinished:
                unfinished += 1
        assert (records.since, records.first, unfinished) == (0, 80, 39)
        assert [one.first for one in reader.batches(3)] == [80]


def test_places_that_are_far_apart(where, limited):
    """They cost no memory in between."""
    with journal.open(where, "a", mirror=True, **SMALL) as log:
        for i in range(100):
            log.append(b"v%d" % i, key=b"k%d" % (i % 99))
            log.skip(log.next + 2_000_000_000, compacted=True)
        log.rotate()
        log.append(b"again", key=b"k7")
    with limited:
        assert journal.compact(where)[0].removed == 2
    with journal.open(where, "a", mirror=True, **SMALL) as log:
        log.rotate()
        log.append(b"again", key=b"k8")
    with limited:
        assert journal.compact(where)[0].removed == 1
    assert len(left_of(where)) == 99


@pytest.fixture
def limited():
    """With 1 GiB of address space more than now."""
    import resource

    class Limited:
        def __enter__(self):
            self.old = resource.getrlimit(resource.RLIMIT_AS)
            with open("/proc/self/statm") as file:
                now = int(file.read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (now + (1 << 30), self.old[1]))

        def __exit__(self, *_):
            resource.setrlimit(resource.RLIMIT_AS, self.old)

    return Limited()


@pytest.mark.parametrize("rest", [b"", b"%b\n1\n", b"%b\na b\n", b"%b\n" + b"1 1\n" * 30_000,
                                  b"%b\n" + b"9" * 40 + b" 1\n", b"\xff\xfe"])
def test_a_file_of_nonsense_says_nothing(where, rng, rest):
    told = fill(where, rng, 300)
    rest = rest.replace(b"%b", journal.list_partitions(where)[0].id.encode())
    (folder_of(where) / "compacted").write_bytes(b"%08x\n" % checksum(rest) + rest)
    assert journal.compact(where)[0].removed
    assert state_of(left_of(where)) == state_of(told)


def command(*args):
    answer = CliRunner().invoke(cli, ["journal", *map(str, args)], catch_exceptions=False)
    assert answer.exit_code == 0
    return answer.output


@pytest.mark.parametrize("count", [0, 1, 5, 12, 100])
def test_tail_shows_as_many_messages_as_are_asked_for(where, count):
    with journal.open(where, "a", **SMALL) as log:
        for i in range(200):
            log.append(b"%d" % i, key=b"%d" % (i % 7))
        log.rotate()
        log.append_many([b"a", b"b", b"c"])
    journal.compact(where)
    lines = command("tail", where, "-n", count, "--json").splitlines()
    left = [*map(str, range(193, 200)), "a", "b", "c"]
    left = left[max(0, len(left) - count):]
    assert [json.loads(line)["value"] for line in lines] == left


def test_the_command(where, rng):
    """It says what was done to each partition, of which one can be named."""
    for partition in (0, 1):
        fill(where, rng, 300, topic="t", partition=partition)
    said = command("compact", where, "-s", "t", "-p", 1, "--keep-tombstones", 0)
    assert said.startswith("t/1: ") and "t/0" not in said and " messages removed, " in said
    said = command("compact", where, "-s", "t", "--min-share", 0.999)
    assert re.match(r"t/0: 0 messages removed, 0 bytes freed, 0 of (\d) segments written anew; "
                    r"\1 left as they are\nt/1: 0 ", said)
    answer = CliRunner().invoke(cli, ["journal", "compact", str(where), "-s", "none"])
    assert answer.exit_code and isinstance(answer.exception, journal.JournalNotFound)
