"""Adopted descriptors: which are taken, which refused, and what systemd says about them."""

import os
import socket
import subprocess
import sys
import tempfile
import threading

import pytest
from mqcore.transports.fd import Fd

from mqcore.errors import AddressError
from mqcore.spi import registry


@pytest.fixture
def fd():
    registry.transport("vsock")  # loaded before descriptors are counted
    return Fd()


@pytest.fixture
def ends(closing):
    """One end of a connected pair as a number, for the test to take; and the other."""
    near, far = socket.socketpair()
    return near.detach(), closing(far)


@pytest.fixture
def tcp_listener(closing):
    sock = closing(socket.socket())
    sock.bind(("127.0.0.1", 0))
    sock.listen()
    return sock


def systemd(monkeypatch, count, names=None, pid=None):
    monkeypatch.setenv("LISTEN_FDS", str(count))
    monkeypatch.setenv("LISTEN_PID", str(os.getpid() if pid is None else pid))
    if names is not None:
        monkeypatch.setenv("LISTEN_FDNAMES", names)


def test_a_connected_one_is_taken_at_its_number(fd, opts, ends, closing):
    near, far = ends
    os.set_inheritable(near, True)
    sock = closing(fd.adopt(str(near), opts))
    assert sock.fileno() == near and sock.gettimeout() == 0
    assert not os.get_inheritable(near)
    far.send(b"hello")
    assert sock.recv(9) == b"hello" and fd.finish(sock) == 0


def test_a_second_use_is_refused_until_it_is_closed(fd, opts, ends, closing):
    near, _ = ends
    sock = closing(fd.adopt(str(near), opts))
    with pytest.raises(AddressError, match=f"descriptor {near} is in use already; a socket can"):
        fd.adopt(str(near), opts)
    copy = closing(sock.dup())
    with pytest.raises(AddressError, match=rf"in use already \(it is the same socket as {near}\)"):
        fd.adopt(str(copy.fileno()), opts)
    sock.close()
    with pytest.raises(AddressError, match=f"descriptor {near} is not open"):
        fd.adopt(str(near), opts)
    other, far = socket.socketpair()
    closing(far)
    number = other.detach()  # somebody else's, at the number that was ours
    if number != near:
        os.dup2(number, near)
        os.close(number)
    closing(fd.adopt(str(near), opts))


