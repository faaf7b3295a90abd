"""Several partitions and topics as one writer; the stamp with a key."""

import errno
import shutil
import struct

import pytest
from journal_case import contents
from mqcore.testing.native.journal_disk import Handles
from programs import run

from mqcore import journal
from mqcore.errors import OptionError
from mqcore.journal import MultiWriter
from mqcore.journal.store import place


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
            assert isinstance(writers, MultiWriter)
            if handles:
                given = Handles()
                given.put(*([m[:40], m[40:]] for m in keyed), *produced)
                assert given.give(writers) == (0, 60)
            else:
                for message in (*keyed, *produced):
                    writers.append(message)
                place = journal.partition_of_key(b"k7", 3)
                assert writers.append(b"no stamp", key=b"k7")[0] == place
                assert writers.append(b"no stamp")[0] == 0
            assert len(list(writers)) == 3
        for number in range(3):
            got = contents(where, topic="t", partition=number)
            expected = [b"keyed%d" % i for i in range(20)
                        if journal.partition_of_key(b"k%d" % i, 3) == number]
            expected += [b"by%d" % i for i in range(20) if journal.partition_of_key(
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


def test_topics_on_the_disk_keep_their_places(tmp_path):
    """The limit holds for the folder: after a restart no new topic takes an old one's place."""
    options = {"topic_from": "first-part", "max_topics": 2}
    with journal.open(tmp_path, "a", **options) as writers:
        writers.append(b"0", topic="a")
        writers.append(b"0", topic="b")
    with journal.open(tmp_path, "a", **options) as writers:
        with pytest.raises(OptionError, match="max_topics"):
            writers.append(b"1", topic="new")
        writers.append(b"1", topic="a")
        writers.append(b"1", topic="b")
        with pytest.raises(OptionError, match="max_topics"):
            writers.append(b"1", topic="new")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]
    with journal.open(tmp_path, "a", **options | {"max_topics": 3}) as writers:
        writers.append(b"2", topic="new")
        with pytest.raises(OptionError, match="max_topics"):
            writers.append(b"2", topic="newer")
        writers.append(b"2", topic="a")


def test_a_folder_that_cannot_be_read_refuses_no_topic(tmp_path):
    """As lost+found does, for users that are not root."""
    (tmp_path / "loop").symlink_to("loop")
    with journal.open(tmp_path, "a", topic_from="first-part", max_topics=1) as writers:
        writers.append(b"0", topic="a")
    assert contents(tmp_path, topic="a") == [b"0"]


def one(topic, value, writers):
    """(status, parts taken) of a sink that is given one message."""
    given = Handles()
    given.put([topic, value])
    return given.give(writers)


def test_a_topic_that_cannot_be_opened_is_refused_and_the_others_go_on(tmp_path, monkeypatch,
                                                                       caplog):
    """One that another process writes, one whose files are damaged, one that may not be read; and
    it is tried again."""
    invalid = 5
    monkeypatch.setattr("mqcore.journal.store.many.AGAIN", 0.0)
    with journal.open(tmp_path, "a", topic="damaged") as writer:
        writer.append(b"x" * 5000)
    [path] = (tmp_path / "damaged" / "0").glob("*.mqj")
    raw = bytearray(path.read_bytes())
    raw[1000] ^= 1
    path.write_bytes(raw)
    (tmp_path / "taken").write_bytes(b"a file where a folder should be")
    locked = journal.open(tmp_path, "a", topic="locked")
    with journal.open(tmp_path, "a", topic_from="first-part") as writers:
        for topic in (b"locked", b"damaged", b"taken"):
            for _ in range(2):
                assert one(topic, b"1", writers) == (invalid, 0)
                assert one(b"good", b"1", writers) == (0, 2)
            assert topic.decode() in caplog.text
        assert writers.error is None
        with pytest.raises(journal.JournalLocked):
            writers.append(b"1", topic="locked")
        locked.close()
        assert one(b"locked", b"2", writers) == (0, 2)
    assert contents(tmp_path, topic="good") == [b"1"] * 6
    assert contents(tmp_path, topic="locked") == [b"2"]


def test_a_refused_topic_is_not_opened_for_each_message(tmp_path, monkeypatch):
    with journal.open(tmp_path, "a", topic="t"), \
            journal.open(tmp_path, "a", topic_from="first-part") as writers:
        opened = []
        real = writers._hold
        monkeypatch.setattr(type(writers), "_hold",
                            lambda self, *which: opened.append(which) or real(*which))
        for _ in range(100):
            assert one(b"t", b"1", writers)[0] == 5
        assert len(opened) < 50


def test_a_full_disk_stands_still(tmp_path, monkeypatch):
    """An error that stops every topic is not a refused message: the writer takes nothing."""
    with journal.open(tmp_path, "a", topic_from="first-part") as writers:
        def full(*args, **kw):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("mqcore.journal.multi_writer.Writer", full)
        assert one(b"t", b"1", writers) == (10, 0)
        assert writers.error.errno == errno.ENOSPC


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.EIO, errno.ENOMEM])
def test_what_a_new_topic_lacks_is_its_own_trouble(tmp_path, monkeypatch, number):
    """Once there is one that is open: it goes on."""
    monkeypatch.setattr("mqcore.journal.store.many.AGAIN", 0.0)
    with journal.open(tmp_path, "a", topic_from="first-part") as writers:
        assert one(b"good", b"1", writers) == (0, 2)

        def lacking(*args, **kw):
            raise OSError(number, "so it is")

        with monkeypatch.context() as patch:
            patch.setattr("mqcore.journal.multi_writer.Writer", lacking)
            assert one(b"t", b"1", writers) == (5, 0)
            assert one(b"good", b"2", writers) == (0, 2)
            assert writers.error is None
        assert one(b"t", b"2", writers) == (0, 2)
    assert contents(tmp_path, topic="good") == [b"1", b"2"]
    assert contents(tmp_path, topic="t") == [b"2"]


