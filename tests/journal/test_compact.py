"""Compaction by key: what stays, whoever reads it."""

import asyncio
import contextlib
import time

import journal_reference as ref
import numpy as np
import pytest
from compact_case import SMALL, closed_end, expected, fill, left_of, rows_of, state_of
from journal_case import segment_files

import mqcore as mq
from mqcore import journal
from mqcore.errors import OptionError
from mqcore.journal.records import gather, runs
from mqcore.journal.records import until as below
from mqcore.journal.server.codec import pack, unpack
from mqcore.journal.store import horizon

LIMIT = 20


@pytest.fixture
def where(tmp_path):
    return tmp_path / "j"


@contextlib.contextmanager
def opened(ctx, where, how, **options):
    if how == "folder":
        with journal.open(where, **options) as reader:
            yield reader
    else:
        with journal.serve(where, "tcp://127.0.0.1:0", context=ctx, groups=True) as server, \
                journal.open(f"{server.urls[0]}/default", context=ctx, **options) as reader:
            yield reader


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_the_newest_of_each_key_stays(where, rng, compression):
    told = fill(where, rng, 600, compression=compression)
    end = closed_end(where)
    before = sum(path.stat().st_size for path in segment_files(where))
    [done] = journal.compact(where)
    assert left_of(where) == expected(told, end, keep=True)
    assert done.removed == len(told) - len(left_of(where)) > 300 and done.left == 0
    after = sum(path.stat().st_size for path in segment_files(where))
    assert done.freed == before - after > 0 and done.rewritten <= done.segments
    [done] = journal.compact(where, keep_tombstones=0)
    assert left_of(where) == expected(told, end)
    files = [path.stat() for path in segment_files(where)]
    [again] = journal.compact(where, keep_tombstones=0)
    assert (again.rewritten, again.removed, again.freed, again.left) == (0, 0, 0, 0)
    assert [path.stat() for path in segment_files(where)] == files
    checked = journal.verify(where)
    assert checked.findings == [] and checked.messages == len(expected(told, end))
    assert checked.compacted == 600 - checked.messages


def test_a_model(where, rng):
    """Writing, compacting, cutting off, with few keys in the table at a time, or few bytes to
    gain."""
    told, first = {}, 0
    for _ in range(6):
        told |= fill(where, rng, rng.randrange(1, 200), keys=rng.choice((3, 30)),
                     compression=rng.choice((None, "zstd")))
        if rng.random() < 0.2:
            first = journal.truncate_before(where, rng.randrange(max(told)))
            told = {offset: row for offset, row in told.items() if offset >= first}
        [done] = journal.compact(where, keep_tombstones=rng.choice((0, 0, 60)),
                                 min_share=rng.choice((0, 0.3)),
                                 max_memory=rng.choice((1 << 16, 1 << 20)))
        found = left_of(where)
        assert found.items() <= told.items() and state_of(found) == state_of(told)
        told = found
        with journal.open(where) as reader:
            assert (reader.first, reader.end) == (first, max(told) + 1)
        assert journal.verify(where).findings == []
        assert done.removed or not done.freed


def test_more_keys_than_the_table_holds(where, rng):
    told = fill(where, rng, 2000, keys=700, block_bytes=65536, segment_bytes=1 << 17)
    told |= fill(where, rng, 700, keys=700, block_bytes=65536, segment_bytes=1 << 17)
    end = closed_end(where)
    with pytest.raises(OptionError, match="max_memory"):
        journal.compact(where, max_memory=1000)
    [done] = journal.compact(where, keep_tombstones=0, max_memory=1 << 16)     # some 300 keys
    assert done.left == 0 and left_of(where) == expected(told, end)


