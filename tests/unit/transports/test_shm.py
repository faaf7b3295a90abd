"""shm: coming to terms over the Unix socket, and everything that a peer may do wrong in it."""

import fcntl
import os
import socket
import struct

import pytest
from mqcore.testing.native.shm_bench import ShmEnd
from mqcore.transports import shm as module
from mqcore.transports.shm import ANSWER, FDS, HELLO, MAGIC, SEALS, VERSION
from mqcore.transports.shm_engine import RING_LEAST, RING_MOST, map_size

from mqcore.errors import AddressError, AddressInUse
from mqcore.spi import registry
from mqcore.spi.credentials import Credentials
from mqcore.spi.filter import Refused
from mqcore.spi.message_engine import NativeEngine

shm = registry.transport("shm")
RING = 1 << 20


@pytest.fixture
def ends():
    """Two connected sockets, as the host has them."""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    near.setblocking(False)
    far.setblocking(False)
    yield near, far
    near.close()
    far.close()


class Opening:
    """Drives a generator of open(), as the control thread does."""

    def __init__(self, sock, role, opts):
        self.steps = shm.open(sock, role, opts)
        self.engine = None
        self.waits = None

    def go(self):
        """The engine, or None while it waits."""
        try:
            self.waits = next(self.steps)
        except StopIteration as end:
            self.engine = end.value
        return self.engine


def meet(near, far, opts):
    one, two = Opening(near, "connect", opts), Opening(far, "bind", opts)
    while one.engine is None or two.engine is None:
        for side in (one, two):
            if side.engine is None:
                side.go()
    return one.engine, two.engine


def test_both_sides_open_and_exchange(ends, opts):
    engines = meet(*ends, opts)
    assert all(isinstance(engine, NativeEngine) for engine in engines)
    one, two = map(ShmEnd, engines)
    one.write([b"hello"])
    one.flush()
    assert two.read()[1] == [(b"hello", 0)]
    two.write([b"to", b"you"])
    two.flush()
    assert one.read()[1] == [(b"to", 1), (b"you", 0)]


def test_the_stream_behind_the_hello_is_the_wires(ends, opts):
    near, far = ends
    one, two = Opening(near, "connect", opts), Opening(far, "bind", opts)
    assert one.go() is None and one.waits == "read"
    near.send(b"greeting")
    assert two.go() is not None
    assert far.recv(100) == b"greeting"
    far.send(b"and back")
    assert one.go() is not None
    assert near.recv(100) == b"and back"


@pytest.mark.parametrize("wanted, real", [
    (0, RING_LEAST), (1, RING_LEAST), (RING_LEAST + 1, 2 * RING_LEAST), (1 << 22, 1 << 22),
    (1 << 40, RING_MOST),
])
def test_ring_is_rounded_up_within_limits(ends, opts, wanted, real):
    near, far = ends
    assert Opening(near, "connect", {**opts, "ring": wanted}).go() is None
    hello, fds, _, _ = socket.recv_fds(far, 100, 8)
    assert HELLO.unpack(hello) == (MAGIC, VERSION, FDS, real)
    assert os.fstat(fds[0]).st_size == map_size(real)
    assert fcntl.fcntl(fds[0], fcntl.F_GET_SEALS) & SEALS == SEALS
    for fd in fds:
        os.close(fd)


def test_giving_up_closes_what_was_made(ends, opts):
    steps = shm.open(ends[0], "connect", opts)
    next(steps)
    steps.close()


def test_addresses_are_ipcs(tmp_path, opts, closing):
    path = str(tmp_path / "s")
    listening = closing(shm.listen(path, opts))
    near = closing(shm.connect(path, opts))
    assert shm.names(near) == (f"shm://{path}", f"shm://{path}")
    assert shm.pid(near) == os.getpid()
    with pytest.raises(AddressInUse, match="cannot listen on shm://"):
        registry.transport("shm").listen(path, opts)
    with pytest.raises(AddressError):
        shm.check("*", "connect")
    assert listening.address == path


