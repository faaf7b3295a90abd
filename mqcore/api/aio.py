"""Async twins of the blocking calls, for asyncio and trio, on the same socket.

No loop is remembered: each call asks which one runs it. A wait is: say that you wait, look once
more, sleep; what is received is taken by the task itself, synchronously, once it runs again. So a
cancelled call has either taken nothing or returned, and no message can get lost between.

Waking up: the data plane writes an eventfd (once per arming) that the loop watches. There is one
for each socket and loop, shared by all tasks that wait there, kept while they do and a moment
longer; the loop owns it, the socket knows it weakly, so that it ends with the loop in any case.

Fairness: after TURNS calls that had not to wait, or SLICE seconds of them, a call lets other tasks
run first, before it takes or sends anything.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mqcore.api.timing import left_of, limit_of, span
from mqcore.errors import RecvTimeout, SendTimeout, SocketClosed
from mqcore.sock.sleep import Bell, Nap, in_trio, running_loop, shielded

TURNS = 64
SLICE = 0.0005
IDLE = 0.25  # seconds a loop's eventfd is kept after the last wait
CHUNK = 1024  # messages of a batch sent before other tasks may run


class _Turns(threading.local):
    count = 0
    since = 0.0


_turns = _Turns()


def due() -> bool:
    """True: await turn() before going on."""
    if in_trio():
        return True
    _turns.count += 1
    if _turns.count == 1:
        _turns.since = time.monotonic()
        return False
    return _turns.count > TURNS or time.monotonic() - _turns.since > SLICE


async def turn() -> None:
    """Let others run if it is their turn; on trio, a checkpoint for cancellation always."""
    if not in_trio():
        _turns.count = 0
        await sys.modules["asyncio"].sleep(0)
        return
    import trio

    _turns.count += 1
    if _turns.count == 1:
        _turns.since = time.monotonic()
    if _turns.count > TURNS or time.monotonic() - _turns.since > SLICE:
        _turns.count = 0
        await trio.lowlevel.checkpoint()
    else:
        await trio.lowlevel.checkpoint_if_cancelled()


# -- work that blocks ------------------------------------------------------------------------------


async def in_thread(fn: Callable[[], Any], hurry: Callable[[], Any] | None = None) -> Any:
    """fn() in a thread of its own. If cancelled: hurry(), wait for its end, pass the cancellation
    on; nothing goes on behind the caller's back."""
    bell = Bell()
    out: list[Any] = []
    failed: list[BaseException] = []

    def body() -> None:
        try:
            out.append(fn())
        except BaseException as error:
            failed.append(error)
        finally:
            bell.ring()

    thread = threading.Thread(target=body, name="mqcore-call", daemon=True)
    thread.start()
    again = Bell()
    try:
        await bell.wait()
    except BaseException:
        if hurry is not None:
            hurry()
        threading.Thread(target=lambda: (thread.join(), again.ring()), daemon=True).start()
        await shielded(again)
        raise
    thread.join()
    if failed:
        raise failed[0]
    return out[0]


# -- the eventfd of a socket in a loop -------------------------------------------------------------


class Waker:
    """Tells the naps of one loop that something changed at a socket. Made and used on that loop's
    thread only."""

    def __init__(self, core: Any, key: int) -> None:
        self.core = core
        self.key = key
        self.naps: set[Nap] = set()
        self.users = 0
        self.idle = False
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            self.place = core._add_notifier(self.fd)
        except BaseException:
            os.close(self.fd)
            self.fd = -1
            raise

    async def wait(self, seen: int, limit: float | None) -> bool:
        """Until something changed after `seen`; False: time is up."""
        _turns.count = 0
        nap = Nap()
        self.naps.add(nap)
        self.core._arm(self.place)
        if self.core._change() != seen:
            self.naps.discard(nap)
            return True
        try:
            return await nap.wait(limit)
        finally:
            self.naps.discard(nap)

    def rung(self) -> None:
        try:
            os.eventfd_read(self.fd)
        except BlockingIOError:
            pass
        naps, self.naps = self.naps, set()
        for nap in naps:
            nap.wake()

    def forget(self) -> None:
        """The descriptor and the place at the socket are free again. Idempotent."""
        if self.fd < 0:
            return
        fd, self.fd = self.fd, -1
        wakers = self.core._wakers
        if wakers.get(self.key) is self:
            del wakers[self.key]
        self.core._remove_notifier(self.place)
        os.close(fd)

    def __del__(self) -> None:
        if getattr(self, "fd", -1) >= 0:
            self.forget()


