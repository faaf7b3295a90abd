"""Mirrors that are promoted: epochs, fences, and what only one of two copies has."""

import os
import threading

import pytest
from copies import epochs, fill, mirror, mirroring, read_all
from waiting import until

import mqcore as mq
from mqcore import journal
from mqcore.errors import Forked, UsageError
from mqcore.journal import promotion
from mqcore.journal.errors import (
    JournalClosed,
    JournalCorrupt,
    JournalDiverged,
    JournalFenced,
    JournalLocked,
    JournalNotFound,
    JournalUnconfirmed,
)
from mqcore.journal.server import failover
from mqcore.journal.store import commits, epoch, place

LIMIT = 30.0


@pytest.fixture
def parted(pair):
    """The mirror was promoted at message 2, and the former primary has two more."""
    a, b = pair
    fill(a, b"a2", b"a3")
    journal.promote(b)
    fill(b, b"b2")
    return a, b


@pytest.fixture
def asking(ctx, serve):
    """asking(folder) -> the options of a primary whose replica is served there."""
    def make(*folders):
        return {"replicas": [folder if isinstance(folder, str) else serve(folder).urls[0]
                             for folder in folders], "replica_options": {"context": ctx}}
    return make


# -- promoting -------------------------------------------------------------------------------------


def test_a_mirror_goes_on_at_its_next_offset(pair):
    a, b = pair
    assert epochs(b).mirror and epochs(b).number == 0
    done = journal.promote(b)
    assert (done.epoch, done.offset, done.copied) == (1, 2, 0)
    assert fill(b, b"2") == [2]
    assert read_all(b) == [b"0", b"1", b"2"]
    found = epochs(b)
    assert (found.number, found.own[0].start, found.mirror, found.fenced) == (1, 2, False, False)


def test_a_former_primary_that_can_be_reached_gives_what_the_mirror_lacks(pair):
    a, b = pair
    fill(a, b"2", b"3")
    with journal.open(a) as reader:
        reader.commit_offset("g", 3)
    done = journal.promote(b, old=a)
    assert (done.epoch, done.offset, done.copied) == (1, 4, 2)
    assert read_all(b) == [b"0", b"1", b"2", b"3"]
    with journal.open(b) as reader:
        assert reader.groups() == {"g": 3}
    with pytest.raises(JournalFenced) as error:
        journal.open(a, "a")
    assert (error.value.epoch, error.value.first, error.value.end) == (1, 4, 4)
    fill(b, b"4")
    mirror(b, a)                        # and becomes the mirror
    assert read_all(a) == read_all(b)
    assert epochs(a).own == epochs(b).own and epochs(a).mirror
    assert journal.promote(a, old=b).epoch == 2         # and the primary again
    assert fill(a, b"5") == [5]


def test_what_is_no_mirror_cannot_be_promoted_twice(pair):
    a, b = pair
    journal.promote(b)
    with pytest.raises(UsageError, match="promoted to epoch 1"):
        journal.promote(b)
    assert epochs(b).number == 1
    with pytest.raises(UsageError, match="the mirror itself"):
        journal.promote(b, old=b)
    with pytest.raises(JournalNotFound):
        journal.promote(b, topic="other")


def test_a_running_mirror_and_a_running_primary_are_not_promoted(pair):
    a, b = pair
    with mirroring(a, b), pytest.raises(JournalLocked):
        journal.promote(b)
    with journal.open(a, "a"), pytest.raises(JournalLocked):
        journal.promote(b, old=a)
    assert epochs(b).mirror and not epochs(a).fenced
    assert journal.promote(b, old=a).epoch == 1


def test_the_folder_of_another_journal_is_not_the_former_primary(pair, tmp_path):
    a, b = pair
    other = tmp_path / "other"
    fill(other, b"x", b"y", b"z")
    with pytest.raises(UsageError, match="not the journal"):
        journal.promote(b, old=other)
    assert not epochs(other).fenced and epochs(b).mirror


# -- the old primary comes back --------------------------------------------------------------------


def test_it_is_fenced_by_its_replica_and_says_what_only_it_has(parted, asking):
    a, b = parted
    with pytest.raises(JournalFenced, match="messages 2 to 3 are only here") as error:
        journal.open(a, "a", **asking(b))
    assert (error.value.epoch, error.value.first, error.value.end) == (1, 2, 4)
    with pytest.raises(JournalFenced):
        journal.open(a, "a")            # it remembers
    assert read_all(a) == [b"0", b"1", b"a2", b"a3"]
    assert read_all(b) == [b"0", b"1", b"b2"]


