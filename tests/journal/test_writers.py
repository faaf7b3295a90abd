"""Several partitions and topics as one writer; the stamp with a key."""

import struct

import pytest
from journal_case import contents
from mqcore.testing.journal_disk import Handles

from mqcore import journal
from mqcore.errors import OptionError
from mqcore.journal import Writers


def test_the_stamp_with_a_key_byte_by_byte(tmp_path):
    raw = journal.stamp(0x1122, 5, 1.000001, key=b"JFK")
    assert raw == b"MQS1" + struct.pack("<IQQq", 3, 0x1122, 5, 1000001) + b"JFK"
    assert journal.read_stamp(raw) == (0x1122, 5, 1.000001)
    assert journal.read_key(raw + b"body") == b"JFK"
    assert journal.read_key(journal.stamp(1, 2)) is None
    cut = raw[:-1]                      # a key that is not all there: no stamp
    assert journal.read_stamp(cut) is None and journal.read_key(cut) is None
    with journal.open(tmp_path, "a", stamps=True) as writer:
        writer.append(b"plain")
        writer.append(raw + b"body")
        writer.append(journal.stamp(7, 0))
        writer.append(journal.stamp(7, 1, key=b"theirs") + b"x", key=b"given")
        writer.append(cut)
    with journal.open(tmp_path) as reader:
        records = reader.read(0)
        assert records.to_list() == [b"plain", b"body", b"", b"x", cut]
        assert [records.key(i) for i in range(5)] == [None, b"JFK", None, b"given", None]
        assert records.producers.tolist() == [0, 0x1122, 7, 7, 0]
        assert records.sequences.tolist() == [0, 5, 0, 1, 0]


def test_messages_find_their_partition(tmp_path):
    """By key, else by producer, else 0; from handles and from Python alike."""
    keyed = [journal.stamp(9, i, key=b"k%d" % i) + b"keyed%d" % i for i in range(20)]
    produced = [journal.stamp(100 + i, 0) + b"by%d" % i for i in range(20)]
    for where, handles in ((tmp_path / "python", False), (tmp_path / "handles", True)):
        with journal.open(where, "a", topic="t", partitions=3, stamps=True) as writers:
            assert isinstance(writers, Writers)
            if handles:
                given = Handles()
                given.put(*([m[:40], m[40:]] for m in keyed), *produced)
                assert given.give(writers) == (0, 60)
            else:
                for message in (*keyed, *produced):
                    writers.append(message)
                assert writers.append(b"no stamp", key=b"k7")[0] == journal.partition_of(b"k7", 3)
                assert writers.append(b"no stamp")[0] == 0
            assert len(list(writers)) == 3
        for number in range(3):
            got = contents(where, topic="t", partition=number)
            expected = [b"keyed%d" % i for i in range(20)
                        if journal.partition_of(b"k%d" % i, 3) == number]
            expected += [b"by%d" % i for i in range(20) if journal.partition_of(
                (100 + i).to_bytes(8, "little"), 3) == number]
            assert expected and got[:len(expected)] == expected


def test_the_first_part_is_the_topic(tmp_path):
    given = Handles()
    given.put([b"a", b"1"], [b"\xc3\xa9/..", b"2", b"3"], [b"a"], [b"a", b"4"])
    with journal.open(tmp_path, "a", topic_from="first-part") as writers:
        assert given.give(writers) == (0, 8)
        assert writers.append_parts([b"a", b"5", b"6"]) == (0, 3)
        assert writers.append(b"7", topic="b") == (0, 0)
        assert writers.writer("a").next == 4
    assert contents(tmp_path, topic="a") == [b"1", b"", b"4", b"56"]
    assert contents(tmp_path, topic="é/..") == [b"23"]
    assert contents(tmp_path, topic="b") == [b"7"]
    with journal.open(tmp_path, "a", topic_from="first-part") as writers:
        assert writers.append_parts([b"a", b"8"]) == (0, 4)     # it goes on


def test_topics_that_cannot_be_are_refused_and_the_others_go_on(tmp_path):
    invalid = 5
    with journal.open(tmp_path, "a", topic_from="first-part", max_topics=2) as writers:
        for wrong in (b"", b"\xff", b"x" * 256, b"a\0b"):
            given = Handles()
            given.put([b"good", b"1"], [wrong, b"2"])
            assert given.give(writers) == (invalid, 2)
        given = Handles()
        given.put([b"second", b"1"], [b"third", b"2"])
        assert given.give(writers) == (invalid, 2)
        assert writers.error is None
        with pytest.raises(OptionError, match="max_topics"):
            writers.append(b"", topic="third")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["good", "second"]
    assert contents(tmp_path, topic="good") == [b"1"] * 4


def test_a_topic_that_another_writes_is_an_error(tmp_path):
    """Not a refusal: the sink stands still, nothing is taken, and `error` says why."""
    full = 10
    given = Handles()
    given.put([b"t", b"1"])
    with journal.open(tmp_path, "a", topic="t"), \
            journal.open(tmp_path, "a", topic_from="first-part") as writers:
        assert given.give(writers) == (full, 0)
        assert isinstance(writers.error, journal.JournalLocked)


@pytest.mark.parametrize("wrong", [
    {"topic_from": "key"}, {"partitions": 0}, {"topic_from": "first-part", "topic": "t"},
    {"partitions": 2, "partition": 1}, {"partitions": 2, "max_topics": 0},
    {"topic_from": "first-part", "fsync": "often"},
    {"topic_from": "first-part", "deduplicate": True}])
def test_options_that_cannot_be(tmp_path, wrong):
    with pytest.raises(OptionError):
        journal.open(tmp_path, "a", **wrong)
    assert list(tmp_path.iterdir()) == []
