"""Members of consumer groups at a journal server: shares, takeover, commits, time-outs, the end."""

import asyncio
import gc
import os
import signal
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest
import trio
from kills import LIMIT, Programs
from waiting import until

import mqcore as mq
from mqcore import journal

PARTITIONS = 6
SERVER = """
with journal.serve(where, urls[0], groups=True) as server:
    ready()
    server.wait_stopped()
"""
# what it has handled is in a file before the commit, what is committed after it
MEMBER = """
name = "NAME"
with journal.join(urls[0], "g", topic="t", session=2.0, handling=60.0, autocommit=None,
                  timeout=150) as member, open(f"{where}.log", "ab", buffering=0) as log:
    ready()
    for records in member:
        what = f"{name} {records.partition} {records.first} {records.next}\\n"
        log.write(f"handled {what}".encode())
        try:
            member.commit()
        except journal.PartitionLost:
            log.write(f"lost {what}".encode())
        else:
            log.write(f"committed {what}".encode())
"""


class Topic:
    def __init__(self, where):
        self.where = where
        self.logs = [journal.open(where, "a", topic="t", partition=partition)
                     for partition in range(PARTITIONS)]

    def append_to_each(self, n):
        for log in self.logs:
            log.append_many([b"x"] * n)
            log.commit()


@pytest.fixture
def topic(tmp_path):
    """Partitions of a topic, with nothing in them."""
    made = Topic(tmp_path / "j")
    yield made
    for log in made.logs:
        log.close()


@pytest.fixture
def join(ctx, topic, serve):
    """join(...) -> a member of the group "g" of a server in this process."""
    made = []
    server = serve(topic.where, groups=True)

    def make(group="g", **options):
        made.append(journal.join(server.urls[0], group, topic="t", context=ctx,
                                 **{"timeout": LIMIT, **options}))
        return made[-1]
    make.server = server
    yield make
    for member in made:
        member.close()


def rows(records):
    return [(records.partition, offset) for offset in range(records.first, records.next)]


def all_of(member, count):
    """So many messages."""
    found = []
    while len(found) < count:
        found += rows(member.read(LIMIT))
    return found


def settled(*members, count):
    """They have so many partitions each, in whatever order."""
    def look():
        for member in members:
            with pytest.raises(mq.RecvTimeout):
                while True:
                    member.read(0)
        return sorted(len(member.partitions) for member in members) == sorted(count)
    until(look, LIMIT, 0.01)


# -- shares ----------------------------------------------------------------------------------------


def test_one_member_reads_all_partitions_each_in_its_order(topic, join):
    topic.append_to_each(200)
    member = join()
    found = all_of(member, 200 * PARTITIONS)
    assert sorted(found) == [(p, at) for p in range(PARTITIONS) for at in range(200)]
    for partition in range(PARTITIONS):
        offsets = [at for p, at in found if p == partition]
        assert offsets == sorted(offsets)
    assert member.partitions == tuple(range(PARTITIONS)) and member.members == 1
    stats = member.stats()
    assert (stats.messages, stats.given, stats.lost) == (200 * PARTITIONS, PARTITIONS, 0)


def test_members_share_and_take_over(topic, join):
    topic.append_to_each(5)
    first = join()
    found = all_of(first, 5 * PARTITIONS)
    second, third = join(), join()
    settled(first, second, third, count=[2, 2, 2])
    assert sorted(first.partitions + second.partitions + third.partitions) == list(range(6))
    topic.append_to_each(5)
    for member in (first, second, third):
        found += all_of(member, 5 * 2)
    second.commit()
    second.close()
    settled(first, third, count=[3, 3])
    topic.append_to_each(5)
    for member in (first, third):
        found += all_of(member, 5 * 3)
    assert Counter(found) == Counter((p, at) for p in range(6) for at in range(15))


