"""Two ends at once: each public call of the control plane beside a close(), a fork, a kill or an
exit. Nothing hangs, nothing is left behind."""

import contextlib
import os
import random
import signal
import socket
import sys
import threading
import time

import pytest
from crew import AtWork, ends_well, in_a_fork, program
from hangs import watched
from lock_order import GRAPH

import mqcore as mq
from mqcore.control.endpoints import Endpoints


def test_events_and_close_from_two_threads(ctx):
    """A stream that ends and a socket that ends want each other's locks."""
    for _ in range(100):
        sock = ctx.socket("pair")
        stream = sock.events()
        together = threading.Barrier(2)

        def end(close, together=together):
            together.wait()
            close()
        threads = [threading.Thread(target=end, args=(close,))
                   for close in (sock.close, stream.close)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()
        assert [event.kind for event in stream] in ([], ["Closed"])


def test_a_stream_of_a_socket_that_is_closed_meanwhile_ends(ctx, monkeypatch):
    """events() has looked whether the socket is open; close() comes before the stream is made."""
    sock = ctx.socket("pair")
    usable = type(sock)._usable
    monkeypatch.setattr(type(sock), "_usable", lambda self: (usable(self), self.close()))
    with pytest.raises(mq.SocketClosed):
        sock.events()
    assert ctx._hub._watchers == 0


def test_stats_of_a_socket_whose_context_is_closed_meanwhile(monkeypatch):
    """stats() has looked at the socket's own counters; then the whole context ends."""
    with mq.Context() as ctx:
        sock = ctx.socket("pair")
        hub = type(ctx._hub)
        plane = hub.plane.fget

        def late(self):
            monkeypatch.undo()
            ctx.close()
            return plane(self)
        monkeypatch.setattr(hub, "plane", property(late))
        with pytest.raises(mq.SocketClosed):
            sock.stats()


# -- a signal handler that ends what the main thread is using --------------------------------------


@contextlib.contextmanager
def handled(handler, after=0.05):
    """The handler runs in this thread, in the middle of the block."""
    ran = []

    def on_alarm(*_):
        if not ran:  # Python's own handlers run between any two bytecodes
            ran.append(True)
            with GRAPH.handler():
                handler()
    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, after, 0.01)
    try:
        with watched():
            yield
            while not ran:
                time.sleep(0.001)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def stuck(context):
    """A socket that cannot deliver what it was given."""
    sock = context.socket("push", connect="inproc://nobody", linger=None)
    sock.send(b"x")
    return sock


def test_a_handler_closes_the_context_that_closes():
    context = mq.Context()
    socks = [stuck(context) for _ in range(3)]
    with handled(lambda: context.close(0)):
        report = context.close()
    assert report.undelivered == 3
    assert context.close() is report
    assert context.closed
    assert all(sock.closed for sock in socks)


def test_a_handler_stops_the_device_that_stops(ctx):
    front, back = ctx.socket("pull", bind="inproc://front"), stuck(ctx)
    device = mq.device(front, back)
    with handled(lambda: device.stop(0)):
        reports = device.stop(None)
    assert [report.undelivered for report in reports] == [0, 1]
    assert front.closed
    assert back.closed


def test_a_handler_closes_another_socket_during_bind(ctx, monkeypatch):
    """A connection arrives before bind() has entered the endpoint. The handler waits for the
    control thread, which must not wait for bind()."""
    other = ctx.socket("pull", bind="tcp://127.0.0.1:0")
    early = []
    enter = Endpoints._enter

    def interrupted(self, endpoint, node):
        port = int(endpoint.url.rpartition(":")[2])
        early.append(socket.create_connection(("127.0.0.1", port), 10))
        with handled(other.close, 0.001):
            pass
        return enter(self, endpoint, node)

    monkeypatch.setattr(Endpoints, "_enter", interrupted)
    ctx.socket("pull", bind="tcp://127.0.0.1:0")
    assert other.closed
    with early[0] as peer:
        assert peer.recv(1) == b"\xff"  # it is served nevertheless: a greeting


def test_a_handler_closes_the_socket_whose_endpoint_is_waited_for(ctx, monkeypatch):
    """The signal arrives between two bytecodes of wait(), which has the endpoint's lock, and has
    just seen that it must wait."""
    sock = ctx.socket("push")
    made = sock.connect("tcp://127.0.0.1:1")

    def interrupted():
        found = arrived()
        with handled(lambda: sock.close(0), 0.001):
            pass
        return found

    arrived = made._arrived
    monkeypatch.setattr(made, "_arrived", interrupted)
    with pytest.raises(mq.SocketClosed):
        made.wait_ready(None)


