"""Waiting in gevent's hub: for changes at sockets, for descriptors, for a thread.

A hub leads a socket as asyncio's loop does (api/wakers.py): while a greenlet waits, it watches the
socket's own poll set and runs what it harvests. Watchers only run while a greenlet waits, so that
gevent.wait() ends when the greenlets do.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from gevent import get_hub
from gevent.event import Event

from mqcore.api.wakers import Sleeper, Waker
from mqcore.base.native import threading
from mqcore.base.threads import Thread

READ, WRITE = 1, 2  # of a hub's io watchers


class Nap(Event):
    """A greenlet's sleep."""

    wake = Event.set


class HubWaker(Waker):
    """Of one hub and one socket."""

    def __init__(self, core: Any, loop: Any) -> None:
        super().__init__(core, id(loop))
        self.loop = loop
        self.bell = loop.io(self.fd, READ)
        self.set = -1
        self.inside: Any = None

    def add(self, nap: Nap) -> None:
        """It waits. doze() says from when on."""
        if not self.naps:
            self.bell.start(self.rung)
        self.naps[nap] = None
        self.users += 1

    def drop(self, nap: Sleeper) -> None:
        """It waits no more."""
        super().drop(nap)
        self.users -= 1
        if not self.users:
            self.bell.stop()
            self.unwatch()
            if self.core.closed:
                self.forget()

    def watch(self) -> None:
        if self.inside is None:
            try:  # a copy: the number may be another's before the hub forgets it
                self.set = self.core._descriptor()
            except OSError:
                self.core._leave(self.place)
                self.core._arm(self.place)
                return
            self.inside = self.loop.io(self.set, READ)
        self.inside.start(self.ready)
        self.watching = True

    def unwatch(self) -> None:
        if self.watching:
            self.inside.stop()
            self.watching = False

    def forget(self) -> None:
        for watcher in (self.bell, self.inside):
            if watcher is not None:
                with suppress(ValueError):  # its loop was destroyed, and it with the loop
                    watcher.close()
        self.inside = None
        super().forget()
        fd, self.set = self.set, -1
        if fd >= 0:
            os.close(fd)


class Wakers:
    """A socket's, one for each hub that waited for it."""

    def __init__(self) -> None:
        self._of: weakref.WeakKeyDictionary[Any, HubWaker] = weakref.WeakKeyDictionary()

    def here(self, core: Any) -> HubWaker:
        hub = get_hub()
        found = self._of.get(hub)
        if found is None or found.fd < 0 or found.core is not core:
            found = self._of[hub] = HubWaker(core, hub.loop)
        return found

    def end(self) -> None:
        """The socket is closed. A waker with waiting greenlets ends with the last of them."""
        for waker in list(self._of.values()):
            if not waker.users and waker.fd >= 0:
                waker.forget()


def sleep(asked: Iterable[tuple[HubWaker, int]], files: Iterable[tuple[int, int]],
          limit: float | None) -> bool:
    """Until a socket changes after what was seen of it, or a descriptor is ready; False: it is
    `limit` first."""
    nap = Nap()
    joined: list[HubWaker] = []
    try:
        for waker, seen in asked:
            waker.add(nap)
            joined.append(waker)
            if not waker.doze(seen):
                return True
        with _watched(files, nap):
            left = None if limit is None else max(0.0, limit - time.monotonic())
            return bool(nap.wait(left))
    finally:
        for waker in joined:
            waker.drop(nap)


@contextmanager
def _watched(files: Iterable[tuple[int, int]], nap: Nap) -> Iterator[None]:
    loop = get_hub().loop
    watchers = [loop.io(fd, mask) for fd, mask in files if mask]
    try:
        for watcher in watchers:
            watcher.start(nap.set)
        yield
    finally:
        for watcher in watchers:
            watcher.stop()
            watcher.close()


def in_thread(fn: Callable[[], Any]) -> Any:
    """fn() in a thread of the system's, while other greenlets run."""
    done = get_hub().loop.async_()
    lock = threading.Lock()
    nap = Nap()
    failed: list[BaseException] = []

    def body() -> None:
        try:
            fn()
        except BaseException as error:
            failed.append(error)
        with lock:
            if done is not None:
                done.send()

    done.start(nap.set)
    thread = Thread(body, "mqcore-zmq")
    thread.start()
    try:
        nap.wait()
    finally:
        with lock:
            done.stop()
            done.close()
            done = None
    thread.join()
    if failed:
        raise failed[0]