def test_a_new_device_tries_again_what_the_last_one_ended_with(tmp_path, monkeypatch):
    with journal.open(tmp_path, "a", topic_from="first-part") as writers:
        def full(*args, **kw):
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("mqcore.journal.multi_writer.Writer", full)
            assert one(b"t", b"1", writers) == (10, 0)
        assert one(b"t", b"1", writers) == (0, 2) and writers.error is None


def test_a_partition_that_has_given_up_is_refused_and_the_others_go_on(tmp_path):
    with journal.open(tmp_path, "a", topic_from="first-part") as writers:
        for topic in (b"good", b"gone"):
            assert one(topic, b"1", writers) == (0, 2)
        shutil.rmtree(tmp_path / "gone")
        with pytest.raises(journal.JournalWriteError):
            writers.writer("gone").commit()
        assert one(b"gone", b"2", writers) == (5, 0)
        assert one(b"good", b"2", writers) == (0, 2)
        assert isinstance(writers.error, journal.JournalWriteError)
        shutil.rmtree(tmp_path / "good")
        with pytest.raises(journal.JournalWriteError):
            writers.writer("good").commit()
        assert one(b"good", b"3", writers) == (10, 0)       # nothing is left that goes on
        with pytest.raises(journal.JournalWriteError):
            writers.close()


def test_more_topics_than_descriptors(tmp_path):
    """A share of them is left to the sockets of the process."""
    status, out, err = run("-W", "ignore", "-c", """
import logging, os, resource, sys, time
import mqcore as mq
from mqcore import journal
logging.basicConfig()
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
with journal.open(sys.argv[1], "a", topic_from="first-part", partitions=4,
                  max_topics=200) as writers, \
        mq.Pull(bind="inproc://t") as pull, mq.Push(connect="inproc://t") as push, \
        mq.device(pull, writers) as device:
    push.send_parts([b"good", b"0"])
    for i in range(100):
        push.send_parts([b"topic%d" % i, b"x"])
    push.send_parts([b"good", b"1"])
    push.close(linger=20)
    while device.running and device.stats().messages < 102:
        time.sleep(0.01)
    device.stop()
    device.wait_stopped(20)
    stats = device.stats()
    assert device.error is None
    free = 256 - len(os.listdir("/proc/self/fd"))
    print(stats.messages, stats.refused, len(list(writers)), free > 32)
""", tmp_path)
    assert status == 0, err
    assert out.split() == [b"102", b"0", b"48", b"True"], (out, err)
    assert err == ""
    assert len(journal.list_partitions(tmp_path)) == 4 * 101
    assert sum(len(contents(tmp_path, topic=topic, partition=number))
               for topic, number, _ in journal.list_partitions(tmp_path)) == 102
    assert sum(len(contents(tmp_path, topic="good", partition=p)) for p in range(4)) == 2


