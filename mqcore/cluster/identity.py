"""The identity of a node: its static key, in a file that one node at a time may use.

    mqcore-cluster-identity 1
    8d6f...64 hex digits...

Without a file a node makes a new key each time it joins. With one it keeps its id, so that bans,
logs and rendezvous hashing know it again after a restart.

The file is made once, whole or not at all, readable by its owner alone (mode 0600). A lock (flock)
on it is held while the node is joined. Two nodes with one identity would take each other's links.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from mqcore.cluster.crypto import X25519PrivateKey
from mqcore.cluster.errors import IdentityError
from mqcore.cluster.key import node_id
from mqcore.errors import MORE_FILES, NO_FILES

FORMAT = "mqcore-cluster-identity 1"
HEX = 64                # digits of the private key
MAX_FILE = 4096         # bytes
TRIES = 10              # while others make or remove the file


class Identity:
    """`Identity.take(path)` locks the file, and makes it if there is none. `release()` when the
    node has left."""

    def __init__(self, path: str, fd: int, static: X25519PrivateKey) -> None:
        self.path = path
        self.static = static
        self._fd = fd

    @classmethod
    def take(cls, path: str | os.PathLike[str]) -> Identity:
        """Raises IdentityError: the file is in use, unreadable, open to other users, or no
        identity."""
        where = os.fspath(path)
        for _ in range(TRIES):
            fd = _opened(where, create=True)
            if fd is None:
                continue
            try:
                if _locked(fd, where):
                    return cls(where, fd, _read(fd, where))
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)
        raise IdentityError(f"cannot take the identity {where}: another program makes and removes "
                            "it again and again", path=where)

    @staticmethod
    def id_in(path: str | os.PathLike[str]) -> str:
        """The id (32 hex digits) in a file, which may be in use. Raises IdentityError."""
        where = os.fspath(path)
        fd = _opened(where, create=False)
        assert fd is not None
        try:
            return node_id(_read(fd, where).public_key().public_bytes_raw()).hex()
        finally:
            os.close(fd)

    def release(self) -> None:
        """Another node may take it. Idempotent."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            fcntl.flock(fd, fcntl.LOCK_UN)      # for children that have inherited it, too
            os.close(fd)


def _opened(where: str, create: bool) -> int | None:
    """The file's descriptor. None: another process has just made the file."""
    try:
        return os.open(where, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)     # a FIFO, say
    except FileNotFoundError as error:
        if not create:
            raise _trouble("read", where, error) from error
    except OSError as error:
        raise _trouble("read", where, error) from error
    temporary = ""
    try:
        fd, temporary = tempfile.mkstemp(prefix=".identity.", dir=Path(where).parent)  # mode 0600
        try:
            secret = X25519PrivateKey.generate().private_bytes_raw().hex()
            os.write(fd, f"{FORMAT}\n{secret}\n".encode())
            os.fsync(fd)
            os.link(temporary, where)
        except FileExistsError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        return fd
    except OSError as error:
        raise _trouble("make", where, error) from error
    finally:
        if temporary:
            with suppress(OSError):
                os.unlink(temporary)


def _locked(fd: int, where: str) -> bool:
    """False: the file has been removed or replaced since it was opened."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise IdentityError(f"the identity {where} is in use by another node of this machine",
                            hint="stop that node, or give this one a file of its own",
                            path=where) from None
    except OSError as error:
        raise _trouble("lock", where, error) from error
    try:
        return os.path.samestat(os.fstat(fd), os.stat(where))
    except FileNotFoundError:
        return False


def _read(fd: int, where: str) -> X25519PrivateKey:
    try:
        mode = os.fstat(fd).st_mode
        data = os.pread(fd, MAX_FILE, 0) if stat.S_ISREG(mode) else b""
    except OSError as error:
        raise _trouble("read", where, error) from error
    if not stat.S_ISREG(mode):
        raise IdentityError(f"the identity {where} is no plain file", path=where)
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise IdentityError(f"the identity {where} is open to other users (mode {mode & 0o777:o})",
                            hint=f"remove it if others may have read it, else chmod 600 {where}",
                            path=where)
    first, _, rest = data.partition(b"\n")
    digits = rest.strip()
    try:
        if first.decode() != FORMAT or len(digits) != HEX:
            raise ValueError
        return X25519PrivateKey.from_private_bytes(bytes.fromhex(digits.decode()))
    except ValueError:
        raise IdentityError(f"{where} is no identity of a node: it begins with {FORMAT!r} and has "
                            f"{HEX} hex digits in its second line",
                            hint="name another file, or remove this one: the node then has a new "
                                 "identity", path=where) from None


def _trouble(what: str, where: str, error: OSError) -> IdentityError:
    return IdentityError(f"cannot {what} the identity {where}: {error.strerror}",
                         hint=MORE_FILES if error.errno in NO_FILES else
                              "choose a file in a folder that exists and that you may write to; "
                              "the file system must have locks and hard links", path=where)
