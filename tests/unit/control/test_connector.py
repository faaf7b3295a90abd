import errno
import random
import socket
import threading
import time

import pytest

from mqcore.control.connector import Connector
from mqcore.control.listener import Listener
from mqcore.control.loop import ControlLoop
from mqcore.errors import (
    AddressError,
    ConnectTimeout,
    HandshakeFailed,
    PeerError,
    PeerGone,
    RemoteRefused,
)
from mqcore.spi import registry
from mqcore.spi.transport import StreamTransport


class States(list):
    """on_state: the history, and a way to wait for it to reach something."""

    def __init__(self):
        super().__init__()
        self.changed = threading.Condition()

    def __call__(self, state, error):
        with self.changed:
            self.append((state, error))
            self.changed.notify_all()

    def until(self, state, times=1):
        with self.changed:
            assert self.changed.wait_for(
                lambda: [s for s, _ in self].count(state) >= times, 10), list(self)
        return [error for s, error in self if s == state][times - 1]


@pytest.fixture
def states():
    return States()


@pytest.fixture
def server(loop, tcp, opts, sink2):
    listener = Listener(loop, tcp, "tcp://127.0.0.1:0", opts, sink2)
    yield listener
    listener.stop()


@pytest.fixture
def make(loop, tcp, opts, sink, states):
    made = []

    def make(url, transport=tcp, callback=sink, **changes):
        connector = Connector(loop, transport, url, {**opts, **changes}, callback, states)
        made.append(connector)
        connector.start()
        return connector

    yield make
    for connector in made:
        connector.stop()
        assert connector.endpoint.state == "closed"


def test_the_whole_way(make, server, sink, sink2, states):
    connector = make(server.endpoint.url)
    sock, remote = sink.get()
    assert remote == server.endpoint.url
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    states.until("handshaking")
    connector.handshaken()
    connector.endpoint.wait_ready(10)
    sock.close()
    gone = PeerGone("the peer went away")
    connector.lost(gone)
    connector.lost(gone)  # a second report of the same end is ignored
    again, _ = sink.get()
    again.send(b"x")
    assert states.until("waiting") is gone
    assert [s for s, _ in states][:5] == ["connecting", "handshaking", "connected", "waiting",
                                          "connecting"]
    assert connector.attempts == 2


def test_refused_is_tried_again_until_somebody_is_there(make, loop, tcp, opts, sink, sink2, states,
                                                        closed_port):
    url = f"tcp://127.0.0.1:{closed_port}"
    connector = make(url)
    states.until("waiting", 3)
    error = connector.endpoint.error
    assert isinstance(error, RemoteRefused) and url in str(error)
    with pytest.raises(ConnectTimeout) as caught:
        connector.endpoint.wait_ready(0.01)
    assert isinstance(caught.value.last, RemoteRefused)


def test_reconnect_stop_refused(make, states, closed_port):
    connector = make(f"tcp://127.0.0.1:{closed_port}", reconnect_stop=("refused",))
    assert isinstance(states.until("stopped"), RemoteRefused)
    with pytest.raises(RemoteRefused):
        connector.endpoint.wait_ready(10)
    assert connector.attempts == 1


def test_reconnect_none_is_never_again(make, states, closed_port):
    connector = make(f"tcp://127.0.0.1:{closed_port}", reconnect=None)
    states.until("stopped")
    assert connector.attempts == 1
    connector.reset()  # unless one asks for it
    states.until("stopped", 2)
    assert connector.attempts == 2


@pytest.mark.parametrize("stop", [True, False])
def test_a_peer_that_does_not_fit(make, server, sink, states, stop):
    connector = make(server.endpoint.url, reconnect_stop=("handshake",) if stop else ())
    sink.get()
    connector.lost(HandshakeFailed("PUSH meets SUB", reason="socket types"), fatal=True)
    states.until("stopped" if stop else "waiting")
    if stop:
        with pytest.raises(HandshakeFailed):
            connector.endpoint.wait_ready(10)
        assert connector.attempts == 1
    else:
        states.until("handshaking", 2)


