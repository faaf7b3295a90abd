"""Members of consumer groups where something is against them: journals that are deleted, calls that
are broken off, peers and servers that send what they should not, a folder that refuses."""

import os
import shutil
import threading

import pytest
from kills import LIMIT
from waiting import until

import mqcore as mq
from mqcore import journal
from mqcore.journal.server.codec import decode, encode


@pytest.fixture
def where(tmp_path):
    """A topic "t" with two partitions of ten messages."""
    for partition in range(2):
        fill(tmp_path / "j", partition, 10)
    return tmp_path / "j"


def fill(where, partition, count):
    with journal.open(where, "a", topic="t", partition=partition) as log:
        log.append_many([b"x"] * count)
        log.commit()


@pytest.fixture
def join(ctx):
    made = []

    def make(server, group="g", **options):
        made.append(journal.join(server.urls[0], group, topic="t", context=ctx,
                                 **{"timeout": LIMIT, **options}))
        return made[-1]
    yield make
    for member in made:
        member.close()


def read(member, count):
    """Ranges of messages until there are `count`. Errors for deleted journals are passed over."""
    found = []
    while sum(stop - first for _, first, stop in found) < count:
        try:
            records = member.read(LIMIT)
        except journal.JournalNotFound:
            continue
        found.append((records.partition, records.first, records.next))
    return sorted(found)


def read_all(member, count):
    """Until each message of both partitions, which have been made anew, was given out. The member
    may learn in several steps what has happened, and read a message twice."""
    missing = {(partition, at) for partition in range(2) for at in range(count)}
    while missing:
        try:
            records = member.read(LIMIT)
        except (journal.JournalNotFound, journal.OffsetGone):
            continue
        missing -= {(records.partition, at) for at in range(records.first, records.next)}


@pytest.fixture
def ask(ctx):
    """ask(server, op, ...) -> the answer's head."""
    numbers = iter(range(1, 10**6))
    peers = {}

    def make(server, op, **facts):
        if server not in peers:
            peers[server] = mq.Dealer(connect=server.urls[0], context=ctx)
        number = next(numbers)
        peers[server].send(encode({"v": 1, "id": number, "op": op, "topic": "t", "group": "g",
                                   **facts}), timeout=LIMIT)
        while True:
            head = decode(peers[server].recv_parts(timeout=LIMIT)[0])
            if head.get("id") == number:
                return head
    yield make
    for peer in peers.values():
        peer.close()


# -- journals that are deleted ---------------------------------------------------------------------


@pytest.mark.parametrize("count", [5, 15])
def test_a_journal_made_anew_is_read_from_its_beginning(where, serve, join, count):
    """Not from where the group was in the old one."""
    member = join(serve(where, groups=True), autocommit=0)
    assert read(member, 20) == [(0, 0, 10), (1, 0, 10)]
    shutil.rmtree(where / "t")
    for partition in range(2):
        fill(where, partition, count)
    read_all(member, count)


def test_a_commit_for_a_deleted_journal_does_not_meet_the_new_one(where, serve, join):
    member = join(serve(where, groups=True), autocommit=None)
    read(member, 20)
    shutil.rmtree(where / "t")
    for partition in range(2):
        fill(where, partition, 15)
    with pytest.raises(journal.PartitionLost):
        member.commit()
    read_all(member, 15)


def test_a_topic_that_became_a_file_does_not_end_the_server(where, serve, join):
    server = serve(where, groups=True)
    member = join(server)
    shutil.rmtree(where / "t")
    (where / "t").touch()
    until(lambda: member.partitions == (), LIMIT)
    member.close()
    until(lambda: not server._rosters, LIMIT)
    assert server.running


def test_a_file_that_stays_does_not_end_the_server(where, serve, join, monkeypatch, caplog):
    server = serve(where, groups=True)
    member = join(server)
    kept = os.listdir("/proc/self/fd")
    unlink = os.unlink

    def refuse(path, **options):
        if path == "g":
            raise PermissionError(13, "no rights")
        unlink(path, **options)
    monkeypatch.setattr(os, "unlink", refuse)
    member.close()
    until(lambda: not server._rosters and "no rights" in caplog.text, LIMIT)
    assert server.running
    until(lambda: len(os.listdir("/proc/self/fd")) < len(kept), LIMIT)


# -- calls that are broken off, closed or forked ---------------------------------------------------


def test_what_an_interrupted_read_had_is_given_again(where, serve, join, monkeypatch):
    """It was not handed out, so it is not committed either."""
    member = join(serve(where, groups=True), autocommit=0)

    def interrupt(found):
        raise KeyboardInterrupt
    with monkeypatch.context() as patch:
        patch.setattr(member, "_handed", interrupt)
        with pytest.raises(KeyboardInterrupt):
            member.read(LIMIT)
    assert read(member, 20) == [(0, 0, 10), (1, 0, 10)]