@pytest.mark.parametrize("how", ["folder", "server"])
def test_all_ways_to_read(ctx, where, rng, how):
    told = fill(where, rng, 500)
    end = closed_end(where)
    times = {}
    with journal.open(where) as reader:
        times = {records.offset(i): t for records in reader.batches()
                 for i, t in enumerate(records.times.tolist())}
    journal.compact(where, keep_tombstones=0)
    left = expected(told, end)
    with opened(ctx, where, how) as reader:
        assert (reader.first, reader.end, reader.durable) == (0, 500, 500)
        for gaps in ("raise", "skip"):
            assert rows_of(reader.batches(gaps=gaps)) == left
        for _ in range(20):
            start, stop = sorted(rng.sample(range(501), 2))
            some = {at: row for at, row in left.items() if start <= at < stop}
            assert rows_of(reader.batches(start, stop)) == some
            assert asyncio.run(gathered(reader.abatches(start, stop))) == some
            at = min((at for at in left if at >= start), default=500)
            found = reader.read(start, max_bytes=1)
            assert (found.since, found.first, len(found)) == (start, at, 1)
            assert found[0] == left[at][1] and found.times[0] == times[at]
        assert rows_of(until(reader.follow(0, timeout=LIMIT), 500)) == left
        assert asyncio.run(gathered(reader.afollow(3, timeout=LIMIT), 500)) \
            == {at: row for at, row in left.items() if at >= 3}
        assert reader.at(0) == min(left) and reader.at(time.time() + 9) == 500
        with pytest.raises(mq.RecvTimeout):
            list(reader.follow(500, timeout=0.01))
        table = [batch for records in reader.batches()
                 for batch in records.to_arrow(["offset", "key", "value"]).to_pylist()]
        assert {row["offset"]: (row["key"], row["value"]) for row in table} == left


def until(walk, end):
    for records in walk:
        yield records
        if records.next == end:
            return


async def gathered(walk, end=None):
    found = []
    async with contextlib.aclosing(walk):
        async for records in walk:
            found.append(records)
            if records.next == end:
                break
    return rows_of(found)


def test_a_server_of_readers_that_do_not_know_compaction(ctx, where, rng, monkeypatch):
    """They meet a gap, as if the messages were lost, rather than wait for ever."""
    from mqcore.journal.server.remote import RemoteReader

    told = fill(where, rng, 300)
    left = expected(told, closed_end(where))
    journal.compact(where, keep_tombstones=0)
    put, ask = RemoteReader._put, RemoteReader._ask
    monkeypatch.setattr(RemoteReader, "_put", lambda self, socket, op, number, facts: put(
        self, socket, op, number, {k: v for k, v in facts.items() if k != "compacted"}))
    monkeypatch.setattr(RemoteReader, "_ask", lambda self, op, **facts: ask(
        self, op, **{k: v for k, v in facts.items() if k != "compacted"}))
    with opened(ctx, where, "server", timeout=LIMIT) as reader:
        found = {records.offset(i): value for records in reader.batches(0, 300, gaps="skip")
                 for i, value in enumerate(records.to_list())}
        assert found == {at: value for at, (_, value) in left.items()}
        gone = min(at for at in told if at not in left)
        with pytest.raises(journal.OffsetGone) as caught:
            reader.read(gone)
        assert caught.value.first == min(at for at in left if at > gone)


def test_groups_go_on_behind_a_gap(ctx, where, rng):
    told = fill(where, rng, 300)
    left = expected(told, closed_end(where))
    gone = next(at for at in told if at > 50 and at not in left)
    with journal.open(where) as reader:
        reader.commit_offset("g", gone)
    journal.compact(where, keep_tombstones=0)
    with opened(ctx, where, "server") as reader, \
            journal.join(reader.url, "g", topic="default", context=ctx) as member:
        found = {}
        while max(found, default=0) < 299:
            records = member.read(LIMIT)
            found |= {records.offset(i): value for i, value in enumerate(records.to_list())}
        member.commit()
        assert reader.committed_offset("g") == 300
    assert found == {at: value for at, (_, value) in left.items() if at >= gone}


