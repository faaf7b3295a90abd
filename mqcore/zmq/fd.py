"""Edge: the descriptor that libzmq calls ZMQ_FD.

It becomes readable when something changed at the socket, and the program then reads EVENTS, which
calms it. libzmq loses track of a program that takes one message and sleeps although more are there;
here each receive leaves the descriptor readable as long as there is more, so both ways work.
"""

from __future__ import annotations

import os
from typing import Any

from mqcore.base.native import threading


class Edge:
    """Any thread may call it, and close it under the others: the lock keeps the descriptor's number
    from being another file's meanwhile. It is reentrant: a signal handler may close the socket."""

    fd = -1
    place = -1  # among the notifiers of the socket
    low = False  # it was calmed, and not rung since: readable only if something changed since

    def __init__(self, core: Any) -> None:
        self._lock = threading.RLock()
        self.fd = os.eventfd(1, os.EFD_NONBLOCK | os.EFD_CLOEXEC)  # the first look is for free
        try:
            self.attach(core)
        except BaseException:
            fd, self.fd = self.fd, -1
            os.close(fd)
            raise

    def attach(self, core: Any) -> None:
        """Tell of this one's changes. The one before, if any, is closed."""
        with self._lock:
            self._core = core
            self.place = core._add_notifier(self.fd)
            core._arm(self.place)

    def renew(self) -> None:
        """In a forked child: a lock that no thread holds."""
        self._lock = threading.RLock()

    def fileno(self) -> int:
        """The descriptor; -1: closed."""
        return self.fd

    def calm(self) -> None:
        """Not readable, until something changes from now on."""
        with self._lock:
            if self.fd < 0:
                return
            try:
                os.eventfd_read(self.fd)
            except BlockingIOError:
                pass
            if self.fd >= 0:
                self._core._arm(self.place)
                self.low = True

    def ring(self) -> None:
        """Any thread may."""
        with self._lock:
            if self.fd >= 0:
                self.low = False
                os.eventfd_write(self.fd, 1)

    def close(self) -> None:
        """Idempotent: a loop may close what it watches."""
        with self._lock:
            fd, self.fd = self.fd, -1
        if fd >= 0:
            self._core._remove_notifier(self.place)
            os.close(fd)

    __del__ = close
