"""The file `producers`: rows that contradict each other, flipped bits, and what outlives it."""

import errno
import struct

import journal_reference as ref
import pytest
from journal_case import segment_files
from mqcore.testing.native.journal_disk import Disk
from waiting import until

from mqcore import journal
from mqcore.journal.store.scan import parse_segment

MOST = 2**64 - 1
FORGETS = "an older life refused, only while the journal still has"


def message(life, sequence, producer=1):
    return journal.stamp(producer, sequence, 1.0, life=life) + b"%d:%d:%d" % (
        producer, life, sequence)


def opened(where, **options):
    return journal.open(where, "a", **{"stamps": True, "deduplicate": True, "fsync": "never",
                                       **options})


def row(low, highest, numbers, life=1, *, producer=1, offset=0, zero=0):
    window = [0] * 16
    for number in numbers:
        window[number % 1024 // 64] |= 1 << number % 64
    return struct.pack("<QQQq16QII", producer, low, highest, offset, *window, life, zero) \
        + b"\1\2\3\4" * len(numbers)


def write_rows(where, rows):
    """Over those of a journal that was closed."""
    [path] = where.glob("*/*/producers")
    offset = struct.unpack_from("<q", path.read_bytes(), 32)[0]
    head = parse_segment(segment_files(where)[0].read_bytes()[:512])
    rest = struct.pack("<16sqq", head.journal, offset, len(rows)) + rows
    crc = ref.crc32c(rest, ref.crc32c(struct.pack("<I", 3)))
    path.write_bytes(b"MQPROD\r\n" + struct.pack("<II", 3, crc) + rest)
    return path


@pytest.mark.parametrize("rows", [
    [row(0, 100, [50, 100])] * 9, [row(i, 100, [50, 100]) for i in range(9)],
    [row(0, 0, [0])] * 2, [row(0, MOST, [MOST], 2**32 - 1)] * 5,
    [row(0, 100, [100]), row(100, 200, [200])], [row(5000, 9000, [9000]), row(0, 5000, [5000])],
    [row(0, 0, [0], 1), row(5000, 5000, [5000], 2)],
    [row(0, 0, [0], 1), row(0, 0, [0], 1, producer=2), row(5000, 5000, [5000], 2)],
    [row(i * 5000, i * 5000, [i * 5000]) for i in range(5)],
    [row(0, 3, [1, 2])], [row(0, 0, [])], [row(5, 0, [0])], [row(0, 0, [0], producer=0)],
    [row(0, 0, [0], zero=77)], [row(0, 0, [0], offset=-5)], [row(0, 0, [0])[:-1]],
    [row(0, 0, [0])[:165]]], ids=range(17))
def test_rows_that_contradict_each_other(tmp_path, caplog, rows):
    """Behind a CRC that matches: the file is ignored, and nothing of it is known."""
    with opened(tmp_path) as writer:
        writer.append(message(3, 7, producer=9))
    path = write_rows(tmp_path, b"".join([row(0, 0, [0], 8, producer=8), *rows]))
    for again in range(2):
        caplog.clear()
        with opened(tmp_path) as writer:
            told = [line.getMessage() for line in caplog.records]
            assert again or [line for line in told if str(path) in line and FORGETS in line]
            assert (writer.stats().producers, writer.stats().forgotten) == (1 + 2 * again, 0)
            assert (writer.life_of(8), writer.life_of(9)) == (0, 3)
            for number in (0, 100, 5000, MOST, MOST // 2):
                for producer in (1, 2):
                    writer.append(message(1, number, producer))
            assert writer.next == 11


def test_rows_that_fit(tmp_path):
    """Also four that lie next to each other."""
    with opened(tmp_path) as writer:
        writer.append(b"plain")
    write_rows(tmp_path, b"".join(row(i * 10, i * 10 + 9, [i * 10 + 9], 2) for i in range(4)))
    with opened(tmp_path) as writer:
        assert writer.life_of(1) == 2 and writer.stats().producers == 1
        for number in (4, 10**6, 10**9, 10**12, 10**15):
            writer.append(message(2, number))
        with pytest.raises(journal.StampRefused):
            writer.append(message(2, 39))


def test_a_flipped_bit_in_the_file_of_producers(tmp_path, caplog):
    """Wherever it is, the version included: the same warning, and the segments are read."""
    with opened(tmp_path) as writer:
        writer.append(message(1, 0))
        writer.append(message(2, 5))
        path = writer.path / "producers"
    raw = path.read_bytes()
    for bit in [*range(48 * 8), *range(48 * 8, len(raw) * 8, 13)]:
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        caplog.clear()
        with opened(tmp_path) as writer:
            assert (writer.life_of(1), writer.stats().producers) == (2, 1)
            assert writer.append(message(2, 5)) == 1
            told = [line.getMessage() for line in caplog.records]
        assert [line for line in told if str(path) in line and FORGETS in line], bit


# -- writers that do not deduplicate ---------------------------------------------------------------

SMALL = {"segment_bytes": 4096, "block_bytes": 1024}
PLAIN = {**SMALL, "deduplicate": False}


def fill(writer, n=60):
    writer.append_many([b"x" * 500] * n)


@pytest.mark.parametrize("how", ["retain", "truncate", "reopened"])
@pytest.mark.parametrize("codec", [None, "zstd"])
def test_retention_of_a_plain_writer_keeps_lives(tmp_path, how, codec):
    """With what the file told before: numbers, too, and that of a producer of before."""
    with opened(tmp_path, **SMALL) as writer:
        writer.append(message(4, 7, producer=2))
        fill(writer)
        writer.append(message(1, 0))
    options = {**PLAIN, "compression": codec}
    with opened(tmp_path, **options) as writer:
        writer.append(message(2, 5))
        fill(writer)
        writer.append(message(3, 9, producer=3))        # it stays
        first = writer.next
        fill(writer, 3)
        if how == "truncate":
            assert writer.truncate_before(first - 5) > 62
    if how == "reopened":
        with opened(tmp_path, **options) as writer:
            fill(writer)
    if how != "truncate":
        with opened(tmp_path, **options, retain_bytes=4096) as writer:
            assert len(writer.retain()) > 2 and writer.retain() == []
    with opened(tmp_path, **SMALL) as writer:
        assert [writer.life_of(producer) for producer in (1, 2, 3)] == [2, 4, 3]
        for life, sequence, producer in ((1, 1, 1), (3, 8, 2), (2, 0, 3)):
            with pytest.raises(journal.ProducerFenced):
                writer.append(message(life, sequence, producer))
        assert writer.append(message(2, 5)) == 62 and writer.append(message(4, 7, 2)) == 0
        with pytest.raises(journal.StampRefused):
            writer.append(message(4, 7, producer=2) + b" other")


def test_without_stamps_retention_of_a_plain_writer_reads_nothing(tmp_path, monkeypatch):
    """But headers; and what the file tells of already is not read either."""
    with opened(tmp_path, **PLAIN) as writer:
        fill(writer)
        assert writer.truncate_before(writer.next) == 60
        assert not (writer.path / "producers").exists()
    with opened(tmp_path, **SMALL) as writer:
        writer.append(message(1, 0))
        fill(writer)
        writer.rotate()
    monkeypatch.setattr(journal.store.snapshot, "_learn", None)
    with opened(tmp_path, **PLAIN) as writer:
        assert writer.truncate_before(writer.next) == 121
    with opened(tmp_path, **PLAIN) as writer:
        fill(writer)
        with pytest.raises(TypeError):
            writer.truncate_before(writer.next)


def test_retention_of_a_plain_writer_goes_past_damage(tmp_path, caplog):
    with opened(tmp_path, **PLAIN) as writer:
        writer.append(message(2, 5))
        fill(writer)
        writer.append(message(3, 0, producer=2))
        writer.rotate()
    paths = segment_files(tmp_path)
    for path, text in ((paths[1], b"xxx"), (paths[-2], b"2:3:0")):
        raw = bytearray(path.read_bytes())
        raw[raw.index(text)] ^= 1
        path.write_bytes(raw)
    with opened(tmp_path, **PLAIN) as writer:
        assert writer.truncate_before(writer.next) == 62
    told = [line.getMessage() for line in caplog.records]
    assert [line for line in told if str(paths[-2]) in line and "not remembered" in line]
    with opened(tmp_path) as writer:
        assert (writer.life_of(1), writer.life_of(2)) == (2, 0)


@pytest.mark.parametrize("room", [True, False])
def test_retention_makes_room_on_a_full_disk(tmp_path, monkeypatch, room):
    """For what it saves: the first segment goes before that, and no other one."""
    with opened(tmp_path, **PLAIN) as writer:
        writer.append(message(2, 5))
        fill(writer)
        paths, replace = segment_files(tmp_path), journal.store.snapshot.replace

        def full(path, raw):
            if paths[0].exists() or not room:
                raise OSError(errno.ENOSPC, "No space left on device")
            replace(path, raw)
        monkeypatch.setattr(journal.store.snapshot, "replace", full)
        if room:
            assert writer.truncate_before(writer.next) == 61
        else:
            with pytest.raises(OSError, match="No space"):
                writer.truncate_before(writer.next)
            assert segment_files(tmp_path)[0] == paths[1]
    monkeypatch.undo()
    with opened(tmp_path) as writer:
        assert writer.life_of(1) == 2 * room


@pytest.mark.parametrize("call", ["truncate_before", "retain"])
@pytest.mark.parametrize("what", ["file", "messages"])
def test_retention_of_a_writer_that_deduplicates_makes_room(tmp_path, monkeypatch, what, call):
    """For the file `producers`, and for messages that are not written yet."""
    disk, replace = Disk(), journal.store.snapshot.replace
    with opened(tmp_path, **SMALL, retain_bytes=0, retain_for=("g",)) as writer:
        [first] = segment_files(tmp_path)

        def full(path, raw):
            if what == "file" and first.exists():
                raise OSError(errno.ENOSPC, "No space left on device")
            replace(path, raw)

        remove = journal.writer.remove_ended

        def removed(*where):
            remove(*where)
            disk.fail(room=-1)
        monkeypatch.setattr(journal.store.snapshot, "replace", full)
        monkeypatch.setattr(journal.writer, "remove_ended", removed)
        writer.append(message(2, 5))
        if what == "messages":
            disk.attach(writer)
        fill(writer)
        while what == "messages" and writer.written == writer.next:
            writer.append(message(2, writer.next))
        assert first.exists()
        if what == "messages":
            disk.fail(room=0)
        with journal.open(tmp_path) as reader:
            reader.commit_offset("g", writer.written)
        if call == "retain":
            writer.retain()     # the writer's own thread may have begun to
            until(lambda: not first.exists())
        else:
            writer.truncate_before(writer.written)
        assert not first.exists() and writer.life_of(1) == 2
    with opened(tmp_path) as writer:
        assert writer.life_of(1) == 2


@pytest.mark.parametrize("unwritten", [False, True])
def test_removing_all_messages_makes_room_for_the_next_segment(tmp_path, monkeypatch, unwritten):
    """On a full disk. unwritten: and for what waits in memory."""
    disk, remove = Disk(), journal.writer.remove_ended
    with opened(tmp_path, **SMALL) as writer:
        disk.attach(writer)
        fill(writer)
        writer.append(b"last")
        writer.commit()
        if unwritten:
            writer.append(b"in memory")
        before = segment_files(tmp_path)
        disk.fail(room=0)
        with pytest.raises(journal.JournalFull):
            writer.rotate()

        def removed(*where):
            remove(*where)
            disk.fail(room=-1)
        monkeypatch.setattr(journal.writer, "remove_ended", removed)
        assert writer.truncate_before(writer.next) == writer.next == 61 + unwritten
        assert not [path for path in before if path.exists()]
        assert writer.append(b"more") == 61 + unwritten


def test_where_nothing_can_go_a_full_disk_is_told(tmp_path):
    disk = Disk()
    with opened(tmp_path) as writer:
        disk.attach(writer)
        writer.append(b"0")
        writer.commit()
        disk.fail(room=0)
        with pytest.raises(journal.JournalFull):
            writer.truncate_before(1)
        disk.fail(room=-1)
        assert writer.truncate_before(1) == 1


def test_a_missing_file_of_a_compacted_journal_is_told(tmp_path, caplog):
    """Compaction has removed messages that it told of."""
    def warned():
        with opened(tmp_path, **SMALL):
            found = [text for text in caplog.messages if FORGETS in text]
        caplog.clear()
        return found

    with opened(tmp_path, **SMALL) as writer:
        for i in range(60):
            writer.append(message(2, i) + bytes(300), key=b"k%d" % (i % 3))
        writer.rotate()
        writer.append(b"last")
    [path] = tmp_path.glob("*/*/producers")
    path.unlink()
    assert warned() == []               # the messages tell it all
    journal.compact(tmp_path, min_share=0)
    assert warned() == []
    path.unlink()
    [text] = warned()
    assert "is missing, and compaction has removed messages" in text
    assert warned() == []


def test_a_plain_writer_keeps_within_its_limits(tmp_path):
    """But not less than the file has."""
    with opened(tmp_path, **SMALL) as writer:
        writer.append_many([message(1, 0, producer) for producer in range(1, 31)])
        fill(writer)
    for producers in (range(31, 61), range(61, 91)):
        with opened(tmp_path, **PLAIN, max_producers=10) as writer:
            writer.append_many([message(1, 0, producer) for producer in producers])
            fill(writer)
            writer.truncate_before(writer.next)
    with opened(tmp_path) as writer:
        assert writer.stats().producers == 30
        assert all(writer.life_of(producer) for producer in range(61, 91))


# -- what is left when the messages have gone ------------------------------------------------------

def damaged(where):
    """A flipped bit in a message without a stamp."""
    path = segment_files(where)[-1]
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"xxx")] ^= 1
    path.write_bytes(raw)