@pytest.mark.parametrize("how", ["folder", "server"])
def test_a_mirror_copies_the_gaps(ctx, where, tmp_path, rng, how, caplog):
    told = fill(where, rng, 400)
    copy = tmp_path / "copy"
    left = {}
    for _ in range(2):                  # the second time from the middle of the copy
        end = closed_end(where)
        journal.compact(where)          # a mirror that is behind needs the tombstones
        left |= {at: row for at, row in expected(told, end, keep=True).items()
                 if at >= max(left, default=0)}
        with opened(ctx, where, how) as reader, \
                journal.open(copy, "a", mirror=True, **SMALL) as writer, \
                mq.device(reader, writer) as mirror:
            end = time.monotonic() + LIMIT
            while writer.next < reader.end and time.monotonic() < end:
                time.sleep(0.001)
            assert mirror.stats().gone == 0
        checked = journal.verify(copy)
        assert checked.findings == [] and checked.messages + checked.compacted == max(told) + 1
        assert left_of(copy) == left
        told |= fill(where, rng, 150)
    assert not [one for one in caplog.records if "are gone" in one.getMessage()]
    journal.compact(copy, keep_tombstones=0)
    assert state_of(left_of(copy)) == state_of({at: told[at] for at in range(550)})


def test_promotion_copies_the_gaps(where, tmp_path, rng):
    told = fill(where, rng, 300)
    copy = tmp_path / "copy"
    with journal.open(where) as reader, journal.open(copy, "a", mirror=True) as writer:
        for records in reader.batches(0, 100):
            writer.append_records(records)
        writer._set_epochs(writer._epochs.__class__((), (), True, bytes.fromhex(
            next(row.id for row in journal.list_partitions(where)))))
    left = expected(told, closed_end(where))
    journal.compact(where, keep_tombstones=0)
    journal.promote(copy, old=where)
    assert left_of(copy) == {at: row for at, row in told.items() if at < 100} \
        | {at: row for at, row in left.items() if at >= 100}


# -- tombstones ------------------------------------------------------------------------------------

def test_a_tombstone_stays_for_readers_that_are_behind(where, monkeypatch):
    """It goes so long after the values that it hides were removed, however old it is."""
    now = [2_000_000_000.0]
    monkeypatch.setattr("mqcore.journal.compaction.time.time_ns", lambda: int(now[0] * 1e9))
    with journal.open(where, "a", **SMALL) as log:
        log.append(bytes(3000), key=b"k")
        log.rotate()
        log.append(None, key=b"k")
        for _ in range(5):
            log.append(bytes(700), key=b"other")
        log.rotate()
        log.append(b"last")
    for wait, left in ((0, [1, 6, 7]), (50, [1, 6, 7]), (51, [6, 7])):
        now[0] += wait
        journal.compact(where, keep_tombstones=100)
        assert sorted(left_of(where)) == left
    assert left_of(where)[7] == (None, b"last")


def test_a_tombstone_stays_while_an_old_value_does(where):
    """A segment is left as it is, because it would not get smaller: nothing comes back to life."""
    with journal.open(where, "a", **SMALL) as log:
        for i in range(40):
            log.append(b"v", key=b"a%d" % i if i % 2 else b"k")
        log.rotate()
        log.append(None, key=b"k")
        for _ in range(5):
            log.append(bytes(900), key=b"other")
        log.rotate()
        log.append(b"last")
    for _ in range(2):
        [done] = journal.compact(where, keep_tombstones=0, min_share=0.05)
        assert done.left == 1
        found = left_of(where)
        assert found[40] == (b"k", None) and found[0] == (b"k", b"v") and 41 not in found
    with journal.open(where, "a", **SMALL) as log:
        for i in range(40):
            log.append(b"w", key=b"a%d" % i)
    [done] = journal.compact(where, keep_tombstones=0)
    assert done.left == 0 and sorted(left_of(where))[:1] == [45]


def test_the_newest_message_stays(where):
    with journal.open(where, "a", **SMALL) as log:
        log.append(bytes(900), key=b"k")
        log.append(None, key=b"k")
        log.rotate()
    journal.compact(where, keep_tombstones=0)
    with journal.open(where) as reader:
        assert rows_of(reader.batches()) == {1: (b"k", None)}
        assert (reader.first, reader.end) == (0, 2)


