"""The monitor under attack: strangers, crowds, nonsense, readers that do not read, and its end in
the middle of everything."""

import json
import logging
import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from monitored import child, end, kill

import mqcore as mq
from mqcore import monitor
from mqcore.monitor import agent, protocol
from mqcore.monitor.shots import Shots

PERSISTENT = """
import sys, mqcore as mq
context = mq.Context(monitor=sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
"""
FORKS = """
import os, sys, mqcore as mq
pull = mq.Pull(bind="inproc://x")
number = os.fork()
pull = mq.Pull(bind="inproc://y") if not number else pull
if number:
    print("ready", flush=True)
sys.stdin.readline()
if number:
    os.waitpid(number, 0)
"""
SUBSCRIBES = """
import sys, mqcore as mq
sub = mq.Sub(topics=b"event.", connect=sys.argv[1])
sub.wait_peers(1, timeout=30)
print("ready", flush=True)
sys.stdin.readline()
"""


def until(done):
    while not done():       # the test's own time-out ends it
        threading.Event().wait(0.01)


def ask(url, request, context, deadline=10.0):
    """The first answer to a request's bytes, or None."""
    with mq.Surveyor(connect=url, context=context) as asks:
        asks.wait_peers(1, timeout=30)
        return next(iter(asks.survey(request, deadline=deadline)), None)


def as_another_user(watcher):
    """The status of a child process of another user that asks for a snapshot and for events; 0 if
    it gets neither."""
    number = os.fork()
    if number:
        return os.waitpid(number, 0)[1]
    status = 1
    try:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        with mq.Context() as own:
            with mq.Surveyor(connect=watcher.url, context=own) as asks:
                answers = []
                for _ in range(5):
                    answers += asks.survey(b'{"op":"snapshot"}', deadline=0.2)
            with mq.Sub(topics=b"", connect=watcher.events, context=own) as sub:
                try:
                    sub.wait_peers(1, timeout=0.5)
                    status = 2
                except mq.Timeout:
                    status = 0 if not answers else 3
    finally:
        os._exit(status)


def test_another_user_gets_nothing(tmp_path_factory):
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    where = tmp_path_factory.mktemp("m")
    for path in (where, *where.parents[:3]):
        os.chmod(path, 0o755)
    with mq.Context(monitor=f"ipc://{where}/x.sock") as context:
        watcher = context._monitor
        for name in ("x.sock", "x-events.sock"):
            assert os.stat(where / name).st_mode & 0o777 == 0o600
            os.chmod(where / name, 0o666)       # as if its own mode did not protect it
        assert as_another_user(watcher) == 0
        assert watcher.counts["refused"] > 0
        assert len(monitor.look(watcher.url)) == 1


def test_another_user_gets_nothing_at_an_abstract_address():
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    with mq.Context(monitor=f"ipc://@mq-{os.getpid()}-monitor") as context:
        assert as_another_user(context._monitor) == 0
        assert context._monitor.counts["refused"] > 0
        assert len(monitor.look(context._monitor.url)) == 1


