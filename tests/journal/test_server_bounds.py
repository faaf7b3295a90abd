"""A journal server against readers that want too much, and against its own ends."""

import errno
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

import mqcore as mq
from mqcore import journal
from mqcore.journal.server import server as serving
from mqcore.journal.server.complaints import BURST, Complaints

LIMIT = 20.0


@pytest.fixture
def where(tmp_path):
    for topic in ("t", "u", "v"):
        with journal.open(tmp_path, "a", topic=topic) as writer:
            writer.append_many([b"%d" % i for i in range(100)])
    return tmp_path


@pytest.fixture
def dealer(ctx):
    """dealer(server): a peer that says what it likes."""
    made = []

    def make(server, **how):
        made.append(mq.Dealer(context=ctx, connect=server.urls[0], recv_timeout=LIMIT, **how))
        return made[-1]
    yield make
    for one in made:
        one.close(0)


def ask(dealer, op, **facts):
    head = {"v": 1, "id": 1, "op": op, "topic": "t", "partition": 0, **facts}
    dealer.send(json.dumps(head).encode())


def answer(dealer):
    return json.loads(dealer.recv_parts()[0])


def code(dealer, op, **facts):
    ask(dealer, op, **facts)
    return answer(dealer).get("error", {}).get("code")


def until(condition, what=""):
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.002)


# -- requests --------------------------------------------------------------------------------------

LETHAL = [b"[" * 60000, b'{"a":' * 12000, b'{"v":1,"id":1,"op":"at","time":NaN}',
          b'{"v":1,"id":1,"op":"at","topic":"t","partition":0,"time":1e999}',
          b'{"v":1,"id":1,"op":"at","topic":"t","partition":0,"time":1' + b"0" * 30 + b"}",
          b'{"v":1,"id":1,"op":"ends","topic":"\\ud800","partition":0}',
          b'{"v":1,"id":1,"op":"committed","topic":"t","partition":0,"group":"\\ud800"}',
          b'{"v":1,"id":1,"op":"commit","topic":"t","partition":0,"group":"g","offset":' +
          str(1 << 61).encode() + b"}"]


@pytest.mark.parametrize("raw", LETHAL)
def test_no_request_ends_the_server(where, serve, dealer, raw):
    server = serve(where, groups=True)
    peer = dealer(server)
    peer.send(raw)
    assert answer(peer)["error"]["code"] == "usage"
    assert code(peer, "ends") is None
    assert server.running and server.stats().failed == 0


def test_a_damaged_group_file_is_the_matter_of_its_group(where, serve, dealer):
    (where / "t" / "0" / "groups").mkdir()
    (where / "t" / "0" / "groups" / "g").write_bytes(b"")
    server = serve(where, groups=True)
    peer = dealer(server)
    ask(peer, "groups")
    answer(peer)
    assert code(peer, "commit", group="h", offset=3) is None
    assert code(peer, "ends") is None and server.running


