"""Consumer groups whose topic gets another name, or is deleted and made anew, while they have
members. A group has one server that coordinates it, whatever its topic was called before."""

import os
import shutil

import pytest
from kills import LIMIT
from waiting import until

from mqcore import journal
from mqcore.errors import Error, UsageError
from mqcore.journal.groups.rosters import Rosters
from mqcore.journal.server.limits import Limits
from mqcore.journal.server.requests import Beat


@pytest.fixture
def where(tmp_path):
    for topic in ("x", "z"):
        fill(tmp_path / "j", topic)
    return tmp_path / "j"


@pytest.fixture
def join(ctx):
    made = []

    def make(server, topic, **options):
        made.append(journal.join(server.urls[0], "g", topic=topic, context=ctx,
                                 **{"timeout": LIMIT, "session": 2.0, **options}))
        return made[-1]
    yield make
    for member in made:
        member.close()


def fill(where, topic):
    for partition in range(2):
        with journal.open(where, "a", topic=topic, partition=partition) as log:
            log.append_many([topic.encode()] * 5)


def swap(where):
    for topic, to in (("x", "away"), ("z", "x"), ("away", "z")):
        journal.rename(where, topic=topic, to=to)


def values(member):
    """What it is given until it has all ten messages of the topic. Errors for what was renamed are
    passed over."""
    found = []
    while len(found) < 10:
        try:
            found += map(bytes, member.read(LIMIT).to_list())
        except journal.JournalNotFound:
            continue
    return set(found)


def beat(topic, member="m", held=()):
    return Beat(1, topic=topic, group="g", member=member, session=2.0, handling=1.0,
                held=list(held), seen=0)


@pytest.fixture
def rosters(where):
    made = [Rosters(str(where), Limits()) for _ in range(2)]
    yield made
    for one in made:
        one.close()


def test_another_server_coordinates_what_has_the_name_now(where, serve, join):
    old = join(serve(where, groups=True), "x")
    until(lambda: old.partitions == (0, 1), LIMIT)
    swap(where)
    new = join(serve(where, groups=True), "x")
    try:
        assert values(new) == {b"z"}
    except journal.JournalBusy:     # the first server heard of it before, from its member
        until(lambda: old.partitions == (0, 1), LIMIT)
        assert new.partitions == ()
    else:
        until(lambda: old.partitions == (), LIMIT)
        assert new.partitions == (0, 1)


def test_the_new_name_is_another_group_at_the_same_server(where, serve, join):
    server = serve(where, groups=True)
    old = join(server, "x")
    until(lambda: old.partitions == (0, 1), LIMIT)
    journal.rename(where, topic="x", to="y")
    new = join(server, "y")
    assert values(new) == {b"x"}
    with pytest.raises(Error):
        while True:
            old.read(LIMIT)


def test_a_member_whose_topic_was_renamed_has_no_partition(where, serve, join):
    """Also if it reads nothing: the server refuses its next beat."""
    member = join(serve(where, groups=True), "x")
    until(lambda: member.partitions == (0, 1), LIMIT)
    journal.rename(where, topic="x", to="y")
    until(lambda: member.partitions == (), LIMIT)
    with pytest.raises(journal.JournalNotFound):
        member.read(LIMIT)


@pytest.mark.parametrize("how", ["renamed", "swapped", "made anew elsewhere"])
def test_a_server_lets_go_of_what_has_moved(rosters, how):
    first, second = rosters
    where = first._where
    assert len(first.beat(1, beat("x"))["partitions"]) == 2
    if how == "made anew elsewhere":
        shutil.rmtree(where / "x")
        fill(where, "x")
    elif how == "swapped":
        swap(where)
    else:
        journal.rename(where, topic="x", to="y")
        with pytest.raises(journal.JournalNotFound):
            first.beat(1, beat("x"))
        fill(where, "x")
    assert len(second.beat(2, beat("x", "other"))["partitions"]) == 2
    assert first.shares("x", "g") == {}
    assert second.shares("x", "g") == {"other": [0, 1]}
    assert not first and first.due == {1}


def test_members_go_on_with_a_topic_that_was_made_anew(rosters):
    """Until others meet at another server: then that one has the group."""
    first, second = rosters
    where = first._where
    first.beat(1, beat("x"))
    shutil.rmtree(where / "x")
    assert first.beat(1, beat("x"))["members"] == 1
    fill(where, "x")
    assert first.beat(1, beat("x"))["members"] == 1
    assert second.beat(2, beat("x", "other"))["members"] == 1
    with pytest.raises(journal.JournalBusy, match="another journal server"):
        first.beat(1, beat("x"))
    assert not first and second.shares("x", "g") == {"other": [0, 1]}