def test_a_second_close_shortens_the_first(ctx):
    sock = stuck(ctx)
    first = threading.Thread(target=sock.close, args=(None,))
    first.start()
    while not sock.closed:
        time.sleep(0.001)
    assert sock.close(0).undelivered == 1
    first.join(10)
    assert not first.is_alive()


def test_close_without_a_linger_leaves_the_first_its_time(ctx):
    sock = ctx.socket("push", connect="inproc://later", linger=0.0)
    sock.send(b"x")
    first = threading.Thread(target=sock.close, args=(30,))
    first.start()
    while not sock.closed:
        time.sleep(0.001)
    second = threading.Thread(target=sock.close)
    second.start()
    second.join(0.1)
    pull = ctx.socket("pull", bind="inproc://later")
    assert pull.recv(timeout=10) == b"x"
    first.join(10)
    second.join(10)
    assert sock.close().undelivered == 0


def test_a_handler_closes_a_socket_whose_descriptor_is_watched(ctx):
    """The descriptor is kept right after each receive, under a lock."""
    pull, push = ctx.socket("pull", bind="inproc://level"), ctx.socket("push")
    push.connect("inproc://level")
    pull.fileno()
    level = pull._level
    can = type(pull)._can
    closed = []

    class Core:  # the handler strikes in the middle of the look
        def __getattr__(self, name):
            return getattr(pull, name)

        def _can(self):
            found = can(pull)
            if not closed:
                closed.append(pull.close(0))
            return found

    class Links:
        core = Core()
        hub = ctx._hub

    level._core = Links()
    level.settle()
    assert closed
    assert pull.closed
    assert level.fd == -1


def test_a_handler_closes_a_socket_while_peers_are_looked_at(ctx):
    """The control thread wants the lock that the interrupted call has."""
    pull = ctx.socket("pull", bind="tcp://127.0.0.1:0")
    push = ctx.socket("push", connect=pull.endpoints[0], reconnect=None)
    pull.wait_peers(1, 5)
    push.wait_peers(1, 5)
    lock = ctx._hub.lock
    with watched(), lock:       # as in peers(): here the handler strikes
        push._links.core._end_pipe(push.peers()[0].id)
        while ctx._hub.loop._selector.select(0) == [] and pull._links.connections:
            time.sleep(0.001)
        assert pull.close(0).undelivered == 0
        assert lock._is_owned()
    assert not lock._is_owned()
    assert pull.closed


@pytest.mark.parametrize("call", ["endpoints", "repr", "explain", "unbind"])
def test_endpoints_come_and_go_beside_those_that_look(ctx, call):
    sock = ctx.socket("pull")
    for number in range(50):
        sock.bind(f"inproc://many{number}")
    looks = {"endpoints": lambda: sock.endpoints, "repr": lambda: repr(sock),
             "explain": sock.explain, "unbind": lambda: sock.unbind("inproc://none")}
    done = threading.Event()

    def churn():
        while not done.is_set():
            sock.bind("inproc://one").close()
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(1000):
            with contextlib.suppress(mq.AddressError):
                looks[call]()
    finally:
        done.set()
        thread.join()
        sys.setswitchinterval(before)


# -- random interleavings --------------------------------------------------------------------------

ROUNDS = int(os.environ.get("MQCORE_END_ROUNDS", "12"))
PATTERNS = [("push", "pull"), ("pub", "sub"), ("req", "rep"), ("pair", "pair"), ("bus", "bus")]
URLS = ["tcp://127.0.0.1:0", "ipc://*", "inproc://ends", "ws://127.0.0.1:0", "shm://*"]


