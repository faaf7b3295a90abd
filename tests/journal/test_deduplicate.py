"""A writer that deduplicates: what is sent again is stored once, before and after any end."""

import itertools
import os
import struct
from collections import Counter

import pytest
from journal_case import arrays, contents, segment_files
from mqcore.testing.native.journal_disk import Disk, Handles

import mqcore as mq
from mqcore import journal

WINDOW = 1024
LIMIT = 20.0


def message(producer, sequence):
    return journal.stamp(producer, sequence, 1.0) + b"%d:%d" % (producer, sequence)


def opened(where, **options):
    return journal.open(where, "a", stamps=True, deduplicate=True, **options)


class Model:
    """What a writer may do, by sets."""

    def __init__(self):
        self.stored = []
        self.seen = {}          # producer: {sequence: offset}
        self.outcomes = Counter()

    def give(self, writer, producer, sequence, restarted=False):
        """Append, and check what came of it: what is called stored is stored, once and as it was
        sent; what is refused is older than the window, or another message has its number."""
        mine = self.seen.setdefault(producer, {})
        value = b"%d:%d" % (producer, sequence) + b" anew" * restarted
        highest = max(mine, default=-1)
        try:
            offset = writer.append(journal.stamp(producer, sequence) + value)
        except journal.StampRefused as error:
            self.outcomes[error.status] += 1
            if error.status == 2:
                assert sequence <= highest - WINDOW
            else:
                assert self.stored[mine[sequence]] != value
            return
        if offset == len(self.stored):
            assert sequence not in mine
            mine[sequence] = offset
            self.stored.append(value)
            self.outcomes["new"] += 1
            return
        assert offset in (-1, mine[sequence]) and self.stored[mine[sequence]] == value
        assert (offset == mine[sequence]) or sequence < highest
        self.outcomes["twice"] += 1


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
            model.give(writer, who, sequence, restarted=rng.random() < 0.02)
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
            assert (where / "default" / "0" / "producers").stat().st_size > 48 + 4 * 160
            where = copy(where)
        writer.close()
    assert contents(where) == model.stored and duplicates == model.outcomes["twice"] > 100
    assert model.outcomes[2] > 50 and model.outcomes[3] > 2, model.outcomes


@pytest.mark.parametrize("way", ["many", "batch", "records", "handles"])
@pytest.mark.parametrize("fsync", ["always", "never"])
def test_every_way_in(tmp_path, way, fsync):
    """Duplicates among others are left out, whichever call brings them; keys and headers too."""
    sent = [message(1, i) for i in (0, 1, 1, 0, 2)] + [b"plain", b"plain"] + [
        message(2, 0), message(1, 2), message(1, 4), message(1, 3)]
    wanted = [b"3:0", b"1:0", b"1:1", b"1:2", b"plain", b"plain", b"2:0", b"1:4", b"1:3"]
    with opened(tmp_path / "j", fsync=fsync) as writer:
        writer.append(message(3, 0), key=b"k" * 100, headers=[("h", b"x" * 100)])
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
            assert writer.duplicates - before == (3 if first == 1 else 9)
            assert fsync == "never" or writer.durable == writer.next
        assert writer.next == len(wanted) + 2
        assert writer.append(message(1, 3), headers=[("h", b"x")]) == -1
    assert contents(tmp_path / "j") == [*wanted, b"plain", b"plain"]


def test_left_out_messages_take_no_room(tmp_path):
    """Duplicates with keys and headers neither fill a block nor end it."""
    with opened(tmp_path, block_bytes=2048, fsync="never") as writer:
        writer.append(message(1, 0), key=b"k" * 50)
        for i in range(100):
            writer.append(b"%d" % i)
            for _ in range(3):
                writer.append(message(1, 0), key=b"k" * 50, headers=[("name", b"v" * 50)])
        assert writer.duplicates == 300
    assert contents(tmp_path) == [b"1:0", *(b"%d" % i for i in range(100))]
    assert journal.store.recovery.verify(tmp_path / "default" / "0").blocks < 12