def test_more_members_than_partitions(topic, join):
    members = [join() for _ in range(PARTITIONS + 1)]
    settled(*members, count=[1] * PARTITIONS + [0])
    idle = next(member for member in members if not member.partitions)
    with pytest.raises(mq.RecvTimeout) as caught:
        idle.read(0.05)
    assert "more members than there are partitions" in str(caught.value)
    members.remove(idle)
    members.pop().close()
    settled(idle, *members, count=[1] * PARTITIONS)


def test_a_new_partition_is_found(topic, join):
    member = join()
    settled(member, count=[PARTITIONS])
    with journal.open(topic.where, "a", topic="t", partition=PARTITIONS) as log:
        log.append(b"new")
        log.commit()
        assert all_of(member, 1) == [(PARTITIONS, 0)]


def test_groups_are_apart(topic, join):
    topic.append_to_each(1)
    one, other = join("one"), join("other")
    assert sorted(all_of(one, PARTITIONS)) == sorted(all_of(other, PARTITIONS))


# -- offsets ---------------------------------------------------------------------------------------


def test_a_group_goes_on_where_it_has_committed(topic, join):
    topic.append_to_each(3)
    with join(autocommit=None) as member:
        found = all_of(member, 3 * PARTITIONS)
        member.commit()
        topic.append_to_each(1)
        again = all_of(member, PARTITIONS)          # and does not commit these
    with join() as member:
        assert sorted(all_of(member, PARTITIONS)) == sorted(again)
    assert not set(found) & set(again)


def test_coming_back_commits_what_was_given_before(topic, join):
    topic.append_to_each(1)
    with join(autocommit=0) as member:
        for _ in range(PARTITIONS):
            last = rows(member.read(LIMIT))
    with join() as member:      # the last batch may not have been dealt with
        assert rows(member.read(LIMIT)) == last


def test_a_group_may_begin_at_the_end(topic, join):
    topic.append_to_each(3)
    member = join(start="end")
    settled(member, count=[PARTITIONS])
    topic.append_to_each(1)
    assert sorted(all_of(member, PARTITIONS)) == [(p, 3) for p in range(PARTITIONS)]


def test_nobody_else_commits_for_a_group_with_members(topic, join, ctx):
    topic.append_to_each(1)
    url = join.server.urls[0]
    with join() as member:
        all_of(member, PARTITIONS)
        with journal.open(url, topic="t", context=ctx) as reader:
            with pytest.raises(mq.UsageError, match="has members"):
                reader.commit_offset("g", 1)
            [(name, partitions)] = reader.group_members("g").items()
            assert name == member.name and partitions == list(range(PARTITIONS))
            assert reader.group_members("nobody") == {}
    with journal.open(url, topic="t", context=ctx) as reader:
        until(lambda: reader.group_members("g") == {}, LIMIT)
        reader.commit_offset("g", 1)


def test_what_retention_has_removed_is_told(tmp_path, serve, ctx):
    where = tmp_path / "j"
    with journal.open(where, "a", topic="t", segment_bytes=4096, retain_bytes=8192) as log:
        server = serve(where, groups=True)
        log.append(b"x")
        log.commit()
        with journal.join(server.urls[0], "g", topic="t", context=ctx) as member:
            member.read(LIMIT)
            member.commit()
        for _ in range(20):
            log.append_many([bytes(1000)] * 10)
            log.commit()
        with journal.open(where, topic="t") as reader:
            until(lambda: reader.first > 100, LIMIT)    # not only what the server has open
        with journal.join(server.urls[0], "g", topic="t", context=ctx) as member:
            found, gone = [], []
            while not found or found[-1][1] < log.next - 1:
                try:    # the server may have what is removed open still
                    found += rows(member.read(LIMIT))
                except journal.OffsetGone as error:
                    gone.append((error.offset, error.first))
            assert gone, "nothing was removed"
            missing = set(range(1, log.next)) - {at for _, at in found}
            assert missing == {at for offset, first in gone for at in range(offset, first)}


