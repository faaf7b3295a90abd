"""Lives: a producer that was replaced is fenced, whatever it still sends."""

import threading
from collections import Counter

import journal_reference as ref
import pytest
from compressed import blocks, versions
from journal_case import arrays, contents, segment_files

import mqcore as mq
from mqcore import journal
from mqcore.journal.store.scan import parse_segment

WINDOW = 1024


def message(life, sequence, producer=1, key=b""):
    return journal.stamp(producer, sequence, 1.0, key=key, life=life) \
        + b"%d:%d:%d" % (producer, life, sequence)


def opened(where, **options):
    return journal.open(where, "a", **{"stamps": True, "deduplicate": True, "fsync": "never",
                                       **options})


def rows_of(where, **how):
    """(producer, life, sequence, value) of each message."""
    with journal.open(where, **how) as reader:
        return [(int(records.producers[i]),
                 0 if records.lives is None else int(records.lives[i]),
                 int(records.sequences[i]), value)
                for records in reader.batches() for i, value in enumerate(records)]


def refused(append, *values):
    with pytest.raises(journal.ProducerFenced) as caught:
        append(*values)
    assert caught.value.status == 5 and not isinstance(caught.value, journal.StampRefused)
    return caught.value


# -- the writer ------------------------------------------------------------------------------------

def test_an_older_life_is_refused(tmp_path):
    """By each call, with the newest life, and counted; the newer one goes on."""
    with opened(tmp_path) as writer:
        assert [writer.append(message(1, i)) for i in range(3)] == [0, 1, 2]
        assert writer.append(message(4, 0)) == 3
        for life in (0, 1, 3):
            for sequence in (0, 2, 3, 10**6):
                error = refused(writer.append, message(life, sequence))
                assert error.life == 4 and "life 4" in str(error) and "life=" in error.hint
                assert "not stored" not in str(error)       # it may be, if it was sent before
        error = refused(writer.append_many, [message(4, 1), message(1, 3), message(4, 2)])
        assert (error.taken, error.life, writer.next) == (1, 4, 5)
        error = refused(writer.append_batch, *arrays([message(4, 2), message(3, 0)]))
        assert (error.taken, error.life, writer.next) == (1, 4, 6)
        assert writer.append(message(4, 0)) == -1
        assert writer.append(message(0, 0, producer=2)) == 6
        assert (writer.stats().fenced, writer.stats().duplicates) == (14, 1)
        assert (writer.life_of(1), writer.life_of(2), writer.life_of(3)) == (4, 0, 0)
    assert [row[:3] for row in rows_of(tmp_path)] == [
        (1, 1, 0), (1, 1, 1), (1, 1, 2), (1, 4, 0), (1, 4, 1), (1, 4, 2), (2, 0, 0)]


@pytest.mark.parametrize("first", [0, 5, 3 * WINDOW, 2**64 - 1])
def test_a_newer_life_begins_anew(tmp_path, first):
    """With any number: those of the one before are forgotten, all tracks of them."""
    with opened(tmp_path) as writer:
        for track in range(4):
            writer.append_many([message(1, track * 10**9 + i) for i in range(2 * WINDOW)])
        before, weight = writer.next, writer._counters()["producer_bytes"]
        assert writer.append(message(2, first)) == before
        assert writer._counters()["producer_bytes"] < weight / 10
        assert writer.append(message(2, first)) == before
        if first < 2**63:
            with pytest.raises(journal.StampRefused) as caught:
                writer.append(message(2, first) + b" other")
            assert caught.value.status == 3
            assert writer.append(message(2, first + 1)) == before + 1


def test_without_deduplicate_lives_are_only_stored(tmp_path):
    """What they tell is heeded by the writer that deduplicates later."""
    with opened(tmp_path, deduplicate=False) as writer:
        for life in (2, 1, 2, 0):
            writer.append(message(life, 0))
        with pytest.raises(mq.UsageError, match="deduplicate=True"):
            writer.life_of(1)
    assert [row[1] for row in rows_of(tmp_path)] == [2, 1, 2, 0]
    with opened(tmp_path) as writer:
        assert refused(writer.append, message(1, 1)).life == 2
        assert writer.append(message(2, 0)) == 0


@pytest.mark.parametrize("fsync", ["always", "never"])
def test_what_came_before_a_fenced_one_is_kept(tmp_path, fsync):
    with opened(tmp_path, fsync=fsync) as writer:
        writer.append(message(2, 0))
        error = refused(writer.append_many, [message(2, 1), message(1, 0)])
        assert error.taken == 1
        assert writer.durable == (2 if fsync == "always" else 0)


