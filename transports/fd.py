"""fd://: take over an existing descriptor.

    connect("fd://7")        a connected stream socket: one end of a socketpair, an inherited one
    bind("fd://3")           a listening stream socket
    bind("fd://systemd")     what systemd passed (sd_listen_fds(3)); connect() for Accept=yes
    bind("fd://NAME")        the one of several with this FileDescriptorName=

From the call on, mqcore owns the descriptor and closes it. Detach a Python socket object first with
detach(). A descriptor cannot be used twice. The call refuses one that is not open, not a stream
socket, or not connected (or listening). A connection can be used only once: when it ends, the
endpoint stops.

Names, options and everything else are those of the transport of its address family.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from typing import Any

from mqcore.base.native import socket, threading
from mqcore.errors import AddressError, PluginError, UnknownTransport
from mqcore.spi import registry
from mqcore.spi.transport import Listening, Options, StreamTransport

FIRST = 3  # SD_LISTEN_FDS_START
NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)
NAME = re.compile(r"[!-9;-~]{1,255}")  # systemd's rule: ASCII without colon and control characters
FAMILIES = {socket.AF_INET: "tcp", socket.AF_INET6: "tcp", socket.AF_UNIX: "ipc",
            getattr(socket, "AF_VSOCK", -1): "vsock"}


# -- which descriptors -----------------------------------------------------------------------------


def _passed() -> list[tuple[str, int]]:
    """(name, number) of the descriptors that systemd passed to this process; AddressError if there
    are none."""
    text, pid = os.environ.get("LISTEN_FDS", ""), os.environ.get("LISTEN_PID", "")
    if not text or not pid:
        raise AddressError("no descriptors were passed to this process (LISTEN_FDS is not set)",
                           hint="is it started by a systemd socket unit?")
    if pid != str(os.getpid()):
        raise AddressError(f"descriptors were passed to process {pid} (LISTEN_PID), this one is "
                           f"{os.getpid()}", hint="start it without a wrapper process")
    if not NUMBER.fullmatch(text) or int(text) == 0:
        raise AddressError(f"LISTEN_FDS is {text!r}, not a number of at least 1")
    names = os.environ.get("LISTEN_FDNAMES", "").split(":")
    names = names if len(names) == int(text) else [""] * int(text)
    return [(name, FIRST + i) for i, name in enumerate(names)]


def _numbers(address: str) -> list[int]:
    if NUMBER.fullmatch(address):
        return [int(address)]
    passed = _passed()
    names = list(dict.fromkeys(name for name, _ in passed))
    if address != "systemd":
        found = [number for name, number in passed if name == address]
        if not found:
            raise AddressError(f"no descriptor named {address!r} was passed",
                               hint=f"passed: {', '.join(filter(None, names)) or 'without names'}")
        return found
    if len(names) > 1:
        raise AddressError(f"{len(passed)} descriptors were passed, with different names",
                           hint=f"choose one: fd://{' or fd://'.join(names)}")
    return [number for _, number in passed]


# -- taking descriptors ----------------------------------------------------------------------------


class Fd(StreamTransport):
    scheme = "fd"
    doc = "existing descriptors: socketpairs, systemd's sockets"
    capabilities = frozenset()
    gaps = {
        "reconnect": "a connection that was handed over cannot be made again",
        "refused": "connect() takes a connected socket",
        "busy": "a descriptor is used once and owned by the socket",
        "wildcard": "the caller chooses the descriptor",
        "pid": "the ends of a socketpair may have moved to other processes",
    }

    def __init__(self) -> None:
        # Descriptors are process-wide, and so is this: number -> inode of the socket taken there. A
        # different socket found there later is new and may be taken.
        self._taken: dict[int, int] = {}
        self._lock = threading.Lock()
        # a thread of the parent may hold it
        again = self._lock._at_fork_reinit  # type: ignore[attr-defined]  # every lock has it
        os.register_at_fork(after_in_child=again)

    def check(self, address: str, role: str) -> None:
        if not NAME.fullmatch(address):
            raise AddressError("the address is neither a number nor a name",
                               hint="write fd://7, fd://systemd, or the name given to systemd")

    def adopt(self, address: str, options: Options) -> socket.socket:
        numbers = _numbers(address)
        if len(numbers) > 1:
            raise AddressError(f"{len(numbers)} descriptors were passed, but connect() takes one",
                               hint="name one by its number")
        sock = self._take(numbers, False)[0]
        self.tune(sock, options)
        return sock

    def listen(self, address: str, options: Options) -> Listening:
        return Listening(tuple(self._take(_numbers(address), True)), address)

    def _take(self, numbers: list[int], listening: bool) -> list[socket.socket]:
        """Take all of them or none."""
        with self._lock:
            inodes = [self._judge(number, listening) for number in numbers]
            self._taken.update(zip(numbers, inodes, strict=True))
        socks = [socket.socket(fileno=number) for number in numbers]
        for sock in socks:
            sock.setblocking(False)
            sock.set_inheritable(False)
        return socks

    def _holder(self, inode: int) -> int | None:
        """The descriptor under which we own this socket."""
        for number, taken in self._taken.items():
            if taken == inode:
                with contextlib.suppress(OSError):
                    if os.fstat(number).st_ino == inode:
                        return number
        return None

    def _judge(self, number: int, listening: bool) -> int:
        """The socket's inode. AddressError for a descriptor that cannot be taken."""
        try:
            found = os.fstat(number)
        except OSError:
            raise AddressError(f"descriptor {number} is not open") from None
        if not stat.S_ISSOCK(found.st_mode):
            raise AddressError(f"descriptor {number} is not a socket")
        holder = self._holder(found.st_ino)
        if holder is not None:
            same = f" (it is the same socket as {holder})" if holder != number else ""
            raise AddressError(f"descriptor {number} is in use already{same}",
                               hint="a socket can be taken over only once")
        sock = socket.socket(fileno=number)
        try:
            if sock.type != socket.SOCK_STREAM:
                raise AddressError(f"descriptor {number} is a socket of type {sock.type.name}",
                                   hint="only stream sockets can be taken")
            listens = bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
            if listens and not listening:
                raise AddressError(f"descriptor {number} is a listening socket", hint="use bind()")
            if not listens and listening:
                raise AddressError(f"descriptor {number} is not listening",
                                   hint="use connect() for a connected one")
            if not listens:
                _must_be_connected(sock)
        finally:
            sock.detach()
        return found.st_ino

# -- delegated to the transport of its family -----------------------------------------------------

    def tune(self, sock: socket.socket, options: Options) -> None:
        family = _family(sock)
        if family is not None:
            family.tune(sock, options)

    def names(self, sock: socket.socket) -> tuple[str, str]:
        family = _family(sock)
        return family.names(sock) if family is not None else ("", "")

    def pid(self, sock: socket.socket) -> int | None:
        """None: the ends of a socketpair may have moved to other processes."""
        return _family(sock).pid(sock) if any(self.names(sock)) else None


def _must_be_connected(sock: socket.socket) -> None:
    try:
        sock.getpeername()
    except OSError as error:
        why = "" if error.errno == errno.ENOTCONN else f" ({error.strerror})"
        raise AddressError(f"descriptor {sock.fileno()} is not connected{why}") from None


def _family(sock: socket.socket) -> Any:
    try:
        return registry.transport(FAMILIES.get(sock.family, ""))
    except (UnknownTransport, PluginError):
        return None


transport = Fd()
