"""Poller: wait for many sockets and descriptors, at the cost of the ready ones only.

A set finds the sockets that changed (binding/poll_set.pyx). Everything else is in an epoll set,
which the socket set's eventfd joins with the first such object.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Hashable
from typing import Any

from mqcore.api.poll import BROKEN, OF_BITS, READ, WRITE, Asked, Ready, await_mixed, wait_once
from mqcore.base.native import select
from mqcore.base.waits import YieldingLock
from mqcore.binding.core import SocketCore
from mqcore.binding.poll_set import PollSet
from mqcore.binding.timing import left_of, limit_of
from mqcore.errors import Forked, SocketClosed, UsageError

EPOLL_OF = ((READ, select.EPOLLIN), (WRITE, select.EPOLLOUT))


class Entry(Asked):
    """A registered object. `rank`: its place among the results. `place`: its index in the set."""

    __slots__ = ("key", "place", "rank")

    def __init__(self, item: Any, want: Ready) -> None:
        super().__init__((item, want))
        self.place: Any = None
        self.rank = 0
        self.key = self.fd if self.core is None else self.core

    def answer(self, bits: int) -> int:
        """Translate the epoll events of a descriptor."""
        ready = sum(flag & self.want for flag, bit in EPOLL_OF if bits & bit)
        return ready | Ready.ERROR.value if bits & BROKEN else ready

    def events(self) -> int:
        return sum(bit for ready, bit in EPOLL_OF if ready & self.want)


class Poller:
    """Waits for sockets, descriptors, and objects with `fileno()`, again and again.

        with mq.Poller() as poller:
            poller.register(pull)
            poller.register(push, mq.Ready.WRITE)
            for obj, ready in poller.poll(timeout=1.0): ...

    Like `poll()`, it is level-triggered: an object that is ready is reported each time until it is
    not. A call costs what is ready, not what is registered. One thread or task polls at a time;
    others may register, modify and unregister meanwhile, which takes effect at once. Results come
    in the order of registration.

    A registered socket that is closed stays and raises SocketClosed from `poll()`: unregister it
    first, as you unregister a file before you close it. Sockets take no descriptor.

    In a forked child the poller raises Forked; `close()` works.
    """

    def __init__(self) -> None:
        self._lock = YieldingLock()
        self._pid = os.getpid()
        self._set: Any = PollSet(SocketCore, OF_BITS, Ready.READ, lock=self._lock)
        self._epoll: Any = None                     # created with the first descriptor
        self._ranks = itertools.count()
        self._entries: dict[Any, Entry] = {}        # by socket, or by descriptor number

    # -- what is registered --

    def register(self, obj: Any, want: Ready = Ready.READ) -> None:
        """Add `obj`. A second call changes the wanted events. A second object with the same
        descriptor replaces the first."""
        entry = self._entry(obj, want)
        with self._mine():
            self._check()
            if entry.key in self._entries:
                known = self._entries[entry.key]
                known.obj = obj
                self._modify(known, want)
                return
            entry.rank = next(self._ranks)
            if entry.core is None:
                self._watch(entry)
            else:
                entry.place = self._set.add(entry.rank, obj, entry.core, want)
            self._entries[entry.key] = entry

    def _entry(self, obj: Any, want: Ready) -> Entry:
        if not isinstance(want, Ready):
            raise UsageError(f"want must be Ready.READ, Ready.WRITE or both, not {want!r}")
        return Entry(obj, want)

    def _watch(self, entry: Entry) -> None:
        try:
            self._files().register(entry.fd, entry.events())
        except PermissionError:
            raise UsageError(f"{entry.obj!r} cannot be waited for",
                             hint="files and folders are always ready") from None

    def _files(self) -> Any:
        if self._epoll is None:
            bell, made = self._set.fileno(), select.epoll()
            try:
                made.register(bell, select.EPOLLIN)
            except BaseException:
                made.close()
                raise
            self._epoll = made
            self._set.nudge()      # a call that waits must now wait on the epoll set
        return self._epoll

    def modify(self, obj: Any, want: Ready) -> None:
        """Change the wanted events. KeyError if `obj` is not registered."""
        key = self._entry(obj, want).key
        with self._mine():
            self._check()
            self._modify(self._entries[key], want)

    def _modify(self, entry: Entry, want: Ready) -> None:
        entry.want = want.value
        if entry.core is not None:
            self._set.modify(entry.place, want)
            return
        try:
            self._epoll.modify(entry.fd, entry.events())
        except FileNotFoundError:      # it was closed, and its number now belongs to another file
            self._watch(entry)

    def unregister(self, obj: Any) -> None:
        """Remove `obj`. KeyError if it is not registered."""
        with self._mine():
            self._check()
            entry = self._entries.pop(self._key(obj))
            if entry.core is not None:
                self._set.remove(entry.place)
                return
            try:
                self._epoll.unregister(entry.fd)
            except (OSError, ValueError):      # already closed
                pass

    def _key(self, obj: Any) -> Any:
        """A socket, or a descriptor number. A closed file is found by its object."""
        if isinstance(obj, Hashable) and obj in self._entries:
            return obj
        for key, entry in self._entries.items():
            if entry.obj is obj:
                return key
        return Entry(obj, Ready.READ).key

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, obj: Any) -> bool:
        try:
            return (isinstance(obj, Hashable) and obj in self._entries
                    or Entry(obj, Ready.READ).key in self._entries)
        except UsageError:
            return False

    # -- waiting --

    def poll(self, timeout: float | None = None) -> list[tuple[Any, Ready]]:
        """Return [(object, Ready)] for the objects that are ready, or [] after `timeout` seconds. 0
        does not wait, None waits for ever."""
        limit = limit_of(timeout)
        self._begin()
        try:
            while True:
                found: list[tuple[Any, Ready]]
                if self._epoll is None:
                    found = self._set.poll(limit)
                else:
                    found = self._mixed(limit)
                if found or left_of(limit) == 0:
                    return found
        except SocketClosed as error:
            raise self._named(error) from None
        finally:
            self._set.release()

    def _mixed(self, limit: float | None) -> list[tuple[Any, Ready]]:
        most = len(self._entries) + 1
        return self._merged(*wait_once(self._set, limit, lambda s: self._epoll.poll(s, most)))

    def _merged(self, found: list[Any], fds: dict[int, int]) -> list[tuple[Any, Ready]]:
        with self._lock:
            for fd, bits in fds.items():
                entry = self._entries.get(fd)
                if entry is not None and (ready := entry.answer(bits)):
                    found.append((entry.rank, entry.obj, OF_BITS[ready]))
        found.sort(key=lambda one: one[0])
        return [(obj, ready) for _, obj, ready in found]

    async def apoll(self, timeout: float | None = None) -> list[tuple[Any, Ready]]:
        """poll(), awaitable on asyncio and trio."""
        limit = limit_of(timeout)
        self._begin()
        try:
            while True:
                files = [] if self._epoll is None else [(0, Asked(self._epoll.fileno()))]
                found = await await_mixed(self._set, files, limit, OF_BITS)
                if self._epoll is not None:
                    found = self._mixed(0)
                if found or left_of(limit) == 0:
                    return found
        except SocketClosed as error:
            raise self._named(error) from None
        finally:
            self._set.release()

    def _begin(self) -> None:
        if not self._set.claim():
            self._mine()
            self._check()
            raise UsageError("another call of this poller is waiting",
                             hint="one thread or task polls at a time: make a poller for each")

    def _named(self, error: SocketClosed) -> SocketClosed:
        return SocketClosed(f"{error}: {self._set.culprit!r} is registered with a poller",
                            hint="unregister() a socket before it is closed")

    def _mine(self) -> Any:
        """Take the lock; in a child raise Forked, because a thread of the parent may hold it."""
        if os.getpid() != self._pid:
            raise Forked("this poller belongs to the parent process",
                         hint="make a new one in the child")
        return self._lock

    def _check(self) -> None:
        if self._set.closed:
            raise UsageError("the poller is closed")

    # -- the end --

    def close(self) -> None:
        """Remove everything. Idempotent. Sockets and descriptors stay open."""
        ours = os.getpid() == self._pid
        if not ours:       # the child has no thread of the parent that could return it
            self._lock = YieldingLock()
        with self._lock:
            if self._set.closed:
                return
            if ours and self._set.taken:
                raise UsageError("the poller is waiting in another call")
            self._entries.clear()
            self._set.close()
            epoll, self._epoll = self._epoll, None
            if epoll is not None:
                epoll.close()

    @property
    def closed(self) -> bool:
        """Whether close() has been called."""
        return bool(self._set.closed)

    def __reduce__(self) -> Any:
        raise UsageError("a poller cannot be pickled or copied", hint="make another one")

    def __enter__(self) -> Poller:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