def test_what_only_it_has_is_never_overwritten(parted):
    a, b = parted
    for _ in range(2):
        with pytest.raises(JournalDiverged) as error:
            mirror(b, a)
        assert (error.value.epoch, error.value.first, error.value.end) == (1, 2, 4)
    assert read_all(a) == [b"0", b"1", b"a2", b"a3"]
    with pytest.raises(JournalFenced, match="never overwrites the newer one"):
        mirror(a, b)
    assert read_all(b) == [b"0", b"1", b"b2"]
    with pytest.raises(JournalFenced, match="2 to 3") as error:     # as the former primary's folder
        journal.promote(b, old=a)
    assert (error.value.first, error.value.end) == (2, 4)
    assert read_all(a) == [b"0", b"1", b"a2", b"a3"]


def test_promoting_again_fences_the_former_primary_later(pair):
    a, b = pair
    journal.promote(b)
    assert journal.promote(b, old=a).epoch == 1
    with pytest.raises(JournalFenced):
        journal.open(a, "a")
    assert epochs(b).number == 1


def test_nothing_mirrors_a_fenced_journal(parted, tmp_path, asking):
    a, b = parted
    with pytest.raises(JournalFenced):
        journal.open(a, "a", **asking(b))
    with pytest.raises(JournalFenced, match="mirror the promoted one instead"):
        mirror(a, tmp_path / "c")


def test_two_mirrors_that_were_promoted_separately(pair, tmp_path, asking):
    a, b = pair
    c = tmp_path / "c"
    mirror(a, c)
    journal.promote(b)
    journal.promote(c)
    fill(b, b"b2")
    fill(c, b"c2")
    for source, into in ((b, c), (c, b)):
        with pytest.raises(JournalDiverged, match="separately"):
            mirror(source, into)
        with pytest.raises(JournalDiverged, match="separately"):
            journal.open(into, "a", **asking(source))
    assert read_all(b)[2:] == [b"b2"] and read_all(c)[2:] == [b"c2"]


def test_one_mirror_follows_another_that_was_promoted(pair, tmp_path):
    a, b = pair
    c = tmp_path / "c"
    fill(a, b"2")
    mirror(a, c)
    journal.promote(c)
    fill(c, b"3")
    mirror(c, b)                        # it had less, and nothing else
    assert read_all(b) == read_all(c) == [b"0", b"1", b"2", b"3"]
    assert epochs(b).own == epochs(c).own


def test_a_mirror_learns_of_a_promotion_while_it_runs(pair, tmp_path):
    """Of the journal that it follows: a mirror's mirror."""
    a, b = pair
    c = tmp_path / "c"
    with mirroring(b, c) as (device, writer):
        until(lambda: writer.next == 2)
        journal.promote(b)
        fill(b, b"2")
        until(lambda: writer.next == 3 or device.error)
        assert device.error is None
    assert epochs(c).own == epochs(b).own and epochs(c).mirror


# -- a primary that runs ---------------------------------------------------------------------------


def calls(writer, records):
    return {"append": lambda: writer.append(b"x"),
            "append_many": lambda: writer.append_many([b"x"]),
            "append_batch": lambda: writer.append_batch(b"xy", [0, 1, 2]),
            "large batch": lambda: writer.append_batch(bytes(1 << 17), [0, 1 << 16, 1 << 17]),
            "append_records": lambda: writer.append_records(records)}


def test_a_promotion_fences_a_primary_that_runs(pair, asking):
    """Cut off, say. What it had taken by then stays in its files, and is told."""
    a, b = pair
    with journal.open(a) as reader:
        records = reader.read(0)
    with journal.open(a, "a", fsync="never", **asking(b)) as writer:
        writer.append(b"a2")
        journal.promote(b)
        until(lambda: writer.error is not None, LIMIT)
        assert isinstance(writer.error, JournalFenced)
        for call in calls(writer, records).values():
            with pytest.raises(JournalFenced):
                call()
        with pytest.raises(JournalFenced):
            writer.commit()             # nothing is promised any more
        assert writer.next == 3
    assert read_all(a) == [b"0", b"1", b"a2"]
    with pytest.raises(JournalFenced) as error:
        journal.open(a, "a")
    assert (error.value.first, error.value.end) == (2, 3)


def test_a_device_ends_with_the_fence(ctx, pair, asking):
    a, b = pair
    with journal.open(a, "a", **asking(b)) as writer, \
            mq.Rep(bind="inproc://front", context=ctx) as front, \
            mq.device(front, writer) as device, \
            mq.Req(connect="inproc://front", context=ctx) as producer:
        assert journal.stored_at(producer.request(b"a2", timeout=LIMIT)) == (0, 2)
        journal.promote(b)
        until(lambda: writer.error is not None, LIMIT)
        producer.send(b"a3")            # no answer comes
        with pytest.raises(JournalFenced):
            device.wait_stopped(timeout=LIMIT)
        with pytest.raises(mq.RecvTimeout):
            producer.recv(timeout=0.2)