def test_the_last_producers_are_remembered(tmp_path):
    with opened(tmp_path, max_producers=50) as writer:
        for who in range(1, 1001):
            writer.append(message(who, 0))
            writer.append(message(1, 0))            # it goes on sending
        assert writer.next == 1000
        assert all(writer.append(message(who, 0)) < 1000 for who in range(952, 1001))
        assert writer.append(message(500, 0)) == 1000       # forgotten, as it is said
    with opened(tmp_path, max_producers=50) as writer:
        assert all(writer.append(message(who, 0)) <= 1000 for who in (500, *range(960, 1001)))


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


@pytest.mark.parametrize(("damage", "why"), [
    ("cut", "does not match its CRC"), ("flipped", "does not match its CRC"),
    ("of another", "is another journal's"), ("from the future", "tells of 1000 messages"),
    ("garbage", "has 20 bytes"), ("old", "is of another kind or version")])
def test_a_wrong_file_of_producers_is_not_believed(tmp_path, damage, why, caplog):
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
        struct.pack_into("<I", raw, 12, journal.checksum(raw[16:], journal.checksum(raw[8:12])))
    elif damage == "old":
        struct.pack_into("<I", raw, 8, 1)
    else:
        raw = b"\xff" * 20
    path.write_bytes(raw)
    caplog.clear()
    with opened(tmp_path / "j") as writer:
        assert (writer.append(message(1, 0)), writer.append(message(1, 1))) == (0, 1)
    assert [row.getMessage() for row in caplog.records if f"{path} {why}" in row.getMessage()]


def test_a_repair_forgets_what_it_loses(tmp_path):
    with opened(tmp_path) as writer:
        for i in range(3):
            writer.append(message(1, i))
            writer.commit()
    [path] = segment_files(tmp_path)
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"1:1")] ^= 1
    path.write_bytes(raw)
    journal.store.repair.repair(path.parent)
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
        number = journal.partition_of_key((9).to_bytes(8, "little"), 3)
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


def restarted(where, before):
    """A producer that has sent so many messages starts again at 0, with other messages."""
    with opened(where) as writer:
        writer.append_many([message(1, i) for i in range(before)])
        assert writer.next == before
    with opened(where) as writer:
        for i in range(min(before, 3)):
            with pytest.raises(journal.StampRefused, match="number") as caught:
                writer.append(journal.stamp(1, i) + b"new %d" % i)
            assert caught.value.status == (2 if before - 1 - i >= WINDOW else 3)
            assert "new id" in str(caught.value)
        assert writer.next == before and writer.duplicates == 0
        assert writer.append(journal.stamp(2, 0) + b"new") == before
    assert contents(where) == [b"1:%d" % i for i in range(before)] + [b"new"]


@pytest.mark.parametrize("before", [1, 3, 1000, WINDOW + 1, 5000])
@pytest.mark.parametrize("remembered", ["in the file", "in the segments"])
def test_a_restarted_producer_is_refused_rather_than_acknowledged(tmp_path, before, remembered,
                                                                 monkeypatch):
    if remembered == "in the segments":
        monkeypatch.setattr("mqcore.journal.writer.save", lambda *args: None)
    restarted(tmp_path, before)


def test_the_same_content_with_another_key_is_another_message(tmp_path):
    with opened(tmp_path) as writer:
        assert writer.append(journal.stamp(1, 0, key=b"a") + b"1") == 0
        assert writer.append(journal.stamp(1, 0, key=b"a") + b"1") == 0
        assert writer.append(journal.stamp(1, 0) + b"1", key=b"a") == 0
        with pytest.raises(journal.StampRefused):
            writer.append(journal.stamp(1, 0, key=b"b") + b"1")
    with opened(tmp_path) as writer, pytest.raises(journal.StampRefused):
        writer.append(journal.stamp(1, 0) + b"1")