def test_a_mistake_of_the_server_is_answered_and_logged(where, serve, dealer, monkeypatch, caplog):
    server = serve(where)
    peer = dealer(server)
    monkeypatch.setattr(serving.Answers, "_fact", lambda *_: 1 // 0)
    assert code(peer, "ends") == "internal"
    monkeypatch.undo()
    assert code(peer, "ends") is None
    assert server.stats().failed == 1
    assert "ZeroDivisionError" in caplog.text and "'ends'" in caplog.text


def test_an_answer_that_cannot_be_made_fails_its_stream_only(where, serve, dealer, monkeypatch):
    server = serve(where)
    peer = dealer(server)
    whole = serving.read

    def read(source, *args):
        return whole(source, *args) if source.key[0] != "u" else 1 // 0
    monkeypatch.setattr(serving, "read", read)
    ask(peer, "want", topic="u", stream=1, offset=0, window=100)
    head = answer(peer)
    assert head["stream"] == 1 and head["error"]["code"] == "internal"
    ask(peer, "want", stream=2, offset=0, window=100)
    assert answer(peer)["records"]["first"] == 0
    assert server.stats().streams_failed == 1


def test_what_an_operator_reads(where, serve, dealer, caplog):
    """Malformed requests are logged with their peer, a few of them, without what a terminal might
    obey."""
    server = serve(where)
    peer = dealer(server)
    for _ in range(3 * BURST):
        ask(peer, "\x1b[2Jevil\n")
        answer(peer)
    server.stop()
    rows = [r.getMessage() for r in caplog.records if "malformed" in r.getMessage()]
    assert len(rows) == BURST + 1
    assert all("evil" in row and "127.0.0.1" in row for row in rows[:BURST])
    assert rows[BURST].startswith(f"malformed requests: {2 * BURST} more")
    assert "\x1b" not in caplog.text
    assert server.stats().malformed == server.stats().errors == 3 * BURST


def test_complaints_begin_anew_after_a_while(monkeypatch, caplog):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    complaints = Complaints()
    assert [complaints.due("x") for _ in range(BURST + 2)] == [True] * BURST + [False] * 2
    assert complaints.due("y")
    now[0] = 60.0
    assert complaints.due("x")
    assert [r.getMessage() for r in caplog.records] == ["x: 2 more within 60 s"]


# -- limits ----------------------------------------------------------------------------------------

def test_streams_are_bounded(where, serve, dealer):
    server = serve(where, limits=journal.Limits(streams=3, streams_per_peer=2))
    one, two = dealer(server), dealer(server)
    for number in (1, 2):
        assert code(one, "want", stream=number, offset=0, window=10) is None
    ask(one, "want", stream=3, offset=0, window=10)
    head = answer(one)
    assert head["error"]["code"] == "journal_busy" and head["stream"] == 3
    assert code(two, "want", stream=1, offset=0, window=10) is None
    assert code(two, "want", stream=2, offset=0, window=10) == "journal_busy"
    assert server.stats().streams == 3 and server.stats().refused == 2
    ask(one, "stop", stream=1)
    until(lambda: server.stats().streams == 2)
    assert code(two, "want", stream=2, offset=0, window=10) is None


def test_peers_are_bounded_and_make_room_when_they_leave(where, serve, dealer, monkeypatch):
    monkeypatch.setattr(serving, "TIDY", 0.02)
    server = serve(where, limits=journal.Limits(peers=1))
    one, two = dealer(server), dealer(server)
    assert code(one, "want", stream=1, offset=0, window=10) is None
    assert code(two, "ends") == "journal_busy"
    one.close(0)
    until(lambda: code(two, "ends") is None, "the peer that left still counts")


def test_a_refused_reader_asks_again(ctx, where, serve, dealer, monkeypatch):
    """A reader waits for a server at its limit, as long as it has time."""
    monkeypatch.setattr(serving, "TIDY", 0.02)
    server = serve(where, limits=journal.Limits(peers=1))
    first = dealer(server)
    assert code(first, "want", stream=1, offset=0, window=10) is None
    with pytest.raises(journal.JournalBusy):
        journal.open(f"{server.urls[0]}/t", context=ctx, timeout=0.2)
    threading.Timer(0.3, first.close, (0,)).start()
    with journal.open(f"{server.urls[0]}/t", context=ctx, timeout=LIMIT) as reader:
        assert reader.end == 100


def test_groups_are_bounded(where, serve, dealer):
    server = serve(where, groups=True, limits=journal.Limits(groups=2))
    peer = dealer(server)
    for name in ("a", "b", "a"):
        assert code(peer, "commit", group=name, offset=100) is None
    assert code(peer, "commit", group="c", offset=1) == "journal_busy"
    assert code(peer, "commit", group="a", offset=101) == "usage"
    assert code(peer, "commit", group="x" * 256, offset=1) == "usage"
    with journal.open(where, topic="t") as reader:
        assert reader.groups() == {"a": 100, "b": 100}


def test_no_groups_by_default(where, serve, dealer):
    assert code(dealer(serve(where)), "commit", group="a", offset=1) == "usage"


def test_partitions_are_closed_to_make_room(where, serve, dealer):
    server = serve(where, limits=journal.Limits(partitions=2))
    peer = dealer(server)
    for topic in ("t", "u", "v", "t"):
        assert code(peer, "ends", topic=topic) is None
        assert server.stats().partitions <= 2
    for topic in ("t", "u"):
        assert code(peer, "want", topic=topic, stream=ord(topic), offset=0, window=9) is None
    assert code(peer, "ends", topic="v") == "journal_busy"


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_unused_partitions_are_closed(where, serve, dealer, monkeypatch):
    monkeypatch.setattr(serving, "TIDY", 0.02)
    server = serve(where, limits=journal.Limits(idle=0.05))
    peer = dealer(server)
    assert code(peer, "list") is None
    before = descriptors()
    for topic in ("t", "u", "v"):
        assert code(peer, "read", topic=topic, offset=0, bytes=9) is None
        assert code(peer, "want", topic=topic, stream=ord(topic), offset=99, window=9) is None
    assert descriptors() > before
    for topic in ("t", "u", "v"):
        ask(peer, "stop", stream=ord(topic))
    until(lambda: server.stats().partitions == 0, "a partition stays open")
    assert descriptors() == before


def test_a_flood_does_not_keep_others_waiting(ctx, where, serve, dealer):
    """A peer that asks without end gets its share, and is refused the rest."""
    server = serve(where, limits=journal.Limits(requests=16))
    flooder = dealer(server)
    flooding = threading.Event()

    def flood():
        n = 0
        while not flooding.is_set():
            ask(flooder, "list", id=n)
            n += 1
            while True:
                try:
                    flooder.recv_parts(timeout=0)
                except mq.RecvTimeout:
                    break
    thread = threading.Thread(target=flood)
    with journal.open(f"{server.urls[0]}/t", context=ctx, timeout=LIMIT) as reader:
        thread.start()
        try:
            until(lambda: server.stats().requests > 500)
            for _ in range(50):
                assert reader.end == 100
        finally:
            flooding.set()
            thread.join()
    assert server.stats().waiting <= 16


def test_a_peer_that_takes_no_answers_costs_its_share(ctx, tmp_path, serve, dealer):
    """What waits for slow peers is bounded, and nothing is read for a peer that is full."""
    with journal.open(tmp_path, "a", topic="t") as writer:
        for _ in range(40):
            writer.append(bytes(1 << 20))
    most = 16 << 20
    server = serve(tmp_path, limits=journal.Limits(bytes=most))
    slow = dealer(server, recv_hwm=1, recv_hwm_bytes=1)
    for number in range(8):
        ask(slow, "want", id=0, stream=number, offset=0, window=1)
    for number in range(50):
        ask(slow, "read", id=number, offset=0, bytes=8 << 20)
    until(lambda: server._outbox.held or server.stats().refused)
    with journal.open(f"{server.urls[0]}/t", context=ctx, timeout=LIMIT) as reader:
        for _ in range(5):
            assert len(reader.read(0, max_bytes=3 << 20)) >= 1
            assert reader.end == 40
    assert server._outbox._unsent <= most + (9 << 20)
    assert server.stats().bytes < 100 << 20         # not the 450 MiB that it asks for


# -- ends ------------------------------------------------------------------------------------------

def test_a_reader_that_is_killed_leaves_nothing(where, serve, monkeypatch):
    monkeypatch.setattr(serving, "TIDY", 0.02)
    server = serve(where)
    code = ("import sys; from mqcore import journal\n"
            "reader = journal.open(sys.argv[1])\n"
            "for records in reader.follow(0): print(records.next, flush=True)")
    child = subprocess.Popen([sys.executable, "-c", code, f"{server.urls[0]}/t"],
                             stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline()
        assert server.stats().streams == 1
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
    until(lambda: (server.stats().streams, server.stats().peers) == (0, 0), "the dead have streams")


def test_a_journal_that_is_removed_under_its_readers(ctx, where, serve, monkeypatch):
    monkeypatch.setattr(serving, "TIDY", 0.02)
    [url] = serve(where).urls
    with journal.open(f"{url}/t", context=ctx, timeout=LIMIT) as reader, \
            journal.open(f"{url}/u", context=ctx, timeout=LIMIT) as other:
        stream = reader.follow(100, timeout=LIMIT)
        with pytest.raises(mq.RecvTimeout):
            next(reader.follow(100, timeout=0.05))
        shutil.rmtree(where / "t")
        with pytest.raises(journal.JournalNotFound):
            next(stream)
        with pytest.raises(journal.JournalNotFound):
            reader.read(0)
        assert other.end == 100
        with journal.open(where, "a", topic="t") as writer:
            writer.append(b"new")
            writer.commit()
            with journal.open(f"{url}/t", context=ctx, timeout=LIMIT) as again:
                assert again.read(0).to_list() == [b"new"]
        shutil.rmtree(where / "u")
        with journal.open(where / "elsewhere", "a", topic="u") as writer:
            writer.append_many([b"%d" % i for i in range(10)])
        shutil.copytree(where / "elsewhere" / "u", where / "u")     # another journal in its place
        with pytest.raises(journal.JournalNotFound):
            other.read(5)


def test_one_bad_topic_does_not_stop_the_others(ctx, where, serve, dealer, caplog):
    (where / "bad" / "0" / "00000000000000000000.mqj").mkdir(parents=True)
    for path in (where / "u" / "0").glob("*.mqj"):
        path.write_bytes(b"x" * 4096)
    (where / "v" / "1").mkdir()
    server = serve(where)
    found = [info[:2] for info in journal.list_partitions(server.urls[0], context=ctx)]
    assert found == [("t", 0), ("u", 0), ("v", 0), ("v", 1)]
    assert "left out of the list" in caplog.text
    peer = dealer(server)
    assert code(peer, "ends", topic="u") == "journal_corrupt"
    assert code(peer, "ends", topic="bad") == "journal_corrupt"
    assert code(peer, "ends", topic="v", partition=1) is None
    assert code(peer, "read", offset=0, bytes=10) is None
    assert server.stats().failed == 0


def test_a_full_disk_refuses_commits_and_nothing_else(where):
    """A limit of file sizes stands for the disk."""
    program = """
import resource, signal, sys
import mqcore as mq
from mqcore import journal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with journal.serve(sys.argv[1], "tcp://127.0.0.1:0", groups=True) as server, \\
        journal.open(server.urls[0] + "/t") as reader:
    reader.commit_offset("g", 5)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    try:
        reader.commit_offset("g", 7)
    except journal.JournalError as error:
        assert "File too large" in str(error), error
    else:
        raise SystemExit("the commit was reported as durable")
    assert reader.committed_offset("g") == 5 and reader.end == 100 and len(reader.read(0)) == 100
    assert server.stats().failed == 0
"""
    done = subprocess.run([sys.executable, "-c", program, str(where)], capture_output=True,
                          text=True, timeout=200)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_forked_child_has_no_server(ctx, where, serve):
    """Whatever the server does at that moment, the child neither hangs nor serves."""
    server = serve(where)
    asking = threading.Event()

    def ask():
        with journal.open(f"{server.urls[0]}/t", context=ctx, timeout=LIMIT) as reader:
            while not asking.is_set():
                assert len(reader.read(0)) == 100
    thread = threading.Thread(target=ask)
    thread.start()
    try:
        until(lambda: server.stats().answered > 10)
        for _ in range(20):
            child = os.fork()
            if child == 0:
                try:
                    server.stop()
                    stats = server.stats()
                    os._exit(3 if server.running or stats.streams or stats.peers else 0)
                except BaseException:
                    os._exit(4)
            end = threading.Timer(LIMIT, os.kill, (child, signal.SIGKILL))
            end.start()
            status = os.waitpid(child, 0)[1]
            end.cancel()
            end.join()
            assert os.waitstatus_to_exitcode(status) == 0
    finally:
        asking.set()
        thread.join()
    assert server.running and server.error is None


def test_stopping_while_readers_ask(ctx, where, serve):
    """Each call gets its answer, or ends by its time-out. No thread is left behind."""
    server = serve(where)
    [url] = server.urls
    failures = []

    def work(reader):
        while True:
            try:
                assert reader.end == 100 and len(reader.read(0)) == 100
            except mq.RecvTimeout:
                return
            except BaseException as error:
                failures.append(error)
                return
    readers = [journal.open(f"{url}/t", context=ctx, timeout=0.5) for _ in range(4)]
    threads = [threading.Thread(target=work, args=(reader,)) for reader in readers]
    for thread in threads:
        thread.start()
    until(lambda: server.stats().answered > 100)
    server.stop()
    server.stop()
    for thread in threads:
        thread.join()
    for reader in readers:
        reader.close()
    assert failures == [] and not server.running and server.error is None


def test_the_end_of_its_loop_is_visible(where, caplog):
    """A server whose loop has ended says so, and its address is free."""
    with mq.Context() as context:
        server = journal.serve(where, "tcp://127.0.0.1:0", context=context)
        server._streams = None                      # what no request can do
        with pytest.raises(AttributeError):
            server.wait_stopped(LIMIT)
        assert not server.running and isinstance(server.error, AttributeError)
        assert [r.levelno for r in caplog.records if "has ended" in r.getMessage()] == [
            logging.CRITICAL]
        server._streams = serving.Streams()
        server.stop()


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "Too many open files"), MemoryError()])
def test_a_server_without_descriptors_or_memory_waits_for_some(ctx, where, caplog, monkeypatch,
                                                               error):
    monkeypatch.setattr(serving, "PAUSE", 0.01)
    monkeypatch.setattr(serving, "TIDY", 0.0)
    with journal.serve(where, "tcp://127.0.0.1:0", context=ctx) as server:
        left = [3]

        def scarce(now):
            if left[0]:
                left[0] -= 1
                raise error

        monkeypatch.setattr(server._sources, "release_idle", scarce)
        until(lambda: not left[0])
        with journal.open(server.urls[0], topic="t", context=ctx) as reader:
            assert reader.end > 0
        assert server.running and server.error is None
    assert "waits: " in caplog.text


def test_a_server_that_cannot_start_leaves_its_address_free(ctx, where, monkeypatch):
    def no_thread(self):
        raise RuntimeError("can't start new thread")

    before = len(os.listdir("/proc/self/fd"))
    url = f"ipc://{where}/server"
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(RuntimeError):
            journal.serve(where, url, context=ctx)
    until(lambda: len(os.listdir("/proc/self/fd")) <= before)
    with journal.serve(where, url, context=ctx) as server:
        assert server.running


def test_a_context_that_closes_ends_its_server(where):
    context = mq.Context()
    server = journal.serve(where, "tcp://127.0.0.1:0", context=context)
    context.close()
    with pytest.raises(mq.SocketClosed):
        server.wait_stopped(LIMIT)
    server.stop()
