import os
import socket
import subprocess
import sys
import textwrap
import threading

import pytest

from mqcore.control.listener import TURN, Listener
from mqcore.errors import AddressError, AddressInUse, BindError
from mqcore.spi.url import parse


def tcp_name(sockaddr):
    return f"tcp://{sockaddr[0]}:{sockaddr[1]}"


def port_of(listener):
    return int(listener.endpoint.url.rpartition(":")[2])


def test_it_listens_when_it_returns(loop, tcp, opts, sink):
    listener = Listener(loop, tcp, "tcp://127.0.0.1:0", opts, sink)
    assert listener.endpoint.state == "listening" and listener.endpoint.kind == "bind"
    listener.endpoint.wait_ready(0)
    with socket.create_connection(("127.0.0.1", port_of(listener))) as peer:
        sock, remote = sink.get()
        assert remote == tcp_name(peer.getsockname())
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    listener.stop()


def test_the_port_is_free_when_stop_returns(loop, tcp, opts, sink):
    first = Listener(loop, tcp, "tcp://127.0.0.1:0", opts, sink)
    url = first.endpoint.url
    peer = socket.create_connection(("127.0.0.1", port_of(first)))
    sink.get()
    for _ in range(20):
        with pytest.raises(AddressInUse):
            Listener(loop, tcp, url, opts, sink)
        first.stop()
        first.stop()
        assert first.endpoint.state == "closed"
        first = Listener(loop, tcp, url, opts, sink)
    first.endpoint.close()
    assert first.endpoint.state == "closed"
    peer.close()


def test_busy_port_keeps_errno_and_says_where(loop, tcp, opts, sink):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(AddressInUse) as caught:
            Listener(loop, tcp, f"tcp://127.0.0.1:{port}", opts, sink)
    assert isinstance(caught.value, BindError) and caught.value.errno == 98
    assert f"tcp://127.0.0.1:{port}" in str(caught.value)


def test_an_address_error_counts_in_the_whole_url(loop, tcp, opts, sink):
    with pytest.raises(AddressError) as caught:
        Listener(loop, tcp, parse("tcp://127.0.0.1:99999?prio=1"), opts, sink)
    assert caught.value.position == len("tcp://127.0.0.1:")


def test_a_storm_of_connects(loop, tcp, opts, sink):
    listener = Listener(loop, tcp, "tcp://127.0.0.1:0", opts, sink)
    n = 3 * TURN + 5
    peers = [socket.create_connection(("127.0.0.1", port_of(listener))) for _ in range(n)]
    remotes = {sink.get()[1] for _ in range(n)}
    assert remotes == {tcp_name(p.getsockname()) for p in peers}
    assert listener.accepted == n
    listener.stop()
    for peer in peers:
        peer.close()


def test_one_turn_is_bounded(loop, tcp, opts, sink):
    """Others have their turn between 64 accepts: a call made meanwhile runs before the rest."""
    listener = Listener(loop, tcp, "tcp://127.0.0.1:0", opts, sink)
    started, go = threading.Event(), threading.Event()
    loop.call(lambda: (started.set(), go.wait(10)))
    assert started.wait(10)
    peers = [socket.create_connection(("127.0.0.1", port_of(listener))) for _ in range(2 * TURN)]
    at = []
    loop.call(lambda: at.append(listener.accepted))  # runs after the first turn of accepts
    go.set()
    for _ in peers:
        sink.get()
    listener.stop()
    for peer in peers:
        peer.close()
    assert at[0] <= TURN


def test_a_callback_that_raises_costs_only_its_connection(loop, errors, tcp, opts):
    seen = []

    def on_accept(sock, remote):
        seen.append(remote)
        if len(seen) == 1:
            raise RuntimeError("no")
        sock.close()

    listener = Listener(loop, tcp, "tcp://127.0.0.1:0", opts, on_accept)
    for _ in range(2):
        with socket.create_connection(("127.0.0.1", port_of(listener)), timeout=10) as peer:
            assert peer.recv(1) == b""
    listener.stop()
    assert len(seen) == 2 and [type(e) for e in errors] == [RuntimeError]
    errors.clear()


def test_stop_from_within_on_accept(loop, tcp, opts):
    stopped = threading.Event()

    def on_accept(sock, remote):
        sock.close()
        listener.stop()
        stopped.set()

    listener = Listener(loop, tcp, "tcp://127.0.0.1:0", opts, on_accept)
    peers = [socket.create_connection(("127.0.0.1", port_of(listener)))]
    assert stopped.wait(10)
    assert listener.accepted == 1
    for peer in peers:
        peer.close()


def test_stop_after_the_loop_has_ended(errors, tcp, opts, sink):
    from mqcore.control.loop import ControlLoop

    loop = ControlLoop()
    loop.start()
    listener = Listener(loop, tcp, "tcp://127.0.0.1:0", opts, sink)
    loop.stop()
    listener.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port_of(listener)))


def test_ipc_file_goes_with_stop(loop, ipc, opts, sink, tmp_path):
    path = tmp_path / "a?b%"
    listener = Listener(loop, ipc, f"ipc://{tmp_path}/a%3Fb%25", opts, sink)
    assert path.is_socket()
    assert listener.endpoint.url == f"ipc://{tmp_path}/a%3Fb%25"
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(path))
        sock, remote = sink.get()
        assert remote == f"ipc://{path}" and ipc.pid(sock) == os.getpid()
    listener.stop()
    assert not path.exists()


def test_out_of_descriptors_pauses_and_recovers():
    """In a process of its own with few descriptors: no spinning, no dying, all are served."""
    script = textwrap.dedent("""
        import os, queue, resource, socket, threading
        from mqcore import options
        from mqcore.control.listener import Listener
        from mqcore.control.loop import ControlLoop
        from mqcore.spi import registry

        loop, events, socks = ControlLoop(), queue.Queue(), queue.Queue()
        loop.start()
        listener = Listener(loop, registry.transport("tcp"), "tcp://127.0.0.1:0",
                            options.defaults(), lambda s, r: socks.put(s),
                            lambda what, error: events.put((what, error, loop.clock())))
        assert events.get()[0] == "listening"
        port = int(listener.endpoint.url.rpartition(":")[2])
        peers = [socket.socket() for _ in range(8)]
        used = len(os.listdir("/proc/self/fd")) - 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 3, 4096))
        for peer in peers:
            peer.connect(("127.0.0.1", port))
        served = [socks.get(timeout=10) for _ in range(3)]
        times = []
        for _ in range(3):
            what, error, at = events.get(timeout=10)
            assert what == "accept_paused" and error.errno == 24, (what, error)
            times.append(at)
        assert times[1] - times[0] >= 0.1 and times[2] - times[1] >= 0.1, times
        assert loop.call_wait(lambda: "alive") == "alive"
        for sock in served:
            sock.close()
        for _ in range(3):
            socks.get(timeout=10).close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 100, 4096))
        for _ in range(2):
            socks.get(timeout=10).close()
        listener.stop()
        loop.stop()
        print("served", listener.accepted)
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                          timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "served 8\n", "")
