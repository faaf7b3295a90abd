"""poll() and apoll() over sockets, descriptors and objects that have one; and what fileno()
gives."""

from __future__ import annotations

import enum
import os
from collections.abc import Iterable
from typing import Any

from mqcore.api.timing import left_of, limit_of
from mqcore.base.native import select, threading
from mqcore.errors import SocketClosed, UsageError
from mqcore.sock import blocking
from mqcore.sock.core import SocketCore


class Ready(enum.Flag):
    """What poll() asks and answers."""

    READ = 1
    WRITE = 2
    ERROR = 4


# enum's own arithmetic costs a microsecond a step, so bits are plain numbers up to the end
READ, WRITE, ERROR = (one.value for one in Ready)
OF_BITS = tuple(Ready(bits) for bits in range(8))
EVENTS = ((READ, select.POLLIN), (WRITE, select.POLLOUT))
BROKEN = select.POLLERR | select.POLLHUP | select.POLLNVAL


class Level:
    """The descriptor of fileno(): an eventfd that is 1 exactly while recv() would not wait.

    Two sides keep it so. A change at the socket rings a second eventfd, the control thread looks
    and sets the level. Each receive, whatever it found, looks again before it returns. Both look
    under one lock, and nobody writes without having looked: what was looked at last is what the
    level says.
    """

    side = 0  # 1, in a subclass: while send() would not wait; its owner calls settle() after sends

    def __init__(self, core: Any) -> None:
        self._core = core._links  # weakly, through it: this object is the socket's own
        self._lock = threading.Lock()
        self._loop = core._links.hub.loop
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._high = False
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            self._place = core._add_notifier(self._bell)
        except BaseException:
            os.close(self.fd)
            os.close(self._bell)
            raise
        self._loop.call_wait(self._loop.add_reader, self._bell, self._rung)
        core._arm(self._place)
        self.settle()

    def _rung(self) -> None:
        try:
            os.eventfd_read(self._bell)
        except BlockingIOError:
            pass
        core = self._core.core
        if core is not None and self.fd >= 0:
            core._arm(self._place)  # before the look: what comes after it rings again
            self.settle()

    def settle(self) -> None:
        core = self._core.core
        with self._lock:
            if self.fd < 0 or core is None:
                return
            try:
                high = core._can()[self.side]
            except SocketClosed:
                high = True  # recv() raises, it does not wait
            except UsageError:
                high = False
            if high != self._high:
                self._high = high
                if high:
                    os.eventfd_write(self.fd, 1)
                else:
                    os.eventfd_read(self.fd)

    def close(self) -> None:
        core = self._core.core
        with self._lock:
            if self.fd < 0:
                return
            fd, self.fd = self.fd, -1
        if not self._core.hub.closed:
            self._loop.call_wait(self._loop.remove, self._bell)
        if core is not None:
            core._remove_notifier(self._place)
        os.close(self._bell)
        os.close(fd)


class Asked:
    """One object of a poll: what it is, its descriptor if it is no socket of ours, what is
    wanted."""

    __slots__ = ("core", "fd", "obj", "want")

    def __init__(self, item: Any) -> None:
        self.want = READ  # bits of Ready
        if isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], Ready):
            self.want = item[1].value
            item = item[0]
        self.obj = item
        self.core: Any = item if isinstance(item, SocketCore) else None
        self.fd = -1
        if self.core is not None:
            return
        if isinstance(item, bool):
            raise UsageError("poll() takes sockets and descriptors, not bool")
        if isinstance(item, int):
            self.fd = item
        else:
            try:
                self.fd = int(item.fileno())
            except AttributeError:
                raise UsageError(f"poll() cannot wait for {type(item).__name__}",
                                 hint="give sockets, descriptors, objects with fileno()",
                                 ) from None
        if self.fd < 0:
            raise UsageError(f"{item!r} has no open descriptor")

    def look(self) -> int:
        """A socket of ours, now."""
        readable, writable = self.core._can()
        return ((READ if readable else 0) | (WRITE if writable else 0)) & self.want

    def mask(self) -> int:
        return sum(bit for ready, bit in EVENTS if ready & self.want)


def _sort(objects: Iterable[Any]) -> tuple[list[Asked], list[Asked], list[Asked]]:
    """All, our sockets, the rest."""
    asked = [Asked(item) for item in objects]
    return asked, [a for a in asked if a.core is not None], [a for a in asked if a.core is None]