# -- asyncio and trio ------------------------------------------------------------------------------


def test_asyncio_and_trio(topic, join, ctx):
    topic.append_to_each(2)

    async def main():
        async with await journal.ajoin(join.server.urls[0], "a", topic="t", context=ctx) as member:
            found = []
            async for records in member:
                found += rows(records)
                if len(found) == 2 * PARTITIONS:
                    await member.acommit()
                    break
            with pytest.raises(mq.RecvTimeout):
                await member.aread(0.01)
            return sorted(found)
    expected = [(p, at) for p in range(PARTITIONS) for at in range(2)]
    assert asyncio.run(main()) == expected
    with journal.open(join.server.urls[0], topic="t", context=ctx) as reader:
        until(lambda: reader.group_members("a") == {}, LIMIT)
        for partition in range(PARTITIONS):
            with journal.open(topic.where, topic="t", partition=partition) as local:
                assert local.committed_offset("a") == 2
                local.commit_offset("a", 0)
    assert trio.run(main) == expected


# -- what goes wrong -------------------------------------------------------------------------------


def test_errors_say_what_is_wrong(topic, serve, ctx, tmp_path):
    closed = serve(topic.where)
    with pytest.raises(mq.UsageError, match="groups"):
        journal.join(closed.urls[0], "g", topic="t", context=ctx)
    server = serve(topic.where, groups=True)
    with pytest.raises(journal.JournalNotFound, match="nowhere"):
        journal.join(server.urls[0], "g", topic="nowhere", context=ctx)
    with pytest.raises(mq.AddressError, match="folder"):
        journal.join(str(topic.where), "g")
    for wrong in ({"group": ""}, {"group": 7}, {"start": "middle"}, {"session": 0},
                  {"session": "1"}, {"handling": -1}, {"autocommit": -1}, {"session": True}):
        with pytest.raises(mq.OptionError):
            journal.join(server.urls[0], **{"group": "g", "topic": "t", **wrong}, context=ctx)
    with pytest.raises(mq.RecvTimeout):
        journal.join(f"ipc://{tmp_path}/nobody", "g", topic="t", timeout=0.05, context=ctx)


def test_two_servers_do_not_coordinate_one_group(topic, join, serve, ctx):
    other = serve(topic.where, groups=True)
    with join() as member:
        settled(member, count=[PARTITIONS])
        with pytest.raises(journal.JournalBusy, match="another journal server"):
            journal.join(other.urls[0], "g", topic="t", timeout=0.3, context=ctx)
    until(lambda: not list((topic.where / "t" / "groups").iterdir()), LIMIT)
    with journal.join(other.urls[0], "g", topic="t", context=ctx) as member:
        settled(member, count=[PARTITIONS])


def test_one_call_at_a_time(topic, join):
    member = join()
    thread = threading.Thread(target=lambda: pytest.raises(journal.JournalClosed, member.read))
    thread.start()
    until(lambda: member._busy, LIMIT)
    with pytest.raises(mq.UsageError, match="another call"):
        member.read(0)
    member.close()
    thread.join(LIMIT)
    assert not thread.is_alive()


def test_a_member_that_is_dropped_leaves(topic, join, ctx):
    url = join.server.urls[0]
    member = journal.join(url, "g", topic="t", context=ctx)
    with journal.open(url, topic="t", context=ctx) as reader:
        assert reader.group_members("g") != {}
        del member
        gc.collect()
        until(lambda: reader.group_members("g") == {}, LIMIT)


def test_a_server_that_is_gone_ends_the_lease(topic, serve, ctx, tmp_path):
    """Whoever does not hear from the server reads nothing more once others may have it."""
    topic.append_to_each(50)
    server = journal.serve(topic.where, f"ipc://{tmp_path}/s", groups=True, context=ctx)
    with journal.join(server.urls[0], "g", topic="t", session=0.5, context=ctx,
                      autocommit=None) as member:
        member.read(LIMIT)
        server.stop()
        until(lambda: member.partitions == (), LIMIT)
        with pytest.raises(mq.RecvTimeout):
            member.read(0.1)
        server = serve(topic.where, f"ipc://{tmp_path}/s", groups=True)
        assert sorted(all_of(member, 50 * PARTITIONS)) == [
            (p, at) for p in range(PARTITIONS) for at in range(50)]


