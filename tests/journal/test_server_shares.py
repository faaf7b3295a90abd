"""A journal server at its limits: who gives way to whom, and what a list costs the others."""

import collections
import json
import os
import threading
import types

import pytest
from waiting import until

import mqcore as mq
from mqcore import journal
from mqcore.journal.listing import Listing
from mqcore.journal.server import server as serving
from mqcore.journal.server import shares

LIMIT = 20.0


@pytest.fixture
def where(tmp_path):
    for topic in ("t", "u", "v"):
        with journal.open(tmp_path, "a", topic=topic) as writer:
            writer.append_many([b"%d" % i for i in range(100)])
    return tmp_path


@pytest.fixture
def machine(ctx):
    """machine(server, 2): a peer at 127.0.0.2."""
    made = []

    def make(server, number):
        port = server.urls[0].rpartition(":")[2]
        made.append(Machine(mq.Dealer(context=ctx, recv_timeout=LIMIT,
                                      connect=f"tcp://127.0.0.{number}:0;127.0.0.1:{port}")))
        return made[-1]
    yield make
    for one in made:
        one.dealer.close(0)


@pytest.fixture(params=["begins"])
def held_list(request, monkeypatch):
    """Lists stand still when they begin, or ("ends", indirectly) once everything was looked at:
    .reached is set when one does, .go lets all of them go on."""
    held = types.SimpleNamespace(reached=threading.Event(), go=threading.Event())
    real = Listing.look

    def look(self, bad):
        if request.param == "ends":
            yield from real(self, bad)
        held.reached.set()
        while not held.go.is_set():
            yield
        if request.param == "begins":
            yield from real(self, bad)
    monkeypatch.setattr(Listing, "look", look)
    return held


class Machine:
    def __init__(self, dealer):
        self.dealer = dealer
        self.codes = collections.Counter()

    def ask(self, op, **facts):
        head = {"v": 1, "id": 1, "op": op, "topic": "t", "partition": 0, **facts}
        self.dealer.send(json.dumps(head).encode())

    def hear(self):
        return json.loads(self.dealer.recv_parts()[0])

    def code(self, op, **facts):
        """Of the answer; what says that an older stream has ended is counted on the way."""
        self.ask(op, **facts)
        while True:
            head = self.hear()
            wanted = "id" in head or head.get("stream") == facts.get("stream")
            found = head.get("error", {}).get("code")
            if wanted:
                return found
            self.codes[found] += 1

    def want(self, stream, **facts):
        return self.code("want", stream=stream, **{"offset": 0, "window": 10, **facts})


# -- who is who ------------------------------------------------------------------------------------

@pytest.mark.parametrize(("user", "pid", "address", "owner"), [
    ("ann", None, "tcp://10.0.0.1:5", "user ann"),
    (None, 17, "ipc:///tmp/s", "process 17"),
    (None, None, "tcp://10.0.0.1:5", "10.0.0.1"),
    (None, None, "tcp://[2001:db8::1:2]:5", "2001:db8::/64"),
    (None, None, "tcp://[fe80::1%eth0]:5", "fe80::/64"),
    (None, None, "vsock://3:77", "3"),
    (None, None, "odd", "odd")])
def test_an_owner(user, pid, address, owner):
    peer = types.SimpleNamespace(user=user, pid=pid, address=address)
    assert shares.owner_of(peer) == owner


# -- streams ---------------------------------------------------------------------------------------

def test_one_machine_that_has_all_streams_gives_some_to_others(where, serve, machine):
    server = serve(where, limits=journal.Limits(streams=8, streams_per_peer=8))
    greedy, one, two = (machine(server, number) for number in (2, 3, 4))
    for number in range(8):
        assert greedy.want(number) is None
    for number in range(2):
        assert one.want(number) is None
        assert two.want(number) is None
    until(lambda: server.stats().streams_failed == 4)
    assert server.stats().streams == 8
    assert greedy.want(100) == "journal_busy"       # it still has most
    assert greedy.codes == {"journal_busy": 4}      # those that it lost
    assert one.want(2) is None or one.want(3) == "journal_busy"
    assert server.stats().streams == 8 and server.running