def test_a_replica_that_does_not_answer(pair, serve, asking):
    a, b = pair
    with pytest.raises(JournalUnconfirmed) as error:
        journal.open(a, "a", replica_timeout=0.3, **asking("tcp://127.0.0.1:1"))
    assert error.value.replica == "tcp://127.0.0.1:1"
    server = serve(b)
    with journal.open(a, "a", **asking(server.urls[0])) as writer:
        server.stop()                   # while it runs the primary goes on
        assert writer.append(b"2") == 2
        writer.commit()
    with journal.open(a, "a"):          # the lock is free, and nothing is fenced
        pass


def test_a_replica_that_has_not_begun_to_copy(pair, asking, tmp_path):
    a, _ = pair
    (tmp_path / "empty").mkdir()
    with journal.open(a, "a", **asking(tmp_path / "empty")) as writer:
        assert writer.append(b"2") == 2


def test_many_writers_and_their_replicas(tmp_path, asking):
    """One thread for all of them, and none afterwards."""
    (tmp_path / "b").mkdir()
    with journal.open(tmp_path / "a", "a", topic="t", partitions=4,
                      **asking(tmp_path / "b")) as writers:
        writers.append(b"x")
        names = [thread.name for thread in threading.enumerate()]
        assert names.count("mqcore-replicas") == 1
    until(lambda: "mqcore-replicas" not in [thread.name for thread in threading.enumerate()])


def test_a_forked_child_of_a_primary(pair, asking):
    a, b = pair
    with journal.open(a, "a", **asking(b)) as writer:
        child = os.fork()
        if child == 0:
            try:
                writer.append(b"x")
            except Forked:
                writer.close()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        journal.promote(b)
        until(lambda: writer.error is not None, LIMIT)      # the parent still asks
    assert epochs(a).fenced


def test_a_writer_that_closes_while_it_is_fenced(pair, asking):
    a, b = pair
    how = asking(b)
    writer = journal.open(a, "a", **how)
    journal.promote(b)
    writer.close()
    with pytest.raises(JournalClosed):
        writer.append(b"x")
    with pytest.raises(JournalFenced):
        journal.open(a, "a", **how)


# -- interrupted and damaged -----------------------------------------------------------------------


@pytest.mark.parametrize("step", range(8))
def test_a_promotion_that_is_interrupted(pair, step, monkeypatch):
    """By a full disk or a kill, at each replacement of a file. The mirror is promoted in the end,
    and at no time can both journals be written."""
    a, b = pair
    fill(a, b"2")
    left = [step]
    real = place.replace

    def replace(path, raw):
        if left[0] == 0:
            raise OSError(28, "no space left")
        left[0] -= 1
        real(path, raw)

    monkeypatch.setattr(place, "replace", replace)
    try:
        journal.promote(b, old=a)
        done = True
    except OSError:
        done = False
    monkeypatch.setattr(place, "replace", real)
    assert done == (epochs(b).number == 1 and not epochs(b).mirror)
    assert not (done and not epochs(a).fenced)
    if not done:
        assert journal.promote(b, old=a).epoch == 1
    assert read_all(b) == [b"0", b"1", b"2"]
    assert epochs(a).newer == epochs(b).own and not epochs(b).intent
    with pytest.raises(JournalFenced):
        journal.open(a, "a")
    mirror(b, a)
    assert epochs(a).own == epochs(b).own


def test_another_mirror_does_not_take_an_interrupted_promotion_over(pair, tmp_path, monkeypatch):
    a, b = pair
    c = tmp_path / "c"
    mirror(a, c)
    journal.promote(b, old=a)
    with pytest.raises(JournalFenced):
        journal.promote(c, old=a)
    assert epochs(c).mirror


def test_a_damaged_file_is_refused(pair):
    a, b = pair
    journal.promote(b)
    path = b / "default" / "0" / "epoch"
    whole = path.read_bytes()
    for at in range(len(whole)):
        raw = bytearray(whole)
        raw[at] ^= 0x10
        path.write_bytes(raw)
        with pytest.raises(JournalCorrupt, match="epoch"):
            epochs(b)
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(JournalCorrupt):
            epochs(b)
    with pytest.raises(JournalCorrupt):
        journal.open(b, "a")
    path.write_bytes(whole)
    assert epochs(b).number == 1