# -- who may --------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["bind", "connect"])
@pytest.mark.parametrize("allowed, welcome", [
    (None, False), (-1, True), (12345, True), (54321, False)])
def test_the_peer_is_the_same_user_unless_told(ends, opts, monkeypatch, role, allowed, welcome):
    monkeypatch.setattr(module, "credentials", lambda sock: Credentials(1, 12345, 1))
    opening = Opening(ends[0], role, {**opts, "peer_uid": allowed})
    if welcome:
        assert opening.go() is None
        opening.steps.close()
        return
    with pytest.raises(Refused, match="the peer runs as user 12345, but user .* is allowed"):
        opening.go()


def test_a_refused_peer_is_told_why(ends, opts, monkeypatch):
    near, far = ends
    monkeypatch.setattr(module, "credentials", lambda sock: Credentials(
        1, 12345 if sock is far else os.geteuid(), 1))
    one = Opening(near, "connect", opts)
    assert one.go() is None
    with pytest.raises(Refused):
        Opening(far, "bind", opts).go()
    with pytest.raises(Refused, match="the peer refused: the peer runs as user 12345"):
        one.go()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_users_process_is_refused(tmp_path, opts, closing):
    listening = closing(shm.listen("@shm-uid-test", opts))
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        sock = shm.connect("@shm-uid-test", opts)
        sock.setblocking(True)
        sock.recv(1)
        os._exit(0)
    try:
        listening.sockets[0].setblocking(True)
        far = closing(listening.sockets[0].accept()[0])
        far.setblocking(False)
        with pytest.raises(Refused, match="the peer runs as user 65534, but user 0 is allowed"):
            Opening(far, "bind", opts).go()
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


# -- a forged hello --------------------------------------------------------------------------------


class Forged:
    """A hello and its descriptors, right but for what a test changes."""

    def __init__(self):
        self.ring, self.size = RING, map_size(RING)
        self.version, self.count, self.magic = VERSION, FDS, MAGIC
        self.seals = SEALS
        self.head = None  # what the memory begins with
        self.flags = os.EFD_CLOEXEC | os.EFD_NONBLOCK
        self.memory = None
        self.change = None  # of the list of descriptors

    def send(self, sock):
        hello = HELLO.pack(self.magic, self.version, self.count, self.ring)
        fds = []
        try:
            fds.append(self.memory() if self.memory else self.memfd(hello))
            fds += [os.eventfd(0, self.flags), os.eventfd(0, self.flags)]
            if self.change:
                self.change(fds)
            socket.send_fds(sock, [hello], fds)
        finally:
            for fd in fds:
                os.close(fd)

    def memfd(self, hello):
        memory = os.memfd_create("forged", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(memory, self.size)
        os.pwrite(memory, hello if self.head is None else self.head, 0)
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, self.seals)
        return memory


def pipe_end():
    ours, theirs = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    os.close(ours)
    return theirs


def swap(fds):
    os.close(fds[1])
    fds[1] = pipe_end()


FORGED = {
    "magic": ("magic", b"\xff\0\0\0\0\0\0\0", "does not speak shm"),
    "version": ("version", 2, "speaks version 2 of shm"),
    "count": ("count", 2, "sent 3 descriptors"),
    "no descriptors": ("change", lambda fds: [os.close(fds.pop()) for _ in range(3)], "sent 0"),
    "one too few": ("change", lambda fds: os.close(fds.pop()), "sent 2 descriptors"),
    "one too many": ("change", lambda fds: fds.append(os.dup(fds[0])), "sent 4 descriptors"),
    "far too many": ("change", lambda fds: fds.extend(os.dup(0) for _ in range(40)), "too many"),
    "small ring": ("ring", 4096, "wants rings of 4096 bytes"),
    "large ring": ("ring", RING_MOST * 2, "wants rings"),
    "odd ring": ("ring", RING + 4096, "wants rings"),
    "no ring": ("ring", 0, "wants rings"),
    "truncated": ("size", map_size(RING) - 1, "has 2101247 bytes, but two rings of 1048576 need"),
    "empty": ("size", 0, "has 0 bytes"),
    "too long": ("size", map_size(RING) + 4096, "bytes, but two rings"),
    "no seals": ("seals", 0, "not sealed"),
    "may shrink": ("seals", SEALS & ~fcntl.F_SEAL_SHRINK, "not sealed"),
    "seals may be added": ("seals", SEALS & ~fcntl.F_SEAL_SEAL, "not sealed"),
    "not writable": ("seals", SEALS | fcntl.F_SEAL_WRITE, "cannot be mapped"),
    "another head": ("head", b"x" * 32, "does not begin with its hello"),
    "a pipe as memory": ("memory", pipe_end, "not a memfd"),
    "a file as memory": ("memory", lambda: os.open(__file__, os.O_RDONLY), "memfd|not sealed"),
    "a pipe as wake-up": ("change", swap, "not an eventfd"),
    "a wake-up that blocks": ("flags", os.EFD_CLOEXEC, "may block"),
}