def test_keys_stay_in_their_partition(tmp_path):
    """By key or producer, with a life or without."""
    for producer in range(1, 40):
        for key in (b"", b"k%d" % producer):
            plain, living = (message(life, 0, producer, key) for life in (0, 7))
            assert journal.partition_of_message(plain, 5) == \
                journal.partition_of_message(living, 5)
            assert journal.read_key(living) == (key or None)


# -- bytes -----------------------------------------------------------------------------------------

def test_the_writer_writes_what_the_page_says(tmp_path):
    """Byte for byte, but for the clock and the random salt."""
    with opened(tmp_path) as writer:
        writer.append(b"plain", time=1.0)
        for life, sequence in ((0, 3), (1, 9), (2**32 - 1, 0)):
            writer.append(message(life, sequence, key=b"k"), time=2.0)
        refused(writer.append, message(5, 0))
        writer.append(b"", time=3.0)
    [path] = segment_files(tmp_path)
    raw = path.read_bytes()
    head = parse_segment(raw[:512])
    keyed = {"time": 2000000, "key": b"k"}
    messages = [{"time": 1000000, "value": b"plain"},
                {**keyed, "value": b"1:0:3", "stamp": (1, 3, 1000000)},
                {**keyed, "value": b"1:1:9", "stamp": (1, 9, 1000000), "life": 1},
                {**keyed, "value": b"1:4294967295:0", "stamp": (1, 0, 1000000), "life": 2**32 - 1},
                {"time": 3000000, "value": b""}]
    assert raw == (ref.segment_header(0, head.created, head.journal, head.salt, 0, b"default", 2)
                   + ref.block(0, 0, head.salt, messages)
                   + ref.checkpoint(5, head.salt, 1000000, 3000000))
    assert (path.parent / "producers").read_bytes() == ref.producers(
        head.journal, 5,
        [(1, 2**32 - 1, [(0, ref.checksum_of(b"1:4294967295:0", b"k"))], 3)])


def test_blocks_without_lives_are_as_before(tmp_path):
    """Also one in which a message with a life was refused, or was a duplicate."""
    with opened(tmp_path) as writer:
        writer.append(message(3, 0))
        writer.rotate()
        before = writer.next
        for value in (message(0, 0, 2), message(3, 0), message(0, 1, 2), message(2, 7)):
            try:
                writer.append(value)
            except journal.ProducerFenced as error:
                assert error.life == 3
        writer.flush()
        writer.append(message(3, 1))
    last = len(segment_files(tmp_path)) - 1
    [old, new] = blocks(tmp_path, last)
    assert (old[:2], old[2] & ref.LIVES, new[2] & ref.LIVES) == ((before, 2), 0, ref.LIVES)


@pytest.mark.parametrize("held", [False, True])
def test_a_segment_of_version_1(tmp_path, held):
    """It ends in front of the first life, or becomes version 2 where it cannot."""
    with opened(tmp_path) as writer:
        if not held:
            writer.append(message(0, 0))
            writer.flush()
        assert versions(tmp_path) == [1]
        writer.append(message(1, 0))
    assert versions(tmp_path) == ([2] if held else [1, 2])


