"""max_topics counts the topics that the folder has now, whoever makes or deletes them."""

import errno
import os
import shutil

import pytest
from journal_case import contents

from mqcore import journal
from mqcore.errors import OptionError
from mqcore.journal import multi_writer, topic_room
from mqcore.journal.topic_room import TopicRoom, is_topic


def opened(where, most=2, **how):
    return journal.open(where, "a", topic_from="first-part", max_topics=most, **how)


def made(where, *topics):
    with opened(where, 100) as writers:
        for topic in topics:
            writers.append(b"0", topic=topic)


def refused(writers, topic):
    with pytest.raises(OptionError, match="one more than max_topics"):
        writers.append(b"", topic=topic)


def names(where):
    return sorted(path.name for path in where.iterdir())


def test_folders_that_are_no_topics_take_no_place(tmp_path):
    for name in ("logs/2026", ".snapshot/0", "lost+found", "a/b", "x/0/y"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "file").write_bytes(b"0")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "y").mkdir()
    (tmp_path / "y" / "0").write_bytes(b"")
    with opened(tmp_path, 1) as writers:
        writers.append(b"0", topic="one")
        refused(writers, "two")


def test_a_topic_that_was_copied_or_has_no_message_counts(tmp_path):
    made(tmp_path, "a", "b")
    (tmp_path / "a" / "0" / "lock").unlink()
    shutil.rmtree(tmp_path / "b" / "0")
    journal.open(tmp_path, "a", topic="b").close()
    with opened(tmp_path) as writers:
        refused(writers, "c")
        writers.append(b"1", topic="a")
        writers.append(b"1", topic="b")
    assert names(tmp_path) == ["a", "b"]


def test_one_that_is_deleted_makes_place(tmp_path):
    made(tmp_path, "a", "b")
    with opened(tmp_path) as writers:
        for number in range(20):
            new = f"new{number}"
            refused(writers, new)
            journal.delete(tmp_path, topic=names(tmp_path)[0])
            with journal.open(tmp_path, "a", topic=new) as log:     # by another one
                refused(writers, "more")
                log.append(b"0")
    with opened(tmp_path) as writers:
        for topic in names(tmp_path):
            journal.delete(tmp_path, topic=topic)
            writers.append(b"0", topic=topic + "+")
        refused(writers, "more")
    assert len(names(tmp_path)) == 2


def test_one_that_was_open_here_makes_place_when_it_is_deleted(tmp_path):
    with opened(tmp_path, max_open=1) as writers:
        writers.append(b"0", topic="a")
        writers.append(b"0", topic="b")         # which closes the other one
        refused(writers, "c")
        journal.delete(tmp_path, topic="a")
        writers.append(b"0", topic="c")
        refused(writers, "a")                   # it is a new one now
        writers.append(b"1", topic="b")
        refused(writers, "d")
        journal.delete(tmp_path, topic="c")
        writers.append(b"2", topic="a")
    assert names(tmp_path) == ["a", "b"]
    assert contents(tmp_path, topic="b") == [b"0", b"1"]
    assert contents(tmp_path, topic="a") == [b"2"]


def test_those_of_another_process_are_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(topic_room, "EVERY", 0.0)
    monkeypatch.setattr(topic_room, "SHARE", 0)
    with opened(tmp_path, 3) as writers:
        writers.append(b"0", topic="a")
        made(tmp_path, "b", "c")
        refused(writers, "d")


def test_a_flood_of_topics_costs_few_counts(tmp_path, monkeypatch):
    made(tmp_path, "a", "b")
    os.utime(tmp_path, (1e9, 1e9))          # which has settled
    monkeypatch.setattr(topic_room, "EVERY", 1e9)
    counts = []
    count = TopicRoom._count
    monkeypatch.setattr(TopicRoom, "_count", lambda self: counts.append(self) or count(self))
    with opened(tmp_path) as writers:
        for number in range(100):
            refused(writers, f"t{number}")
        journal.delete(tmp_path, topic="a")
        writers.append(b"0", topic="c")
    assert len(counts) == 1


def test_a_folder_that_changes_without_end_costs_few_looks(tmp_path, monkeypatch):
    """At each change only into what is new, however many topics there are."""
    made(tmp_path, *map(str, range(20)))
    monkeypatch.setattr(topic_room, "EVERY", 1e9)
    looks = []
    monkeypatch.setattr(topic_room, "is_topic", lambda home: looks.append(home) or is_topic(home))
    with opened(tmp_path, 20) as writers:
        for number in range(50):
            (tmp_path / f"file{number}").touch()
            refused(writers, "more")
        assert len(looks) == 20 + 50
        (tmp_path / "empty").mkdir()
        refused(writers, "empty")
        journal.delete(tmp_path, topic="0")
        writers.append(b"0", topic="empty")
        refused(writers, "more")
    assert len(names(tmp_path)) == 20 + 50


def test_so_many_different_ones_have_a_place_until_it_is_opened_again(tmp_path):
    with opened(tmp_path, max_open=1) as writers:
        for number in range(20):
            try:
                writers.append(b"0", topic=f"t{number}")
            except OptionError as error:
                assert "3 that these writers can have one after the other" in str(error)
                break
            if number:
                journal.delete(tmp_path, topic=f"t{number - 1}")
        assert number >= 3
        writers.append(b"1", topic=f"t{number - 1}")
    made(tmp_path, "new")


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_without_descriptors_it_is_unknown(tmp_path, monkeypatch, number):
    """So no topic is refused for good, and none is taken for a new one."""
    made(tmp_path, "a", "b")
    left = [3]
    real = topic_room.partition_numbers

    def scarce(home):
        if left[0]:
            left[0] -= 1
            raise OSError(number, "scarce")
        return real(home)

    monkeypatch.setattr(topic_room, "partition_numbers", scarce)
    with pytest.raises(OSError, match="scarce"):
        is_topic(tmp_path / "a")
    with opened(tmp_path) as writers:
        for topic in ("a", "c"):
            with pytest.raises(OSError, match="scarce"):
                writers.append(b"1", topic=topic)
        refused(writers, "c")
        writers.append(b"1", topic="a")


def test_a_partition_makes_way_for_the_look(tmp_path, monkeypatch):
    with opened(tmp_path, 5) as writers:
        writers.append(b"0", topic="a")
        writers.append(b"0", topic="b")
        real, left = multi_writer.is_topic, [1]

        def scarce(home):
            if left[0]:
                left[0] -= 1
                raise OSError(errno.EMFILE, "scarce")
            return real(home)

        monkeypatch.setattr(multi_writer, "is_topic", scarce)
        writers.append(b"0", topic="c")
        assert len(list(writers)) == 2
    assert names(tmp_path) == ["a", "b", "c"]


def test_a_topic_that_cannot_be_made_takes_no_place(tmp_path):
    with opened(tmp_path, partitions=2) as writers:
        for _ in range(5):
            (tmp_path / "a").mkdir()
            (tmp_path / "a" / "1").write_bytes(b"")
            with pytest.raises(OSError, match="exists"):
                writers.append(b"0", topic="a")
            shutil.rmtree(tmp_path / "a")
        writers.append(b"0", topic="a")
        writers.append(b"0", topic="b")
        refused(writers, "c")
