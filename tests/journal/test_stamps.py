"""Stamps: what may be in one, where in a message it lies, and whose life it tells."""

import journal_reference as ref
import numpy as np
import pytest

import mqcore as mq
from mqcore import journal


def message(life, sequence, producer=1, key=b""):
    return journal.stamp(producer, sequence, 1.0, key=key, life=life) \
        + b"%d:%d:%d" % (producer, life, sequence)


def test_lives_that_cannot_be():
    for life in (-1, 1 << 32):
        with pytest.raises(mq.OptionError):
            journal.stamp(1, 0, life=life)
    for wrong in (1.0, 1.5, np.True_, True, None, "1", b"1", np.float64(1)):
        for what in ({"life": wrong}, {"producer": wrong}, {"sequence": wrong}):
            with pytest.raises(mq.OptionError, match=f"{next(iter(what))}="):
                journal.stamp(**{"producer": 1, "sequence": 0, **what})
    for kind in (np.uint8, np.int64, np.uint64):
        assert journal.stamp(kind(1), kind(2), 0, life=kind(3)) == journal.stamp(1, 2, 0, life=3)
    assert journal.stamp(np.uint64(2**64 - 1), 0, 0) == journal.stamp(2**64 - 1, 0, 0)
    assert journal.read_life(journal.stamp(1, 0, life=2**32 - 1)) == 2**32 - 1


def test_producer_0_has_no_life(tmp_path):
    raw = ref.stamp(0, 3, 4, b"key", life=5) + b"value"
    assert journal.read_life(raw) == 0
    with journal.open(tmp_path, "a", stamps=True, deduplicate=True) as writer:
        writer.append(raw)
        writer.append_many([raw, message(0, 0)])
    with journal.open(tmp_path) as reader:
        records = reader.read(0)
        assert records.lives is None and records.producers.tolist() == [0, 0, 1]
        assert list(records)[0] == b"value"


@pytest.mark.parametrize("partitions", [{}, {"partitions": 2}])
@pytest.mark.parametrize("producer", [0, -1, 1 << 64, 7.0, "7", None, True])
def test_what_is_no_producer(tmp_path, producer, partitions):
    with journal.open(tmp_path, "a", topic="t", stamps=True, deduplicate=True, **partitions) as log:
        assert log.life_of((1 << 64) - 1) == 0
        with pytest.raises(mq.OptionError, match="producer="):
            log.life_of(producer)


def test_the_newest_life_of_all_partitions(tmp_path):
    how = {"stamps": True, "partitions": 3, "fsync": "never"}
    with journal.open(tmp_path, "a", topic="t", **how, deduplicate=True, max_open=1) as writers:
        for number in range(3):
            key = next(key for key in (b"%d" % i for i in range(99))
                       if journal.partition_of_key(key, 3) == number)
            writers.append(message(1 + number * (2 - number) * 7, 0, 1, key))
        assert (writers.life_of(1), writers.life_of(2)) == (8, 0)
        with pytest.raises(mq.OptionError):
            writers.life_of(1, "other topic")
    with journal.open(tmp_path, "a", topic_from="first-part", **how, deduplicate=True) as writers:
        assert (writers.life_of(1, "t"), writers.life_of(1, "other topic")) == (8, 0)
        assert not list(tmp_path.glob("other*"))
        with pytest.raises(mq.OptionError):
            writers.life_of(1)
    with journal.open(tmp_path, "a", topic="t", **how) as writers, \
            pytest.raises(mq.UsageError, match="deduplicate=True"):
        writers.life_of(1)


@pytest.mark.parametrize("partitions", [1, 8])
def test_a_stamp_lies_within_the_first_part(ctx, tmp_path, partitions):
    """What goes over several parts is none, for the partition and for the columns."""
    whole = message(9, 0, 1, b"key")
    front = len(whole) - len(b"1:9:0")
    cuts = [(0, False), (1, False), (30, False), (front - 1, False), (front, True)]
    with journal.open(tmp_path, "a", topic="t", stamps=True, deduplicate=True, fsync="never",
                      **({"partitions": partitions} if partitions > 1 else {})) as writer, \
            mq.Rep(context=ctx, bind="inproc://front") as rep, mq.device(rep, writer), \
            mq.Req(context=ctx, connect="inproc://front") as req:
        for cut, stamped in cuts:
            parts = [whole[:cut], whole[cut:]]
            req.send_parts(parts)
            partition, offset = journal.stored_at(req.recv(timeout=10))
            assert writer.life_of(1) == 9 * stamped
            if partitions > 1:
                own, second = writer.append_parts(parts)
                wanted = journal.partition_of_key(b"key", partitions) if stamped else 0
                assert own == wanted and (partition == own or not stamped)
                assert (second == offset) == stamped or own != partition
        writer.commit()
    found = []
    for number in range(partitions):
        with journal.open(tmp_path, topic="t", partition=number) as reader:
            for records in reader.batches():
                found += zip(records.to_list(), [0] * len(records) if records.producers is None
                             else records.producers.tolist(), strict=True)
    copies = 1 if partitions == 1 else 2
    assert sorted(found) == sorted([(b"1:9:0", 1), *[(whole, 0)] * 4 * copies])