def test_two_threads_at_once_get_it_once(fd, opts, ends, closing):
    took, refused, go = [], [], threading.Barrier(4)

    def take():
        go.wait()
        try:
            took.append(closing(fd.adopt(str(ends[0]), opts)))
        except AddressError as error:
            refused.append(error)

    threads = [threading.Thread(target=take) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(took) == 1 and len(refused) == 3


def test_what_cannot_be_taken(fd, opts, closing, tcp_listener):
    datagram = closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    idle = closing(socket.socket())
    file = closing(tempfile.TemporaryFile())
    for thing, call, message in [
        (file, fd.adopt, "is not a socket"), (file, fd.listen, "is not a socket"),
        (datagram, fd.adopt, "of type SOCK_DGRAM; only stream"),
        (datagram, fd.listen, "of type SOCK_DGRAM"),
        (idle, fd.adopt, "is not connected"), (idle, fd.listen, "is not listening; use connect"),
        (tcp_listener, fd.adopt, r"is a listening socket; use bind"),
    ]:
        number = thing.fileno()
        with pytest.raises(AddressError, match=f"descriptor {number} .*{message}"):
            call(str(number), opts)
        os.fstat(number)  # still open, still theirs


@pytest.mark.parametrize("address", ["", "a:b", "7 8", "-1 ", "ä", "x" * 256])
def test_addresses_that_mean_nothing(fd, address):
    for role in ("bind", "connect"):
        with pytest.raises(AddressError, match="neither a number nor a name"):
            fd.check(address, role)
    fd.check("7", "bind")
    fd.check("api.socket", "connect")


def test_a_listening_one(fd, opts, closing, tcp_listener):
    port = tcp_listener.getsockname()[1]
    number = tcp_listener.detach()
    listening = closing(fd.listen(str(number), opts))
    assert listening.address == str(number) and listening.release is None
    sock, = listening.sockets
    with pytest.raises(AddressError, match="in use already"):
        fd.listen(str(number), opts)
    client = closing(socket.create_connection(("127.0.0.1", port)))
    sock.setblocking(True)
    served = closing(sock.accept()[0])
    fd.tune(served, opts)
    assert served.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    here = client.getsockname()[1]
    assert fd.names(served) == (f"tcp://127.0.0.1:{port}", f"tcp://127.0.0.1:{here}")
    assert fd.pid(served) is None


def test_unix_names_and_pids(fd, closing, ends, opts):
    end = closing(fd.adopt(str(ends[0]), opts))
    assert fd.names(end) == ("", "") and fd.pid(end) is None  # the maker of a pair is no peer
    listener = closing(socket.socket(socket.AF_UNIX))
    listener.bind(f"\0mq-fd-{os.getpid()}")
    listener.listen()
    client = closing(socket.socket(socket.AF_UNIX))
    client.connect(listener.getsockname())
    served = closing(listener.accept()[0])
    assert fd.names(served)[0] == f"ipc://@mq-fd-{os.getpid()}"
    assert fd.pid(served) == os.getpid()


# -- what systemd passes ---------------------------------------------------------------------------


def test_nothing_was_passed(fd, opts, monkeypatch):
    monkeypatch.delenv("LISTEN_FDS", raising=False)
    with pytest.raises(AddressError, match="LISTEN_FDS is not set"):
        fd.listen("systemd", opts)
    systemd(monkeypatch, 1, pid=1)
    with pytest.raises(AddressError, match=f"passed to process 1 .* this one is {os.getpid()}"):
        fd.listen("systemd", opts)
    for count in ("0", "x"):
        systemd(monkeypatch, count)
        with pytest.raises(AddressError, match=f"LISTEN_FDS is '{count}'"):
            fd.adopt("systemd", opts)


def test_names_choose_among_several(fd, opts, monkeypatch):
    systemd(monkeypatch, 3, "web:admin:web")
    seen = []
    monkeypatch.setattr(fd, "_take", lambda numbers, listening: seen.append(numbers) or [])
    fd.listen("web", opts)
    fd.listen("admin", opts)
    assert seen == [[3, 5], [4]]
    with pytest.raises(AddressError, match="different names; choose one: fd://web or fd://admin"):
        fd.listen("systemd", opts)
    with pytest.raises(AddressError, match="no descriptor named 'x' .*passed: web, admin"):
        fd.listen("x", opts)
    with pytest.raises(AddressError, match=r"2 descriptors were passed, but connect\(\) takes one"):
        fd.adopt("web", opts)
    systemd(monkeypatch, 2, "web:web")
    fd.listen("systemd", opts)
    systemd(monkeypatch, 2, "one name only")  # not ours to pair up: without names then
    fd.listen("systemd", opts)
    assert seen[2:] == [[3, 4], [3, 4]]


SERVICE = """
import os
os.environ["LISTEN_PID"] = str(os.getpid())
import mqcore
with mqcore.Rep({how}="fd://systemd", linger=5) as rep:
    rep.send(b"served " + rep.recv(timeout=20))
"""
# as systemd does it: the descriptors from 3 on, the environment, then exec
LAUNCH = """
import os, sys
os.dup2(int(sys.argv[1]), 3, inheritable=True)
os.environ["LISTEN_FDS"] = "1"
os.environ["LISTEN_FDNAMES"] = sys.argv[2]
os.execv(sys.executable, [sys.executable, "-c", sys.argv[3]])
"""


def launch(sock, name, how):
    return subprocess.Popen([sys.executable, "-c", LAUNCH, str(sock.fileno()), name,
                             SERVICE.format(how=how)], pass_fds=[sock.fileno()])


def test_a_service_that_systemd_starts(closing, tcp_listener):
    """Peers may connect before the service runs: their connections wait in the kernel."""
    zmq = pytest.importorskip("zmq")
    context = zmq.Context()
    req = context.socket(zmq.REQ)
    req.linger, req.rcvtimeo = 0, 20_000
    req.connect(f"tcp://127.0.0.1:{tcp_listener.getsockname()[1]}")
    req.send(b"early")
    service = launch(tcp_listener, "api.socket", "bind")
    try:
        assert req.recv() == b"served early"
        assert service.wait(20) == 0
    finally:
        service.kill()
        service.wait()
        req.close()
        context.term()


def test_a_service_per_connection(closing, tcp_listener):
    """Accept=yes: systemd accepts, and passes the connection."""
    zmq = pytest.importorskip("zmq")
    context = zmq.Context()
    req = context.socket(zmq.REQ)
    req.linger, req.rcvtimeo = 0, 20_000
    req.connect(f"tcp://127.0.0.1:{tcp_listener.getsockname()[1]}")
    req.send(b"alone")
    tcp_listener.settimeout(20)
    taken = closing(tcp_listener.accept()[0])
    service = launch(taken, "connection", "connect")
    taken.close()
    try:
        assert req.recv() == b"served alone"
        assert service.wait(20) == 0
    finally:
        service.kill()
        service.wait()
        req.close()
        context.term()