def test_a_crowd_of_clients_is_cut_to_the_limit():
    with mq.Context(monitor=True) as context, mq.Context() as other:
        watcher = context._monitor
        crowd = [mq.Surveyor(connect=watcher.url, context=other, reconnect=60.0)   # not soon
                 for _ in range(agent.CLIENTS + 10)]

        def cut():
            """The listener closes connections beyond 16 handshakes, the agent those beyond 16."""
            states = [sock.endpoints[0].state for sock in crowd]
            assert watcher.counts["refused"] <= 10
            return states.count("connected") == agent.CLIENTS and states.count("waiting") == 10
        until(cut)
        until(lambda: len(watcher._answers._links.peers) == agent.CLIENTS)
        assert watcher._answers.stats().failed_handshakes + watcher.counts["refused"] == 10
        # one that is not connected would wait for that
        served = sum(any(sock.survey(b'{"op":"hello"}', deadline=30.0)) for sock in crowd
                     if sock.peers())
        assert served == agent.CLIENTS
        for sock in crowd:
            sock.close()
        until(lambda: len(monitor.look(watcher.url)) == 1)
        assert watcher.counts["failed"] == 0


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
def test_a_handler_that_raises_opens_no_limit(error, monkeypatch, capsys):
    class Raises(logging.Handler):
        def emit(self, record):
            raise error

    log = logging.getLogger("mqcore.monitor")
    handler = Raises()
    log.addHandler(handler)
    try:
        with mq.Context(monitor=True) as context, mq.Context() as other:
            watcher = context._monitor
            crowd = []
            while len(crowd) < agent.CLIENTS + 3:   # one after the other: the listener ends none
                crowd.append(mq.Surveyor(connect=watcher.url, context=other, reconnect=60.0))
                until(lambda: crowd[-1].endpoints[0].state in ("connected", "waiting"))
            until(lambda: watcher.counts["refused"] == 3)
            until(lambda: len(watcher._answers._links.peers) == agent.CLIENTS)
            watcher._failed(ValueError("of the monitor's own"))
            other.close(0)
            until(lambda: len(monitor.look(watcher.url)) == 1)
        if error is RuntimeError:       # one that ends the program is for the program
            monkeypatch.setenv("MQCORE_MONITOR", "perhaps")
            mq.Context().close()
    finally:
        log.removeHandler(handler)
    assert error.__name__ in capsys.readouterr().err


def test_a_reader_that_sleeps_loses_its_own_events_only(monkeypatch):
    monkeypatch.setattr(agent, "EVENT_RATE", 1e9)
    with mq.Context(monitor=True) as context:
        watcher = context._monitor
        sleeper = child(SUBSCRIBES, watcher.events)
        try:
            until(lambda: context._hub.observers)   # its subscription is here, not only on its way
            sleeper.send_signal(19)
            pull = context.socket("pull")
            sleeping = next(iter(watcher._events.stats().peers))
            while not watcher._events.stats().peers[sleeping].dropped:
                for _ in range(100):
                    pull.bind("inproc://x").close()
            assert watcher._events.stats().peers[sleeping].queued_out <= 1001
            with monitor.Client() as client:
                events = client.events(timeout=30)
                got = []
                reader = threading.Thread(target=lambda: got.append(next(events)))
                reader.start()
                watcher._events.wait_peers(2, timeout=30)
                while not got:
                    pull.bind("inproc://y").close()
                reader.join()
            assert got[0].number > 1000
        finally:
            kill(sleeper)


def test_a_reader_counts_the_events_it_lost():
    with mq.Context() as context, mq.XPub(bind="inproc://events", context=context) as pub:
        client = monitor.Client(())
        client._events = mq.Sub(topics=protocol.EVENTS, context=context, connect="inproc://events")
        client._events.wait_peers(1, timeout=30)
        pub.wait_subscribers(b"event.Closed", timeout=30)
        for number in (1, 2, 5, 6, 9):
            pub.send_parts([b"event.Closed", protocol.encode(protocol.EventFacts(
                v=1, at=0.0, context="c", socket=1, pattern="pull", kind="Closed",
                number=number))])
        assert [event.number for event in client.events(timeout=0.5)] == [1, 2, 5, 6, 9]
        assert client.events_lost == 4
        client.close()


def test_contexts_close_while_they_are_asked():
    stop = threading.Event()

    def asks():
        with monitor.Client() as client:
            while not stop.is_set():
                client.snapshots(timeout=0.2)

    threads = [threading.Thread(target=asks) for _ in range(2)]
    for thread in threads:
        thread.start()
    failed = 0
    for _ in range(10):
        with mq.Context(monitor=True) as context:
            socks = [mq.Pull(bind=f"inproc://{i}", context=context) for i in range(20)]
            socks.append(mq.Push(connect="inproc://0", context=context))
            context._monitor._answers.wait_peers(1, timeout=30)
            context.close()
        failed += context._monitor.counts["failed"]
    stop.set()
    for thread in threads:
        thread.join()
    assert failed == 0