@pytest.mark.parametrize("forged", [(2**64 - 1,), (2**40, 2**64 - 1), (2**64 - 1, 2**50, 2**60)])
@pytest.mark.parametrize("before", [0, 10])
def test_a_forged_number_does_not_touch_the_real_producer(tmp_path, forged, before):
    """Its messages are stored, and known when they are sent again; also after an end."""
    with opened(tmp_path) as writer:
        for i in range(before):
            writer.append(message(7, i))
        for number in forged:
            writer.append(journal.stamp(7, number) + b"forged")
        first = writer.next
        for i in range(before, before + 10):
            assert writer.append(message(7, i)) == first + i - before
    with opened(tmp_path) as writer:
        for i in range(before + 10):
            assert writer.append(message(7, i)) in (-1, first + i - before)
        assert writer.duplicates == before + 10
        assert writer.append(message(7, before + 10)) == first + 10
        for number in forged:
            with pytest.raises(journal.StampRefused):
                writer.append(message(7, number))


def test_many_forged_numbers_end_in_refusals_and_never_in_acknowledgements(tmp_path, rng):
    with opened(tmp_path) as writer:
        stored, forged = set(), {rng.getrandbits(64) | 1 << 20 for _ in range(200)}
        for number in forged:
            i = len(stored)
            try:
                writer.append(journal.stamp(7, number) + b"forged")
                if writer.append(message(7, i)) != -1:
                    stored.add(b"7:%d" % i)
            except journal.StampRefused as error:
                assert error.status == 2
        assert stored
    assert {value for value in contents(tmp_path) if value != b"forged"} == stored


@pytest.mark.parametrize("way", ["many", "batch", "records"])
def test_a_refusal_within_a_call_says_how_far_it_came(tmp_path, way):
    sent = [message(1, 0), message(1, 1), journal.stamp(1, 0) + b"other", message(1, 2)]
    with journal.open(tmp_path / "from", "a", stamps=True) as source:
        source.append_many(sent)
    with opened(tmp_path / "j", fsync="always") as writer:
        for rest in (slice(0, None), slice(3, None)):
            part = sent[rest]
            try:
                if way == "many":
                    writer.append_many(part)
                elif way == "batch":
                    writer.append_batch(*arrays(part))
                else:
                    with journal.open(tmp_path / "from") as source:
                        writer.append_records(source.read(rest.start))
            except journal.StampRefused as error:
                assert (error.taken, error.status, rest.start) == (2, 3, 0)
                assert writer.durable == 2
    assert contents(tmp_path / "j") == [b"1:0", b"1:1", b"1:2"]


def test_a_device_answers_what_cannot_be_told(ctx, tmp_path):
    """The answer of a REP is no acknowledgement; a PULL counts a refusal."""
    with opened(tmp_path) as writer, mq.Rep(context=ctx, bind="tcp://127.0.0.1:0") as front, \
            mq.device(front, writer) as device, \
            mq.Req(context=ctx, connect=front.endpoints[0].url, recv_timeout=LIMIT) as req:
        writer.append_many([message(9, i) for i in range(2000)])
        for sequence, status in ((0, 2), (1500, 3)):
            req.send(journal.stamp(9, sequence) + b"other")
            with pytest.raises(journal.StampRefused) as caught:
                journal.stored_at(req.recv())
            assert caught.value.status == status
        req.send(message(9, 2000))
        assert journal.stored_at(req.recv()) == (0, 2000)
        assert (device.stats().refused, device.stats().acknowledged) == (2, 1)
    with opened(tmp_path) as writer, mq.Pull(context=ctx, bind="tcp://127.0.0.1:0") as front, \
            mq.Push(context=ctx, connect=front.endpoints[0].url) as push:
        with mq.device(front, writer) as device:
            push.send(journal.stamp(9, 0) + b"other")
            push.send(journal.stamp(9, 2000) + b"other")
            push.send(message(9, 2001))
            with journal.open(tmp_path) as reader:
                next(reader.follow(2001, timeout=LIMIT))
        stats = device.stats()
        assert (stats.messages, stats.refused, stats.duplicates) == (3, 2, 0)


def test_what_cannot_be(tmp_path):
    with pytest.raises(mq.OptionError, match="stamps"):
        journal.open(tmp_path, "a", deduplicate=True)
    with pytest.raises(mq.OptionError):
        opened(tmp_path, max_producers=0)
    journal.open(tmp_path / "from", "a").close()
    with journal.open(tmp_path / "from") as reader, opened(tmp_path / "to") as writer, \
            pytest.raises(mq.UsageError, match="duplicates"):
        mq.device(reader, writer)