def test_reset_connects_at_once(make, server, sink, states, loop):
    connector = make(server.endpoint.url, reconnect=500.0, reconnect_max=1000.0)
    sink.get()
    connector.handshaken()
    connector.reset()  # while linked: no pause after the loss
    connector.lost(PeerGone("reopened"))
    sink.get()
    connector.lost(PeerGone("lost"))
    states.until("waiting")
    connector.reset()  # while waiting: now
    sink.get()
    assert connector.attempts == 3


def test_a_callback_that_raises_is_a_failed_attempt(make, errors, server, states):
    calls = []

    def callback(sock, remote):
        calls.append(sock)
        if len(calls) < 3:
            raise RuntimeError("no")
        sock.close()

    make(server.endpoint.url, callback=callback)
    states.until("handshaking", 3)
    assert [type(e) for e in errors] == [RuntimeError] * 2
    assert all(sock.fileno() == -1 for sock in calls[:2])
    errors.clear()


def test_bad_addresses_are_the_callers_fault(loop, tcp, opts, sink):
    with pytest.raises(AddressError) as caught:
        Connector(loop, tcp, "tcp://*:5555", opts, sink)
    assert caught.value.position == len("tcp://")


def test_all_addresses_are_tried(make, server, sink, closed_port, tcp):
    """A name with a dead address first and a live one second connects within one attempt."""
    good = int(server.endpoint.url.rpartition(":")[2])

    class Two(type(tcp)):
        def resolve(self, address, options):
            return [target for port in (closed_port, good)
                    for target in tcp.resolve(f"127.0.0.1:{port}", options)]

    connector = make("tcp://somewhere:1", transport=Two())
    sink.get()
    assert connector.attempts == 1


def test_names_are_looked_up_anew_at_each_attempt_off_the_loop(make, server, sink, tcp, states):
    threads = []

    class Moving(type(tcp)):
        def resolve(self, address, options):
            threads.append(threading.current_thread().name)
            if len(threads) < 3:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            return tcp.resolve(server.endpoint.url[6:], options)

    make("tcp://moving.example:1", transport=Moving())
    error = states.until("waiting", 2)
    assert isinstance(error, PeerError) and "cannot resolve tcp://moving.example:1" in str(error)
    sink.get()
    assert threads == ["mqcore-resolve"] * 3


def test_a_look_up_that_takes_longer_than_an_attempt_counts_for_the_next(make, server, sink, tcp,
                                                                         states):
    """A name server that is always slow: one look-up at a time, and its answer is used."""
    looks, answer = [], threading.Event()

    class Slow(type(tcp)):
        def resolve(self, address, options):
            looks.append(address)
            assert answer.wait(10)
            return tcp.resolve(server.endpoint.url[6:], options)

    connector = make("tcp://slow.example:1", transport=Slow(), connect_timeout=0.02,
                     reconnect=0.01, reconnect_max=0.01)
    error = states.until("waiting", 3)
    assert isinstance(error, ConnectTimeout)
    assert "could not be resolved" in str(error)
    assert connector.attempts >= 3
    answer.set()
    sink.get()
    assert len(looks) == 1


def test_localhost(make, server, sink):
    make("tcp://localhost:" + server.endpoint.url.rpartition(":")[2])
    sink.get()


def test_a_plugin_that_raises_anything_is_a_failed_attempt(make, states):
    class Broken(StreamTransport):
        scheme = "broken"

        def connect(self, target, options):
            raise KeyError("oops")

    make("broken://x", transport=Broken())
    assert "KeyError" in str(states.until("waiting", 2))


@pytest.mark.parametrize("name", ["finish", "names"])
def test_a_plugin_that_raises_later_is_a_failed_attempt(make, errors, states, name):
    class Broken(StreamTransport):
        scheme = "broken"

        def connect(self, target, options):
            near, far = socket.socketpair()
            far.close()
            near.setblocking(False)
            return near

    def broken(self, sock):
        raise KeyError("oops")

    setattr(Broken, name, broken)
    connector = make("broken://x", transport=Broken())
    assert "KeyError" in str(states.until("waiting", 2))
    connector.stop()
    connector.loop.call_wait(lambda: None)      # the loop reports an error after the state
    assert {type(error) for error in errors} == ({KeyError} if name == "names" else set())
    errors.clear()


