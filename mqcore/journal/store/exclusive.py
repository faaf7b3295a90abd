"""The lock of a partition: one writer at a time.

It is taken three times over, since each of them fails somewhere. `flock` of the file `lock` fails
where a file system grants it on each machine by itself, and when the file is removed.
The record lock of the same file is what some network file systems pass on. `flock` of the folder
stays when files in it are removed. The system lets go of all three when the process ends, however
it ends. A forked child that has inherited the descriptors keeps them.

What none of them keeps out, the writer notices: see `undisturbed` in log.pyx.

While it is taken, there is a shared lock (`flock`) on the topic's folder. A rename has that
folder's lock alone: it finds that no partition has a writer, and none comes meanwhile.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Callable, Iterator
from errno import ENOLCK, ENOSYS, EOPNOTSUPP
from pathlib import Path
from typing import Any

from mqcore.base.living import Living
from mqcore.base.native import threading, time
from mqcore.journal.errors import (
    JournalBusy,
    JournalClosed,
    JournalError,
    JournalLocked,
    JournalNotFound,
)
from mqcore.journal.store.group_leases import begin_anew
from mqcore.journal.store.horizon import NAME
from mqcore.journal.store.place import HALF, make_folder

TRIES = 100
PATIENCE = 10.0         # seconds
PAUSE = 0.002
COMPACTING, CHANGING = 1, 2     # the bytes of `lock` that a CompactionLock locks
HELD = (BlockingIOError, PermissionError)       # EAGAIN or EACCES: POSIX allows both


class TopicLock:
    """Of a topic's folder. shared: with others that say so, waiting for who renames the topic.
    Else alone: JournalLocked if others do not let go of it within PATIENCE. JournalNotFound: there
    is no such topic."""

    def __init__(self, home: Path, shared: bool = False) -> None:
        self.fd = -1
        self._alone = 0         # the thread that has it alone
        _locks.add(self)        # a process may fork while it waits
        try:
            while True:
                with _opening:
                    self.fd = os.open(home, os.O_RDONLY | os.O_CLOEXEC)
                self._wait(home, shared)
                if os.path.samestat(os.fstat(self.fd), os.stat(home)):
                    break
                self.let_go()   # it was renamed meanwhile, and another one has its name
        except (FileNotFoundError, NotADirectoryError) as error:
            self.let_go()
            raise missing(home) from error
        except BaseException:
            self.let_go()
            raise

    def _wait(self, home: Path, shared: bool) -> None:
        if shared and threading.get_ident() in _renaming:
            raise JournalBusy(f"{home}: this signal handler has interrupted a rename",
                              hint="let the handler only set a flag")
        end = time.monotonic() + PATIENCE
        while True:
            try:
                _also(fcntl.flock, self.fd,
                      fcntl.LOCK_NB | (fcntl.LOCK_SH if shared else fcntl.LOCK_EX))
                break
            except HELD:
                if time.monotonic() > end:
                    raise _unavailable(home, shared) from None
            time.sleep(PAUSE)
        if not shared:
            _renaming.add(threading.get_ident())
            self._alone = threading.get_ident()

    def __enter__(self) -> TopicLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """For children that have inherited the descriptor, too."""
        if self.fd >= 0:
            _also(fcntl.flock, self.fd, fcntl.LOCK_UN)
            self.let_go()

    def let_go(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)
            _renaming.discard(self._alone)

    def __del__(self) -> None:      # after the exception of a signal handler
        self.let_go()

    fd = -1


def _unavailable(home: Path, shared: bool) -> JournalError:
    if shared:
        return JournalBusy(f"{home} is being renamed for {PATIENCE:g} s",
                           hint="try again later; `fuser -v` on that folder tells which process "
                                "it is")
    return JournalLocked(f"{home} is being copied, compacted, deleted, opened or committed to",
                         pid=0,
                         hint="try again later; consumers that commit all the time may have to "
                              "pause")


class Lock:
    """`folder`: a descriptor of the partition's folder, which may be given away by give_folder().
    It holds a share of the lock until release(). renaming: the caller has the TopicLock."""

    def __init__(self, folder: Path, renaming: bool = False) -> None:
        self.file = self.folder = -1
        self._given = False
        self._path = folder
        _locks.add(self)        # a process may fork before this one has a writer
        topic = None if renaming else TopicLock(folder.parent, shared=True)
        try:
            self._take(folder)
        except FileNotFoundError as error:
            raise missing(folder) from error
        finally:
            if topic is not None:
                topic.release()

    def _take(self, folder: Path) -> None:
        try:
            with _opening:
                self.folder = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
                self.file = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644,
                                    dir_fd=self.folder)
        except OSError as error:
            self._close()
            raise _of(folder, error) from error
        except BaseException:
            self._close()
            raise
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _also(fcntl.flock, self.folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _also(fcntl.fcntl, self.file, fcntl.F_OFD_SETLK, _record(fcntl.F_WRLCK))
            sign(self.file, f"{os.getpid()} {os.uname().nodename}\n".encode())
        except HELD:
            held = self._held(folder)
            self._close()
            raise held from None
        except OSError as error:
            self._close()
            raise _of(folder, error) from error
        except BaseException:
            self._close()
            raise

    def _held(self, folder: Path) -> JournalLocked:
        said = os.pread(self.file, 300, 0).decode(errors="replace").partition("\n")[0]
        pid, _, host = said.strip().partition(" ")
        number = int(pid) if pid.isascii() and pid.isdigit() else 0
        where = f" of {host!r}" if host and host != os.uname().nodename else ""
        return JournalLocked(f"process {number or '?'}{where} writes to {folder}", pid=number)

    def check(self) -> None:
        """JournalNotFound: the path leads to another folder by now, which is not ours to change.
        JournalClosed: the lock was released, by a signal handler that has closed the writer."""
        try:
            if os.path.samestat(os.fstat(self.folder), os.stat(self._path)):
                return
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError:
            if self.file >= 0:
                raise
        if self.file < 0:
            raise JournalClosed(f"the writer of {self._path} is closed")
        raise JournalNotFound(f"{self._path} was moved or deleted while its writer was open",
                              hint="messages go where it is by now; close the writer, and open "
                                   "it there")

    def changing(self) -> contextlib.AbstractContextManager[None]:
        """See CompactionLock. JournalNotFound, JournalClosed, as check()."""
        self.check()
        return _changing(self.file)

    def give_folder(self) -> int:
        """The descriptor; the caller closes it, after release()."""
        self._given = True
        return self.folder

    def release(self) -> None:
        """For children that have inherited the descriptors, too."""
        if self.file < 0:
            return
        with contextlib.suppress(OSError):
            fcntl.fcntl(self.file, fcntl.F_OFD_SETLK, _record(fcntl.F_UNLCK))
        with contextlib.suppress(OSError):
            fcntl.flock(self.folder, fcntl.LOCK_UN)
        fcntl.flock(self.file, fcntl.LOCK_UN)
        self._close()

    def let_go(self) -> None:
        """In a forked child: the lock stays with the parent. When that ends, another process may
        write, whatever its children do."""
        self._close()

    def _close(self) -> None:
        file, self.file = self.file, -1
        folder, self.folder = self.folder, -1
        if file >= 0:
            os.close(file)
        if folder >= 0 and not self._given:
            os.close(folder)

    def __del__(self) -> None:      # after the exception of a signal handler
        self._close()

    file = folder = -1


def _of(folder: Path, error: OSError) -> OSError:
    """The same error, which says where."""
    why = os.strerror(error.errno or 0)
    if error.errno in (ENOLCK, ENOSYS, EOPNOTSUPP):
        why += ": the file system has no locks (keep journals on a local one)"
    return OSError(error.errno, why, str(folder / "lock"))


def missing(folder: Path) -> JournalNotFound:
    return JournalNotFound(f"{folder} is not there: it was deleted, or its topic renamed",
                           hint="`mq journal ls` lists what a folder holds")


class CompactionLock:
    """Of a partition: one compaction at a time, and none while it is repaired or deleted. It is a
    record lock of the second byte of the file `lock`, beside a writer's. JournalLocked: another
    process or thread has it. JournalNotFound: there is no such partition.

    changing(): alone with the names of the segments that are complete. A writer that removes some
    has it, too (Lock.changing())."""

    def __init__(self, folder: Path) -> None:
        self.fd = -1
        _locks.add(self)
        try:
            with _opening:
                self.fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise missing(folder) from error
        try:
            _also(fcntl.fcntl, self.fd, fcntl.F_OFD_SETLK, _record(fcntl.F_WRLCK, COMPACTING))
        except HELD:
            self.let_go()
            raise JournalLocked(f"{folder} is being compacted, repaired or deleted", pid=0,
                                hint="try again later") from None
        except BaseException:
            self.let_go()
            raise

    def is_of(self, folder: Path) -> bool:
        """Whether the folder is the one that was locked, not another one made in its place."""
        try:
            return os.path.samestat(os.fstat(self.fd), os.stat(folder / "lock"))
        except FileNotFoundError:
            return False

    def changing(self) -> contextlib.AbstractContextManager[None]:
        return _changing(self.fd)

    def sweep(self, folder: Path) -> None:
        """Remove what compactions that were killed have left."""
        for half in _halves(folder):
            half.unlink(missing_ok=True)

    def __enter__(self) -> CompactionLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """For children that have inherited the descriptor, too."""
        if self.fd >= 0:
            with contextlib.suppress(OSError):
                fcntl.fcntl(self.fd, fcntl.F_OFD_SETLK, _record(fcntl.F_UNLCK, COMPACTING))
            self.let_go()

    def let_go(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:      # after the exception of a signal handler
        self.let_go()

    fd = -1


def _halves(folder: Path) -> list[Path]:
    return [half for name in (f".*{HALF}", f".{NAME}.*") for half in folder.glob(name)]


def sweep_compaction(folder: Path) -> None:
    """CompactionLock.sweep(), unless it is locked: then the files belong to who has the lock."""
    if _halves(folder):
        with contextlib.suppress(JournalLocked), CompactionLock(folder) as lock:
            lock.sweep(folder)


@contextlib.contextmanager
def _changing(fd: int) -> Iterator[None]:
    """fd: of the file `lock`. Waits for the other one, which has it for a few calls of the
    system."""
    _also(fcntl.fcntl, fd, fcntl.F_OFD_SETLKW, _record(fcntl.F_WRLCK, CHANGING))
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _record(fcntl.F_UNLCK, CHANGING))


def locked(folder: Path) -> Lock:
    """The lock of a folder that is made if it is missing."""
    for _ in range(TRIES):
        with contextlib.suppress(FileNotFoundError):    # renamed or deleted just then
            if not folder.is_dir():
                begin_anew(folder.parent)
                make_folder(folder)
            return Lock(folder)
    raise JournalBusy(f"{folder} was renamed or deleted {TRIES} times while it was opened")


_locks: Living[Lock | TopicLock | CompactionLock] = Living()    # those of this process
_renaming: set[int] = set()             # threads that have a topic alone
_opening: Any = threading.RLock()       # no fork between a descriptor and its place in the Lock


def _after_fork() -> None:
    _opening.release()
    for lock in _locks:
        lock.let_go()


os.register_at_fork(before=_opening.acquire, after_in_parent=_opening.release,
                    after_in_child=_after_fork)


def sign(file: int, words: bytes) -> None:
    """Who holds the lock, for the others' errors. Written in place, which takes no space on a full
    disk if the file had as much; a process that cannot write it holds the lock all the same."""
    try:
        os.pwrite(file, words, 0)
    except OSError:
        words = b""         # better no name than the last holder's
    with contextlib.suppress(OSError):
        os.ftruncate(file, len(words))


def is_written(folder: Path) -> bool:
    """Whether a writer holds the lock. False, too, where the system cannot tell."""
    try:
        file = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        found = fcntl.fcntl(file, fcntl.F_OFD_GETLK, _record(fcntl.F_WRLCK))
    except OSError:
        return False
    finally:
        os.close(file)
    return bool(struct.unpack_from("h", found)[0] != fcntl.F_UNLCK)


def _also(call: Callable[..., object], *args: object) -> None:
    """Where the file system has no such locks, the others have to do."""
    try:
        call(*args)
    except HELD:
        raise
    except OSError:
        pass


def _record(kind: int, at: int = 0) -> bytes:
    """A struct flock: one byte of the file."""
    return struct.pack("hhqqi0q", kind, os.SEEK_SET, at, 1, 0)
