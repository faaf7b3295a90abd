"""Messages that are gone: lost to damage that was repaired, or removed by retention. What walks a
partition ends at them, or goes on behind them."""

import asyncio
import contextlib

import pytest
from journal_case import LEFT, repaired, segment_files

import mqcore as mq
from mqcore import journal

LIMIT = 20


@pytest.fixture
def where(tmp_path):
    return repaired(tmp_path / "j")


@contextlib.contextmanager
def opened(ctx, where, how):
    if how == "folder":
        with journal.open(where) as reader:
            yield reader
    else:
        with journal.serve(where, "tcp://127.0.0.1:0", context=ctx) as server, \
                journal.open(f"{server.urls[0]}/default", context=ctx) as reader:
            yield reader


def numbers(walk):
    return [int(m) for records in walk for m in records.to_list()]


async def anumbers(walk, count=None):
    found = []
    async with contextlib.aclosing(walk):
        async for records in walk:
            found += [int(m) for m in records.to_list()]
            if len(found) == count:
                break
    return found


@pytest.mark.parametrize("how", ["folder", "server"])
def test_walks_go_on_behind_gaps(ctx, where, how):
    with opened(ctx, where, how) as reader:
        assert reader.first == 10 and reader.end == 60
        assert numbers(reader.batches(gaps="skip")) == LEFT
        assert numbers(reader.batches(0, 45, gaps="skip")) == LEFT[:25]
        assert numbers(reader.batches(30, 40, gaps="skip")) == []
        assert asyncio.run(anumbers(reader.abatches(0, gaps="skip"))) == LEFT
        follow = reader.follow(3, timeout=LIMIT, gaps="skip")
        found = []
        while len(found) < len(LEFT):
            records = next(follow)
            assert int(records[0]) == records.first     # which tells how many are missing
            found += [int(m) for m in records.to_list()]
        follow.close()
        assert found == LEFT
        afollow = reader.afollow(3, timeout=LIMIT, gaps="skip")
        assert asyncio.run(anumbers(afollow, len(LEFT))) == LEFT


@pytest.mark.parametrize("how", ["folder", "server"])
def test_walks_end_at_gaps(ctx, where, how):
    with opened(ctx, where, how) as reader:
        for walk, seen in ((reader.batches(), LEFT[:20]), (reader.batches(0), []),
                           (reader.follow(15, timeout=LIMIT), LEFT[5:20])):
            found = []
            with pytest.raises(journal.OffsetGone) as gone:
                for records in walk:
                    found += [int(m) for m in records.to_list()]
            assert found == seen and gone.value.first == (40 if seen else 10)
        for call in (reader.batches, reader.abatches):
            with pytest.raises(mq.OptionError, match="gaps='pass'"):
                call(gaps="pass")
        for call in (reader.follow, reader.afollow):
            with pytest.raises(mq.OptionError, match="gaps='pass'"):
                call(0, gaps="pass")


def test_first_after_a_repair_and_after_retention(where):
    with journal.open(where) as reader:
        assert reader.first == 10
        segment_files(where)[0].unlink()
        assert reader.first == 20
        segment_files(where)[0].unlink()
        assert reader.first == 40
        assert numbers(reader.batches(0, gaps="skip")) == LEFT[20:]


def test_a_first_segment_of_which_nothing_is_left(tmp_path):
    with journal.open(tmp_path, "a") as writer:
        writer.append(b"lost")
        writer.rotate()
        writer.append(b"kept")
    path = segment_files(tmp_path)[0]
    raw = bytearray(path.read_bytes())
    raw[512 + 150] ^= 1
    path.write_bytes(raw)
    journal.repair(tmp_path)
    with journal.open(tmp_path) as reader:
        assert reader.first == 1 and numbers_of(reader) == [b"kept"]


def numbers_of(reader):
    return [m for records in reader.batches() for m in records.to_list()]


