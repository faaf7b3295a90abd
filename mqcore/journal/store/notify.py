"""One inotify instance for all that follow journals in this process: the system gives a user 128.

Each watch is an eventfd. A thread, which runs as long as there is a watch, reads the instance and
rings the watches of the folder that an event names. A forked child begins with none.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from pathlib import Path
from typing import Any

from mqcore.base.inotify import (
    CREATE,
    MODIFY,
    MOVED_TO,
    OVERFLOW,
    inotify_add,
    inotify_events,
    inotify_open,
    inotify_remove,
)
from mqcore.base.native import select, threading
from mqcore.base.threads import Thread


class _Hub:
    """All but the thread's own loop is guarded by `_lock`."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.rung: dict[int, set[int]] = {}     # watch: eventfds
        self.watch_of: dict[int, int] = {}      # eventfd: watch
        self.stop = os.eventfd(0, os.EFD_CLOEXEC)
        self.thread = Thread(self._run, "mqcore-journal-watch")
        try:
            self.thread.start()
        except BaseException:
            os.close(self.stop)
            raise

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self.fd, select.POLLIN)
        poller.register(self.stop, select.POLLIN)
        while all(fd != self.stop for fd, _ in poller.poll()):
            try:
                raw = os.read(self.fd, 65536)
            except BlockingIOError:
                continue
            self._ring(raw)
        os.close(self.fd)       # here: the exception of a signal handler may end end()
        os.close(self.stop)

    def _ring(self, raw: bytes) -> None:
        watches, every = set(), False
        for watch, mask, _ in inotify_events(raw):
            watches.add(watch)
            every = every or bool(mask & OVERFLOW)
        with _lock:
            for fd, watch in self.watch_of.items():
                if every or watch in watches:
                    os.eventfd_write(fd, 1)

    def end(self) -> None:
        """Without the lock, which the thread may want."""
        os.eventfd_write(self.stop, 1)
        self.thread.join()


_lock: Any = threading.RLock()     # mypy knows no _is_owned()
_hub: _Hub | None = None
# Descriptors to unwatch. A signal handler may end a follow() inside any call here: it leaves its
# descriptor to the call that it has interrupted.
_leaving: deque[int] = deque()


def watch_folder(path: Path) -> int:
    """A descriptor that is readable when a file in the folder grows or appears; -1: the system has
    none to give, or a signal handler has interrupted a call here. Reading takes the event back. End
    it with unwatch_folder()."""
    global _hub
    if _lock._is_owned():
        return -1
    with _lock:
        if _hub is None:
            _hub = _new()
        fd = -1 if _hub is None else _add(_hub, path)
    _tidy()
    return fd


def _new() -> _Hub | None:
    try:
        fd = inotify_open()
    except OSError:
        return None
    try:
        return _Hub(fd)
    except (OSError, RuntimeError):     # no descriptor, no thread
        os.close(fd)
        return None


def _add(hub: _Hub, path: Path) -> int:
    try:
        watch = inotify_add(hub.fd, path, MODIFY | CREATE | MOVED_TO)
    except OSError:
        return -1
    try:
        fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    except OSError:
        if watch not in hub.rung:
            inotify_remove(hub.fd, watch)
        return -1
    hub.rung.setdefault(watch, set()).add(fd)
    hub.watch_of[fd] = watch
    return fd


def unwatch_folder(fd: int) -> None:
    _leaving.append(fd)
    _tidy()


def _tidy() -> None:
    """Unwatch what was left, and end the hub if nothing is watched."""
    global _hub
    while not _lock._is_owned():    # else this is a handler: what it has interrupted does it
        unused = None
        with _lock:
            while _leaving:
                _remove(_leaving.popleft())
            if _hub is not None and not _hub.watch_of:
                unused, _hub = _hub, None
        if unused is not None:
            unused.end()
        if not _leaving:
            return


def _remove(fd: int) -> None:
    hub = _hub
    if hub is not None and fd in hub.watch_of:      # else: of before a fork
        watch = hub.watch_of.pop(fd)
        hub.rung[watch].remove(fd)
        if not hub.rung[watch]:
            del hub.rung[watch]
            inotify_remove(hub.fd, watch)
    os.close(fd)


def _forked() -> None:
    global _lock, _hub
    _lock = threading.RLock()
    if _hub is not None:        # its thread is the parent's
        for fd in (_hub.fd, _hub.stop):
            os.close(fd)
        for fd in list(_hub.watch_of):
            make_own(fd)
    _hub = None


def make_own(fd: int) -> None:
    """In a forked child: another eventfd under this number. The parent's would be rung and read by
    both."""
    with contextlib.suppress(OSError):
        fresh = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        os.dup2(fresh, fd, inheritable=False)
        os.close(fresh)


os.register_at_fork(after_in_child=_forked)