class Crew(AtWork):
    """Some sockets of one context, and every public call of the control plane on them."""

    def __init__(self, context, rng, connectable=()):
        self.context = context
        self.rng = rng
        left, right = rng.choice(PATTERNS)
        # no wire but SP for a bus, and shm carries none of it
        self.urls = [url for url in URLS if left != "bus" or not url.startswith("shm")]
        self.socks = [context.socket(name, reconnect=0.01, linger=0) for name in (left, right) * 2]
        self.bound = list(connectable)
        self.calls = [getattr(self, name) for name in dir(self) if name.startswith("do_")]

    def any(self):
        return self.rng.choice(self.socks)

    def endpoint(self, sock):
        return self.rng.choice(sock.endpoints or ("tcp://127.0.0.1:9",))

    def do_bind(self):
        self.bound.append(self.any().bind(self.rng.choice(self.urls)).url)

    def do_connect(self):
        if self.bound:
            self.any().connect(self.rng.choice(self.bound))

    def do_connect_and_wait(self):
        if self.bound:
            self.any().connect(self.rng.choice(self.bound), wait=0.02)

    def do_unbind(self):
        sock = self.any()
        sock.unbind(self.endpoint(sock))

    def do_disconnect(self):
        sock = self.any()
        sock.disconnect(self.endpoint(sock))

    def do_end_an_endpoint(self):
        endpoint = self.endpoint(self.any())
        if not isinstance(endpoint, str):
            endpoint.close()

    def do_events(self):
        with self.any().events(backlog=5) as events:
            for _ in range(3):
                events.get(0.005)

    def do_wait_peers(self):
        self.any().wait_peers(1, 0.01)

    def do_look(self):
        sock = self.any()
        sock.stats()
        sock.explain()
        sock.peers()
        repr(sock)

    def do_options(self):
        sock = self.any()
        sock.idle_after = 0.01
        assert sock.keepalive and sock.ring

    def do_fileno(self):
        self.any().fileno()

    def do_open(self):
        sock = self.context.socket("pair", linger=0)
        try:
            sock.bind("tcp://127.0.0.1:0")
        finally:
            sock.close()

    def work(self, until, failed):
        while not until.is_set():
            try:
                self.rng.choice(self.calls)()
            except (mq.Error, TimeoutError):
                pass
            except BaseException as error:
                failed.append(error)
                raise


def crew_of(context, seed, urls=()):
    return Crew(context, random.Random(seed), urls)


@pytest.mark.parametrize("end", ["sockets", "context"])
def test_every_call_beside_a_close(rng, end):
    for _ in range(ROUNDS):
        with mq.Context() as context:
            crew = crew_of(context, rng.random())
            with crew.at_work(4):
                time.sleep(rng.random() * 0.1)
                if end == "context":
                    context.close()
                else:
                    for sock in rng.sample(crew.socks, len(crew.socks)):
                        sock.close()


def in_the_child(crew, things):
    """Every call of the parent's sockets returns, and new ones work."""
    signal.alarm(20)
    for call in crew.calls:
        with contextlib.suppress(mq.Error):
            call()
    for thing in things:
        thing.close()
    with mq.Context() as own, own.socket("pair") as sock:
        sock.bind("tcp://127.0.0.1:0")


def test_every_call_in_a_forked_child_returns(rng):
    """Threads of the parent may hold any lock at the moment of the fork."""
    for _ in range(ROUNDS):
        with mq.Context() as context:
            crew = crew_of(context, rng.random())
            with crew.at_work(2):
                time.sleep(rng.random() * 0.05)
                streams = [sock.events() for sock in crew.socks]
                endpoints = [endpoint for sock in crew.socks for endpoint in sock.endpoints]
                things = (*streams, *endpoints, *crew.socks)
                in_a_fork(lambda crew=crew, things=things: in_the_child(crew, things))
            for stream in streams:
                stream.close()


def test_every_call_beside_peers_that_are_killed(rng):
    with mq.Context() as context:
        crew = crew_of(context, rng.random())
        crew.bound = [sock.bind(url).url for sock in crew.socks[:2]
                      for url in ("tcp://127.0.0.1:0", "ipc://*")]
        urls = list(crew.bound)
        with crew.at_work(2):
            for _ in range(3):
                child = program(__file__, rng.random(), urls, "threading.Event().wait()")
                try:
                    assert child.stdout.readline() == "ready\n"
                    time.sleep(rng.random() * 0.2)
                finally:
                    child.kill()
                    child.communicate()
        context.close(0)


@pytest.mark.parametrize("then", ["time.sleep(0.05)", "context.close()",
                                  "time.sleep(0.05); raise SystemExit(0)"])
def test_every_call_beside_the_end_of_the_program(rng, then):
    ends_well(program(__file__, rng.random(), [], then))