def test_the_file_that_says_when(tmp_path):
    whose = bytes(range(16))
    rows = []
    for at in range(1, 200):
        horizon.advance(tmp_path, whose, rows, at, 1000 + at, 0)
        rows = horizon.read_horizon(tmp_path, whose)
        assert rows[-1] == (at, 1000 + at) and len(rows) <= horizon.MOST
    assert horizon.limit(rows, 999) == 0
    assert 0 < horizon.limit(rows, 1100) <= 100 and horizon.limit(rows, 1 << 60) == 199
    horizon.advance(tmp_path, whose, rows, 250, 5000, 1150)
    assert len(horizon.read_horizon(tmp_path, whose)) < len(rows)
    assert horizon.limit(horizon.read_horizon(tmp_path, whose), 1150) == horizon.limit(rows, 1150)
    assert horizon.read_horizon(tmp_path, bytes(16)) == []
    path = tmp_path / horizon.NAME
    raw = path.read_bytes()
    for bad in (b"", raw[:-2], raw.replace(b"250", b"251"), b"\xff" + raw, b"\n", b"x" * 99):
        path.write_bytes(bad)
        assert horizon.read_horizon(tmp_path, whose) == []


# -- the format ------------------------------------------------------------------------------------

SALT, ID = 0x1234, bytes(range(16))
PLACES = [0, 1, 5, 6, 7, 40]


def message(place):
    found = {"time": 100 + place, "value": b"v%d" % place, "key": b"k%d" % place, "place": place,
             "stamp": (7, place, 5)}
    return {**found, "value": None} if place == 5 else found


def sparse_segment(where, messages, first=10, following=60, packed=None, codec=0):
    """By the reference: a gap, a sparse block, a gap at the end; and an empty segment."""
    folder = where / "default" / "0"
    folder.mkdir(parents=True)
    raw = ref.segment_header(0, 1, ID, SALT, 0, b"default", 2)
    raw += ref.checkpoint(first, SALT, 100, 200, ref.COMPACTED)
    raw += ref.block(first, first, SALT, messages, packed, codec)
    raw += ref.checkpoint(following, SALT, 100, 200, ref.COMPACTED)
    (folder / f"{0:020d}.mqj").write_bytes(raw)
    raw = ref.segment_header(following, 1, ID, SALT, 0, b"default", 1)
    raw += ref.block(following, following, SALT, [{"time": 300, "value": b"last"}])
    (folder / f"{following:020d}.mqj").write_bytes(raw)
    return folder


LEFT = [*(10 + place for place in PLACES), 60]


def offsets_of(records):
    return [records.offset(i) for i in range(len(records))]


def test_a_sparse_block(tmp_path):
    sparse_segment(tmp_path, [message(place) for place in PLACES])
    with journal.open(tmp_path, durable=False) as reader:
        found = list(reader.batches(0))
        assert [(one.since, one.first, len(one), one.next) for one in found] == [(0, 10, 7, 61)]
        assert found[0].to_list() == [b"v0", b"v1", None, b"v6", b"v7", b"v40", b"last"]
        for offset in range(61):
            for most in (1, 30, 1 << 20):
                records = reader.read(offset, max_bytes=most)
                assert records.since == offset and records.size <= max(most, 30)
                assert offsets_of(records) == [at for at in LEFT if at >= offset][:len(records)]
        assert [reader.at(us / 1e6) for us in (0, 101, 102, 141, 142)] == [10, 11, 15, 60, 60]
    checked = journal.verify(tmp_path)
    assert (checked.messages, checked.compacted, checked.findings) == (7, 54, [])