LONG = ["é" * 100, "é" * 127, "/" * 255, "%" * 255, "x" * 255, "." * 255, "é" * 33, "é" * 34]


@pytest.mark.parametrize("topic", LONG)
def test_names_whose_encoding_is_too_long_for_a_file(tmp_path, topic):
    """Topics and groups, locally and by a device; they are listed by their names."""
    with journal.open(tmp_path, "a", topic=topic) as writer:
        writer.append(b"1")
    with journal.open(tmp_path, "a", topic_from="first-part") as writers:
        assert one(topic.encode(), b"2", writers) == (0, 2)
        assert one(b"other", b"3", writers) == (0, 2)
    assert contents(tmp_path, topic=topic) == [b"1", b"2"]
    found = journal.store.topic_names.partitions(tmp_path)
    assert sorted(name for name, _, _ in found) == sorted([topic, "other"])
    assert {info.topic for info in journal.list_partitions(tmp_path)} == {topic, "other"}
    assert max(len(entry.name) for entry in tmp_path.iterdir()) <= 200
    with journal.open(tmp_path, topic=topic) as reader:
        reader.commit_offset(topic, 2)
        assert reader.committed_offset(topic) == 2 and reader.groups() == {topic: 2}


def test_long_names_that_begin_alike_are_different(tmp_path):
    for i in range(3):
        with journal.open(tmp_path, "a", topic="é" * 120 + str(i)) as writer:
            writer.append(b"%d" % i)
    assert [contents(tmp_path, topic="é" * 120 + str(i)) for i in range(3)] == [[b"0"], [b"1"],
                                                                               [b"2"]]


def test_a_long_topic_survives_the_repair_of_its_only_segment(tmp_path):
    topic = "é" * 120
    with journal.open(tmp_path, "a", topic=topic) as writer:
        writer.append(b"1")
        folder = writer.path
    [path] = folder.glob("*.mqj")
    raw = bytearray(path.read_bytes())
    raw[50] ^= 1
    path.write_bytes(raw)
    journal.store.repair.repair(folder)
    assert [name for name, _, _ in journal.store.topic_names.partitions(tmp_path)] == [topic]
    with journal.open(tmp_path, "a", topic=topic) as writer:
        assert writer.append(b"2") >= 1


@pytest.mark.parametrize("topic", ["", "x" * 256, "a\0", "\ud800", 5, None])
def test_topics_that_cannot_be(tmp_path, topic):
    with pytest.raises(OptionError, match="topic"):
        place.partition_folder(tmp_path, topic, 0)
    with pytest.raises(OptionError, match="partition"):
        place.partition_folder(tmp_path, "t", "0")


@pytest.mark.parametrize("wrong", [
    {"partitions": "2"}, {"partitions": 2.5}, {"partitions": True},
    {"topic_from": "first-part", "max_topics": "5"},
    {"topic_from": "key"}, {"partitions": 0}, {"topic_from": "first-part", "topic": "t"},
    {"partitions": 2, "partition": 1}, {"partitions": 2, "max_topics": 0},
    {"topic_from": "first-part", "fsync": "often"},
    {"topic_from": "first-part", "deduplicate": True}])
def test_options_that_cannot_be(tmp_path, wrong):
    with pytest.raises(OptionError):
        journal.open(tmp_path, "a", **wrong)
    assert list(tmp_path.iterdir()) == []
