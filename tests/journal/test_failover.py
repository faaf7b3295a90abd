"""Readers, groups and producers with the addresses of a primary and of its mirrors."""

import asyncio
import contextlib
import threading

import pytest
import trio
from copies import epochs, fill, mirror, mirroring, read_all
from waiting import until

import mqcore as mq
from mqcore import journal
from mqcore.errors import AddressError, OptionError
from mqcore.journal.errors import JournalBusy, JournalDiverged, JournalFenced
from mqcore.journal.server import failover

LIMIT = 30.0


@pytest.fixture
def tmp_path(memory):
    return memory


class Following(threading.Thread):
    def __init__(self, reader, at=0):
        super().__init__(name="following")
        self.reader, self.at = reader, at
        self.messages = []
        self.error = None

    def run(self):
        try:
            for records in self.reader.follow(self.at):
                assert records.first == self.at + len(self.messages)
                self.messages += records.to_list()
        except Exception as error:
            self.error = error


@pytest.fixture
def follow(ctx):
    """follow(url) -> a thread that follows the journal from its beginning."""
    made = []

    def make(url, at=0):
        made.append(Following(journal.open(url, context=ctx, timeout=LIMIT), at))
        made[-1].start()
        return made[-1]
    yield make
    for thread in made:
        thread.reader.close()
        thread.join()


def both(*servers):
    return ",".join(server.urls[0] for server in servers)


# -- a reader --------------------------------------------------------------------------------------


def test_a_follower_fails_over_and_offsets_go_on(pair, serve, follow):
    a, b = pair
    first, second = serve(a), serve(b)
    thread = follow(both(first, second))
    until(lambda: thread.messages == [b"0", b"1"])
    first.stop()
    journal.promote(b)
    fill(b, b"2", b"3")
    until(lambda: thread.messages == [b"0", b"1", b"2", b"3"])
    assert thread.error is None


def test_a_follower_that_is_ahead_waits_for_the_mirror(pair, serve, follow):
    """The primary is away for a while. Nothing was promoted, so nothing is missing."""
    a, b = pair
    fill(a, b"2")
    first, second = serve(a), serve(b)
    thread = follow(both(first, second))
    until(lambda: len(thread.messages) == 3)
    first.stop()
    until(lambda: thread.reader._choice.moves > 0)
    fill(a, b"3")
    mirror(a, b)
    until(lambda: thread.messages == [b"0", b"1", b"2", b"3"])
    assert thread.error is None


def test_a_follower_learns_what_was_lost(pair, serve, follow):
    a, b = pair
    fill(a, b"a2", b"a3")
    first, second = serve(a), serve(b)
    thread = follow(both(first, second))
    until(lambda: len(thread.messages) == 4)
    first.stop()
    journal.promote(b)
    fill(b, b"b2", b"b3", b"b4")
    until(lambda: thread.error is not None)
    error = thread.error
    assert isinstance(error, JournalDiverged)
    assert (error.epoch, error.first, error.end) == (1, 2, 4)
    thread.join()
    found = next(thread.reader.follow(error.first, timeout=LIMIT))
    assert found.first == 2 and found.to_list() == [b"b2", b"b3", b"b4"]


def test_every_call_learns_what_was_lost(pair, serve, ctx):
    """Once, if it reads from where the journals are the same."""
    a, b = pair
    fill(a, b"a2")
    first, second = serve(a), serve(b)
    with journal.open(both(first, second), context=ctx, timeout=LIMIT) as reader:
        assert [m for records in reader.batches() for m in records] == [b"0", b"1", b"a2"]
        first.stop()
        journal.promote(b)
        fill(b, b"b2", b"b3")
        with pytest.raises(JournalDiverged) as error:
            list(reader.batches(0))
        assert (error.value.first, error.value.end) == (2, 3)
        assert [m for records in reader.batches(0) for m in records][2:] == [b"b2", b"b3"]


def test_a_former_primary_that_comes_back_is_not_read(pair, serve, ctx):
    """Neither if it knows that it is fenced, nor if it does not."""
    a, b = pair
    fill(a, b"a2")
    journal.promote(b)
    fill(b, b"b2")
    first, second = serve(a), serve(b)
    for url in (both(first, second), both(second, first)):
        with journal.open(url, context=ctx) as reader:
            assert [m for records in reader.batches() for m in records] == [b"0", b"1", b"b2"]
            assert reader.epochs().number == 1
    with pytest.raises(JournalFenced):
        journal.open(a, "a", replicas=second.urls[0], replica_options={"context": ctx})
    with journal.open(both(first, second), context=ctx) as reader:
        assert reader.read(2).to_list() == [b"b2"]
    with journal.open(first.urls[0], context=ctx) as reader:    # what only it has can be saved
        assert reader.read(2).to_list() == [b"a2"]
        with pytest.raises(JournalFenced):
            for records in reader.follow(0, timeout=LIMIT):
                pass