def test_records_with_gaps(tmp_path):
    """Slices, pieces without a gap, those below an offset, Arrow, and the way over the network:
    each message keeps its offset, and pieces follow each other."""
    sparse_segment(tmp_path, [message(place) for place in PLACES])
    with journal.open(tmp_path, durable=False) as reader:
        all_ = reader.read(3)
        for start in range(8):
            for stop in range(start, 8):
                some = all_.slice(start, stop)
                assert offsets_of(some) == LEFT[start:stop] == some._all_offsets().tolist()
                assert some.to_list() == all_.to_list()[start:stop]
                assert some.since == (LEFT[start - 1] + 1 if start else 3)
                assert (some.first, some.next) == (
                    (LEFT[start], LEFT[stop - 1] + 1) if start < stop else (some.first,) * 2)
                if start < stop:
                    assert some.to_arrow(["offset"])["offset"].to_pylist() == LEFT[start:stop]
                    head, body = pack(some)
                    back = unpack(head, body, "t", 0)
                    assert (back.since, back.next) == (some.since, some.next)
                    assert offsets_of(back) == LEFT[start:stop]
        for stop in range(63):
            assert offsets_of(below(all_, stop)) == [at for at in LEFT if at < stop]
        assert [(one.since, offsets_of(one)) for one in runs(all_)] == [
            (3, [10, 11]), (12, [15, 16, 17]), (18, [50]), (51, [60])]
        again = gather(list(runs(all_)))
        assert (again.since, offsets_of(again), again.to_list()) == (3, LEFT, all_.to_list())
        with pytest.raises(IndexError):
            all_.offset(7)


@pytest.mark.parametrize("places", [[], [0] * 7, [1, *range(1, 7)], [0, *range(6, 0, -1)],
                                    [*range(6), 1 << 62], [*range(8)], [*range(6), -1]])
def test_places_that_a_server_should_not_send(tmp_path, places):
    sparse_segment(tmp_path, [message(place) for place in PLACES])
    with journal.open(tmp_path, durable=False) as reader:
        head, body = pack(reader.read(0))
    raw = np.array(places, np.int64).tobytes()
    head["columns"]["places"] = [len(body), len(raw)]
    with pytest.raises(journal.JournalError, match="is no records"):
        unpack(head, body + raw, "t", 0)


@pytest.mark.parametrize("places", [[1, 2, 3], [0, 2, 2], [0, 3, 2], [0, 1, 1 << 20]])
def test_a_sparse_block_that_cannot_be(tmp_path, places):
    """Places that begin elsewhere, do not rise, or lead beyond the end that the header tells."""
    messages = [{**message(place), "place": place} for place in places]
    raw = ref.block(10, 10, SALT, messages)
    if places[-1] == 1 << 20:       # the header says another number
        rest = bytearray(raw[8:128])
        rest[96:104] = (40).to_bytes(8, "little")
        crc = ref.crc32c(SALT.to_bytes(8, "little") + rest)
        raw = raw[:4] + crc.to_bytes(4, "little") + bytes(rest) + raw[128:]
    folder = sparse_segment(tmp_path, [message(place) for place in PLACES])
    path = folder / f"{0:020d}.mqj"
    path.write_bytes(path.read_bytes()[:640] + raw + ref.checkpoint(60, SALT, 100, 200, 64))
    with journal.open(tmp_path, durable=False) as reader, pytest.raises(journal.JournalCorrupt):
        reader.read(10)
    assert journal.verify(tmp_path).findings


def test_compaction_writes_what_the_page_says(tmp_path):
    with journal.open(tmp_path, "a", **SMALL) as log:
        for i in range(41):
            log.append(b"%d" % i + bytes(90), key=b"k" if i not in PLACES else b"%d" % i)
        log.rotate()
        log.append(b"end", key=b"k")
    with journal.open(tmp_path) as reader:
        us = [int(t) for records in reader.batches() for t in records._microseconds]
    assert journal.compact(tmp_path)[0].removed == 35
    raw = segment_files(tmp_path)[0].read_bytes()
    salt = int.from_bytes(raw[48:56], "little")
    messages = [{"time": us[i], "value": b"%d" % i + bytes(90), "key": b"%d" % i, "place": i}
                for i in PLACES]
    assert raw[512:] == ref.block(0, 0, salt, messages) + ref.checkpoint(
        41, salt, us[0], us[40])
    assert raw[:512] == ref.segment_header(0, int.from_bytes(raw[24:32], "little"), raw[32:48],
                                           salt, 0, b"default", 2)
