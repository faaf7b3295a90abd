"""poll() and apoll() over sockets, descriptors and objects with fileno(), and the descriptor that
Socket.fileno() returns.

Each thread keeps the sets of sockets that it polled last (binding/poll_set.pyx). Polling the same
sockets again costs only a comparison of the list plus the ready ones. Descriptors are passed to the
kernel anew each time, because the same number may meanwhile be another file."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mqcore.base.native import select, threading
from mqcore.base.waits import Released
from mqcore.binding import blocking
from mqcore.binding.core import SocketCore
from mqcore.binding.poll_set import PollSet
from mqcore.binding.timing import left_of, limit_of
from mqcore.errors import SocketClosed, UsageError


class Ready(enum.Flag):
    """What poll() waits for and returns."""

    READ = 1
    WRITE = 2
    ERROR = 4


# arithmetic on enums costs a microsecond per step, so poll() computes with plain numbers
READ, WRITE, ERROR = (one.value for one in Ready)
OF_BITS = tuple(Ready(bits) for bits in range(8))
SETS = 8  # sets kept per thread
FEW = 8  # up to this many sockets, apoll() waits for each one, so that the loop reads by itself
EVENTS = ((READ, select.POLLIN), (WRITE, select.POLLOUT))
BROKEN = select.POLLERR | select.POLLHUP | select.POLLNVAL


class Level:
    """The descriptor of fileno(): an eventfd that is 1 exactly while recv() would not wait.

    Two sides maintain it. A change at the socket signals a second eventfd; the control thread then
    checks the socket and sets the level. Each receive checks again before it returns, whatever its
    result. Both check under one lock, and nothing sets the level without a check, so the level
    always reflects the latest check. The control thread never waits for that lock. A signal handler
    that closes the socket waits for the control thread and may have interrupted a check. So the
    control thread leaves its check to the thread that holds the lock.
    """

    # 1 in a subclass: readable while send() would not wait; its owner calls settle() after sends
    side = 0

    def __init__(self, core: Any) -> None:
        self._core = core._links  # not the socket itself, which owns this object
        self._lock = threading.RLock()  # reentrant: for signal handlers
        self._loop = core._links.hub.loop
        self._high = False
        self._looks = 0
        self._again = False  # the control thread requests a check
        self.fd = self._bell = self._place = -1
        try:
            self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self._place = core._add_notifier(self._bell)
            self._loop.call_wait(self._loop.add_reader, self._bell, self._rung)
            core._arm(self._place)
            self.settle()
        except BaseException:
            self.close()
            raise

    def _rung(self) -> None:
        try:
            os.eventfd_read(self._bell)
        except BlockingIOError:
            pass
        core = self._core.core
        if core is not None and self.fd >= 0:
            core._arm(self._place)  # before the check, so that a later change signals again
            self._again = True
            self._settle_again()

    def settle(self) -> None:
        """Check the socket and set the level."""
        with self._lock:
            self._look()
        self._settle_again()

    def _settle_again(self) -> None:
        """Check as long as the control thread requests it."""
        while self._again and self._lock.acquire(False):
            try:
                self._again = False
                self._look()
            finally:
                self._lock.release()

    def _look(self) -> None:
        core = self._core.core
        if self.fd < 0 or core is None:
            return
        self._looks += 1
        look = self._looks
        try:
            high = core._can()[self.side]
        except SocketClosed:
            high = True  # recv() raises, it does not wait
        except UsageError:
            high = False
        if self.fd < 0 or look != self._looks:
            return  # a signal handler closed it, or checked after this call did
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
        if self._bell >= 0:
            if not self._core.hub.closed:
                self._loop.call_wait(self._loop.remove, self._bell)
            if core is not None and self._place >= 0:
                core._remove_notifier(self._place)
            os.close(self._bell)
        os.close(fd)


class Asked:
    """One object of a poll: what it is, its descriptor if it is not one of our sockets, and the
    wanted events."""

    __slots__ = ("core", "fd", "obj", "want")

    def __init__(self, item: Any) -> None:
        self.want = READ  # as bits of Ready
        if isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], Ready):
            self.want = item[1].value
            item = item[0]
        self.obj = item
        self.core: Any = item if isinstance(item, SocketCore) else None
        self.fd = -1
        if self.core is not None:
            self.core._change()  # SocketClosed if it was never opened
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
                                 hint="pass sockets, descriptors, objects with fileno()",
                                 ) from None
        if self.fd < 0:
            raise UsageError(f"{item!r} has no open descriptor")

    def look(self) -> int:
        """The current state of one of our sockets."""
        readable, writable = self.core._can()
        return ((READ if readable else 0) | (WRITE if writable else 0)) & self.want

    def mask(self) -> int:
        return sum(bit for ready, bit in EVENTS if ready & self.want)

    def answer(self, bits: int) -> int:
        """Translate the events of poll(2) for a descriptor."""
        ready = sum(flag & self.want for flag, bit in EVENTS if bits & bit)
        return ready | ERROR if bits & BROKEN else ready


# -- cached sets -----------------------------------------------------------------------------------


class Sets(threading.local):
    """The sets of sockets that a thread polled last, newest first. A set keeps no socket alive. If
    another poller needs its place at a socket, it closes the set."""

    def __init__(self, kind: type, told: tuple[Any, ...] | None, usual: Any,
                 core_of: Callable[[Any], Any]) -> None:
        self._make: Callable[[], PollSet] = lambda: PollSet(kind, told, usual, spare=True)
        self._kind, self._usual, self._core_of = kind, usual, core_of
        self._sets: list[PollSet] = []
        self._seen: list[int] = []

    def find(self, items: Sequence[Any]) -> tuple[PollSet, list[tuple[int, Any]]] | None:
        """The claimed set for the sockets among `items`, and [(index, item)] of the rest."""
        for at, one in enumerate(self._sets):
            rest = one.match(items)
            if rest is not None and one.claim():
                if at:
                    self._sets.insert(0, self._sets.pop(at))
                return one, rest
        return None

    def again(self, items: Sequence[Any]) -> bool:
        """Whether the last poll without a set had the same objects."""
        seen = [id(item[0] if type(item) is tuple and len(item) == 2 else item) for item in items]
        same, self._seen = seen == self._seen, seen
        return same

    def make(self, items: Sequence[Any]) -> tuple[PollSet, list[tuple[int, Any]]]:
        """find() with a new set."""
        made, rest = self._make(), []
        made.claim()
        try:
            for index, item in enumerate(items):
                two = type(item) is tuple and len(item) == 2
                one, want = item if two else (item, self._usual)
                if isinstance(one, self._kind):
                    made.add(index, one, self._core_of(one), want, True)
                else:
                    rest.append((index, item))
        except BaseException:
            made.close()
            raise
        self._sets.insert(0, made)
        for old in self._sets[SETS:]:
            old.spare_places()
        self._sets = [old for old in self._sets[:SETS] if not old.closed]
        return made, rest


_sets = Sets(SocketCore, OF_BITS, Ready.READ, lambda core: core)


def _listed(objects: Any) -> list[Any]:
    if isinstance(objects, SocketCore):  # iterating over a socket would receive its messages
        raise UsageError("poll() takes several sockets and descriptors, not one",
                         hint="pass a list: poll([sock])")
    try:
        return list(objects)
    except TypeError:
        raise UsageError(f"poll() takes a list of sockets and descriptors, "
                         f"not {type(objects).__name__}") from None


# -- waiting ---------------------------------------------------------------------------------------


def _now(asked: list[Asked], rest: list[Asked], last: bool) -> list[tuple[Any, Ready]]:
    """What is ready now, without a set. last: the call does not wait any more."""
    fds = dict(_poller(rest).poll(0)) if rest else {}
    out = []
    for a in asked:
        ready = a.look() if a.core is not None else a.answer(fds.get(a.fd, 0))
        if ready:
            out.append((a.obj, OF_BITS[ready]))
        elif last and a.core is not None:
            a.core._look_beside()
    return out


def _poller(rest: list[Asked]) -> Any:
    poller = select.poll()
    masks: dict[int, int] = {}
    for a in rest:
        masks[a.fd] = masks.get(a.fd, 0) | a.mask()
    for fd, mask in masks.items():
        poller.register(fd, mask)
    return poller


def _ms(seconds: float | None) -> float | None:
    return seconds * 1000 + 0.999 if seconds else seconds


def _merged(found: list[Any], rest: Sequence[tuple[int, Asked]], fds: dict[int, int], told: Any
            ) -> list[tuple[Any, Any]]:
    """The ready sockets and descriptors, in the order in which they were passed."""
    found += [(index, a.obj, told[ready]) for index, a in rest
              if (ready := a.answer(fds.get(a.fd, 0)))]
    found.sort(key=lambda one: one[0])
    return [(obj, ready) for _, obj, ready in found]


def wait_once(some: PollSet, limit: float | None,
              wait: Callable[[float | None], Iterable[tuple[int, int]]]
              ) -> tuple[list[Any], dict[int, int]]:
    """What is ready, after one sleep if nothing is: sockets as now() gives them, and the events of
    descriptors. wait(seconds): waits for those, and for fileno() of the set."""
    found = some.now()
    left = 0 if found else left_of(limit)
    dozes = left != 0 and some.doze()
    rang = True
    try:
        if dozes:
            blocking.check(None)
        with Released():
            fds = dict(wait(left if dozes else 0))
        rang = fds.pop(some.fileno(), 0) != 0
    finally:
        if dozes:
            some.wake(rang)
    if not found and (fds or left != 0):
        found = some.now()
    return found, fds


def wait_mixed(some: PollSet, rest: Sequence[tuple[int, Asked]], limit: float | None, told: Any
               ) -> list[tuple[Any, Any]]:
    """PollSet.poll() with additional descriptors."""
    poller = _poller([a for _, a in rest])
    poller.register(some.fileno(), select.POLLIN)
    while True:
        found, fds = wait_once(some, limit, lambda s: poller.poll(_ms(s)))
        if found or fds or left_of(limit) == 0:
            return _merged(found, rest, fds, told)


async def await_mixed(some: PollSet, rest: Sequence[tuple[int, Asked]], limit: float | None,
                      told: Any) -> list[tuple[Any, Any]]:
    """The same for asyncio and trio."""
    from mqcore.api.turns import fair
    from mqcore.binding.sleep import Nap, in_trio

    files = [a for _, a in rest]
    poller = _poller(files)
    over = limit == 0
    while True:
        await fair()
        found = some.now()
        fds = dict(poller.poll(0)) if rest else {}
        if found or fds or over:
            return _merged(found, rest, fds, told)
        bell = Asked(some.fileno())
        nap = Nap()
        if not some.doze():
            continue
        try:
            sleep = nap_trio if in_trio() else nap_asyncio
            over = not await sleep(nap, [*files, bell], limit)
        finally:
            some.wake(True)


def _anew(items: Sequence[Any], limit: float | None
          ) -> tuple[list[tuple[Any, Ready]], tuple[PollSet, list[tuple[int, Any]]] | None]:
    """For objects without a set: what is ready, and if that must be waited for, a set, claimed."""
    asked = [Asked(item) for item in items]
    found = _now(asked, [a for a in asked if a.core is None], limit == 0)
    if found or (limit == 0 and not _sets.again(items)):
        return found, None
    return found, _sets.make(items)


def poll(objects: Iterable[Any], timeout: Any = None) -> list[tuple[Any, Ready]]:
    """Wait until one of these is ready and return [(object, Ready)], or [] after `timeout` seconds.
    Each object is a socket, a descriptor, something with fileno(), or a tuple of one of those and
    the wanted events (default: Ready.READ)."""
    limit = limit_of(timeout)
    items: Any = objects if type(objects) in (list, tuple) else _listed(objects)
    kept = _sets.find(items)
    if kept is None:
        found, kept = _anew(items, limit)
        if kept is None:
            return found
    some, rest = kept
    try:
        if not rest:
            return some.poll(limit)
        return wait_mixed(some, [(index, Asked(item)) for index, item in rest], limit, OF_BITS)
    finally:
        some.release()


async def apoll(objects: Iterable[Any], timeout: Any = None) -> list[tuple[Any, Ready]]:
    """poll(), awaitable."""
    from mqcore.api.turns import fair

    limit = limit_of(timeout)
    items: Any = objects if type(objects) in (list, tuple) else _listed(objects)
    await fair()
    if len(items) <= FEW:
        return await _apoll_few(items, limit)
    kept = _sets.find(items)
    if kept is None:
        found, kept = _anew(items, limit)
        if kept is None:
            return found
    some, rest = kept
    try:
        return await await_mixed(some, [(index, Asked(item)) for index, item in rest], limit,
                                 OF_BITS)
    finally:
        some.release()


async def _apoll_few(objects: Sequence[Any], limit: float | None) -> list[tuple[Any, Ready]]:
    from mqcore.api.turns import fair
    from mqcore.api.wakers import waker_of
    from mqcore.binding.sleep import Nap, in_trio

    asked = [Asked(item) for item in objects]
    ours = [a for a in asked if a.core is not None]
    rest = [a for a in asked if a.core is None]
    wakers: list[Any] = []
    seen: list[int] = []
    try:
        while True:
            for at, waker in enumerate(wakers):
                seen[at] = waker.core._change()
            found = _now(asked, rest, limit == 0)
            if found or limit == 0:
                return found
            if not wakers and ours:
                for a in ours:
                    waker = waker_of(a.core)
                    waker.users += 1
                    wakers.append(waker)
                seen = [0] * len(wakers)
                continue  # the next check finds which
            nap = Nap()
            try:
                for waker in wakers:
                    waker.naps[nap] = None
                if all(waker.doze(at) for waker, at in zip(wakers, seen, strict=True)):
                    sleep = nap_trio if in_trio() else nap_asyncio
                    if not await sleep(nap, rest, limit):
                        return _now(asked, rest, False)
                else:
                    await fair()
            finally:
                for waker in wakers:
                    waker.drop(nap)
    finally:
        for waker in wakers:
            waker.users -= 1


async def nap_asyncio(nap: Any, rest: list[Asked], limit: float | None) -> bool:
    """The loop watches duplicates of the descriptors; other code may watch the originals there."""
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


async def nap_trio(nap: Any, rest: list[Asked], limit: float | None) -> bool:
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
