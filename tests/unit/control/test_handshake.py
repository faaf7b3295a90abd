"""Upgrades: handshakes of filters without I/O, and generators driven by the control loop."""

import gc
import os
import queue
import socket
import weakref

import pytest

from mqcore.control.handshake import Climb, Handshake, pass_filters
from mqcore.spi.filter import FilterSession, Refused


class Greeter(FilterSession):
    """Says its name, and wants to hear it before it passes bytes on, turned by one."""

    def __init__(self, name=b"hello"):
        super().__init__()
        self.name = name
        self.heard = b""
        self.established = False

    def start(self):
        self._passing += self.name

    def receive(self, data):
        if not self.established:
            self.heard += data
            if not self.heard.startswith(self.name[:len(self.heard)]):
                self._passing += b"no"
                raise Refused(f"heard {self.heard!r}")
            if len(self.heard) < len(self.name):
                return b""
            self.established = True
            data = self.heard[len(self.name):]
        return bytes((byte - 1) % 256 for byte in data)

    def send(self, data):
        assert self.established
        self._passing += bytes((byte + 1) % 256 for byte in bytes(data))


def up(data):
    return bytes((byte + 1) % 256 for byte in data)


def test_one_filter():
    climb = Climb([Greeter()])
    assert bytes(climb.out) == b"hello" and not climb.done
    climb.feed(b"hel")
    assert not climb.done
    climb.feed(b"lo" + up(b"rest"))
    assert climb.done and climb.left == b"rest"


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_a_chain_goes_from_the_inside_out(size):
    outer, inner = Greeter(b"outer"), Greeter(b"inner")
    climb = Climb([outer, inner])
    assert bytes(climb.out) == b"inner"
    stream = b"inner" + up(b"outer" + up(b"plain"))
    for at in range(0, len(stream), size):
        climb.feed(stream[at:at + size])
    assert climb.done and climb.left == b"plain"
    assert bytes(climb.out) == b"inner" + up(b"outer")


def test_last_words_come_out():
    outer, inner = Greeter(b"outer"), Greeter(b"inner")
    climb = Climb([outer, inner])
    climb.feed(b"inner")
    climb.out.clear()
    with pytest.raises(Refused, match="heard"):
        climb.feed(up(b"xxxxx"))
    assert climb.last_words() == up(b"no")


@pytest.fixture
def ends():
    a, b = socket.socketpair()
    for end in (a, b):
        end.setblocking(False)
    yield a, b
    a.close()
    b.close()


@pytest.fixture
def told():
    return queue.Queue()


def run(loop, sock, steps, told, timeout=5.0):
    handshake = Handshake(loop, sock, steps, timeout, lambda result: told.put(("done", result)),
                      lambda error, fatal: told.put((error, fatal)))
    loop.call(handshake.start)
    return handshake


def test_both_ends_on_one_loop(loop, ends, told):
    for end in ends:
        run(loop, end, pass_filters(end, [Greeter(b"outer"), Greeter(b"inner")]), told)
    assert [told.get(timeout=10) for _ in ends] == [("done", b"")] * 2


def test_the_peer_closes(loop, ends, told):
    run(loop, ends[0], pass_filters(ends[0], [Greeter()]), told)
    ends[1].close()
    error, fatal = told.get(timeout=10)
    assert isinstance(error, ConnectionError) and not fatal


def test_a_refusal_is_fatal_and_told_to_the_peer(loop, ends, told):
    run(loop, ends[0], pass_filters(ends[0], [Greeter()]), told)
    ends[1].send(b"GET / HTTP/1.1\r\n")
    error, fatal = told.get(timeout=10)
    assert isinstance(error, Refused) and fatal
    assert ends[1].recv(100) == b"hellono"


def test_time_is_limited(loop, ends, told):
    run(loop, ends[0], pass_filters(ends[0], [Greeter()]), told, timeout=0.01)
    error, fatal = told.get(timeout=10)
    assert isinstance(error, TimeoutError) and not fatal and "0.01" in str(error)


def test_a_full_socket_is_waited_for(loop, ends, told):
    ends[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    long = os.urandom(1 << 20)
    run(loop, ends[0], pass_filters(ends[0], [Greeter(long)]), told)
    ends[1].setblocking(True)
    got = b""
    while len(got) < len(long):
        got += ends[1].recv(1 << 16)
    assert got == long and told.empty()
    ends[1].sendall(long + up(b"rest"))
    assert told.get(timeout=10) == ("done", b"rest")


def test_stop_says_nothing_more(loop, ends, told):
    closed = queue.Queue()

    def steps():
        try:
            yield "read"
        finally:
            closed.put(True)

    handshake = run(loop, ends[0], steps(), told)
    loop.call_wait(handshake.stop)
    loop.call_wait(handshake.stop)
    assert closed.get(timeout=10)
    ends[1].send(b"x")
    loop.call_wait(lambda: None)
    assert told.empty()


def test_whatever_a_plugin_raises_is_told(loop, ends, told):
    def steps():
        raise ZeroDivisionError("mine")
        yield "read"

    run(loop, ends[0], steps(), told)
    error, fatal = told.get(timeout=10)
    assert isinstance(error, ZeroDivisionError) and not fatal


class Made:
    pass


def test_what_a_failed_handshake_had_made_goes_at_once(loop, ends, told):
    """Not when the garbage collector comes, which may be long: it can be memory that is shared with
    the peer."""
    def steps():
        made = Made()
        weakref.finalize(made, told.put, "gone")
        yield "write"
        raise ConnectionError("the peer left")

    gc.disable()
    try:
        handshake = Handshake(loop, ends[0], steps(), 5.0, told.put,
                          lambda error, fatal: told.put(str(error)))
        loop.call(handshake.start)
        assert told.get(timeout=10) == "the peer left"
        assert told.get(timeout=10) == "gone"
    finally:
        gc.enable()