def test_an_interrupt_before_a_call_begins_leaves_the_member_free(where, serve, join,
                                                                  monkeypatch):
    member = join(serve(where, groups=True))

    def interrupt(steps):
        raise KeyboardInterrupt
    with monkeypatch.context() as patch:
        patch.setattr(member, "_drive", interrupt)
        with pytest.raises(KeyboardInterrupt):
            member.read(LIMIT)
    assert read(member, 20) == [(0, 0, 10), (1, 0, 10)]


def test_close_in_another_thread_ends_iteration(where, serve, join, rng):
    """At whatever moment: with no other error, and without a partition left open."""
    server = serve(where, groups=True)
    for number in range(15):
        member = join(server, f"g{number}", autocommit=0)
        errors = []

        def iterate(member=member, errors=errors):
            try:
                for _ in member:
                    pass
            except BaseException as error:
                errors.append(error)
        thread = threading.Thread(target=iterate)
        thread.start()
        threading.Event().wait(0.05 * rng.random())
        member.close()
        thread.join(LIMIT)
        assert not thread.is_alive() and not errors, errors
        assert not member._parts
    until(lambda: not server.stats().peers, LIMIT)


def test_a_forked_child_is_told(where, serve, join):
    member = join(serve(where, groups=True))
    read(member, 20)
    child = os.fork()
    if not child:
        told = 0
        for call in (lambda: member.read(0), member.commit):
            try:
                call()
            except mq.Forked:
                told += 1
        member.close()
        os._exit(told)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    assert member.partitions == (0, 1)


def test_a_handler_of_a_signal_may_close_while_the_lock_is_held(where, serve, join):
    member = join(serve(where, groups=True))
    with member._beats._state:
        member.close()
    member._beats._thread.join()


def test_an_error_that_stays_does_not_grow(where, serve, join):
    member = join(serve(where, groups=True))
    member._beats._fail(mq.UsageError("no"))
    depths = []
    for _ in range(3):
        with pytest.raises(mq.UsageError) as caught:
            member.read(0)
        depths.append(len(caught.traceback))
    assert len(set(depths)) == 1


# -- what peers send -------------------------------------------------------------------------------


def test_a_late_commit_does_not_take_a_group_back(where, serve, ask):
    server = serve(where, groups=True)
    [[partition, token], _] = ask(server, "beat", member="m", session=10.0, handling=10.0,
                                  held=[], seen=0)["ok"]["partitions"]
    for offset in (8, 3):
        assert ask(server, "commit", partition=partition, offset=offset,
                   token=token)["ok"] is None
    with journal.open(where, topic="t", partition=partition) as reader:
        assert reader.committed_offset("g") == 8


def test_nobody_else_beats_for_a_member(where, serve, join, ask):
    """Its name is no secret, the numbers of its answers are."""
    server = serve(where, groups=True)
    member = join(server, autocommit=None)
    read(member, 20)
    for seen in (0, 1 << 61):
        told = ask(server, "beat", member=member.name, session=10.0, handling=10.0, held=[],
                   seen=seen)
        assert told["error"]["code"] == "journal_busy"
    member.commit()
    assert member.stats().lost == 0 and member.partitions == (0, 1)


@pytest.mark.parametrize("answer", [{"id": 0, "ok": {}}, {"id": [1]}, {"id": {}, "error": []},
                                    {"id": 0, "ok": {"number": [], "members": {}}}])
def test_answers_that_cannot_be_read_do_not_end_the_thread(ctx, answer):
    with mq.Router(bind="tcp://127.0.0.1:0", context=ctx) as router:
        over = threading.Event()

        def run():
            while not over.is_set():
                try:
                    message = router.recv_msg(timeout=0.02)
                except mq.RecvTimeout:
                    continue
                number = decode(message.parts[0])["id"]
                router.send_to(message.peer, encode(
                    {**answer, "id": answer["id"] or number}), timeout=LIMIT)
        thread = threading.Thread(target=run)
        thread.start()
        try:
            with pytest.raises((journal.JournalError, mq.RecvTimeout)):
                journal.join(router.endpoints[0].url, "g", topic="t", timeout=0.3, context=ctx)
        finally:
            over.set()
            thread.join(LIMIT)


@pytest.mark.parametrize("name", ["\ud800", "a\0b", "é" * 200])
def test_names_that_are_none_are_told_at_once(where, serve, ctx, name):
    url = serve(where, groups=True).urls[0]
    with pytest.raises(mq.OptionError, match="group"):
        journal.join(url, name, topic="t", context=ctx)
    with pytest.raises(mq.OptionError, match="topic"):
        journal.join(url, "g", topic=name, context=ctx)
