"""The test kit's slow link itself, between two plain sockets."""

import socket
import time

import pytest

from mqcore.testing import SlowLink, until


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)
        yield listener


@pytest.fixture
def link(listener):
    with SlowLink(f"tcp://127.0.0.1:{listener.getsockname()[1]}") as link:
        yield link


@pytest.fixture
def ends(link, listener):
    with connect(link) as near, listener.accept()[0] as far:
        far.settimeout(20)
        yield near, far


def connect(link):
    host, _, port = link.url.removeprefix("tcp://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def read(sock, size):
    data = b""
    while len(data) < size and (piece := sock.recv(size - len(data))):
        data += piece
    return data


def test_bytes_come_whole_and_in_order(ends, link, rng, beside):
    link.delay, link.rate = 0.02, 50e6
    near, far = ends
    data = rng.randbytes(6 << 20)             # more than the relay holds
    beside(near.sendall, data)
    link.delay = 0.0                          # later bytes must not overtake
    assert read(far, len(data)) == data
    far.sendall(b"back")
    assert read(near, 4) == b"back"


def test_delay_and_rate_are_at_least_that(ends, link):
    near, far = ends
    link.delay, link.rate = 0.05, 1e6
    start = time.monotonic()
    near.sendall(bytes(50_000))
    assert len(read(far, 50_000)) == 50_000
    assert time.monotonic() - start >= 0.1
    start = time.monotonic()
    far.sendall(b"x")
    assert read(near, 1) == b"x" and time.monotonic() - start >= 0.05


def test_it_stalls_and_goes_on(ends, link, listener):
    near, far = ends
    link.stall()
    near.sendall(b"waits")
    with connect(link) as later:              # accepted by nobody yet, refused by nobody
        far.settimeout(0.05)
        with pytest.raises(TimeoutError):
            far.recv(1)
        link.go()
        far.settimeout(20)
        assert read(far, 5) == b"waits"
        later.sendall(b"me")
        with listener.accept()[0] as other:
            assert read(other, 2) == b"me" and link.connections == 2


def test_it_ends_one_way_then_the_other(ends, link):
    near, far = ends
    near.sendall(b"last")
    near.shutdown(socket.SHUT_WR)
    assert read(far, 100) == b"last"          # and the end
    far.sendall(b"words")
    far.close()
    assert read(near, 100) == b"words"
    until(lambda: link.connections == 0)


def test_it_cuts_and_refuses(ends, link, listener):
    near, far = ends
    link.cut()
    for end in ends:
        with pytest.raises(ConnectionResetError):
            end.recv(1)
    url = link.url
    link.shut()
    with pytest.raises(ConnectionRefusedError):
        connect(link)
    link.open()
    assert link.url == url
    with connect(link) as again, listener.accept()[0] as reached:
        again.sendall(b"x")
        assert read(reached, 1) == b"x"
        listener.close()                      # nobody there any more
        with pytest.raises(ConnectionResetError), connect(link) as late:
            late.recv(1)


def test_only_tcp():
    with pytest.raises(ValueError, match="tcp://host:port, not to 'ipc:///x'"):
        SlowLink("ipc:///x")