def test_a_topic_that_is_deleted_while_the_server_looks_was_not_renamed(rosters, monkeypatch):
    first, _ = rosters
    where = first._where
    first.beat(1, beat("x"))
    stat = os.stat

    def late(path, **options):
        if path == where / "x" / "groups" / "g":
            monkeypatch.undo()
            shutil.rmtree(where / "x")
        return stat(path, **options)
    monkeypatch.setattr(os, "stat", late)
    assert first.beat(1, beat("x"))["members"] == 1
    assert not (where / "x").exists()


def test_a_server_makes_nothing_in_a_topic_that_is_being_deleted(rosters):
    first, _ = rosters
    where = first._where
    first.beat(1, beat("x"))
    shutil.rmtree(where / "x" / "groups")
    first.beat(1, beat("x"))
    assert not (where / "x" / "groups").exists()


def test_a_new_topic_does_not_inherit_the_lease_of_a_deleted_one(rosters):
    """Of a server that was killed."""
    first, second = rosters
    where = first._where
    first.beat(1, beat("x"))
    first.abandon()
    assert list((where / "x" / "groups").iterdir())
    journal.delete(where, topic="x")
    assert not (where / "x").exists()
    fill(where, "x")
    assert len(second.beat(2, beat("x", "other"))["partitions"]) == 2


def test_a_server_that_runs_keeps_its_lease_when_the_topic_is_deleted(rosters):
    """Its members go on with the topic that gets the name."""
    first, second = rosters
    where = first._where
    first.beat(1, beat("x"))
    journal.delete(where, topic="x")
    fill(where, "x")
    with pytest.raises(journal.JournalBusy, match="another journal server"):
        second.beat(2, beat("x", "other"))
    assert first.beat(1, beat("x"))["members"] == 1


def test_a_deleted_partition_leaves_the_lease_of_the_others(rosters):
    first, second = rosters
    where = first._where
    first.beat(1, beat("x"))
    first.abandon()
    journal.delete(where, topic="x", partition=1)
    assert second.beat(2, beat("x", "other"))["partitions"] == []


def test_the_file_of_another_group_stays(rosters):
    """A member leaves before its server has noticed that the topics were swapped."""
    first, second = rosters
    where = first._where
    first.beat(1, beat("x"))
    swap(where)
    second.beat(2, beat("x", "other"))
    first.unlinked(1)
    assert (where / "x" / "groups" / "g").exists() and (where / "z" / "groups" / "g").exists()
    second.unlinked(2)
    assert not (where / "x" / "groups" / "g").exists()


def test_a_topic_that_is_made_anew_does_not_inherit_the_lease_of_a_server_killed_since(rosters):
    """The server ran while the topic was deleted, and kept its lease."""
    first, second = rosters
    where = first._where
    first.beat(1, beat("x"))
    journal.delete(where, topic="x")
    assert list((where / "x" / "groups").iterdir())
    first.abandon()
    fill(where, "x")
    assert len(second.beat(2, beat("x", "other"))["partitions"]) == 2


def test_a_further_partition_leaves_the_lease(rosters):
    first, second = rosters
    where = first._where
    first.beat(1, beat("x"))
    first.abandon()
    with journal.open(where, "a", topic="x", partition=2):
        pass
    assert second.beat(2, beat("x", "other"))["partitions"] == []


def test_a_rename_to_a_name_that_only_groups_have(rosters):
    """Of a server that was killed after the topic was deleted."""
    first, second = rosters
    where = first._where
    first.beat(1, beat("x"))
    journal.delete(where, topic="x")
    first.abandon()
    assert journal.rename(where, topic="z", to="x") == 2
    assert len(second.beat(2, beat("x", "other"))["partitions"]) == 2


def test_a_rename_to_a_name_that_members_wait_for(rosters):
    first, second = rosters
    where = first._where
    first.beat(1, beat("x"))
    journal.delete(where, topic="x")
    assert journal.rename(where, topic="z", to="x") == 2
    with pytest.raises(journal.JournalBusy, match="another journal server"):
        second.beat(2, beat("x", "other"))
    assert first.beat(1, beat("x"))["members"] == 1
    first.abandon()
    assert second.beat(2, beat("x", "other"))["partitions"] == []      # its lease is not over


def test_a_rename_to_a_name_that_members_wait_for_with_members_of_its_own(rosters):
    first, second = rosters
    where = first._where
    first.beat(1, beat("x"))
    second.beat(2, beat("z", "other"))
    journal.delete(where, topic="x")
    assert journal.rename(where, topic="z", to="x") == 2
    with pytest.raises(journal.JournalBusy, match="another journal server"):
        first.beat(1, beat("x"))
    assert second.beat(2, beat("x", "other"))["members"] == 1


def test_a_rename_to_a_folder_that_is_no_topic(where):
    (where / "b" / "groups").mkdir(parents=True)
    for name in ("groups/mine", "mine"):
        (where / "b" / name).write_bytes(b"1")
    with pytest.raises(UsageError, match="there already"):
        journal.rename(where, topic="x", to="b")
    assert (where / "b" / "groups" / "mine").read_bytes() == b"1"
