"""Poller: waiting for many sockets and descriptors, at the cost of those that are ready.

Each socket rings an eventfd of its own, which stays armed from one poll to the next, so a poll
looks only at the sockets that rang and at those that were ready the last time. An epoll set holds
these eventfds and the descriptors of everything else.
"""

from __future__ import annotations

import os
from typing import Any

from mqcore.api.poll import BROKEN, OF_BITS, READ, WRITE, Asked, Ready
from mqcore.api.timing import left_of, limit_of
from mqcore.base.native import select, threading
from mqcore.errors import Forked, SocketClosed, UsageError

EPOLL_OF = ((READ, select.EPOLLIN), (WRITE, select.EPOLLOUT))


class Entry(Asked):
    """A registered object. Of a socket: the eventfd that it rings, and its place there."""

    __slots__ = ("bell", "place", "key")

    def __init__(self, item: Any, want: Ready) -> None:
        super().__init__((item, want))
        self.bell = self.place = -1
        self.key = self.fd if self.core is None else self.core

    def answer(self, bits: int) -> int:
        """What the descriptor's epoll events mean."""
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
    not. Unlike `poll()`, a call costs what is ready, not what is registered. One thread polls at a
    time; others may register, modify and unregister meanwhile, which takes effect at once. A
    registered socket that is closed stays and raises SocketClosed from `poll()`: unregister it
    first. Each registered socket takes one descriptor.

    In a forked child the poller raises Forked; `close()` works.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._epoll: Any = select.epoll()
        self._pid = os.getpid()
        self._polling = False
        self._entries: dict[Any, Entry] = {}       # by socket, or by number of descriptor
        self._rings: dict[int, Entry] = {}         # by the descriptor that epoll knows
        self._look: dict[Entry, None] = {}         # sockets that a poll must look at, in order
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake, select.EPOLLIN)

    # -- what is registered --

    def register(self, obj: Any, want: Ready = Ready.READ) -> None:
        """Wait for `obj`, too. A second call changes what is wanted."""
        if not isinstance(want, Ready):
            raise UsageError(f"want must be Ready.READ, Ready.WRITE or both, not {want!r}")
        entry = Entry(obj, want)
        with self._lock:
            self._check()
            if entry.key in self._entries:
                self._modify(self._entries[entry.key], want)
            elif entry.core is None:
                self._epoll.register(entry.fd, entry.events())
                self._entries[entry.key] = self._rings[entry.fd] = entry
            else:
                self._attach(entry)
            os.eventfd_write(self._wake, 1)

    def _attach(self, entry: Entry) -> None:
        entry.bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            entry.place = entry.core._add_notifier(entry.bell)
            try:
                self._epoll.register(entry.bell, select.EPOLLIN | select.EPOLLET)
            except BaseException:
                entry.core._remove_notifier(entry.place)
                raise
        except BaseException:
            os.close(entry.bell)
            raise
        self._entries[entry.key] = self._rings[entry.bell] = entry
        self._look[entry] = None

    def modify(self, obj: Any, want: Ready) -> None:
        """Wait for something else. KeyError if `obj` is not registered."""
        with self._lock:
            self._check()
            self._modify(self._entries[Entry(obj, want).key], want)
            os.eventfd_write(self._wake, 1)

    def _modify(self, entry: Entry, want: Ready) -> None:
        entry.want = want.value
        if entry.core is None:
            self._epoll.modify(entry.fd, entry.events())
        else:
            self._look[entry] = None

    def unregister(self, obj: Any) -> None:
        """Wait for `obj` no more. KeyError if it is not registered."""
        with self._lock:
            self._check()
            self._forget(self._entries.pop(self._key(obj)))

    def _key(self, obj: Any) -> Any:
        """A socket, or the number of a descriptor; a closed file is found by the object."""
        if obj in self._entries:
            return obj
        for key, entry in self._entries.items():
            if entry.obj is obj:
                return key
        return Entry(obj, Ready.READ).key

    def _forget(self, entry: Entry) -> None:
        self._look.pop(entry, None)
        if entry.core is None:
            del self._rings[entry.fd]
            try:
                self._epoll.unregister(entry.fd)
            except (OSError, ValueError):      # closed before
                pass
            return
        del self._rings[entry.bell]
        self._epoll.unregister(entry.bell)
        entry.core._remove_notifier(entry.place)
        os.close(entry.bell)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, obj: Any) -> bool:
        try:
            return obj in self._entries or Entry(obj, Ready.READ).key in self._entries
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
                left = left_of(limit)
                found = self._now(0 if self._look else -1 if left is None else left)
                if found or left == 0:
                    return found
        finally:
            self._polling = False

    async def apoll(self, timeout: float | None = None) -> list[tuple[Any, Ready]]:
        """poll(), awaitable on asyncio and trio."""
        from mqcore.api.aio import due, turn
        from mqcore.sock.sleep import Nap, in_trio

        limit = limit_of(timeout)
        self._begin()
        try:
            if due():
                await turn()
            while True:
                found = self._now(0)
                if found or limit == 0:
                    return found
                nap = Nap()
                wait = self._nap_trio if in_trio() else self._nap_asyncio
                if not await wait(nap, limit):
                    return self._now(0)
        finally:
            self._polling = False

    async def _nap_asyncio(self, nap: Any, limit: float | None) -> bool:
        fd = os.dup(self._epoll.fileno())      # the loop may watch it for another task, too
        nap._loop.add_reader(fd, nap.wake)
        try:
            return bool(await nap.wait(limit))
        finally:
            nap._loop.remove_reader(fd)
            os.close(fd)

    async def _nap_trio(self, nap: Any, limit: float | None) -> bool:
        import trio

        async def watch() -> None:
            await trio.lowlevel.wait_readable(self._epoll.fileno())
            nap.wake()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            woken = await nap.wait(limit)
            nursery.cancel_scope.cancel()
        return bool(woken)

    def _begin(self) -> None:
        with self._lock:
            self._check()
            if self._polling:
                raise UsageError("another call of this poller is waiting",
                                 hint="one thread or task polls at a time: make a poller for each")
            self._polling = True

    def _now(self, seconds: float) -> list[tuple[Any, Ready]]:
        """Sleep for so long at most, then look at what rang, and at what was ready before."""
        rang = self._epoll.poll(seconds, max(64, len(self._rings) + 1))
        with self._lock:
            self._check()
            out = []
            for fd, bits in rang:
                entry = self._rings.get(fd)
                if entry is None:
                    if fd == self._wake:
                        os.eventfd_read(fd)
                elif entry.core is not None:
                    self._look[entry] = None
                elif ready := entry.answer(bits):
                    out.append((entry.obj, OF_BITS[ready]))
            for entry in list(self._look):
                entry.core._arm(entry.place)   # before the look: what comes after it rings again
                if ready := self._looked(entry):
                    out.append((entry.obj, OF_BITS[ready]))
                else:
                    del self._look[entry]
        return out

    def _looked(self, entry: Entry) -> int:
        try:
            return entry.look()
        except SocketClosed as error:
            raise SocketClosed(f"{error}: {entry.obj!r} is registered with a poller",
                               hint="unregister() a socket before it is closed") from None

    def _check(self) -> None:
        if self._epoll is None:
            raise UsageError("the poller is closed")
        if os.getpid() != self._pid:
            raise Forked("this poller belongs to the parent process",
                             hint="make a new one in the child")

    # -- the end --

    def close(self) -> None:
        """Forget everything. Idempotent; sockets and descriptors stay open."""
        with self._lock:
            if self._epoll is None:
                return
            if self._polling and os.getpid() == self._pid:
                raise UsageError("the poller is waiting in another call")
            epoll, self._epoll = self._epoll, None
            entries, self._entries = list(self._entries.values()), {}
            for entry in entries:
                if entry.core is not None:
                    entry.core._remove_notifier(entry.place)
                    os.close(entry.bell)
            self._rings.clear()
            self._look.clear()
            epoll.close()
            os.close(self._wake)

    @property
    def closed(self) -> bool:
        return self._epoll is None

    def __enter__(self) -> Poller:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_epoll", None) is not None:
            self._polling = False
            self.close()
