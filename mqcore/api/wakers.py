"""Wakers: how the tasks of an event loop wait for a socket.

A wait registers itself, checks once more, then sleeps. The event loop leads (sock/wait.pyx): it
watches the socket's own poll set and runs the engines itself when that is readable, so no other
thread stands between the kernel and the task. An eventfd, written once per arming, signals changes
by other threads, and all changes while the loop does not lead. Each socket has one waker per loop,
shared by all tasks that wait there and kept a moment longer than they wait. The loop owns the
waker. The socket has a weak reference, so that the waker always ends with its loop.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol

from mqcore.api.turns import fair, slept
from mqcore.base.native import threading
from mqcore.binding.sleep import Bell, Nap, in_trio, running_loop
from mqcore.binding.timing import passed
from mqcore.errors import Error

NEXT_DONE = 64  # a query to REQ: the next answered request
IDLE = 0.25  # seconds that a loop keeps its eventfd after the last wait
TURN = 64  # messages that a Taker takes before other callbacks run


class Sleeper(Protocol):
    """What waits at a socket: a task, a line of pyzmq's futures, a greenlet."""

    def wake(self) -> object: ...


class Waker:
    """Wakes the waiting tasks of one loop after a change at a socket. Created and used only on that
    loop's thread."""

    loop: Any = None  # asyncio's
    busy = True  # a call came by since the last look of _look() or _watch()

    def __init__(self, core: Any, key: int) -> None:
        self.core = core
        self.key = key
        self.naps: dict[Sleeper, None] = {}  # all waiting tasks; each checks after every change
        self.line: dict[Sleeper, None] = {}  # receiving tasks, woken one after another
        self.asked: dict[int, Bell] = {}  # tasks that wait for a reply, by context number
        self.users = 0
        self.seen = 0
        self.watching = False
        self._ending = threading.RLock()  # reentrant: a handler may close the socket meanwhile
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            self.place = core._add_notifier(self.fd)
        except BaseException:
            os.close(self.fd)
            self.fd = -1
            raise

    async def wait(self, seen: int, limit: float | None, line: bool) -> bool:
        """Wait until something changed after `seen`. False on time-out. line: a change wakes only
        the first of these waiters. That task then wakes the next ones, or none."""
        nap = Nap(self.loop)
        naps = self.line if line else self.naps
        naps[nap] = None
        if not self.doze(seen):
            del naps[nap]
            await fair()    # one that changes all the time keeps no other task from running
            return not passed(limit)
        slept()
        try:
            return await nap.wait(limit)
        finally:
            self.drop(nap)

    async def wait_for(self, number: int, seen: int, limit: float | None) -> bool:
        """wait() for a task that waits only for the reply in the context of this number. Other
        changes do not wake it."""
        bell = Bell(self.loop)
        self.asked[number] = self.core._asked[number] = bell
        try:
            if not self.doze(seen):
                await fair()
                return not passed(limit)
            slept()
            return await bell.wait(limit)
        finally:
            self.asked.pop(number, None)
            del self.core._asked[number]
            self.drop(bell)

    def answers(self) -> None:
        """Wake the tasks whose replies have arrived. Another loop may wait for some of them."""
        core = self.core
        try:
            number = core._query(NEXT_DONE)
            while number:
                bell = self.asked.pop(number, None)
                if bell is not None:
                    bell.wake()
                elif (bell := core._asked.get(number)) is not None:
                    bell.ring()
                number = core._query(NEXT_DONE)
        except Error:  # the socket is closed
            while self.asked:
                self.asked.popitem()[1].wake()

    def drop(self, nap: Sleeper) -> None:
        """Remove a waiter. Idempotent."""
        self.naps.pop(nap, None)
        self.line.pop(nap, None)
        if not self.waited:
            self.core._leave(self.place)

    @property
    def waited(self) -> bool:
        """Whether any task waits."""
        return bool(self.naps or self.line or self.asked)

    def doze(self, seen: int) -> bool:
        """All waiters have checked at `seen`: arm for the next change. False: it has happened."""
        state = self.core._doze(self.place, seen)
        if state == 0:
            return False
        self.seen = seen
        if state == 2 and not self.watching:
            self.watch()
        return True

    def rung(self) -> None:
        """Another thread has signalled a change."""
        try:
            os.eventfd_read(self.fd)
        except BlockingIOError:
            pass
        self.look()

    def ready(self) -> None:
        """The socket's poll set has events to harvest."""
        if not self.waited or not self.core._harvest(self.place):
            self.core._leave(self.place)
            self.unwatch()
        elif not self.doze(self.seen):
            self.look()

    def look(self) -> None:
        while True:
            seen = self.core._change()
            naps, self.naps = self.naps, {}
            for nap in naps:
                nap.wake()
            self.call(1)
            if self.asked:
                self.answers()
            if not self.waited:  # a task may check and keep sleeping
                self.core._leave(self.place)
                return
            if self.doze(seen):
                return

    def call(self, n: int) -> None:
        """Wake the first n tasks of the line."""
        line = self.line
        while line and n:
            nap = next(iter(line))
            del line[nap]
            nap.wake()
            n -= 1

    def watch(self) -> None:
        raise NotImplementedError

    def unwatch(self) -> None:
        raise NotImplementedError

    def end(self) -> None:
        """On the loop's thread: nothing waits any more. Idempotent."""
        raise NotImplementedError

    def forget(self) -> None:
        """Release the descriptor and the place at the socket. Idempotent; callable from any thread
        once the loop has ended."""
        with self._ending:
            fd, self.fd = self.fd, -1
        if fd < 0:
            return
        wakers = self.core._wakers
        if wakers.get(self.key) is self:
            wakers.pop(self.key, None)
        self.core._remove_notifier(self.place)
        os.close(fd)

    def __del__(self) -> None:
        if getattr(self, "fd", -1) >= 0:
            self.forget()