def test_a_repair_keeps_the_lives_of_messages_that_are_gone(tmp_path):
    """It drops numbers, as what is lost may be sent again; a second one, too."""
    with opened(tmp_path, **SMALL) as writer:
        writer.append_many([message(1, 0), message(2, 0), message(0, 0, producer=2)])
        writer.append_many([message(5, number, 3) for number in (0, 10**6, 10**9)])
        fill(writer)
        assert writer.truncate_before(60) > 6
        writer.append(message(6, 0, producer=3))
        fill(writer, 1)
    for _ in range(2):
        damaged(tmp_path)
        done = journal.repair(tmp_path)
        assert len(done.kept) == 1 and done.lives == 2
        with opened(tmp_path, **SMALL) as writer:
            assert [writer.life_of(producer) for producer in (1, 2, 3)] == [2, 0, 6]
            for life, producer in ((1, 1), (0, 1), (5, 3)):
                with pytest.raises(journal.ProducerFenced):
                    writer.append(message(life, 1, producer))
            fill(writer, 1)
    with opened(tmp_path, **SMALL) as writer:
        offsets = [writer.append(message(2, number)) for number in (0, 0, 9 * 10**8, 0)]
        assert offsets == [offsets[0], offsets[0], offsets[0] + 1, offsets[0]]
    with opened(tmp_path, **SMALL) as writer:
        assert writer.append(message(2, 0)) == offsets[0] and writer.life_of(1) == 2
        with pytest.raises(journal.StampRefused):
            writer.append(message(2, 0) + b" other")