class LoopWaker(Waker):
    """asyncio: the loop's reader is what keeps it."""

    def __init__(self, core: Any, loop: Any) -> None:
        super().__init__(core, id(loop))
        self.loop = loop
        loop.add_reader(self.fd, self.rung)
        self.busy = True
        loop.call_later(IDLE, self._look)

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
            self.loop.remove_reader(self.fd)
            self.forget()


class TrioWaker(Waker):
    """trio: a system task that watches while somebody waits."""

    def __init__(self, core: Any, token: Any) -> None:
        super().__init__(core, id(token))
        import trio

        self.busy = True
        self.trio = trio
        self.scope = trio.CancelScope()
        trio.lowlevel.spawn_system_task(self._watch)

    async def _watch(self) -> None:
        try:
            with self.scope:
                while self.users or self.busy:
                    self.busy = False
                    with self.trio.move_on_after(IDLE):
                        while True:
                            await self.trio.lowlevel.wait_readable(self.fd)
                            self.rung()
        finally:
            self.forget()

    def end(self) -> None:
        self.scope.cancel()
        self.forget()


def waker_of(core: Any) -> Waker:
    """The running loop's waker for this socket."""
    loop: Any
    if in_trio():
        import trio

        loop, kind = trio.lowlevel.current_trio_token(), TrioWaker
    else:
        loop, kind = running_loop(), LoopWaker
    found: Waker | None = core._wakers.get(id(loop))
    if found is None:
        for other in list(core._wakers.values()):  # of loops that ended: asyncio.run() in a row
            if isinstance(other, LoopWaker) and other.loop.is_closed():
                other.forget()
        found = kind(core, loop)
        core._wakers[id(loop)] = found
    found.busy = True
    return found


async def until(core: Any, attempt: Callable[[], Any], limit: float | None) -> Any:
    """attempt() now and after each change, until it gives something; None: time is up."""
    found = attempt()
    if found is not None or limit == 0:
        return found
    waker = waker_of(core)
    waker.users += 1
    try:
        while True:
            seen = core._change()
            found = attempt()
            if found is not None:
                return found
            if not await waker.wait(seen, limit):
                return attempt()
    finally:
        waker.users -= 1
        if core.closed and not waker.users:
            waker.end()


# -- the twins -------------------------------------------------------------------------------------