def test_a_follower_goes_on_with_its_newer_epoch(pair, serve, follow):
    """The promoted one goes away for a while, and the former primary is there."""
    a, b = pair
    journal.promote(b)
    fill(b, b"2")
    second = serve(b)
    url = second.urls[0]
    fill(a, b"wrong")
    first = serve(a)
    thread = follow(both(first, second))
    until(lambda: thread.messages == [b"0", b"1", b"2"])
    second.stop()
    until(lambda: thread.reader._choice.moves > 1)      # it has looked at the other
    fill(b, b"3")
    serve(b, url)
    until(lambda: thread.messages == [b"0", b"1", b"2", b"3"])
    assert thread.error is None


@pytest.mark.parametrize("library", ["asyncio", "trio"])
def test_the_awaitable_twins_fail_over(pair, serve, ctx, library):
    a, b = pair
    first, second = serve(a), serve(b)

    async def main():
        found = []
        async with await journal.aopen(both(first, second), context=ctx,
                                       timeout=LIMIT) as reader:
            assert await reader.aend() == 2
            async with contextlib.aclosing(reader.afollow(0)) as following:
                async for records in following:
                    found += records.to_list()
                    if len(found) == 2:
                        first.stop()
                        journal.promote(b)
                        fill(b, b"2")
                    if len(found) == 3:
                        break
            assert await reader.aend() == 3
        return found
    found = trio.run(main) if library == "trio" else asyncio.run(main())
    assert found == [b"0", b"1", b"2"]


def test_questions_fail_over(pair, serve, ctx):
    a, b = pair
    first, second = serve(a, groups=True), serve(b, groups=True)
    with journal.open(both(first, second), context=ctx, timeout=LIMIT) as reader:
        reader.commit_offset("g", 1)
        assert reader.end == 2
        mirror(a, b)
        first.stop()
        journal.promote(b)
        fill(b, b"2")
        assert reader.end == 3 and reader.read(2).to_list() == [b"2"]
        assert reader.committed_offset("g") == 1        # mirrors copy them
        reader.commit_offset("g", 3)
    with journal.open(b) as reader:
        assert reader.groups() == {"g": 3}


def test_a_single_address_whose_journal_was_replaced(pair, serve, follow):
    """A name, or an address that moves, which leads to the promoted one from then on."""
    a, b = pair
    fill(a, b"a2")
    first = serve(a)
    url = first.urls[0]
    ahead = follow(url)
    until(lambda: len(ahead.messages) == 3)
    first.stop()
    journal.promote(b)
    fill(b, b"b2", b"b3")
    serve(b, url)
    until(lambda: ahead.error is not None)
    assert isinstance(ahead.error, JournalDiverged)
    assert (ahead.error.first, ahead.error.end) == (2, 3)


def test_a_mirror_fails_over_to_the_promoted_one(pair, serve, tmp_path, ctx):
    """It has two addresses, and goes on by itself."""
    a, b = pair
    c = tmp_path / "c"
    first, second = serve(a), serve(b)
    with mirroring(both(first, second), c, context=ctx) as (device, writer):
        until(lambda: writer.next == 2)
        first.stop()
        journal.promote(b)
        fill(b, b"2")
        until(lambda: writer.next == 3 or device.error)
        assert device.error is None
    assert read_all(c) == [b"0", b"1", b"2"]
    assert epochs(c).own == epochs(b).own


def test_a_mirror_that_is_ahead_of_the_promoted_one_stops(pair, serve, tmp_path, ctx):
    a, b = pair
    c = tmp_path / "c"
    fill(a, b"a2")
    first, second = serve(a), serve(b)
    with mirroring(both(first, second), c, context=ctx) as (device, writer):
        until(lambda: writer.next == 3)
        first.stop()
        journal.promote(b)
        fill(b, b"b2", b"b3")
        until(lambda: device.error is not None)
        assert isinstance(device.error, JournalDiverged)
        assert (device.error.first, device.error.end) == (2, 3)
    assert read_all(c) == [b"0", b"1", b"a2"]


# -- addresses -------------------------------------------------------------------------------------