def test_owners_with_equal_shares_take_nothing_from_each_other(where, serve, machine):
    server = serve(where, limits=journal.Limits(streams=4))
    one, two = machine(server, 2), machine(server, 3)
    for number in range(2):
        assert (one.want(number), two.want(number)) == (None, None)
    for number in range(2, 5):
        assert (one.want(number), two.want(number)) == ("journal_busy",) * 2
    assert server.stats().streams_failed == 0


def test_a_stream_whose_reader_takes_nothing_gives_way(where, serve, machine, monkeypatch):
    """Even to one of the same owner. One that has all there is keeps its place."""
    monkeypatch.setattr(shares, "STUCK", 0.05)
    server = serve(where, limits=journal.Limits(streams=2))
    one, two, three = machine(server, 2), machine(server, 2), machine(server, 2)
    assert one.want(1) is None                      # a piece is under way, which it never takes
    two.ask("want", stream=1, offset=100, window=10)    # it has read everything
    until(lambda: server.stats().streams == 2)
    until(lambda: three.want(1) is None)
    assert one.hear()["error"]["code"] == "journal_busy"
    assert server.stats().streams_failed == 1
    assert three.want(2) == "journal_busy" or server.stats().streams_failed == 2


def test_the_readers_of_others_go_on(ctx, where, serve, machine):
    """A stranger repeats himself without end, over many connections; a reader follows all along."""
    server = serve(where, limits=journal.Limits(streams=20))
    strangers = [machine(server, 2) for _ in range(10)]
    with journal.open(f"{server.urls[0]}/t", context=ctx, timeout=LIMIT) as reader, \
            journal.open(where, "a", topic="t") as writer:
        for turn in range(3):
            for stranger in strangers:
                for number in range(16):
                    stranger.ask("want", stream=number + 100 * turn, offset=0, window=10)
            until(lambda: server.stats().streams == 20)
            following = reader.follow(100 + turn, timeout=LIMIT)
            writer.append(b"new")
            writer.flush()
            assert next(following).to_list()[0] == b"new"
            following.close()


# -- connections, partitions -----------------------------------------------------------------------

def test_connections_that_ask_for_nothing_give_way(where, serve, machine):
    server = serve(where, limits=journal.Limits(peers=3))
    silent = [machine(server, 2) for _ in range(5)]
    for _ in range(2):      # the fourth pushes out the first, which comes back when it asks again
        for one in silent:
            # the server looks every 20 ms at whether the others have taken their answers
            until(lambda one=one: one.code("ends") is None)
    assert server.stats().peers == 3


def test_busy_connections_of_one_machine_give_way_to_others(where, serve, machine):
    server = serve(where, limits=journal.Limits(peers=4))
    greedy = [machine(server, 2) for _ in range(4)]
    for one in greedy:
        assert one.want(1) is None
    other = machine(server, 3)
    assert other.want(1) is None
    assert greedy[0].hear()["error"]["code"] == "journal_busy"
    assert machine(server, 2).code("ends") == "journal_busy"
    assert server.stats().peers == 4
    stats = server.stats()
    assert stats.requests == (stats.answered + stats.errors + stats.repeated + stats.dropped
                              + stats.waiting)


def test_who_gives_way_with_answers_under_way_loses_its_connection(where, serve, machine,
                                                                   monkeypatch):
    """The socket may hold them, and the server no longer counts them."""
    monkeypatch.setattr(serving.Outbox, "weigh", lambda self: None)     # nothing leaves the socket
    server = serve(where, limits=journal.Limits(peers=2))
    for _ in range(2):
        assert machine(server, 2).want(1) is None
    before = {peer.id for peer in server._socket.peers()}
    assert machine(server, 3).want(1) is None
    until(lambda: len(before - {peer.id for peer in server._socket.peers()}) == 1)