def test_a_fork_publishes_itself_beside_its_parent():
    process = child(FORKS, MQCORE_MONITOR="1")
    try:
        until(lambda: len(monitor.look()) == 2)
        shots = monitor.look()
        assert len({shot.process.pid for shot in shots}) == 2
        assert sorted(shot.sockets[0].endpoints[0].url for shot in shots) == \
            ["inproc://x", "inproc://y"]
    finally:
        end(process)
    assert monitor.look() == []


def test_an_address_that_a_killed_process_left_is_used_again(folder):
    url = f"ipc://{folder.parent}/shop.sock"
    process = child(PERSISTENT, url)
    kill(process)
    assert os.path.exists(f"{folder.parent}/shop.sock")
    with mq.Context(monitor=url):
        assert monitor.look(url)[0].process.pid == os.getpid()


def test_an_address_in_use_is_refused_and_its_owner_goes_on(folder):
    url = f"ipc://{folder.parent}/shop.sock"
    with mq.Context(monitor=url) as context:
        with pytest.raises(mq.AddressInUse):
            mq.Context(monitor=url)
        assert [shot.context.id for shot in monitor.look(url)] == [context._monitor.id]


@pytest.mark.parametrize("request_bytes", [
    b'{"op":"explain","socket":1000000000000000000000000}', b'{"op":"explain","socket":-1}',
    b'{"op":"snapshot","most":1e400}', b'{"op":"\\ud800"}', b'{"op":"' + b"a" * 4000 + b'"}',
    b'{"op":"snapshot","socket":-1}', b'{"op":"hello","v":-1}', b'\0' * 4096, b'\0' * 4097],
    ids=["long", "negative", "infinite", "surrogate", "name", "none", "old", "zeros", "large"])
def test_forged_requests_are_answered_with_a_failure(request_bytes):
    with mq.Context(monitor=True) as context, mq.Context() as other:
        answer = protocol.decode_answer(ask(context._monitor.url, request_bytes, other))
        assert isinstance(answer, monitor.Failure)
        assert answer.code in ("malformed", "version")
        assert context._monitor.counts["failed"] == 0


def test_a_huge_request_ends_its_connection():
    with mq.Context(monitor=True) as context, mq.Context() as other:
        url = context._monitor.url
        assert ask(url, b" " * (protocol.LARGEST_REQUEST + 65), other, deadline=0.5) is None
        assert context._monitor._answers.stats().broken_peers == 1
        assert len(monitor.look(url)) == 1


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode)
       | st.dictionaries(st.sampled_from(["op", "v", "most", "peers", "socket"]),
                         st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False)
                         | st.sampled_from(["hello", "snapshot", "explain"])
                         ).map(lambda given: protocol.encode(
                             {k: v if not isinstance(v, int) or abs(v) < 1 << 63 else 0
                              for k, v in given.items()})))
def test_any_bytes_are_a_request_or_malformed(data):
    try:
        request = protocol.decode_request(data)
    except monitor.Malformed as error:
        protocol.encode(protocol.Failure(v=1, code="malformed", text=error.text))
    else:
        assert isinstance(request, (protocol.Hello, protocol.Look, protocol.Explain))


def test_however_often_it_is_asked_snapshots_take_a_share_of_the_time():
    now, worked = [100.0], [0.0]

    def take(*, peers, most, only):
        cost = 0.3 if peers else 0.1
        now[0] += cost
        worked[0] += cost
        return protocol.Snapshot(v=1, at=0.0, clock=0.0, events="", sockets=[], process=None,
                                 context=None)

    shots = Shots(take, lambda: now[0])
    for i in range(20_000):
        shots.get(protocol.Look(most=i % 1000, socket=i % 7, peers=i % 3 > 0))
        now[0] += 0.005
    assert worked[0] / (now[0] - 100.0) < 2.2 / 20
    assert shots.taken > 10
    assert len(shots._full) <= 8