class Silent(StreamTransport):
    """Connects that never finish: a descriptor that never becomes writable."""

    scheme = "silent"

    def __init__(self):
        self.tries = []
        self.far = []

    def resolve(self, address, options):
        return ["a", "b"]

    def connect(self, target, options):
        self.tries.append(target)
        near, far = socket.socketpair()
        near.setblocking(False)
        try:
            while True:
                near.send(b"x" * 65536)
        except BlockingIOError:
            pass
        self.far.append(far)
        return near

    def close(self):
        for sock in self.far:
            sock.close()


def test_connect_timeout_is_per_address(make, states):
    silent = Silent()
    make("silent://x", transport=silent, connect_timeout=0.05, reconnect=100.0, reconnect_max=100.0)
    error = states.until("waiting")
    assert isinstance(error, ConnectTimeout) and "within 0.05 s" in str(error)
    assert isinstance(error.last, ConnectTimeout) and silent.tries == ["a", "b"]
    silent.close()


def test_a_look_up_that_comes_too_late_is_thrown_away(make, states, tcp, server, sink,
                                                  eventually):
    gate, entered = threading.Event(), []

    class Slow(type(tcp)):
        def resolve(self, address, options):
            entered.append(1)
            gate.wait(10)
            return tcp.resolve(server.endpoint.url[6:], options)

    connector = make("tcp://slow.example:1", transport=Slow(), connect_timeout=0.05,
                     reconnect=500.0, reconnect_max=500.0)
    error = states.until("waiting")
    assert "resolved" in str(error)
    gate.set()
    eventually(lambda: not any(t.name == "mqcore-resolve" for t in threading.enumerate()))
    connector.loop.call_wait(lambda: None)
    assert connector.endpoint.state == "waiting" and sink.all == []


def test_pauses_follow_the_clock(closed_port, tcp, opts, states, sink):
    """Doubling up to the maximum, with a clock that the test moves. They start over after a link
    that outlived the last one, or brought a message; a handshake alone does not suffice."""
    now = [1000.0]
    loop = ControlLoop(clock=lambda: now[0])
    loop.start()
    connector = Connector(loop, tcp, f"tcp://127.0.0.1:{closed_port}",
                          {**opts, "reconnect": 0.1, "reconnect_max": 0.5, "connect_timeout": None},
                          sink, states, rng=lambda: 1.0)
    connector.start()
    pauses = []
    for n in range(1, 6):
        states.until("waiting", n)
        loop.call_wait(lambda: None)
        pauses.append(round(connector.pause, 6))
        now[0] += connector.pause - 0.001
        loop.wake()
        loop.call_wait(lambda: None)
        loop.call_wait(lambda: None)
        assert connector.attempts == n
        now[0] += 0.002
        loop.wake()
    assert pauses == [0.1, 0.2, 0.4, 0.5, 0.5]
    states.until("waiting", 6)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        connector.address = f"127.0.0.1:{server.getsockname()[1]}"
        for n, (lived, carried, pause) in enumerate([
                (0, False, 0.5), (0, True, 0.1), (0.09, False, 0.2), (0.15, False, 0.4),
                (0.41, False, 0.1)], 7):
            now[0] += 10
            loop.wake()
            sink.get()
            connector.handshaken()
            loop.call_wait(lambda: None)
            now[0] += lived
            connector.lost(None, carried=carried)
            states.until("waiting", n)
            loop.call_wait(lambda: None)
            assert round(connector.pause, 6) == pause, n
    connector.stop()
    loop.stop()


