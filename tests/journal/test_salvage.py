"""Reading past damage without a repair: what is whole, at its offsets, and nothing else."""

import os
import shutil

import pytest
from journal_case import segment_files

import mqcore as mq
from mqcore import journal

BLOCKS, PER = 12, 10
pytestmark = pytest.mark.usefixtures("nobody_writes")


@pytest.fixture
def tmp_path(memory):
    return memory


def written(where):
    """Twelve blocks of ten messages in four segments, the last one not ended."""
    with journal.open(where, "a") as writer:
        for i in range(BLOCKS):
            writer.append_many([b"%d" % (PER * i + k) for k in range(PER)], time=1000 + i)
            writer.commit()
            if i in (2, 5, 8):
                writer.rotate()
    return where


def places(raw):
    """Of the blocks, checkpoints too."""
    return [at for at in range(512, len(raw), 64) if raw[at:at + 4] == b"MQB1"]


def flip(path, at, bit=0x40):
    raw = bytearray(path.read_bytes())
    raw[at] ^= bit
    path.write_bytes(raw)


def found(where, start=None, **how):
    """{offset: message} of all that can be read, past the gaps."""
    with journal.open(where, **how) as reader:
        return {records.first + i: message
                for records in reader.batches(start, gaps="skip", durable=False)
                for i, message in enumerate(records.to_list())}


def left_by_repair(where):
    copy = where.with_name(where.name + ".repaired")
    shutil.copytree(where, copy)
    journal.repair(copy)
    try:
        return found(copy)
    finally:
        shutil.rmtree(copy)


@pytest.mark.parametrize("number", [0, 1, 3])
@pytest.mark.parametrize("what", ["columns", "header", "segment's header", "all zeroes"])
def test_one_damage(tmp_path, number, what):
    """At the beginning, in the middle and in the last segment: the rest is read, from anywhere."""
    where = written(tmp_path / "j")
    path = segment_files(where)[number]
    before = path.read_bytes()
    at = places(before)[1]
    if what == "all zeroes":
        path.write_bytes(before[:at] + bytes(384) + before[at + 384:])
    else:
        flip(path, {"columns": at + 150, "header": at + 20, "segment's header": 50}[what])
    raw = path.read_bytes()
    lost = range(PER * (3 * number + 1), PER * (3 * number + 2)) if what != "segment's header" \
        else range(0)
    wanted = {i: b"%d" % i for i in range(PER * BLOCKS) if i not in lost}
    assert found(where, salvage=True) == wanted == left_by_repair(where)
    assert path.read_bytes() == raw
    with journal.open(where, salvage=True) as reader:
        assert (reader.end, reader.durable) == (PER * BLOCKS, PER * BLOCKS)
        for i in range(PER * BLOCKS):
            if i in lost:
                with pytest.raises(journal.OffsetGone, match="lost to damage") as caught:
                    reader.read(i)
                assert caught.value.first == lost.stop
            else:
                assert reader.read(i)[0] == b"%d" % i
        assert reader.at(1000 + 3 * number + 1.5) == PER * (3 * number + 2)
    if what != "segment's header" or number == 3:
        with pytest.raises(journal.JournalCorrupt):
            found(where)


@pytest.mark.parametrize("rounds", [20, pytest.param(60, marks=pytest.mark.slow)])
def test_any_damage(tmp_path, rng, rounds):
    """Flipped bits, zeroed and missing stretches anywhere: as a repair would leave it."""
    source = written(tmp_path / "source")
    for i in range(rounds):
        where = tmp_path / f"j{i}"
        shutil.copytree(source, where)
        for path in rng.sample(segment_files(where), rng.choice((1, 2, 4))):
            raw = bytearray(path.read_bytes())
            for _ in range(rng.choice((1, 1, 3))):
                if rng.random() < 0.7:
                    raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
                elif rng.random() < 0.5:
                    at = rng.randrange(len(raw))
                    raw[at:at + 500] = bytes(len(raw[at:at + 500]))
                else:
                    at = rng.randrange(512, len(raw)) // 64 * 64
                    del raw[at:at + 64 * rng.choice((1, 3))]
            path.write_bytes(raw)
        got = found(where, salvage=True)
        assert all(message == b"%d" % at for at, message in got.items())
        assert got == left_by_repair(where), i
        for start in rng.sample(range(PER * BLOCKS), 5):
            with journal.open(where, salvage=True) as reader:
                if start > reader.end:
                    continue
            later = found(where, start, salvage=True)
            assert later == {at: message for at, message in got.items() if at >= start}


def test_a_missing_segment_and_one_of_elsewhere(tmp_path):
    where, other = written(tmp_path / "j"), written(tmp_path / "other")
    segment_files(where)[1].unlink()
    shutil.copy(segment_files(other)[2], segment_files(where)[1])
    assert set(found(where, salvage=True)) == {*range(30), *range(90, 120)}


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "empty"])
def test_what_is_no_segment(tmp_path, number, kind):
    where = written(tmp_path / "j")
    path = segment_files(where)[number]
    path.unlink()
    if kind == "link":
        path.symlink_to("nowhere")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.touch()
    lost = range(30 * number, 30 * number + 30)
    assert set(found(where, salvage=True)) == set(range(120)) - set(lost)
    with journal.open(where, salvage=True) as reader:
        assert reader.end == (120 if number == 1 else 90)


def test_a_segment_in_the_place_of_another_one(tmp_path):
    """Its blocks are whole, but what is between is not lost for that; neither by a repair."""
    where = written(tmp_path / "j")
    files = segment_files(where)
    shutil.copy(files[2], files[0])
    assert set(found(where, salvage=True)) == set(range(30, 120)) == set(left_by_repair(where))


def test_the_end_is_missing(tmp_path):
    """Messages that were durable, as the file `durable` says, are not there any more."""
    where = written(tmp_path / "j")
    path = segment_files(where)[-1]
    raw = path.read_bytes()
    path.write_bytes(raw[:places(raw)[1]])
    with pytest.raises(journal.JournalCorrupt):
        found(where)
    assert set(found(where, salvage=True)) == set(range(100))
    with journal.open(where, salvage=True) as reader:
        assert reader.end == 100 and len(reader.read(100)) == 0


def test_beside_a_writer(tmp_path):
    """What is sound is read as always, and followed."""
    with journal.open(tmp_path, "a") as writer, journal.open(tmp_path, salvage=True) as reader:
        writer.append_many([b"0", b"1"])
        writer.flush()
        assert reader.read(0).to_list() == [b"0", b"1"]
        with pytest.raises(mq.UsageError):
            reader.read(7)
        walk = reader.follow(2, timeout=20)
        writer.append(b"2")
        writer.flush()
        assert next(walk).to_list() == [b"2"]


def test_no_copy_of_it(tmp_path):
    where = written(tmp_path / "j")
    with journal.open(where, salvage=True) as reader, \
            journal.open(tmp_path / "copy", "a", mirror=True) as writer, \
            pytest.raises(journal.JournalCorrupt, match="repair it"):
        mq.device(reader, writer)


def test_of_a_server(tmp_path, serve):
    url = serve(written(tmp_path / "j")).urls[0]
    with pytest.raises(mq.OptionError, match="salvage"):
        journal.open(url, salvage=True)