# -- mirrors ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("how", ["folder", "server"])
def test_a_mirror_goes_on_behind_gaps(ctx, where, tmp_path, how, caplog):
    """Of an empty folder, and of one that has come half of the way."""
    with opened(ctx, where, how) as reader:
        for n in range(2):
            with journal.open(tmp_path / "copy", "a") as writer, \
                    mq.device(reader, writer) as mirror:
                with journal.open(tmp_path / "copy") as copy:
                    walk = copy.follow(writer.next, timeout=LIMIT, gaps="skip")
                    while copy.end < 60 + 10 * n:
                        next(walk)
                    walk.close()
                stats = mirror.stats()
                assert (stats.messages, stats.gone) == ((40, 20), (5, 5))[n]
            if n == 0:
                with journal.open(where, "a") as source:        # what comes, again with a gap
                    source.skip(65)
                    source.append_many([b"%d" % i for i in range(65, 70)])
        for place in (where, tmp_path / "copy"):
            with journal.open(place) as one:
                assert numbers(one.batches(gaps="skip")) == [*LEFT, *range(65, 70)]
    assert "messages 30 to 39" in caplog.text
    assert not journal.verify(tmp_path / "copy").findings


def test_a_mirror_that_retention_has_overtaken(where, tmp_path):
    with journal.open(tmp_path / "copy", "a") as writer, journal.open(where) as reader:
        with mq.device(reader, writer):
            with journal.open(tmp_path / "copy") as copy:
                walk = copy.follow(0, timeout=LIMIT, gaps="skip")
                while copy.end < 60:
                    next(walk)
                walk.close()
        with journal.open(where, "a") as source:
            for i in range(60, 80):
                source.append(b"%d" % i)
                if i % 10 == 9:
                    source.rotate()
        for path in segment_files(where)[:3]:
            path.unlink()
        with mq.device(reader, writer) as mirror, journal.open(tmp_path / "copy") as copy:
            walk = copy.follow(60, timeout=LIMIT, gaps="skip")
            while copy.end < 80:
                next(walk)
            walk.close()
            assert mirror.stats().gone == 10
            assert numbers(copy.batches(60, gaps="skip")) == [*range(70, 80)]


# -- Writer.skip() ---------------------------------------------------------------------------------

def test_skip(tmp_path, rng):
    """At random places, also at the beginning, also twice at one place; opened anew in between."""
    kept, at = {}, 0
    for _ in range(10):
        with journal.open(tmp_path, "a", segment_bytes=4096, block_bytes=1024) as writer:
            assert writer.next == at
            for _ in range(10):
                if rng.random() < 0.4:
                    at += rng.choice((0, 1, 7, 1000))
                    writer.skip(at)
                    assert writer.next == at
                for _ in range(rng.randrange(20)):
                    kept[at] = b"%d" % at * rng.randrange(1, 20)
                    assert writer.append(kept[at]) == at
                    at += 1
                if rng.random() < 0.3:
                    writer.rotate()
            with pytest.raises(mq.UsageError, match="was given out"):
                writer.skip(at - 1)
        with journal.open(tmp_path) as reader:
            found = {}
            for records in reader.batches(gaps="skip"):
                found.update(zip(range(records.first, records.next), records.to_list(),
                                 strict=True))
            assert found == kept and reader.end == at
            assert reader.first == min(kept, default=at)
        assert not journal.verify(tmp_path).findings


def test_what_cannot_be_skipped_to(tmp_path):
    with journal.open(tmp_path, "a") as writer:
        for wrong in ("5", 1.5, None, 1 << 62):
            with pytest.raises(mq.UsageError):
                writer.skip(wrong)
        writer.append(b"x")
        writer.skip(5)
        assert writer.append(b"y") == 5
    with pytest.raises(journal.JournalClosed):
        writer.skip(9)
    assert contents_past_gaps(tmp_path) == [b"x", b"y"]


def contents_past_gaps(where):
    with journal.open(where) as reader:
        return [m for records in reader.batches(gaps="skip") for m in records.to_list()]
