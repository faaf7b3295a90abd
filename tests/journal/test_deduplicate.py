"""A writer that deduplicates: what is sent again is stored once, before and after any end."""

import itertools
import os
import struct

import pytest
from journal_case import arrays, contents, segment_files
from mqcore.testing.journal_disk import Disk, Handles

import mqcore as mq
from mqcore import journal

WINDOW = 1024
LIMIT = 20.0


def message(producer, sequence):
    return journal.stamp(producer, sequence, 1.0) + b"%d:%d" % (producer, sequence)


def opened(where, **options):
    return journal.open(where, "a", stamps=True, deduplicate=True, **options)


class Model:
    """What a writer should do, by sets."""

    def __init__(self):
        self.stored = []
        self.seen = {}          # producer: {sequence: offset}

    def take(self, producer, sequence):
        """The offset that append() gives."""
        mine = self.seen.setdefault(producer, {})
        highest = max(mine, default=-1)
        if sequence in mine or sequence <= highest - WINDOW:
            return mine[sequence] if sequence == highest else -1
        mine[sequence] = len(self.stored)
        self.stored.append(b"%d:%d" % (producer, sequence))
        return mine[sequence]


def traffic(rng, n):
    """(producer, sequence): mostly in order; resends, gaps, what was overtaken, what is ancient."""
    at = [0, 0, 1 << 63, 5000]
    for _ in range(n):
        who = rng.randrange(4)
        kind = rng.random()
        if kind < 0.75:
            yield who + 1, at[who]
            at[who] += 1
        elif kind < 0.8:
            at[who] += rng.choice((1, 2, 63, 64, WINDOW - 1, WINDOW, WINDOW + 1, 3 * WINDOW))
        else:
            back = rng.choice((1, 1, 2, 3, 50, 64, 200, WINDOW, WINDOW + 1, 5000))
            if at[who] >= back:
                yield who + 1, at[who] - back


def test_like_a_model_across_ends(tmp_path, copy, rng):
    """Closed, killed, rotated, and without its file of producers: the answers are the model's."""
    where, model = tmp_path / "j", Model()
    with_file = itertools.cycle((True, False))
    duplicates = 0
    for end in ("close", "kill", "rotate", "kill", "close", "rotate", "kill"):
        writer = opened(where, segment_bytes=1 << 15, block_bytes=2048)
        for who, sequence in traffic(rng, 1500):
            assert writer.append(message(who, sequence)) == model.take(who, sequence)
        duplicates += writer.duplicates
        assert writer.next == len(model.stored)
        writer.commit()
        if end == "kill":
            where = copy(where)
            if next(with_file):
                (where / "default" / "0" / "producers").unlink(missing_ok=True)
        elif end == "rotate":
            writer.rotate()
            writer.retain()
            assert (where / "default" / "0" / "producers").stat().st_size == 48 + 4 * 152
            where = copy(where)
        writer.close()
    assert contents(where) == model.stored and duplicates > 500


@pytest.mark.parametrize("way", ["many", "batch", "records", "handles"])
@pytest.mark.parametrize("fsync", ["always", "never"])
def test_every_way_in(tmp_path, way, fsync):
    """Duplicates among others are left out, whichever call brings them; keys and headers too."""
    sent = [message(1, i) for i in (0, 1, 1, 0, 2)] + [b"plain", b"plain"] + [
        message(2, 0), message(1, 2), message(1, 4), message(1, 3)]
    wanted = [b"1:0", b"1:1", b"1:2", b"plain", b"plain", b"2:0", b"1:4", b"1:3"]
    with opened(tmp_path / "j", fsync=fsync) as writer:
        writer.append(message(1, 0), key=b"k" * 100, headers=[("h", b"x" * 100)])
        for _ in range(2):
            first, before = writer.next, writer.duplicates
            if way == "many":
                assert writer.append_many(sent) == range(first, writer.next)
            elif way == "batch":
                assert writer.append_batch(*arrays(sent)) == range(first, writer.next)
            elif way == "handles":
                given, left = Handles(), len(sent)
                given.put(*sent)
                while left:         # a sink stops behind each duplicate, to have it counted
                    rc, done = given.give(writer)
                    assert rc in (0, 7) and done > 0
                    left -= done
            else:
                with journal.open(tmp_path / "from", "a", stamps=True) as source:
                    source.append_many(sent)
                with journal.open(tmp_path / "from") as source:
                    writer.append_records(source.read(source.end - len(sent)))
            assert writer.duplicates - before == (4 if first == 1 else 9)
            assert fsync == "never" or writer.durable == writer.next
        assert writer.next == len(wanted) + 2
        assert writer.append(message(1, 3), key=b"k" * 100, headers=[("h", b"x")]) == -1
    assert contents(tmp_path / "j") == [*wanted, b"plain", b"plain"]


def test_left_out_messages_take_no_room(tmp_path):
    """Duplicates with keys and headers neither fill a block nor end it."""
    with opened(tmp_path, block_bytes=2048, fsync="never") as writer:
        writer.append(message(1, 0))
        for i in range(100):
            writer.append(b"%d" % i)
            for _ in range(3):
                writer.append(message(1, 0), key=b"k" * 50, headers=[("name", b"v" * 50)])
        assert writer.duplicates == 300
    assert contents(tmp_path) == [b"1:0", *(b"%d" % i for i in range(100))]
    assert journal.verify(tmp_path / "default" / "0").blocks < 12