# -- processes -------------------------------------------------------------------------------------


def programs(count):
    return {"server": SERVER,
            **{f"member {n}": MEMBER.replace("NAME", f"{n}") for n in range(count)}}


def events(where):
    """[(what, member, partition, first, next)] in the order in which it happened."""
    log = Path(f"{where}.log")
    found = log.read_text().split("\n")[:-1] if log.exists() else []
    return [(what, name, *map(int, numbers)) for what, name, *numbers in map(str.split, found)]


def committed(where):
    """How often each message was committed."""
    return Counter((partition, at) for what, _, partition, first, stop in events(where)
                   if what == "committed" for at in range(first, stop))


@pytest.mark.parametrize("kills", [
    4, pytest.param(int(os.environ.get("MQ_KILLS", "8")), marks=pytest.mark.slow)])
def test_kill_9_of_members_and_the_server(topic, tmp_path, rng, kills):
    """Every message is handled, and committed by one member only."""
    where, url = topic.where, f"ipc://{tmp_path}/s"
    total = 0
    with Programs(programs(4), where, [url]) as line:
        names = [*line.programs, "server"]
        for _ in range(kills):
            topic.append_to_each(20)
            total += 20
            time.sleep(rng.random() * 0.3)
            name = rng.choice(names)
            line.kill(name)
            line.start(name)
            line.wait(name)
        topic.append_to_each(1)
        total += 1
        every = {(p, at) for p in range(PARTITIONS) for at in range(total)}
        until(lambda: {row for row, _ in heads(where, url)} >= set(range(PARTITIONS))
              and all(at == total for _, at in heads(where, url)), LIMIT, 0.05)
    handled = {(partition, at) for what, _, partition, first, stop in events(where)
               if what == "handled" for at in range(first, stop)}
    assert handled == every
    again = {row: n for row, n in committed(where).items() if n > 1}
    assert not again, again     # a commit that was answered is never repeated by another


def heads(where, url):
    found = []
    for partition in range(PARTITIONS):
        with journal.open(where, topic="t", partition=partition) as reader:
            found.append((partition, reader.committed_offset("g") or 0))
    return found


def test_a_member_that_stood_still_cannot_commit(topic, tmp_path):
    """Its lease has ended meanwhile. It hears of it at its next commit, or before."""
    where, url = topic.where, f"ipc://{tmp_path}/s"
    slow = MEMBER.replace("NAME", "slow").replace(
        "        try:\n", "        import time\n        time.sleep(1.0)\n        try:\n")
    with Programs({"server": SERVER, "member slow": slow}, where, [url]) as line:
        topic.append_to_each(1)
        until(lambda: any(what == "handled" for what, *_ in events(where)), LIMIT, 0.005)
        stopped = line.running["member slow"]
        stopped.send_signal(signal.SIGSTOP)
        line.programs["member quick"] = MEMBER.replace("NAME", "quick")
        line.start("member quick")
        line.wait("member quick")
        until(lambda: {p for what, name, p, *_ in events(where)
                       if (what, name) == ("committed", "quick")} == set(range(PARTITIONS)),
              LIMIT, 0.05)
        stopped.send_signal(signal.SIGCONT)
        until(lambda: any((what, name) == ("lost", "slow") for what, name, *_ in events(where)),
              LIMIT, 0.05)
    found = defaultdict(list)
    for what, name, partition, first, _ in events(where):
        if what == "committed":
            found[partition, first].append(name)
    assert all(names == ["quick"] for names in found.values()), found