def _result(asked: list[Asked], fds: dict[int, int]) -> list[tuple[Any, Ready]]:
    out = []
    for a in asked:
        if a.core is not None:
            ready = a.look()
        else:
            bits = fds.get(a.fd, 0)
            ready = 0
            for flag, bit in EVENTS:
                if bits & bit:
                    ready |= flag & a.want
            if bits & BROKEN:
                ready |= ERROR
        if ready:
            out.append((a.obj, OF_BITS[ready]))
    return out


def _poller(rest: list[Asked]) -> Any:
    poller = select.poll()
    masks: dict[int, int] = {}
    for a in rest:
        masks[a.fd] = masks.get(a.fd, 0) | a.mask()
    for fd, mask in masks.items():
        poller.register(fd, mask)
    return poller


def _ms(limit: float | None) -> float | None:
    left = left_of(limit)
    return None if left is None else left * 1000 + 0.999 if left else 0


def poll(objects: Iterable[Any], timeout: Any = None) -> list[tuple[Any, Ready]]:
    """Which of these are ready: [(object, Ready)], empty when time is up. An object is a socket, a
    descriptor, something with fileno(), or (one of those, what is wanted); Ready.READ if not
    said."""
    limit = limit_of(timeout)
    asked, ours, rest = _sort(objects)
    poller = _poller(rest)
    found = _result(asked, dict(poller.poll(0)) if rest else {})
    if found or limit == 0:
        return found
    blocking.check(None)
    bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    places: list[tuple[Any, int]] = []
    try:
        for a in ours:
            places.append((a.core, a.core._add_notifier(bell)))
        poller.register(bell, select.POLLIN)
        while True:
            for core, place in places:
                core._arm(place)
            found = _result(asked, dict(poller.poll(0)))
            if found:
                return found
            left = _ms(limit)
            fds = dict(poller.poll(left))
            if not fds:
                return _result(asked, {})
            if fds.pop(bell, 0):
                os.eventfd_read(bell)
            found = _result(asked, fds)
            if found:
                return found
    finally:
        for core, place in places:
            core._remove_notifier(place)
        os.close(bell)


async def apoll(objects: Iterable[Any], timeout: Any = None) -> list[tuple[Any, Ready]]:
    """poll(), awaitable."""
    from mqcore.api.aio import due, turn, waker_of
    from mqcore.sock.sleep import Nap, in_trio

    limit = limit_of(timeout)
    asked, ours, rest = _sort(objects)
    poller = _poller(rest)
    if due():
        await turn()
    wakers: list[Any] = []
    seen: list[int] = []
    try:
        while True:
            for at, waker in enumerate(wakers):
                seen[at] = waker.core._change()
            found = _result(asked, dict(poller.poll(0)) if rest else {})
            if found or limit == 0:
                return found
            if not wakers and ours:
                for a in ours:
                    waker = waker_of(a.core)
                    waker.users += 1
                    wakers.append(waker)
                seen = [0] * len(wakers)
                continue  # with a look that says of what it is
            nap = Nap()
            try:
                for waker in wakers:
                    waker.naps[nap] = None
                if all(waker.doze(at) for waker, at in zip(wakers, seen, strict=True)):
                    sleep = _nap_trio if in_trio() else _nap_asyncio
                    if not await sleep(nap, rest, limit):
                        return _result(asked, dict(poller.poll(0)) if rest else {})
            finally:
                for waker in wakers:
                    waker.drop(nap)
    finally:
        for waker in wakers:
            waker.users -= 1


async def _nap_asyncio(nap: Any, rest: list[Asked], limit: float | None) -> bool:
    """The loop watches copies of the descriptors: it may watch the originals for somebody else."""
    copies: list[int] = []
    try:
        for a in rest:
            fd = os.dup(a.fd)
            copies.append(fd)
            if a.want & WRITE:
                nap._loop.add_writer(fd, nap.wake)
            nap._loop.add_reader(fd, nap.wake) if a.want & READ else None
        return bool(await nap.wait(limit))
    finally:
        for fd in copies:
            nap._loop.remove_reader(fd)
            nap._loop.remove_writer(fd)
            os.close(fd)


async def _nap_trio(nap: Any, rest: list[Asked], limit: float | None) -> bool:
    import trio

    async def watch(wait: Any, fd: int) -> None:
        copy = os.dup(fd)
        try:
            await wait(copy)
            nap.wake()
        finally:
            os.close(copy)

    async with trio.open_nursery() as nursery:
        for a in rest:
            if a.want & READ:
                nursery.start_soon(watch, trio.lowlevel.wait_readable, a.fd)
            if a.want & WRITE:
                nursery.start_soon(watch, trio.lowlevel.wait_writable, a.fd)
        woken = await nap.wait(limit)
        nursery.cancel_scope.cancel()
    return bool(woken)
