"""ipc://path, ipc://@name and ipc://*: Unix domain sockets between processes of one machine.
shm.py derives from it and uses the same addresses and files for shared memory.

`@name` is in Linux's abstract namespace: it has no file and ends with its owner. It has no
permissions either, so every local user can connect to it. `*` (bind only) creates a new path in a
private temporary folder, which is removed when the socket is closed.

Binding replaces a socket file of a dead process, but never that of a live one. A file is stale if a
connection to it is refused. Testing, removing and binding happen under a lock on the folder
(flock), so that two processes that start at once cannot remove each other's new file. The lock
leaves no file behind. On close the file is removed if it still is the one that we created. The
socket still listens at that time, so no other process replaces the file before.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator

from mqcore.base.native import socket, time
from mqcore.errors import AddressError, BindError
from mqcore.spi.credentials import credentials
from mqcore.spi.transport import (
    Listening,
    Options,
    StreamTransport,
    beside,
    set_buffers,
    start_connect,
)

PATH_MAX = 107  # bytes; sun_path has 108 with the final zero byte
LOCK_PATIENCE = 0.5  # seconds; after that the folder is used without the lock


def _sockaddr(address: str) -> bytes:
    raw = os.fsencode(address)
    return b"\0" + raw[1:] if raw[:1] == b"@" else raw


def _identity(name: str | bytes) -> str:
    """A socket's name that does not depend on how its path is written, nor on the mount namespace:
    the file itself."""
    raw = os.fsencode(name)
    if raw[:1] == b"\0":
        return f"ipc/@{hashlib.blake2b(raw[1:], digest_size=16).hexdigest()}"
    file = os.stat(raw)
    return f"ipc/{file.st_dev:x}:{file.st_ino:x}"


def _new(options: Options) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX,
                         socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    set_buffers(sock, options)
    return sock


@contextlib.contextmanager
def _folder_locked(path: bytes) -> Iterator[None]:
    try:
        folder = os.open(os.path.dirname(path) or b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # not readable: bind() will say what is wrong, if anything is
        yield
        return
    try:
        deadline = time.monotonic() + LOCK_PATIENCE
        while time.monotonic() < deadline:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                time.sleep(0.005)
        yield
    finally:
        os.close(folder)  # releases the lock


def _unlink_own(path: bytes, mine: os.stat_result) -> None:
    """Remove this file, unless it is another one by now."""
    with contextlib.suppress(OSError):
        now = os.lstat(path)
        if (now.st_dev, now.st_ino) == (mine.st_dev, mine.st_ino):
            os.unlink(path)


def _remove_stale(path: bytes) -> None:
    """Remove a socket file that no process serves. Leave anything else, which bind() will
    refuse."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return
    except OSError:
        return
    probe = _new({})
    try:
        probe.connect(path)
    except ConnectionRefusedError:
        with contextlib.suppress(OSError):
            os.unlink(path)
    except OSError:  # a full backlog, another socket type, no permission: it may be in use
        pass
    finally:
        probe.close()


class Ipc(StreamTransport):
    scheme = "ipc"
    doc = "Unix domain sockets, by path or abstract name"
    framing = "-ipc"
    capabilities = frozenset({"wildcard", "pid"})

    def check(self, address: str, role: str) -> None:
        if address == "*" and role == "connect":
            raise AddressError("* is only for bind()",
                               hint="use the URL that bind() returned")
        size = len(os.fsencode(address))
        if address == "@" or not size:
            raise AddressError("the name is missing", position=len(address))
        if size > PATH_MAX:
            raise AddressError(f"the path has {size} bytes, but the system allows {PATH_MAX}",
                               hint="use a shorter path, a relative one, or an abstract @name")

    def listen(self, address: str, options: Options) -> Listening:
        self.check(address, "bind")
        if address == "*":
            folder = tempfile.mkdtemp(prefix="mq-")
            try:
                return self._listen(os.path.join(folder, "socket"), options, folder)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
        return self._listen(address, options, None)

    def _listen(self, address: str, options: Options, folder: str | None) -> Listening:
        path = _sockaddr(address)
        try:
            with contextlib.ExitStack() as opened:
                sock = opened.enter_context(_new(options))
                mine = self._bind(sock, path, options)
                opened.pop_all()
        except OSError as error:
            hint = f"does its folder exist? {os.path.dirname(address)}" \
                if error.errno == errno.ENOENT else None
            raise BindError.of(error.errno or errno.EINVAL,
                               f"cannot listen on {self.scheme}://{address}", hint) from None
        if mine is None:
            return Listening((sock,), address)
        # absolute, because the working directory may change before release()
        full = os.path.abspath(path)
        owner = os.getpid()

        def release() -> None:
            if os.getpid() != owner:
                return  # a forked child closes its copy; the file belongs to the parent
            _unlink_own(full, mine)
            if folder is not None:
                with contextlib.suppress(OSError):
                    os.rmdir(folder)

        return Listening((sock,), address, release)

    def _bind(self, sock: socket.socket, path: bytes,
              options: Options) -> os.stat_result | None:
        """Bind and listen. The socket's file, if it has one."""
        if path[:1] == b"\0":
            sock.bind(path)
            beside(sock, options)
            sock.listen(options.get("backlog", 1024))
            return None
        with _folder_locked(path):
            _remove_stale(path)
            sock.bind(path)
            mine = os.lstat(path)
            try:
                beside(sock, options)
                sock.listen(options.get("backlog", 1024))  # or it would look stale to others
            except BaseException:
                _unlink_own(path, mine)
                raise
        return mine

    def connect(self, target: str, options: Options) -> socket.socket:
        sock = _new(options)
        try:
            start_connect(sock, _sockaddr(target))
        except OSError:
            sock.close()
            raise
        return sock

    def local_name(self, sock: socket.socket, options: Options) -> str:
        return _identity(sock.getsockname())

    def local_names(self, target: str, options: Options) -> list[str]:
        name = _sockaddr(target)
        if name[:1] != b"\0" and not os.access(name, os.W_OK, effective_ids=True):
            return []       # connect() would be refused, too
        try:
            return [_identity(name)]
        except OSError:
            return []

    def tune(self, sock: socket.socket, options: Options) -> None:
        set_buffers(sock, options)

    def names(self, sock: socket.socket) -> tuple[str, str]:
        """A connecting socket has no name of its own, so its name is the path it connected to."""
        try:
            ours = self._text(sock.getsockname())
        except OSError:
            return "", ""
        try:
            theirs = self._text(sock.getpeername())
        except OSError:
            theirs = ""
        return ours or theirs, theirs or ours

    def pid(self, sock: socket.socket) -> int | None:
        try:
            return credentials(sock).pid or None
        except OSError:
            return None

    def _text(self, name: str | bytes) -> str:
        if not name:
            return ""
        raw = os.fsencode(name)
        return f"{self.scheme}://" + os.fsdecode(b"@" + raw[1:] if raw[:1] == b"\0" else raw)


transport = Ipc()