def test_who_asks_for_other_peers_meanwhile_gets_fewer_of_them():
    with mq.Context(monitor=True) as context:
        pull = mq.Pull(bind="inproc://x", context=context)
        pushes = [mq.Push(connect="inproc://x", context=context) for _ in range(3)]
        pull.wait_peers(3, timeout=30)
        shots = context._monitor._shots
        first = protocol.decode_answer(shots.get(protocol.Look()))
        assert [len(facts.peers) for facts in first.sockets] == [3, 1, 1, 1]
        shots._with_peers._free_at = float("inf")
        second = protocol.decode_answer(shots.get(protocol.Look(most=2)))
        assert (sum(len(facts.peers) for facts in second.sockets), second.left_out) == (0, 6)
        shots._with_peers._free_at = 0.0
        third = protocol.decode_answer(shots.get(protocol.Look(most=2, socket=1)))
        assert [len(facts.peers) for facts in third.sockets] == [2]
        assert third.left_out == 1
        assert context.close(0).undelivered == len(pushes) - 3


def test_explanations_have_a_budget_too():
    with mq.Context(monitor=True) as context, mq.Context() as other:
        pull = mq.Pull(bind="inproc://x", context=context)
        for _ in range(40):
            pull.bind("tcp://127.0.0.1:0")
        with monitor.Client() as client:
            text, = client.explain(1)
        assert text == pull.explain()       # longer than what is kept of a name
        assert len(text) > 512
        context._monitor._explaining._free_at = float("inf")
        answer = protocol.decode_answer(
            ask(context._monitor.url, b'{"op":"explain","socket":1}', other))
        assert answer.code == "busy"
        assert context._monitor.counts["busy"] == 1


def test_a_flood_of_subscriptions_is_bounded():
    with mq.Context(monitor=True) as context, mq.Context() as other:
        watcher = context._monitor
        sub = mq.Sub(connect=watcher.events, context=other, reconnect=30.0)
        sub.wait_peers(1, timeout=30)
        for i in range(2000):
            sub.subscribe(b"%0100d" % i)
        until(lambda: not watcher._events.peers())
        assert len(monitor.look()) == 1
        assert watcher.counts["failed"] == 0


def test_an_agent_that_answers_twice_hides_no_other():
    with mq.Context(monitor=True) as context, mq.Context() as other, \
            mq.Respondent(bind="tcp://127.0.0.1:0", context=other, raw=True) as fake:
        def answers():
            *envelope, _ = fake.recv_parts(timeout=30)
            for forged in (b"{}", b"\xff", b"[" * 100_000, b'{"op":"snapshot","v":1}'):
                fake.send_parts([*envelope, forged])

        thread = threading.Thread(target=answers)
        thread.start()
        with monitor.Client([context._monitor.url, fake.endpoints[0].url]) as client:
            shot, = client.snapshots(timeout=5.0)
            assert client.malformed >= 1
        thread.join()
        assert shot.context.id == context._monitor.id


def test_an_agent_of_a_later_version_hides_no_other():
    with mq.Context(monitor=True) as context, mq.Context() as other, \
            mq.Respondent(bind="tcp://127.0.0.1:0", context=other) as later:
        def answers():
            later.recv_msg(timeout=30).reply(b'{"op":"failure","v":2,"code":"version","text":"2"}')

        thread = threading.Thread(target=answers)
        thread.start()
        with monitor.Client([context._monitor.url, later.endpoints[0].url]) as client:
            shot, = client.snapshots(timeout=30.0)
            assert "version 2" in client.failure
        thread.join()
        assert shot.context.id == context._monitor.id