class LoopWaker(Waker):
    """asyncio: the loop's readers keep it alive."""

    def __init__(self, core: Any, loop: Any) -> None:
        super().__init__(core, id(loop))
        self.loop = loop
        self.set = -1
        loop.add_reader(self.fd, self.rung)
        loop.call_later(IDLE, self._look)

    def watch(self) -> None:
        if self.set < 0:
            try:  # a duplicate: after the socket has closed, its number may belong to another file
                self.set = self.core._descriptor()
            except OSError:  # closed, or out of descriptors: the I/O thread watches instead
                self.core._leave(self.place)
                self.core._arm(self.place)
                return
        self.loop.add_reader(self.set, self.ready)
        self.watching = True

    def unwatch(self) -> None:
        if self.watching:
            self.loop.remove_reader(self.set)
            self.watching = False

    def _look(self) -> None:
        if self.fd < 0:
            return
        if self.users or self.busy:
            self.busy = False
            self.loop.call_later(IDLE, self._look)
        else:
            self.end()

    def end(self) -> None:
        if self.fd >= 0:
            self.unwatch()
            self.loop.remove_reader(self.fd)
            self.forget()

    def forget(self) -> None:
        super().forget()
        with self._ending:
            fd, self.set = self.set, -1
        if fd >= 0:
            os.close(fd)


class TrioWaker(Waker):
    """trio: system tasks watch while any task waits."""

    def __init__(self, core: Any, token: Any) -> None:
        super().__init__(core, id(token))
        import trio

        self.trio = trio
        self.scope = trio.CancelScope()
        self.sets = trio.CancelScope()
        trio.lowlevel.spawn_system_task(self._watch)

    async def _watch(self) -> None:
        try:
            with self.scope:
                # closed: a cancelled call has ended with its socket before this began
                while self.fd >= 0 and (self.users or self.busy):
                    self.busy = False
                    with self.trio.move_on_after(IDLE):
                        while True:
                            await self.trio.lowlevel.wait_readable(self.fd)
                            if self.scope.cancel_called:    # ended after it became readable
                                return
                            self.rung()
        finally:
            self.unwatch()
            self.forget()

    def watch(self) -> None:
        try:
            fd = self.core._descriptor()
        except OSError:
            self.core._leave(self.place)
            self.core._arm(self.place)
            return
        self.watching = True
        self.sets = self.trio.CancelScope()
        self.trio.lowlevel.spawn_system_task(self._watch_set, self.sets, fd)

    async def _watch_set(self, scope: Any, fd: int) -> None:
        try:
            with scope:
                while True:
                    await self.trio.lowlevel.wait_readable(fd)
                    if not scope.cancel_called:
                        self.ready()
        finally:
            os.close(fd)

    def unwatch(self) -> None:
        self.sets.cancel()
        self.watching = False

    def end(self) -> None:
        self.unwatch()
        self.scope.cancel()
        self.forget()


