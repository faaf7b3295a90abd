"""The fence of a former primary, as programs see it that open its folder themselves."""

import contextlib
import shutil
import threading

import pytest
from copies import fill, mirror, mirroring
from waiting import until

from mqcore import journal
from mqcore.journal.errors import JournalBusy, JournalFenced
from mqcore.journal.store import commits


def groups(where):
    with journal.open(where) as reader:
        return reader.groups()


@pytest.mark.parametrize("when", ["opened before", "opened behind"])
def test_a_commit_straight_into_its_folder_is_refused(pair, when):
    """As one through its server is: the groups are where the promoted mirror is."""
    a, b = pair
    fill(a, b"2")
    early = journal.open(a)
    early.commit_offset("g", 1)
    journal.promote(b, old=a)
    with early if when == "opened before" else journal.open(a) as reader:
        for expected in ("any", 1):
            with pytest.raises(JournalFenced, match="promoted to epoch 1") as error:
                reader.commit_offset("g", 2, expected=expected)
            assert (error.value.epoch, error.value.first, error.value.end) == (1, 3, 3)
        with pytest.raises(JournalFenced):
            reader.commit_offset("new", 0, expected=None)
        assert reader.groups() == {"g": 1} and reader.committed_offset("g") == 1
    early.close()
    with journal.open(b) as reader:
        reader.commit_offset("g", 2, expected=1)
    mirror(b, a)                        # which is its mirror from now on
    assert groups(a) == {"g": 2}
    journal.promote(a, old=b)
    with journal.open(a) as reader:
        reader.commit_offset("g", 3, expected=2)


def test_what_is_acknowledged_before_the_fence_goes_with_it(pair):
    """A consumer commits all the time, straight into the folder, while the mirror is promoted."""
    a, b = pair
    fill(a, *[b"%d" % i for i in range(2, 500)])
    done, refused = [], []

    def consume():
        with journal.open(a) as reader:
            for at in range(1, 500):
                try:
                    reader.commit_offset("g", at)
                except JournalFenced:
                    refused.append(at)
                    return
                done.append(at)

    thread = threading.Thread(target=consume)
    thread.start()
    until(lambda: len(done) > 3)
    journal.promote(b, old=a)
    thread.join()
    assert groups(a) == groups(b) == {"g": done[-1]}
    assert refused or done[-1] == 499


def test_a_commit_that_waits_for_its_turn_meets_the_fence(pair, monkeypatch):
    """It was let in before, and is not acknowledged."""
    a, b = pair
    real = commits._commit

    def late(*args):
        monkeypatch.undo()
        journal.promote(b, old=a)
        real(*args)

    with journal.open(a) as reader:
        monkeypatch.setattr(commits, "_commit", late)
        with pytest.raises(JournalFenced):
            reader.commit_offset("g", 1)
    assert groups(a) == groups(b) == {}


def test_a_running_mirror_still_brings_the_groups_of_its_source(pair):
    """It is no consumer: what it copies into a folder is no commit."""
    a, b = pair
    journal.promote(b, old=a)
    with journal.open(b) as reader:
        reader.commit_offset("g", 1)
    with mirroring(b, a):
        until(lambda: groups(a) == {"g": 1})


def test_the_file_of_another_journal_says_nothing(pair, tmp_path, serve, ctx):
    """Neither to a commit, nor to a server or a mirror."""
    a, b = pair
    journal.promote(b, old=a)
    other = tmp_path / "other"
    fill(other, b"x", b"y")
    shutil.copy(a / "default" / "0" / "epoch", other / "default" / "0")
    with journal.open(other) as reader:
        reader.commit_offset("g", 1)
        assert not reader.epochs().fenced
    with journal.open(serve(other, groups=True).urls[0], topic="default", context=ctx) as reader:
        reader.commit_offset("g", 2)
        assert not reader.epochs().fenced
    mirror(other, tmp_path / "copy")
    assert groups(other) == {"g": 2}


@pytest.mark.parametrize("running", [True, False], ids=["running", "stopped"])
def test_a_commit_straight_into_the_folder_of_a_mirror_is_refused(pair, running):
    """The mirror would overwrite it, and the primary would never learn of it."""
    a, b = pair
    with contextlib.ExitStack() as stack:
        if running:
            stack.enter_context(mirroring(a, b))
        with journal.open(b) as reader:
            for expected in ("any", None):
                with pytest.raises(JournalBusy, match="is a mirror"):
                    reader.commit_offset("g", 1, expected=expected)
            assert reader.groups() == {}
    journal.promote(b)
    with journal.open(b) as reader:
        reader.commit_offset("g", 1, expected=None)


def test_an_epoch_of_another_journal_keeps_no_member_away(pair, tmp_path, serve, ctx):
    """A beat asks about all partitions of the topic."""
    b, other = pair[1], tmp_path / "other"
    fill(other, b"x")
    shutil.copy(b / "default" / "0" / "epoch", other / "default" / "0")     # it says: a mirror
    with journal.join(serve(other, groups=True).urls[0], "g", context=ctx, timeout=10) as member:
        assert member.read(timeout=10).to_list() == [b"x"]
        member.commit()