def test_a_socket_connected_to_itself_is_a_refusal(tcp, opts):
    """TCP's simultaneous open: connecting to one's own port, as a reconnecting client may."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.connect(sock.getsockname())
    assert tcp.finish(sock) == errno.ECONNREFUSED
    sock.close()


def test_ipc_before_the_server_and_after_it(make, loop, ipc, opts, sink, sink2, states, tmp_path):
    url = f"ipc://{tmp_path}/s"
    connector = make(url, transport=ipc)
    assert isinstance(states.until("waiting"), RemoteRefused)
    listener = Listener(loop, ipc, url, opts, sink2)
    _, remote = sink.get()
    assert remote == url
    connector.handshaken()
    connector.endpoint.wait_ready(10)
    listener.stop()


def test_a_full_ipc_backlog_is_tried_again(make, sink, states, ipc, tmp_path):
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(0)
        first = socket.socket(socket.AF_UNIX)
        first.connect(path)
        make(f"ipc://{path}", transport=ipc)
        assert isinstance(states.until("waiting"), PeerError)
        server.accept()[0].close()
        sink.get()
        first.close()


def test_stop_at_any_moment(loop, tcp, opts, server, closed_port, sink2, eventually):
    """Random calls from several threads, then stop: nothing of it is left."""
    rng = random.Random(3)
    for round_ in range(40):
        got = []

        def callback(sock, remote, got=got):
            got.append(sock)

        url = server.endpoint.url if round_ % 2 else f"tcp://localhost:{closed_port}"
        connector = Connector(loop, tcp, url, {**opts, "reconnect": 0.001}, callback)
        connector.start()

        def disturb(seed, connector=connector):
            r = random.Random(seed)
            for _ in range(20):
                r.choice([connector.handshaken, connector.reset,
                          lambda: connector.lost(PeerGone("x")),
                          lambda: connector.lost(HandshakeFailed("y"), fatal=True)])()

        threads = [threading.Thread(target=disturb, args=(rng.random(),)) for _ in range(2)]
        [t.start() for t in threads]
        if round_ % 3 == 0:
            time.sleep(rng.random() * 0.003)
        connector.stop()
        connector.stop()
        attempts = connector.attempts
        assert connector.endpoint.state == "closed"
        [t.join() for t in threads]
        loop.call_wait(lambda: None)
        assert connector.attempts == attempts and connector.endpoint.state == "closed"
        for sock in got:
            sock.close()
    eventually(lambda: not any(t.name == "mqcore-resolve" for t in threading.enumerate()))
    loop.call_wait(lambda: None)


def test_stop_from_within_the_callback(loop, tcp, opts, server, states):
    done = threading.Event()

    def callback(sock, remote):
        sock.close()
        connector.endpoint.close()
        done.set()

    connector = Connector(loop, tcp, server.endpoint.url, opts, callback, states)
    connector.start()
    assert done.wait(10) and connector.endpoint.state == "closed"


def test_many_connectors_to_one_server(loop, tcp, opts, server, sink, sink2):
    connectors = [Connector(loop, tcp, server.endpoint.url, opts, sink) for _ in range(100)]
    for connector in connectors:
        connector.start()
    for _ in connectors:
        sink.get()
        sink2.get()
    for connector in connectors:
        connector.stop()
    assert server.accepted == 100


def test_an_adopted_connection_is_closed_with_it_even_before_the_first_attempt(loop, opts, sink):
    near, far = socket.socketpair()
    with far:
        connector = Connector(loop, registry.transport("fd"), f"fd://{near.detach()}", opts, sink)
        held = connector._adopted
        connector.stop()
        assert held.fileno() == -1 and connector.endpoint.state == "closed"
        assert far.recv(1) == b""


def test_an_adopted_connection_is_used_once(loop, opts, sink, eventually):
    near, far = socket.socketpair()
    with far:
        connector = Connector(loop, registry.transport("fd"), f"fd://{near.detach()}", opts, sink)
        connector.start()
        sink.get()[0].close()
        connector.handshaken()
        connector.reset()
        connector.lost(PeerError("gone"))
        eventually(lambda: connector.endpoint.state == "stopped")
        assert "was one connection, which has ended" in str(connector.endpoint.error)
        connector.stop()