class Taker:
    """Takes the messages of a socket within asyncio's own callbacks, where a task would cost one
    more turn of the loop for each wake-up. From begin() on, `take` gets each message; it must not
    raise. It ends with the socket, or by end(). On the loop's thread only."""

    def __init__(self, core: Any, take: Callable[[Any], None]) -> None:
        self.core = core
        self.take = take
        self.waker: Waker | None = waker_of(core)
        self.waker.users += 1

    def begin(self) -> None:
        """Take what is there, then wait."""
        while self.waker is not None:
            seen = self.core._change()
            if not self._taken():
                return
            self.waker.naps[self] = None
            if self.waker.doze(seen):
                return
            del self.waker.naps[self]

    def wake(self) -> None:
        """By the waker, which looks once more afterwards."""
        if self._taken() and self.waker is not None:
            self.waker.naps[self] = None

    def _taken(self) -> bool:
        """Whether nothing is left for now. False: it goes on later, or has ended."""
        try:
            for _ in range(TURN):
                message = self.core._try_recv(2)
                if message is None:
                    return True
                self.take(message)
                if self.waker is None:
                    return False
        except Error:       # the socket is closed
            self.end()
        if self.waker is not None:
            self.waker.loop.call_soon(self.begin)
        return False

    def end(self) -> None:
        """Idempotent."""
        waker, self.waker = self.waker, None
        if waker is not None:
            waker.users -= 1
            waker.drop(self)
            if self.core.closed and not waker.users:
                waker.end()


def loop_or_token() -> Any:
    """The running loop, or trio's token of it."""
    if in_trio():
        import trio

        return trio.lowlevel.current_trio_token()
    return running_loop()


def waker_of(core: Any) -> Waker:
    """The running loop's waker for this socket."""
    loop = loop_or_token()
    found: Waker | None = core._wakers.get(id(loop))
    if found is None:
        # wakers of loops that have ended, as with repeated asyncio.run()
        for ref in core._wakers.valuerefs():
            other = ref()
            if isinstance(other, LoopWaker) and other.loop.is_closed():
                other.forget()
        found = (TrioWaker if in_trio() else LoopWaker)(core, loop)
        core._wakers[id(loop)] = found
    found.busy = True
    return found


def end_idle(core: Any) -> None:
    """The running loop's waker ends at once if the socket is closed, and not when IDLE has passed.
    If tasks wait, the last one of them ends it."""
    waker = core._wakers.get(id(loop_or_token()))
    if waker is not None and core.closed and not waker.users:
        waker.end()


async def until(core: Any, attempt: Callable[[], Any], limit: float | None) -> Any:
    """Call attempt() now and after each change until it returns a result. None on time-out."""
    seen = core._change()
    found = attempt()
    if found is not None or limit == 0:
        return found
    return await later(core, attempt, limit, seen)


async def later(core: Any, attempt: Callable[[], Any], limit: float | None, seen: int,
                line: bool = False) -> Any:
    """until(), after an attempt that failed at `seen`. line: attempt() takes a message, so one task
    is enough for one change. A woken task that took a message wakes two more if messages remain. A
    task that leaves without one wakes the next. So no task sleeps while a message waits."""
    waker = waker_of(core)
    waker.users += 1
    try:
        while True:
            woken = await waker.wait(seen, limit, line)
            seen = core._change()
            found = attempt()
            if found is not None:
                if waker.line and core._readable():
                    waker.call(2)
                return found
            if not woken:
                return None
    except BaseException:
        waker.call(1)
        raise
    finally:
        waker.users -= 1
        if core.closed and not waker.users:
            waker.end()


async def answered(core: Any, attempt: Callable[[], Any], limit: float | None, seen: int,
                   number: int) -> Any:
    """later(), for the reply to one context's request, which no other task takes."""
    waker = waker_of(core)
    waker.users += 1
    try:
        while True:
            woken = await waker.wait_for(number, seen, limit)
            seen = core._change()
            found = attempt()
            if found is not None or not woken:
                return found
    finally:
        waker.users -= 1
        if core.closed and not waker.users:
            waker.end()