def test_the_file_of_another_journal_says_nothing(pair, tmp_path):
    a, b = pair
    journal.promote(b, old=a)
    other = tmp_path / "other"
    fill(other, b"x")
    target = other / "default" / "0" / "epoch"
    target.write_bytes((a / "default" / "0" / "epoch").read_bytes())
    assert fill(other, b"y") == [1]


def test_a_history_is_bounded(pair, monkeypatch):
    _, b = pair
    monkeypatch.setattr(epoch, "MOST", 0)
    with pytest.raises(UsageError, match="promoted 0 times"):
        journal.promote(b)


@pytest.mark.parametrize("answer", [
    None, 7, [], {}, {"origin": 5}, {"origin": "zz", "own": [], "newer": [], "mirror": False},
    {"origin": None, "own": [[1, 2, "00", 3]], "newer": [], "mirror": False},
    {"origin": None, "own": [[1, -2, "00" * 16, 3]], "newer": [], "mirror": False},
    {"origin": None, "own": [[1, 2, "00" * 16]], "newer": [], "mirror": False},
    {"origin": None, "own": [[True, 2, "00" * 16, 3]], "newer": [], "mirror": False},
    {"origin": None, "own": [[1, 2, "00" * 16, 1 << 80]], "newer": [], "mirror": False},
    {"origin": None, "own": [[1, 2, 5, 3]], "newer": [], "mirror": False},
    {"origin": None, "own": [], "newer": 4, "mirror": False},
    {"origin": None, "own": [], "newer": [], "mirror": "x"},
    {"origin": None, "own": [[1, 2, "00" * 16, 3]] * 5000, "newer": [], "mirror": False}])
def test_answers_about_epochs_that_cannot_be_right(answer):
    with pytest.raises(journal.JournalError):
        failover.understood(answer)


@pytest.mark.parametrize("found", [5, [], [1], ["1", "x"], [1, 2], [1, "x", 3], {"a": 1}, True])
def test_heads_with_epochs_that_cannot_be_right(found):
    with pytest.raises(journal.JournalError):
        failover.marked({"epoch": found})


def test_a_fence_that_cannot_be_stored_holds_and_is_stored_later(pair, asking, monkeypatch):
    a, b = pair
    real, left = place.replace, [2]

    def replace(path, raw):
        if path.name == "epoch" and path.is_relative_to(a) and left[0]:
            left[0] -= 1
            raise OSError(28, "no space left")
        real(path, raw)

    with journal.open(a, "a", **asking(b)) as writer:
        journal.promote(b)
        monkeypatch.setattr(place, "replace", replace)
        until(lambda: left[0] < 2, LIMIT)
        with pytest.raises(JournalFenced):
            writer.append(b"x")
        until(lambda: epochs(a).fenced, LIMIT)
    assert left == [0]


# -- groups beside a promotion ---------------------------------------------------------------------


@pytest.mark.parametrize("again", [False, True])
def test_what_a_group_commits_until_the_fence_is_kept(pair, ctx, serve, monkeypatch, again):
    """Also if the promotion is killed behind the fence."""
    a, b = pair
    url = serve(a, groups=True).urls[0]
    with journal.open(url, context=ctx) as reader:
        reader.commit_offset("g", 1)

        def late(writer, last):
            if last._epochs.fenced and again:
                raise KeyboardInterrupt
            copied(writer, last)
            if not last._epochs.fenced:
                reader.commit_offset("g", 2, expected=1)

        copied = promotion._copy_groups
        with monkeypatch.context() as patch:
            patch.setattr(promotion, "_copy_groups", late)
            if again:
                with pytest.raises(KeyboardInterrupt):
                    journal.promote(b, old=a)
            else:
                journal.promote(b, old=a)
        if again:
            journal.promote(b, old=a)
        with pytest.raises(JournalFenced):
            reader.commit_offset("g", 1)
    with journal.open(b) as reader:
        assert reader.groups() == {"g": 2}


def test_a_commit_that_waits_for_its_turn_meets_the_fence(pair, ctx, serve, monkeypatch):
    """It was let in before, and is not acknowledged."""
    a, b = pair
    url, real = serve(a, groups=True).urls[0], commits._commit

    def late(*args):
        monkeypatch.undo()
        journal.promote(b, old=a)
        real(*args)

    with journal.open(url, context=ctx) as reader:
        monkeypatch.setattr(commits, "_commit", late)
        with pytest.raises(JournalFenced):
            reader.commit_offset("g", 1)
    for where in (a, b):
        with journal.open(where) as reader:
            assert reader.groups() == {}
