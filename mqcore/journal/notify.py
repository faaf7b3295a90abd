"""One inotify instance for all that follow journals in this process: the system gives a user 128.

Each watch is an eventfd. A thread, which runs as long as there is a watch, reads the instance and
rings the watches of the folder that an event names. A forked child begins with none.
"""

from __future__ import annotations

import os
import select
import struct
from pathlib import Path

from mqcore.base.native import threading
from mqcore.journal.scan import inotify_add, inotify_open, inotify_remove

_EVENT = struct.Struct("iIII")  # inotify(7): watch, mask, cookie, length of the name behind it
OVERFLOW = 0x4000


class _Hub:
    """All but the thread's own loop is guarded by `_lock`."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.rung: dict[int, set[int]] = {}     # watch: eventfds
        self.watch_of: dict[int, int] = {}      # eventfd: watch
        self.stop = os.eventfd(0, os.EFD_CLOEXEC)
        self.thread = threading.Thread(target=self._run, name="mqcore-journal-watch", daemon=True)
        self.thread.start()

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

    def _ring(self, raw: bytes) -> None:
        at, watches, every = 0, set(), False
        while at < len(raw):
            watch, mask, _, size = _EVENT.unpack_from(raw, at)
            at += _EVENT.size + size
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
        os.close(self.fd)
        os.close(self.stop)


_lock = threading.Lock()
_hub: _Hub | None = None


def watch_folder(path: Path) -> int:
    """A descriptor that is readable when a file in the folder grows or appears; -1: the system has
    none to give. Reading takes the event back. End it with unwatch_folder()."""
    global _hub
    unused = None
    with _lock:
        hub = _hub or _new()
        if hub is None:
            return -1
        fd = _add(hub, path)
        _hub = hub if hub.watch_of else None
        if _hub is None:
            unused = hub
    if unused is not None:
        unused.end()
    return fd


def _new() -> _Hub | None:
    fd = inotify_open()
    if fd < 0:
        return None
    try:
        return _Hub(fd)
    except (OSError, RuntimeError):     # no descriptor, no thread
        os.close(fd)
        return None


def _add(hub: _Hub, path: Path) -> int:
    watch = inotify_add(hub.fd, path)
    if watch < 0:
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
    global _hub
    unused = None
    with _lock:
        hub = _hub
        if hub is not None and fd in hub.watch_of:      # else: of before a fork
            watch = hub.watch_of.pop(fd)
            hub.rung[watch].remove(fd)
            if not hub.rung[watch]:
                del hub.rung[watch]
                inotify_remove(hub.fd, watch)
            if not hub.watch_of:
                unused, _hub = hub, None
        os.close(fd)
    if unused is not None:
        unused.end()


def _forked() -> None:
    global _lock, _hub
    _lock = threading.Lock()
    if _hub is not None:        # its thread is the parent's
        for fd in (_hub.fd, _hub.stop):
            os.close(fd)
    _hub = None


os.register_at_fork(after_in_child=_forked)