class AsyncFace:
    """The async half of Socket."""

    __slots__ = ()

    # -- sending -----------------------------------------------------------------------------------

    async def _asend(self: Any, data: Any, single: bool, timeout: Any, peer: int = 0) -> None:
        if due():
            await turn()
        why = self._try_send(data, single, peer)
        if why == 0:
            return
        default = self._options["send_timeout"]

        def attempt() -> bool | None:
            nonlocal why
            why = self._try_send(data, single, peer)
            return True if why == 0 else None

        if await until(self, attempt, limit_of(timeout, default)) is None:
            self._fail_send(why, default if timeout is ... else timeout)

    async def asend(self, data: Any, *, timeout: Any = ...) -> None:
        """send(), awaitable."""
        await self._asend(data, True, timeout)

    async def asend_parts(self, parts: Sequence[Any], *, timeout: Any = ...) -> None:
        """send_parts(), awaitable."""
        await self._asend(parts, False, timeout)

    async def asend_many(self: Any, messages: Iterable[Any], *, timeout: Any = ...) -> int:
        """send_many(), awaitable."""
        limit = limit_of(timeout, self._options["send_timeout"])
        count = 0
        for data in messages:
            try:
                await self._asend(data, not isinstance(data, (list, tuple)), left_of(limit))
            except SendTimeout as error:
                error.sent = count
                raise
            count += 1
        return count

    async def asend_batch(self: Any, data: Any, offsets: Any, *, timeout: Any = ...) -> int:
        """send_batch(), awaitable."""
        limit = limit_of(timeout, self._options["send_timeout"])
        sent, n = 0, len(offsets) - 1
        if n < 1:
            return int(self.send_batch(data, offsets))

        def attempt() -> int | None:
            nonlocal sent
            try:
                done = self.send_batch(data, offsets[sent:min(sent + CHUNK, n) + 1], timeout=0)
            except SendTimeout as error:
                sent += error.sent
                return error.sent or None
            sent += done
            return int(done)

        while sent < n:
            if due():
                await turn()
            if await until(self, attempt, limit) is None:
                raise SendTimeout(f"{sent} of {n} messages were sent{span(timeout)}", sent=sent,
                                  why="full" if self._attached() else "no_peer",
                                  peers=self._attached())
        return n

    async def asend_ref(self: Any, data: Any, *, timeout: Any = ...) -> Any:
        """send_ref(), awaitable."""
        if due():
            await turn()
        why: list[SendTimeout] = []

        def attempt() -> Any:
            try:
                return self.send_ref(data, timeout=0)
            except SendTimeout as error:
                why[:] = [error]
                return None

        pinned = await until(self, attempt, limit_of(timeout, self._options["send_timeout"]))
        if pinned is None:
            raise why[0]
        return pinned

    # -- receiving ---------------------------------------------------------------------------------

    async def _arecv(self: Any, kind: int, arg: Any, timeout: Any) -> Any:
        if due():
            await turn()
        found = self._try_recv(kind, arg)
        if found is not None:
            return found
        default = self._options["recv_timeout"]
        found = await until(self, lambda: self._try_recv(kind, arg), limit_of(timeout, default))
        if found is None:
            raise RecvTimeout(f"no message came{span(timeout, default)}")
        return found

    async def arecv(self, *, timeout: Any = ...) -> bytes:
        """recv(), awaitable. Cancelled, it has taken no message."""
        return await self._arecv(0, None, timeout)  # type: ignore[no-any-return]

    async def arecv_parts(self, *, timeout: Any = ...) -> list[bytes]:
        """recv_parts(), awaitable."""
        return await self._arecv(1, None, timeout)  # type: ignore[no-any-return]

    async def arecv_msg(self, *, timeout: Any = ...) -> Any:
        """recv_msg(), awaitable."""
        return await self._arecv(2, None, timeout)

    async def arecv_into(self, buffer: Any, *, timeout: Any = ...) -> int:
        """recv_into(), awaitable."""
        return await self._arecv(3, buffer, timeout)  # type: ignore[no-any-return]

    async def arecv_many(self, max: int = 1024, *, timeout: Any = ...) -> list[bytes]:
        """recv_many(), awaitable."""
        return await self._arecv(4, max, timeout)  # type: ignore[no-any-return]

    async def arecv_batch(self, max: int = 65536, *, max_bytes: int = 8 << 20,
                          timeout: Any = ...) -> Any:
        """recv_batch(), awaitable."""
        return await self._arecv(5, (max, max_bytes), timeout)

    async def _areply(self: Any, message: Any, parts: tuple[Any, ...], timeout: Any) -> None:
        if due():
            await turn()
        default = self._options["send_timeout"]
        done = await until(self, lambda: self._try_answer(message, parts) or None,
                           limit_of(timeout, default))
        if done is None:
            self._fail_send(10, default if timeout is ... else timeout)

    # -- endpoints, peers, the end -----------------------------------------------------------------

    async def abind(self: Any, url: str, **endpoint: Any) -> Any:
        """bind(), awaitable (a name may have to be looked up)."""
        made: list[Any] = []

        def body() -> Any:
            made.append(self.bind(url, **endpoint))
            return made[0]

        try:
            return await in_thread(body)
        except BaseException:
            for one in made:
                one.close()
            raise

    async def aconnect(self: Any, url: Any, *, prio: Any = ..., wait: Any = 0,
                       **endpoint: Any) -> Any:
        """connect(), awaitable."""
        made = self.connect(url, prio=prio, **endpoint)
        if wait != 0:
            try:
                await made.await_(wait)
            except BaseException:
                await in_thread(made.close)
                raise
        return made

    async def aunbind(self: Any, at: Any) -> None:
        """unbind(), awaitable."""
        await in_thread(lambda: self.unbind(at))

    async def adisconnect(self: Any, at: Any) -> None:
        """disconnect(), awaitable."""
        await in_thread(lambda: self.disconnect(at))

    async def await_peers(self: Any, n: int = 1, timeout: Any = None) -> None:
        """wait_peers(), awaitable."""
        if due():
            await turn()
        if await until(self, lambda: self._enough(n, self._attached), limit_of(timeout)) is None:
            self._fail_wait(self._attached(), n, "peers", timeout)

    async def aclose(self: Any, linger: Any = ...) -> Any:
        """close(), awaitable. Cancelled: linger 0."""
        return await in_thread(lambda: self.close(linger), lambda: self._links.hurry())

    async def __aenter__(self: Any) -> Any:
        return self.__enter__()

    async def __aexit__(self, *_: Any) -> None:
        await self.aclose()


class Stream:
    """Messages until we close the socket: iterable in both ways. Time-outs raise."""

    __slots__ = ("_anext", "_next")

    def __init__(self, take: Callable[[], Any], atake: Callable[[], Any]) -> None:
        self._next, self._anext = take, atake

    def __iter__(self) -> Stream:
        return self

    def __aiter__(self) -> Stream:
        return self

    def __next__(self) -> Any:
        try:
            return self._next()
        except SocketClosed:
            raise StopIteration from None

    async def __anext__(self) -> Any:
        try:
            return await self._anext()
        except SocketClosed:
            raise StopAsyncIteration from None