@pytest.mark.parametrize("case", FORGED)
def test_a_forged_hello_is_refused_and_everything_closed(ends, opts, case):
    near, far = ends
    name, value, why = FORGED[case]
    forged = Forged()
    setattr(forged, name, value)
    if case in ("small ring", "large ring", "odd ring"):
        forged.size = map_size(RING)
    if case == "empty":
        forged.head = b""
    before = len(os.listdir("/proc/self/fd"))
    forged.send(near)
    with pytest.raises(Refused, match=why):
        Opening(far, "bind", opts).go()
    assert len(os.listdir("/proc/self/fd")) == before
    answer = near.recv(1000)
    assert ANSWER.unpack_from(answer)[0] == MAGIC and answer[ANSWER.size:], "it was told why"


def test_a_hello_in_pieces(ends, opts):
    near, far = ends
    opening = Opening(far, "bind", opts)
    forged = Forged()
    hello = HELLO.pack(MAGIC, VERSION, FDS, RING)
    memory = forged.memfd(hello)
    fds = [memory, *(os.eventfd(0, forged.flags) for _ in range(2))]
    for i in range(len(hello)):
        assert opening.go() is None
        socket.send_fds(near, [hello[i:i + 1]], fds if i == 3 else [])
    for fd in fds:
        os.close(fd)
    assert opening.go() is not None


def test_descriptors_in_pieces_are_counted_together(ends, opts):
    near, far = ends
    opening = Opening(far, "bind", opts)
    hello = HELLO.pack(MAGIC, VERSION, FDS, RING)
    for i in range(len(hello)):
        assert opening.go() is None
        socket.send_fds(near, [hello[i:i + 1]], [0])
    with pytest.raises(Refused, match="sent 32 descriptors"):
        opening.go()


def test_a_peer_that_leaves(ends, opts):
    near, far = ends
    near.send(MAGIC)
    near.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionResetError):
        Opening(far, "bind", opts).go()


@pytest.mark.parametrize("answer, why", [
    (b"\xff" + bytes(63), "does it listen on ipc"),
    (ANSWER.pack(MAGIC, VERSION, 5) + b"never", "the peer refused: never"),
    (ANSWER.pack(MAGIC, VERSION, 5000), "does not speak shm"),
    (ANSWER.pack(MAGIC, 9, 0), "speaks version 9"),
])
def test_a_strange_answer_is_refused(ends, opts, answer, why):
    near, far = ends
    opening = Opening(near, "connect", opts)
    assert opening.go() is None
    far.send(answer)
    with pytest.raises(Refused, match=why):
        opening.go()


def test_an_answer_brings_no_descriptors(ends, opts):
    near, far = ends
    opening = Opening(near, "connect", opts)
    assert opening.go() is None
    socket.send_fds(far, [ANSWER.pack(MAGIC, VERSION, 0)], [0])
    with pytest.raises(Refused, match="descriptors"):
        opening.go()


def test_the_hello_is_what_shm_md_says():
    assert HELLO.size == 32 and ANSWER.size == 16
    assert struct.unpack_from("<8sII", HELLO.pack(MAGIC, 1, 3, 0)) == (b"MQSHM\r\n\0", 1, 3)