def test_who_gives_way_and_has_all_answers_keeps_its_connection(where, serve, machine):
    server = serve(where, limits=journal.Limits(peers=2))
    greedy = [machine(server, 2) for _ in range(2)]
    for one in greedy:
        assert one.want(1) is None
    until(lambda: not any(guest.unsent for guest in list(server._guests.values())))
    before = {peer.id for peer in server._socket.peers()}
    assert machine(server, 3).want(1) is None
    assert greedy[0].hear()["error"]["code"] == "journal_busy"
    assert greedy[0].code("ends") == "journal_busy"     # over a connection, whichever
    assert before < {peer.id for peer in server._socket.peers()}


def test_members_of_groups_keep_their_connections(ctx, where, serve, machine):
    server = serve(where, groups=True, limits=journal.Limits(peers=6))
    with journal.join(f"{server.urls[0]}/t", "g", context=ctx) as member:
        assert next(iter(member)).to_list()[0] == b"0"
        greedy = [machine(server, 2) for _ in range(10)]
        for one in greedy:
            one.want(1)
        assert server.stats().peers == 6
        member.commit()
        assert server.stats().peers == 6
    with journal.open(where, topic="t") as reader:
        assert reader.committed_offset("g") == 100


def test_members_of_one_machine_give_way_when_they_have_all_connections(where, serve, machine):
    """However long their sessions are."""
    server = serve(where, groups=True, limits=journal.Limits(peers=4))
    for number in range(4):
        assert machine(server, 2).code("beat", group="g", member=f"m{number}", session=86400,
                                       handling=60, held=[], seen=0) is None
    other = machine(server, 3)
    assert other.want(1) is None
    assert machine(server, 2).code("ends") == "journal_busy"
    assert other.code("ends") is None and server.stats().peers == 4


def test_partitions_with_two_owners_give_way_to_others(where, serve, machine):
    """Each has another one left."""
    server = serve(where, limits=journal.Limits(partitions=2))
    pair, other = (machine(server, 2), machine(server, 3)), machine(server, 4)
    for number, topic in enumerate("tu"):
        for one in pair:
            assert one.want(number, topic=topic) is None
    assert other.want(1, topic="v") is None
    for one in pair:
        assert one.code("ends", topic="v") is None and one.codes == {"journal_busy": 1}
    assert pair[0].want(0, topic="t") == "journal_busy"


def test_a_partition_whose_readers_take_nothing_gives_way(where, serve, machine, monkeypatch):
    """Even to one of the same owner."""
    monkeypatch.setattr(shares, "STUCK", 0.05)
    server = serve(where, limits=journal.Limits(partitions=1))
    one, two = machine(server, 2), machine(server, 2)
    assert one.want(1) is None                      # a piece is under way, which it never takes
    until(lambda: two.want(1, topic="u") is None)
    assert one.hear()["error"]["code"] == "journal_busy"


def test_partitions_of_one_machine_give_way_to_others(where, serve, machine):
    server = serve(where, limits=journal.Limits(partitions=2))
    greedy, other = machine(server, 2), machine(server, 3)
    assert greedy.want(1, topic="t") is None and greedy.want(2, topic="u") is None
    assert other.want(1, topic="v") is None
    assert greedy.code("ends", topic="t") in (None, "journal_busy")
    assert greedy.codes == {"journal_busy": 1}
    assert server.stats().partitions <= 2


# -- lists -----------------------------------------------------------------------------------------