def test_the_last_producers_are_remembered(tmp_path):
    with opened(tmp_path, max_producers=50) as writer:
        for who in range(1, 1001):
            writer.append(message(who, 0))
            writer.append(message(1, 0))            # it goes on sending
        assert writer.next == 1000
        assert all(writer.append(message(who, 0)) < 1000 for who in range(952, 1001))
        assert writer.append(message(500, 0)) == 1000       # forgotten, as it is said
    with opened(tmp_path, max_producers=50) as writer:
        assert all(writer.append(message(who, 0)) <= 1000 for who in (1, 500, *range(960, 1001)))


def test_what_a_power_cut_takes_is_no_duplicate(tmp_path, copy):
    """The file of producers never tells of what was not durable."""
    with opened(tmp_path / "j", fsync="never") as writer:
        disk = Disk()
        disk.attach(writer)
        writer.append(message(1, 0))
        writer.rotate()
        writer.append(message(1, 1))
        writer.retain()
        raw = (tmp_path / "j" / "default" / "0" / "producers").read_bytes()
        assert struct.unpack_from("<q", raw, 32) == (2,) and writer.durable == 2
        writer.append(message(1, 2))
        writer.flush()
        synced = disk.synced(segment_files(tmp_path / "j")[-1])
        where = copy(tmp_path / "j")
    os.truncate(segment_files(where)[-1], synced)
    with opened(where) as again:
        assert [again.append(message(1, i)) for i in range(3)] == [-1, 1, 2]


@pytest.mark.parametrize("damage", ["cut", "flipped", "of another", "from the future", "garbage"])
def test_a_wrong_file_of_producers_is_not_believed(tmp_path, damage):
    for where in ("j", "other"):
        with opened(tmp_path / where) as writer:
            writer.append(message(1, 0 if where == "j" else 7))
    path = tmp_path / "j" / "default" / "0" / "producers"
    raw = bytearray(path.read_bytes())
    if damage == "cut":
        raw = raw[:-1]
    elif damage == "flipped":
        raw[60] ^= 1
    elif damage == "of another":
        raw = (tmp_path / "other" / "default" / "0" / "producers").read_bytes()
    elif damage == "from the future":
        struct.pack_into("<q", raw, 32, 1000)
        struct.pack_into("<I", raw, 12, journal.checksum(raw[16:]))
    else:
        raw = b"\xff" * 20
    path.write_bytes(raw)
    with opened(tmp_path / "j") as writer:
        assert (writer.append(message(1, 0)), writer.append(message(1, 1))) == (0, 1)


def test_a_repair_forgets_what_it_loses(tmp_path):
    with opened(tmp_path) as writer:
        for i in range(3):
            writer.append(message(1, i))
            writer.commit()
    [path] = segment_files(tmp_path)
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"1:1")] ^= 1
    path.write_bytes(raw)
    journal.repair(path.parent)
    with opened(tmp_path) as writer:
        assert [writer.append(message(1, i)) for i in range(3)] == [-1, 3, 2]


def test_an_old_damage_is_an_error(tmp_path):
    """Nobody can say what a damaged block held; without deduplicate= it is still found by readers
    only."""
    with journal.open(tmp_path, "a", stamps=True) as writer:
        for i in range(3):
            writer.append(message(1, i))
            writer.rotate()
    path = segment_files(tmp_path)[0]
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"1:0")] ^= 1
    path.write_bytes(raw)
    with pytest.raises(journal.JournalCorrupt, match="deduplicate"):
        opened(tmp_path)
    journal.open(tmp_path, "a").close()


def test_who_resends_is_answered_as_for_the_first(ctx, tmp_path):
    """By a device with REP, over partitions; by PULL it is counted."""
    with opened(tmp_path, partitions=3) as writers, \
            mq.Rep(context=ctx, bind="tcp://127.0.0.1:0") as front, \
            mq.device(front, writers) as device, \
            mq.Req(context=ctx, connect=front.endpoints[0].url, recv_timeout=LIMIT) as req:
        answers = []
        for sequence in (0, 1, 2, 2, 2, 1):
            req.send(message(9, sequence))
            answers.append(journal.stored_at(req.recv()))
        number = journal.partition_of((9).to_bytes(8, "little"), 3)
        assert answers == [(number, at) for at in (0, 1, 2, 2, 2, -1)]
        stats = device.stats()
        assert (stats.duplicates, stats.refused, stats.acknowledged) == (3, 0, 6)
        assert writers.duplicates == 3
    with opened(tmp_path, topic="t") as writer, \
            mq.Pull(context=ctx, bind="tcp://127.0.0.1:0") as front, \
            mq.Push(context=ctx, connect=front.endpoints[0].url) as push, \
            mq.device(front, writer) as device:
        for sequence in (0, 1, 1, 0, 2, 2):
            push.send(message(9, sequence))
        push.send(b"last")
        with journal.open(tmp_path, topic="t") as reader:
            found = [m for records in reader.batches(0) for m in records]
            for records in reader.follow(len(found), timeout=LIMIT):
                found += records.to_list()
                if found[-1] == b"last":
                    break
        assert found == [b"9:0", b"9:1", b"9:2", b"last"]
        assert (device.stats().messages, device.stats().duplicates) == (7, 3)


def test_what_cannot_be(tmp_path):
    with pytest.raises(mq.OptionError, match="stamps"):
        journal.open(tmp_path, "a", deduplicate=True)
    with pytest.raises(mq.OptionError):
        opened(tmp_path, max_producers=0)
    journal.open(tmp_path / "from", "a").close()
    with journal.open(tmp_path / "from") as reader, opened(tmp_path / "to") as writer, \
            pytest.raises(mq.UsageError, match="duplicates"):
        mq.device(reader, writer)