def test_lists_of_addresses():
    urls = "tcp://a:1/t,tls+tcp://b:2/t,ipc:///tmp/x,y"
    assert failover.addresses(urls) == ["tcp://a:1/t", "tls+tcp://b:2/t", "ipc:///tmp/x,y"]
    with pytest.raises(AddressError):
        failover.addresses(",".join(f"tcp://a:{i}" for i in range(1, 20)))
    with pytest.raises(AddressError):
        failover.addresses("tcp://a:1,tcp://a:1")


def test_addresses_of_different_topics(ctx):
    with pytest.raises(OptionError, match="topics"):
        journal.open("tcp://127.0.0.1:1/x,tcp://127.0.0.1:2/y", context=ctx)


def test_no_server_at_any_address(ctx):
    with pytest.raises(mq.RecvTimeout):
        journal.open("tcp://127.0.0.1:1/x,tcp://127.0.0.1:2/x", context=ctx, timeout=0.3)


# -- groups ----------------------------------------------------------------------------------------


def test_a_mirror_takes_no_commits(pair, serve, ctx):
    a, b = pair
    url = serve(b, groups=True).urls[0]
    with journal.open(url, context=ctx, timeout=0.5) as reader, pytest.raises(JournalBusy,
                                                                              match="a mirror"):
        reader.commit_offset("g", 1)
    with pytest.raises(JournalBusy, match="a mirror"):
        journal.join(url, "g", context=ctx, timeout=0.5)
    journal.promote(b)
    with journal.open(url, context=ctx) as reader:
        reader.commit_offset("g", 1)


def test_members_fail_over(pair, serve, ctx):
    a, b = pair
    first, second = serve(a, groups=True), serve(b, groups=True)
    with journal.join(both(first, second), "g", context=ctx, timeout=LIMIT, session=5.0,
                      autocommit=None) as member:
        records = member.read(timeout=LIMIT)
        assert records.to_list() == [b"0", b"1"]
        member.commit()
        mirror(a, b)
        first.stop()
        journal.promote(b)
        fill(b, b"2")
        records = member.read(timeout=LIMIT)
        assert (records.first, records.to_list()) == (2, [b"2"])
        member.commit()
    with journal.open(b) as reader:
        assert reader.groups() == {"g": 3}


def test_a_member_learns_what_was_lost(pair, serve, ctx):
    a, b = pair
    fill(a, b"a2")
    first, second = serve(a, groups=True), serve(b, groups=True)
    with journal.join(both(first, second), "g", context=ctx, timeout=LIMIT, session=5.0,
                      autocommit=None) as member:
        assert member.read(timeout=LIMIT).to_list() == [b"0", b"1", b"a2"]
        member.commit()
        first.stop()
        journal.promote(b)
        fill(b, b"b2", b"b3")
        found = []
        until(lambda: read_on(member, found) is not None and b"b3" in found, LIMIT)
        assert found[-2:] == [b"b2", b"b3"]
        member.commit()
    with journal.open(b) as reader:
        assert reader.groups() == {"g": 4}


def read_on(member, found):
    try:
        found += member.read(timeout=0.2).to_list()
    except mq.RecvTimeout:
        pass
    except JournalDiverged as error:
        assert (error.first, error.end) == (2, 3)
        found.append(error)
    return found


# -- producers -------------------------------------------------------------------------------------


def recorder(ctx, where, url, **how):
    writer = journal.open(where, "a", stamps=True, deduplicate=True, **how)
    front = mq.Rep(bind=url, context=ctx)
    return writer, front, mq.device(front, writer)


def test_a_producer_fails_over(ctx, tmp_path, serve):
    """It has both addresses and sends again what was not answered. What the mirror has already is
    recognized by its stamp."""
    a, b = tmp_path / "a", tmp_path / "b"
    urls = ["inproc://first", "inproc://second"]
    writer, front, device = recorder(ctx, a, urls[0])
    with mq.Req(connect=urls, resend=0.5, context=ctx) as producer:
        for i in range(5):
            answer = producer.request(journal.stamp(7, i) + b"%d" % i, timeout=LIMIT)
            assert journal.stored_at(answer) == (0, i)
        mirror(a, b)
        device.stop()                   # closes the front, too
        writer.close()
        journal.promote(b)
        producer.send(journal.stamp(7, 4) + b"4")       # the answer did not come, say
        writer, front, device = recorder(ctx, b, urls[1])
        assert journal.stored_at(producer.recv(timeout=LIMIT)) == (0, 4)
        answer = producer.request(journal.stamp(7, 5) + b"5", timeout=LIMIT)
        assert journal.stored_at(answer) == (0, 5)
    device.stop()
    writer.close()
    assert read_all(b) == [b"%d" % i for i in range(6)]
