"""shm://path, shm://@name and shm://*: shared memory between processes of one machine.

Addresses, files and permissions are those of ipc (a Unix socket, by path or abstract name, or a new
one). The two sides negotiate over that socket. The connecting side creates the memory, a sealed
memfd with two rings, and two eventfds, and sends a hello with the three descriptors. The listening
side checks all of it, maps it, and answers. Then messages go through the rings (shm_engine.pyx).
The socket carries the protocol's handshake, heartbeats, and the end: however a process dies, the
kernel closes the socket, and the last unmapping frees the memory.

The peer must be a process of the same user. `peer_uid` allows another user, and -1 any user who may
open the socket. shm.md documents the hello and the layout, and what a malicious peer can and cannot
do.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
from collections.abc import Generator
from typing import TYPE_CHECKING

from mqcore.transports.ipc import Ipc
from mqcore.transports.shm_engine import RING_LEAST, RING_MOST, attach, map_size

from mqcore.base.native import socket
from mqcore.spi.capability import STREAM
from mqcore.spi.credentials import credentials, is_anybody
from mqcore.spi.filter import Refused
from mqcore.spi.transport import MessageTransport, Options

if TYPE_CHECKING:
    from mqcore.spi.message_engine import NativeEngine

MAGIC = b"MQSHM\r\n\0"
VERSION = 1
HELLO = struct.Struct("<8sIIQ8x")  # magic, version, number of descriptors, bytes of a ring
ANSWER = struct.Struct("<8sII")  # magic, version, bytes of a reason that follow (0: accepted)
REASON_MOST = 256
FDS = 3  # memory, eventfd that wakes the connecting side, eventfd that wakes the listening side
FDS_MOST = 16  # received and closed; more are cut off by the kernel
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL

Waiting = Generator[str, None, None]


def ring_size(options: Options) -> int:
    """The option, rounded to a power of two within the limits."""
    wanted = int(options.get("ring") or 0)
    return min(max(1 << (wanted - 1).bit_length(), RING_LEAST), RING_MOST)


def _check_peer(sock: socket.socket, options: Options) -> None:
    allowed = options.get("peer_uid")
    if allowed is None:
        allowed = os.geteuid()
    uid = credentials(sock).uid
    if allowed not in (-1, uid):
        raise Refused(f"the peer runs as user {uid}, but user {allowed} is allowed: see peer_uid")
    if allowed != -1 and is_anybody(uid):
        raise Refused(f"in this user namespace {uid} may be any user: peer_uid=-1 admits them all")


def _make_memory(ring: int) -> int:
    memory = os.memfd_create("mqcore-shm", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(memory, map_size(ring))
        os.pwrite(memory, HELLO.pack(MAGIC, VERSION, FDS, ring), 0)
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, SEALS)
    except BaseException:
        os.close(memory)
        raise
    return memory


def _check_memory(memory: int, ring: int) -> None:
    """Check that the memory cannot shrink below the mapped size, so that no access can fault."""
    try:
        seals = fcntl.fcntl(memory, fcntl.F_GET_SEALS)
    except OSError:
        raise Refused("the peer's memory is not a memfd") from None
    if seals & SEALS != SEALS:
        raise Refused("the peer's memory is not sealed against resizing")
    size = os.fstat(memory).st_size
    if size != map_size(ring):
        raise Refused(f"the peer's memory has {size} bytes, but two rings of {ring} need "
                      f"{map_size(ring)}")
    if os.pread(memory, HELLO.size, 0) != HELLO.pack(MAGIC, VERSION, FDS, ring):
        raise Refused("the peer's memory does not begin with its hello")


def _check_eventfd(fd: int) -> None:
    """Check that a write to it cannot block, because it happens on the data path."""
    if os.readlink(f"/proc/self/fd/{fd}") != "anon_inode:[eventfd]":
        raise Refused("the peer's wake-up is not an eventfd")
    if not fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK:
        raise Refused("the peer's wake-up may block")


def _check_hello(hello: bytes, fds: list[int]) -> int:
    """Check the hello and return the size of a ring in bytes."""
    _, version, count, ring = HELLO.unpack(hello)
    if version != VERSION:
        raise Refused(f"the peer speaks version {version} of shm, we speak {VERSION}")
    if count != FDS or len(fds) != FDS:
        raise Refused(f"the peer sent {len(fds)} descriptors, but a hello has {FDS}")
    if not RING_LEAST <= ring <= RING_MOST or ring & (ring - 1):
        raise Refused(f"the peer wants rings of {ring} bytes, not a power of two from {RING_LEAST} "
                      f"to {RING_MOST}")
    _check_memory(fds[0], ring)
    _check_eventfd(fds[1])
    _check_eventfd(fds[2])
    return int(ring)


def _close(fds: list[int]) -> None:
    while fds:
        os.close(fds.pop())


# -- the socket: generators that yield what they wait for -----------------------------------------


def _send(sock: socket.socket, data: bytes, fds: list[int]) -> Waiting:
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(fds)}i", *fds))
    along = [rights] if fds else []
    while data:
        try:
            sent = sock.sendmsg([data], along, socket.MSG_NOSIGNAL)
        except BlockingIOError:
            yield "write"
            continue
        along = []  # the descriptors went with the first byte
        data = data[sent:]


def _receive(sock: socket.socket, size: int, fds: list[int]) -> Generator[str, None, bytes]:
    """Exactly `size` bytes, because the protocol's bytes follow; descriptors are added to `fds`."""
    data = b""
    while len(data) < size:
        try:
            piece, ancillary, flags, _ = sock.recvmsg(
                size - len(data), socket.CMSG_SPACE(FDS_MOST * 4), socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            yield "read"
            continue
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                content = content[:len(content) // 4 * 4]
                fds += struct.unpack(f"{len(content) // 4}i", content)
        if flags & socket.MSG_CTRUNC:
            raise Refused("the peer sent too many descriptors")
        if not piece:
            raise ConnectionResetError(errno.ECONNRESET,
                                       "the peer disconnected during the hello: is it shm?")
        data += piece
    return data


def _receive_ours(sock: socket.socket, size: int,
                  fds: list[int]) -> Generator[str, None, bytes]:
    """The same, or b"" as soon as the data does not begin with MAGIC, because a peer with another
    protocol may never send that much."""
    head = yield from _receive(sock, len(MAGIC), fds)
    if head != MAGIC:
        return b""
    return head + (yield from _receive(sock, size - len(MAGIC), fds))


class Shm(Ipc, MessageTransport):
    scheme = "shm"
    doc = "shared memory between processes of one machine; addresses as ipc"
    capabilities = STREAM - {"raw"} | {"wildcard", "pid"}
    options = (
        ("ring", "size", 256 << 10, "shm: size of each of the two rings, a power of two; the "
                                  "connecting side sets it"),
        ("peer_uid", "int", None, "shm: the user that the peer must run as; None: the "
                                  "same user, -1: any user who may open the socket"),
        ("spin", "seconds", 25e-6, "shm: how long a receive polls for a message before it sleeps, "
                                   "while that pays off; 0: never", (0, 1)),
    )

    def open(self, sock: socket.socket, role: str,
             options: Options) -> Generator[str, None, NativeEngine]:
        fds: list[int] = []
        try:
            if role == "connect":
                return (yield from self._invite(sock, options, fds))
            try:
                return (yield from self._accept(sock, options, fds))
            except Refused as refusal:
                self._tell(sock, str(refusal))
                raise
        finally:
            _close(fds)

    def _invite(self, sock: socket.socket, options: Options,
                fds: list[int]) -> Generator[str, None, NativeEngine]:
        _check_peer(sock, options)
        ring = ring_size(options)
        fds.append(_make_memory(ring))
        fds.append(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
        fds.append(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
        with contextlib.suppress(BrokenPipeError):  # refused before the hello: the answer says why
            yield from _send(sock, HELLO.pack(MAGIC, VERSION, FDS, ring), fds)
        strange: list[int] = []
        try:
            answer = yield from _receive_ours(sock, ANSWER.size, strange)
            _, version, length = ANSWER.unpack(answer) if answer else (MAGIC, 0, 0)
            if not answer or length > REASON_MOST:
                raise Refused("the peer does not speak shm: does it listen on ipc:// there?")
            if length:
                reason = yield from _receive(sock, length, strange)
                raise Refused(f"the peer refused: {reason.decode('utf-8', 'replace')}")
            if version != VERSION:
                raise Refused(f"the peer speaks version {version} of shm, we speak {VERSION}")
            if strange:
                raise Refused("the peer's answer has descriptors, which only a hello may have")
        finally:
            _close(strange)
        return _attach(fds, ring, True, options)

    def _accept(self, sock: socket.socket, options: Options,
                fds: list[int]) -> Generator[str, None, NativeEngine]:
        _check_peer(sock, options)
        hello = yield from _receive_ours(sock, HELLO.size, fds)
        if not hello:
            raise Refused("the peer does not speak shm: does it connect to ipc:// here?")
        ring = _check_hello(hello, fds)
        try:
            engine = _attach(fds, ring, False, options)
        except OSError as error:
            raise Refused(f"the peer's memory cannot be mapped: {error}") from None
        yield from _send(sock, ANSWER.pack(MAGIC, VERSION, 0), [])
        return engine

    def _tell(self, sock: socket.socket, reason: str) -> None:
        """Send the reason of a refusal, as far as the socket takes it at once."""
        text = reason.encode()[:REASON_MOST]
        with contextlib.suppress(OSError):
            sock.send(ANSWER.pack(MAGIC, VERSION, len(text)) + text, socket.MSG_NOSIGNAL)


def _attach(fds: list[int], ring: int, connected: bool, options: Options) -> NativeEngine:
    """Create the engine. It takes over the eventfds; the memory stays in `fds`."""
    memory, ours, theirs = fds if connected else (fds[0], fds[2], fds[1])
    spin = round((options.get("spin") or 0) * 1e9) if (os.cpu_count() or 1) > 1 else 0
    engine = attach(memory, ring, connected, ours, theirs, spin)
    del fds[1:]
    return engine


transport = Shm()