def test_a_repair_without_the_file_of_producers(tmp_path):
    for lost in (False, True):
        with opened(tmp_path) as writer:
            writer.append(message(0, 0))
            fill(writer)
        if lost:
            (writer.path / "producers").unlink()
        damaged(tmp_path)
        assert journal.repair(tmp_path).lives == 0
        assert not (writer.path / "producers").exists()


def test_lives_alone_in_the_file(tmp_path):
    """One row for each producer, which is written again as it was."""
    with opened(tmp_path) as writer:
        writer.append(b"plain")
    rows = row(0, 0, [], 4, offset=-1) + row(0, 0, [], 2**32 - 1, producer=2, offset=-1)
    path = write_rows(tmp_path, rows)
    with opened(tmp_path) as writer:
        with pytest.raises(journal.ProducerFenced):
            writer.append(message(3, 0))
        assert (writer.life_of(1), writer.life_of(2)) == (4, 2**32 - 1)
        writer.append(b"plain")
    assert path.read_bytes()[48:] == rows
    for wrong in (rows + rows, rows + row(5, 5, [5], 2**32 - 1, producer=2),
                  row(0, 0, [], 0, offset=-1), row(0, 1024, [], 4, offset=-1)):
        write_rows(tmp_path, wrong)
        with opened(tmp_path) as writer:
            assert writer.stats().producers == 0


@pytest.mark.parametrize("how", ["lost", "damaged", "version 1", "version 2", "version 4"])
def test_a_lost_file_of_producers_is_warned_of(tmp_path, how, caplog):
    """If it was all that told of a life; the next opening says nothing."""
    with opened(tmp_path, **SMALL) as writer:
        writer.append_many([message(1, 0), message(2, 0)])
        fill(writer)
        path = writer.path / "producers"
    for removed in (False, True):
        with opened(tmp_path, **SMALL) as writer:
            if removed:
                writer.truncate_before(50)
        raw = bytearray(path.read_bytes())
        if how == "lost":
            path.unlink()
        elif how == "damaged":
            raw[60] ^= 1
        else:
            raw[8] = int(how[-1])
        if how != "lost":
            path.write_bytes(raw)
        for again in range(2):
            caplog.clear()
            with opened(tmp_path, **SMALL) as writer:
                assert writer.life_of(1) == 2 * (not removed)
                told = [line.getMessage() for line in caplog.records]
            assert again == (not [line for line in told if str(path) in line and FORGETS in line]) \
                or how == "lost" and not removed and not told