def forged(**fields):
    """The snapshot of one socket with these fields, as a client reads it."""
    with mq.Context(monitor=True):
        shot = json.loads(protocol.encode(monitor.look()[0]))
    shot["sockets"] = [{"number": 1, "pattern": "pull", **fields}]
    return protocol.decode_answer(json.dumps(shot).encode())


@pytest.mark.parametrize("sum_,bucket,count", [(1, 312, 1), (1, 10 ** 9, 1), (1, -1, 1), (1, 1, -1),
                                               (-1, 1, 1)])
def test_histograms_that_nobody_measured_are_malformed(sum_, bucket, count):
    latency = {"sum": sum_, "counts": {str(bucket): count}}
    forged(latencies={"sent": {"sum": 1, "counts": {"311": 1}}})
    with pytest.raises(protocol.Malformed):
        forged(latencies={"sent": latency})


@pytest.mark.parametrize("number", [1 << 63, -(1 << 63) - 1, 10 ** 400],
                         ids=["high", "low", "huge"])
@pytest.mark.parametrize("field", ["sent", "lost"])
def test_numbers_beyond_64_bits_are_malformed(number, field):
    """A table of rates would fail, and show no other program either."""
    forged(sent=(1 << 63) - 1)
    with pytest.raises(protocol.Malformed):
        forged(**{field: number if field == "sent" else {"full": number}})


def test_a_thousand_sockets_with_ten_thousand_peers():
    with mq.Context(monitor=True) as context:
        pulls = [mq.Pull(bind=f"inproc://x{i}", context=context) for i in range(500)]
        pushes = [mq.Push(context=context) for _ in range(500)]
        for i, push in enumerate(pushes):
            for j in range(10):
                push.connect(f"inproc://x{(i + j) % 500}")
        with monitor.Client() as client:
            shot, = client.snapshots(timeout=60.0)
        assert len(shot.sockets) == 1000
        assert sum(len(facts.peers) for facts in shot.sockets) == 10_000
        assert len(protocol.encode(shot)) < 4 << 20
        assert shot.left_out == 0
        context.close(0)
        assert all(sock.closed for sock in pulls + pushes)


def test_a_snapshot_that_lists_a_socket_twice_is_malformed():
    """Prometheus would refuse the metrics of all programs: one series would have two values."""
    with mq.Context(monitor=True) as context, mq.Pull(bind="inproc://x", context=context):
        shot = json.loads(protocol.encode(monitor.look()[0]))
    shot["sockets"] *= 2
    with pytest.raises(protocol.Malformed, match="twice"):
        protocol.decode_answer(json.dumps(shot).encode())
    shot["sockets"][1] = {**shot["sockets"][0], "number": 2}
    assert len(protocol.decode_answer(json.dumps(shot).encode()).sockets) == 2


def test_an_invented_address_of_events_hides_no_other():
    with mq.Context(monitor=True) as context, mq.Context() as other, \
            mq.Respondent(bind="tcp://127.0.0.1:0", context=other) as fake, \
            monitor.Client([context._monitor.url, fake.endpoints[0].url]) as client:
        welcome = json.loads(ask(context._monitor.url, b'{"op":"hello"}', other))
        welcome["events"] = "no address"
        welcome["context"]["id"] = "another"

        def answers():
            fake.recv_msg(timeout=30).reply(json.dumps(welcome).encode())

        thread = threading.Thread(target=answers)
        thread.start()
        assert list(client.events(timeout=0.1)) == []
        thread.join()
        assert list(client._publishers) == [context._monitor.events]
        assert client.malformed == 1


def test_a_look_makes_no_connection_but_its_own():
    with mq.Context(monitor=True) as context, monitor.Client() as client:
        accepted = []
        context._monitor._answers._links.watchers.append(
            lambda event: accepted.append(event) if event.kind == "Accepted" else None)
        for _ in range(5):
            assert len(client.snapshots()) == len(client.urls) == 1
        until(lambda: context._monitor.counts["requests"] == 5)
        assert 1 <= len(accepted) <= 2      # the first look finds out whether somebody listens