@pytest.mark.parametrize("codec", [None, "zstd", "lz4"])
def test_small_blocks_put_together(tmp_path, codec):
    wanted = [(1, i // 10, i, b"1:%d:%d" % (i // 10, i)) for i in range(60)]
    with opened(tmp_path, compression=codec) as writer:
        for _, life, sequence, _ in wanted:
            writer.append(message(life, sequence))
            writer.flush()
    with journal.open(tmp_path) as reader:
        records = reader.read(0)
        assert len(records) >= 10
        if codec is None:
            later = reader.read(10)
            assert len(later) == 50 and later.lives.tolist() == [i // 10 for i in range(10, 60)]
    assert rows_of(tmp_path) == wanted


# -- recovery --------------------------------------------------------------------------------------

@pytest.mark.parametrize("how", ["file", "no file", "old file", "killed"])
def test_the_newest_life_is_known_again(tmp_path, how, copy):
    with opened(tmp_path / "j") as writer:
        for life in (0, 1, 5):
            for sequence in range(3):
                writer.append(message(life, sequence))
        writer.commit()
        where = copy(tmp_path / "j")
    where = where if how == "killed" else tmp_path / "j"
    path = where / "default" / "0" / "producers"
    if how == "no file":
        path.unlink()
    elif how == "old file":         # of a program without lives: what follows it is read
        marks = [(i, ref.checksum_of(b"1:0:%d" % i)) for i in range(2)]
        head = parse_segment(segment_files(where)[0].read_bytes()[:512])
        path.write_bytes(ref.producers(head.journal, 2, [(1, 0, marks, 1)], version=2))
    with opened(where) as writer:
        assert writer.life_of(1) == 5
        assert refused(writer.append, message(4, 0)).life == 5
        assert writer.append(message(5, 2)) == 8 and writer.append(message(5, 3)) == 9
        with pytest.raises(journal.StampRefused):
            writer.append(message(5, 1) + b" other")


def test_an_old_file_of_producers_is_read(tmp_path):
    """Its rows have no lives: those are of life 0."""
    with opened(tmp_path) as writer:
        writer.append_many([message(0, i) for i in range(3)])
        folder = writer.path
    head = parse_segment(segment_files(tmp_path)[0].read_bytes()[:512])
    marks = [(i, ref.checksum_of(b"1:0:%d" % i)) for i in range(3)]
    assert (folder / "producers").read_bytes() == ref.producers(
        head.journal, 3, [(1, 0, marks, 2)])
    (folder / "producers").write_bytes(ref.producers(head.journal, 3, [(1, 0, marks, 2)], 2))
    with opened(tmp_path) as writer:
        assert (writer.append(message(0, 2)), writer.append(message(0, 3))) == (2, 3)
        assert writer.append(message(1, 0)) == 4


def test_tracks_of_a_life_come_back(tmp_path):
    with opened(tmp_path) as writer:
        writer.append(message(1, 0))
        for number in (0, 10_000, 10**9, 2 * 10**9):
            writer.append(message(2, number))
    with opened(tmp_path) as writer:
        assert [writer.append(message(2, number)) for number in (0, 10**9)] == [1, 3]
        assert refused(writer.append, message(1, 1)).life == 2


def test_retention_keeps_the_life(tmp_path):
    with opened(tmp_path, segment_bytes=4096, block_bytes=1024) as writer:
        writer.append(message(6, 0))
        writer.append_many([b"x" * 500] * 100)
        assert writer.truncate_before(50) > 1
    with opened(tmp_path) as writer:
        assert refused(writer.append, message(5, 0)).life == 6


class Model:
    """What each producer's newest life has, by sets."""

    def __init__(self):
        self.life, self.seen, self.stored = {}, {}, []
        self.outcomes = Counter()

    def give(self, writer, producer, life, sequence):
        value = message(life, sequence, producer)
        newest = self.life.get(producer, 0)
        seen = self.seen.setdefault((producer, life), set())
        try:
            offset = writer.append(value)
        except journal.ProducerFenced as error:
            assert life < newest == error.life
            self.outcomes["fenced"] += 1
            return
        except journal.StampRefused as error:
            assert error.status == 2 and life == newest and sequence <= max(seen) - WINDOW
            self.outcomes["old"] += 1
            return
        assert life >= newest
        self.life[producer] = life
        fresh = offset == len(self.stored)
        assert fresh != (sequence in seen)
        self.outcomes["new" if fresh else "twice"] += 1
        if fresh:
            seen.add(sequence)
            self.stored.append((producer, life, sequence, b"%d:%d:%d" % (producer, life, sequence)))


@pytest.mark.parametrize("seed", range(6))
def test_like_sets(tmp_path, rng, copy, seed):
    """Random producers, lives and numbers, over clean ends, kills, and a file that is lost."""
    model, where = Model(), tmp_path / "j"
    for _ in range(12):
        with opened(where, segment_bytes=8192, block_bytes=2048,
                    compression=rng.choice((None, "lz4"))) as writer:
            for _ in range(rng.randrange(150)):
                producer = rng.randrange(1, 4)
                newest = model.life.get(producer, 0)
                life = newest + rng.choice((0, 0, 0, 0, 0, 0, -1, -1, 1))
                number = rng.choice((rng.randrange(40), rng.randrange(3000)))
                model.give(writer, producer, max(0, life), number)
            if rng.random() < 0.5:
                writer.commit()
                where = copy(where)
        if rng.random() < 0.3:
            (where / "default" / "0" / "producers").unlink(missing_ok=True)
    assert rows_of(where) == model.stored
    assert set(model.outcomes) >= {"fenced", "new", "twice"}


# -- two lives at once -----------------------------------------------------------------------------

def test_the_device_tells_the_older_one(ctx, tmp_path):
    with opened(tmp_path) as writer, mq.Rep(context=ctx, bind="tcp://127.0.0.1:0") as front, \
            mq.device(front, writer) as device:
        url = front.endpoints[0].url
        with mq.Req(context=ctx, connect=url) as older, mq.Req(context=ctx, connect=url) as newer:
            assert journal.stored_at(older.request(message(0, 0), timeout=20)) == (0, 0)
            assert journal.stored_at(newer.request(message(1, 0), timeout=20)) == (0, 1)
            answer = older.request(message(0, 1), timeout=20)
            assert answer == ref.struct.pack("<IIq", 5, 0, 1)
            with pytest.raises(journal.ProducerFenced) as caught:
                journal.stored_at(answer)
            assert (caught.value.life, caught.value.status) == (1, 5)
            assert journal.stored_at(newer.request(message(1, 1), timeout=20)) == (0, 2)
            # the older one may go on as the next life
            value = message(caught.value.life + 1, 0)
            assert journal.stored_at(older.request(value, timeout=20)) == (0, 3)
            with pytest.raises(journal.ProducerFenced):
                journal.stored_at(newer.request(message(1, 2), timeout=20))
        assert device.stats().refused == 2
        assert writer.stats().fenced == 2


@pytest.mark.parametrize("partitions", [1, 3])
def test_lives_over_many_connections(ctx, tmp_path, partitions):
    """However they mingle: in the journal no older life comes behind a newer one, each producer
    learns of it, and what was acknowledged is there."""
    told, fenced, errors = set(), [], []

    def run(url, life):
        try:
            with mq.Req(context=ctx, connect=url, recv_timeout=60) as req:
                for sequence in range(200):
                    journal.stored_at(req.request(message(life, sequence)))
                    told.add((life, sequence))
        except journal.ProducerFenced as error:
            fenced.append((life, error.life))
        except BaseException as error:
            errors.append(error)

    how = {"partitions": partitions} if partitions > 1 else {}
    with opened(tmp_path, **how) as writer, \
            mq.Rep(context=ctx, bind="tcp://127.0.0.1:0") as front, mq.device(front, writer):
        lives = [threading.Thread(target=run, args=(front.endpoints[0].url, life))
                 for life in (3, 1, 4, 2)]
        for thread in lives:
            thread.start()
        for thread in lives:
            thread.join()
    assert not errors and all(life < newest for life, newest in fenced)
    at = journal.partition_of_message(message(1, 0), partitions)
    rows = rows_of(tmp_path, partition=at)
    assert [row[1] for row in rows] == sorted(row[1] for row in rows)
    assert {row[1:3] for row in rows} >= told
    assert [row[2] for row in rows if row[1] == 4] == list(range(200))


# -- copies ----------------------------------------------------------------------------------------

def mixed(where, **options):
    """Lives among messages without, in several segments; its rows."""
    with opened(where, segment_bytes=4096, block_bytes=1024, **options) as writer:
        for i in range(120):
            writer.append(message(i // 40, i % 40, 1 + i % 2, b"k%d" % (i if i % 3 else 0)), time=i)
            if i % 10 == 0:
                writer.append_many([b"plain"] * 3, keys=[b"p"] * 3, time=i)
    return rows_of(where)


def test_a_promoted_mirror_fences_too(ctx, tmp_path):
    rows = mixed(tmp_path / "a")
    with journal.open(tmp_path / "a") as reader, journal.open(tmp_path / "b", "a") as copy, \
            mq.device(reader, copy), journal.open(tmp_path / "b") as other:
        for records in other.follow(0, timeout=20):
            if records.next == len(rows):
                break
    assert rows_of(tmp_path / "b") == rows
    journal.promote(tmp_path / "b", topic="default")
    with opened(tmp_path / "b") as writer:
        assert refused(writer.append, message(1, 99)).life == 2
        assert writer.append(message(2, 39, 2, b"k119")) < len(rows)


def test_over_a_server(ctx, tmp_path):
    """Records carry the column where it says anything."""
    rows = mixed(tmp_path / "j")
    with journal.serve(tmp_path / "j", f"ipc://{tmp_path}/s", context=ctx), \
            journal.open(f"ipc://{tmp_path}/s", topic="default", context=ctx) as reader:
        found = [(int(records.producers[i]), 0 if records.lives is None else int(records.lives[i]),
                  int(records.sequences[i]), value)
                 for records in reader.batches() for i, value in enumerate(records)]
        assert found == rows


@pytest.mark.parametrize("codec", [None, "zstd"])
def test_compaction_keeps_lives(tmp_path, codec):
    """Of the messages that stay, in sparse blocks too; and who is fenced."""
    rows = mixed(tmp_path, compression=codec)
    assert journal.compact(tmp_path)[0].removed
    with journal.open(tmp_path) as reader:
        for records in reader.batches():
            for i in range(len(records)):
                life = 0 if records.lives is None else int(records.lives[i])
                assert (int(records.producers[i]), life, int(records.sequences[i]),
                        records[i]) == rows[records.offset(i)]
    flags = [row[2] for number in range(len(segment_files(tmp_path)))
             for row in blocks(tmp_path, number)]
    assert any(flag & ref.LIVES and flag & ref.COMPACTED for flag in flags)
    with opened(tmp_path) as writer:
        assert refused(writer.append, message(1, 99)).life == 2


def test_compacted_blocks_tell_a_writer(tmp_path):
    """Without the file of producers it reads them."""
    mixed(tmp_path)
    assert journal.compact(tmp_path)[0].removed
    (tmp_path / "default" / "0" / "producers").unlink()
    with opened(tmp_path) as writer:
        assert (writer.life_of(1), writer.life_of(2)) == (2, 2)


def test_copies_by_append_records(tmp_path):
    rows = mixed(tmp_path / "a")
    with journal.open(tmp_path / "a") as reader, opened(tmp_path / "b") as writer:
        for records in reader.batches():
            writer.append_records(records.slice(1) if records.first == 0 else records)
        error = refused(writer.append_records, reader.read(1))
        assert (error.taken, error.life) == (3, 2)
    assert rows_of(tmp_path / "b") == rows[1:] + rows[1:4]


def test_arrow_and_counts(tmp_path):
    with opened(tmp_path) as writer:
        writer.append(b"plain")
        writer.append(message(0, 0))
        writer.flush()
        for life, sequence in ((2, 7), (2, 8), (2, 8), (2, 11), (3, 0)):
            writer.append(message(life, sequence))
        writer.flush()
    names = ["producer", "life", "sequence"]
    with journal.open(tmp_path) as reader:
        table = [row for records in reader.batches()
                 for row in records.to_arrow(names).to_pylist()]
        assert [row["life"] for row in table] == [None, 0, 2, 2, 2, 3]
        plain = reader.read(0).to_arrow(names)
        assert plain.schema.field("life").type == "uint32"
        seen = journal.Sequences()
        for records in reader.batches():
            seen.add(records)
        assert (seen.messages, seen.missing, seen.duplicates) == (5, 2, 0)
        assert seen.highest == {1: 0, (1, 2): 11, (1, 3): 0} and seen.producers == 1


def test_replay_restores_stamps(ctx, tmp_path):
    rows = mixed(tmp_path / "a")
    with mq.Pull(context=ctx, bind="tcp://127.0.0.1:0") as pull, \
            mq.Push(context=ctx, connect=pull.endpoints[0].url) as push, \
            journal.open(tmp_path / "a") as reader, \
            opened(tmp_path / "b", fsync="interval") as writer, mq.device(pull, writer):
        journal.replay(reader, push, speed=0, stamps=True, stop=len(rows))
        with journal.open(tmp_path / "b") as copy:
            for records in copy.follow(0, timeout=20):
                if records.next == len(rows):
                    break
    assert rows_of(tmp_path / "b") == rows


def test_a_repair_keeps_lives(tmp_path):
    rows = mixed(tmp_path)
    paths = segment_files(tmp_path)
    path = paths[len(paths) // 2]
    raw = bytearray(path.read_bytes())
    raw[50] ^= 4                        # the salt: the header is written anew
    path.write_bytes(raw)
    assert journal.repair(tmp_path).findings
    assert rows_of(tmp_path) == rows and set(versions(tmp_path)) <= {1, 2}
    with opened(tmp_path) as writer:
        assert refused(writer.append, message(1, 99)).life == 2
    assert journal.verify(path.parent).findings == []
    assert len(contents(tmp_path)) == len(rows)