def test_a_list_is_made_in_slices_between_other_work(ctx, where, serve, machine, monkeypatch):
    """It stands still at each partition until another reader has had an answer."""
    answered = threading.Semaphore(0)
    real = Listing.look

    def look(self, bad):
        for step in real(self, bad):
            if not answered.acquire(timeout=0):
                while not answered.acquire(timeout=0):
                    yield step      # the slice ends, if the clock is slow enough
            yield step
    monkeypatch.setattr(Listing, "look", look)
    server = serve(where)
    lister, other = machine(server, 2), machine(server, 3)
    lister.ask("list")
    for _ in range(6):      # a step for each topic, and one for each partition
        assert other.code("ends") is None
        answered.release()
    found = lister.hear()["ok"]
    assert [row[:2] for row in found] == [["t", 0], ["u", 0], ["v", 0]]


def test_a_list_has_what_was_there_when_it_was_asked_for(where, serve, machine):
    server = serve(where)
    peer = machine(server, 2)
    for number in range(10):
        with journal.open(where, "a", topic=f"new-{number}"):
            pass
        peer.ask("list")
        assert [f"new-{number}", 0] in [row[:2] for row in peer.hear()["ok"]]


@pytest.mark.parametrize("held_list", ["ends"], indirect=True)
def test_a_later_request_of_the_same_reader_gets_a_later_list(where, serve, machine, held_list):
    """One that comes while a list is being made waits for the next one."""
    server = serve(where)
    peer = machine(server, 2)
    peer.ask("list", id=1)
    assert held_list.reached.wait(LIMIT)
    with journal.open(where, "a", topic="late"):
        pass
    peer.ask("list", id=2)
    until(lambda: server.stats().waiting == 2)
    held_list.go.set()
    found = {head["id"]: head["ok"] for head in (peer.hear(), peer.hear())}
    assert [row[0] for row in found[2]] == ["late", "t", "u", "v"]


def test_a_request_that_is_repeated_does_not_set_back_what_others_wait_for(
        where, serve, machine, held_list):
    server = serve(where)
    peer = machine(server, 2)
    peer.ask("list", id=1)
    assert held_list.reached.wait(LIMIT)
    for number in (2, 1):
        peer.ask("list", id=number)
    until(lambda: server.stats().repeated == 1)
    held_list.go.set()
    assert {peer.hear()["id"], peer.hear()["id"]} == {1, 2}


def test_who_waits_for_a_list_asks_other_things_meanwhile(where, serve, machine, held_list):
    server = serve(where)
    peer = machine(server, 2)
    for number in range(5):
        peer.ask("list", id=number)
    peer.ask("ends", id=77)
    assert peer.hear()["id"] == 77
    assert server.stats().waiting == 5
    held_list.go.set()
    assert sorted(peer.hear()["id"] for _ in range(5)) == list(range(5))


def test_a_folder_that_cannot_be_read_is_an_error_and_the_next_list_is_whole(
        where, serve, machine, monkeypatch):
    server = serve(where)
    peer = machine(server, 2)
    real = os.scandir

    def scandir(path):
        if str(path) == str(where):
            raise PermissionError(13, "Permission denied", str(where))
        return real(path)
    monkeypatch.setattr("mqcore.journal.listing.os.scandir", scandir)
    assert peer.code("list") is not None
    monkeypatch.undo()
    peer.ask("list")
    assert len(peer.hear()["ok"]) == 3


@pytest.mark.parametrize("inside", ["0", "none"])
def test_a_slice_takes_no_longer_than_it_may(tmp_path, serve, machine, monkeypatch, inside):
    """5,000 topics, with a partition or without: between two turns of the server, at most a slice
    of the list is made."""
    steps = collections.Counter()
    turn = serving.Server._work

    def work(self):
        steps["turns"] += 1
        turn(self)
    monkeypatch.setattr(serving.Server, "_work", work)
    monkeypatch.setattr(serving, "SLICE", 0.001)
    for number in range(5000):
        (tmp_path / f"t{number}" / inside).mkdir(parents=True)
    server = serve(tmp_path)
    peer = machine(server, 2)
    peer.ask("list")
    peer.hear()
    assert steps["turns"] > 20
