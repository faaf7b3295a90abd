"""Async twins of the blocking calls, for asyncio and trio, on the same socket.

No loop is remembered: each call asks which one runs it. A wait is: say that you wait, look once
more, sleep; what is received is taken by the task itself, synchronously, once it runs again. So a
cancelled call has either taken nothing or returned, and no message can get lost between.

Waking up: the loop leads (sock/wait.pyx). It watches the socket's own poll set, and when that is
readable it runs the engines itself: no thread stands between the kernel and the task. Changes that
others make, and all of them while it does not lead, are told by an eventfd (once per arming). There
is a waker for each socket and loop, shared by all tasks that wait there, kept while they do and a
moment longer; the loop owns it, the socket knows it weakly, so that it ends with the loop in any
case.

Fairness: after TURNS calls that had not to wait, or SLICE seconds of them, a call lets other tasks
run first, before it takes or sends anything.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mqcore.api.timing import left_of, limit_of, span
from mqcore.base.native import threading
from mqcore.errors import Error, SendTimeout, SocketClosed
from mqcore.sock.sleep import Bell, Nap, in_trio, running_loop, shielded

TURNS = 64
SLICE = 0.0005
NEXT_DONE = 64  # the question to REQ: whose request has been answered
SETTLE = 1.0  # seconds at most between a handshake and what the pattern makes of the peer
IDLE = 0.25  # seconds a loop's eventfd is kept after the last wait
CHUNK = 1024  # messages of a batch sent before other tasks may run
TAKE, TAKE_BYTES = 8192, 1 << 20  # received at a time, whatever was asked for: about a millisecond


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


# -- a socket in a loop ----------------------------------------------------------------------------


class Waker:
    """Tells the naps of one loop that something changed at a socket. Made and used on that loop's
    thread only."""

    loop: Any = None  # asyncio's

    def __init__(self, core: Any, key: int) -> None:
        self.core = core
        self.key = key
        self.naps: dict[Nap, None] = {}  # all of them look after each change
        self.line: dict[Nap, None] = {}  # tasks that receive: one after another
        self.asked: dict[int, Bell] = {}  # tasks that wait for an answer, by its context's number
        self.users = 0
        self.seen = 0
        self.watching = False
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            self.place = core._add_notifier(self.fd)
        except BaseException:
            os.close(self.fd)
            self.fd = -1
            raise

    async def wait(self, seen: int, limit: float | None, line: bool) -> bool:
        """Until something changed after `seen`; False: time is up. line: one of those that wait so
        is woken by a change; he calls the next ones, or calls off."""
        _turns.count = 0
        nap = Nap(self.loop)
        naps = self.line if line else self.naps
        naps[nap] = None
        if not self.doze(seen):
            del naps[nap]
            return True
        try:
            return await nap.wait(limit)
        finally:
            self.drop(nap)

    async def wait_for(self, number: int, seen: int, limit: float | None) -> bool:
        """wait() of a task that only the answer to its request concerns, the one under way in the
        context of this number: other changes let it sleep."""
        _turns.count = 0
        bell = Bell(self.loop)
        self.asked[number] = self.core._asked[number] = bell
        try:
            return not self.doze(seen) or await bell.wait(limit)
        finally:
            self.asked.pop(number, None)
            del self.core._asked[number]
            self.drop(bell)

    def answers(self) -> None:
        """Wake those whose answers are here. Another loop may wait for some of them."""
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

    def drop(self, nap: Nap) -> None:
        """It waits no more. Idempotent."""
        self.naps.pop(nap, None)
        self.line.pop(nap, None)
        if not self.waited:
            self.core._leave(self.place)

    @property
    def waited(self) -> bool:
        """Somebody waits."""
        return bool(self.naps or self.line or self.asked)

    def doze(self, seen: int) -> bool:
        """All who wait have looked at `seen`: be told of the next change. False: it came."""
        state = self.core._doze(self.place, seen)
        if state == 0:
            return False
        self.seen = seen
        if state == 2 and not self.watching:
            self.watch()
        return True

    def rung(self) -> None:
        """Somebody else told us of a change."""
        try:
            os.eventfd_read(self.fd)
        except BlockingIOError:
            pass
        self.look()

    def ready(self) -> None:
        """The socket's set has something to harvest."""
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
            if not self.waited:  # a nap may sleep on when it has looked
                self.core._leave(self.place)
                return
            if self.doze(seen):
                return

    def call(self, n: int) -> None:
        """Wake the first n of the line."""
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
    """asyncio: the loop's readers are what keeps it."""

    def __init__(self, core: Any, loop: Any) -> None:
        super().__init__(core, id(loop))
        self.loop = loop
        self.set = -1
        loop.add_reader(self.fd, self.rung)
        self.busy = True
        loop.call_later(IDLE, self._look)

    def watch(self) -> None:
        if self.set < 0:
            try:  # a copy: the loop never watches a number that the socket's end makes another's
                self.set = os.dup(self.core._descriptor())
            except OSError:
                self.core._leave(self.place)
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
        fd, self.set = self.set, -1
        if fd >= 0:
            os.close(fd)


class TrioWaker(Waker):
    """trio: system tasks that watch while somebody waits."""

    def __init__(self, core: Any, token: Any) -> None:
        super().__init__(core, id(token))
        import trio

        self.busy = True
        self.trio = trio
        self.scope = trio.CancelScope()
        self.sets = trio.CancelScope()
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
            self.unwatch()
            self.forget()

    def watch(self) -> None:
        try:
            fd = os.dup(self.core._descriptor())
        except OSError:
            self.core._leave(self.place)
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
    seen = core._change()
    found = attempt()
    if found is not None or limit == 0:
        return found
    return await later(core, attempt, limit, seen)


async def later(core: Any, attempt: Callable[[], Any], limit: float | None, seen: int,
                line: bool = False) -> Any:
    """until(), after an attempt that failed at `seen`. line: attempt() takes a message, so that one
    task is enough for one change. Whoever was woken and took one calls two more if there is more,
    and whoever leaves without one calls the next: nobody sleeps while a message waits."""
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
    """later(), for the answer to the request of one context, which nobody else takes."""
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


# -- the twins -------------------------------------------------------------------------------------


class AsyncFace:
    """The async half of Socket."""

    __slots__ = ()

    # -- sending -----------------------------------------------------------------------------------

    async def _asend(self: Any, data: Any, single: bool, timeout: Any, peer: int = 0) -> None:
        if due():
            await turn()
        seen = self._change()
        why = self._try_send(data, single, peer)
        if why:
            await self._asend_later(data, single, timeout, peer, seen, why)

    async def _asend_later(self: Any, data: Any, single: bool, timeout: Any, peer: int, seen: int,
                           why: int) -> None:
        default = self._options["send_timeout"]

        def attempt() -> bool | None:
            nonlocal why
            why = self._try_send(data, single, peer)
            return True if why == 0 else None

        limit = limit_of(timeout, default)
        if limit == 0 or await later(self, attempt, limit, seen) is None:
            self._fail_send(why, default if timeout is ... else timeout)

    async def asend(self: Any, data: Any, *, timeout: Any = ...) -> None:
        """send(), awaitable."""
        if due():
            await turn()
        seen = self._change()
        why = self._try_send(data, True)
        if why:
            await self._asend_later(data, True, timeout, 0, seen, why)

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

    async def asend_batch(self: Any, data: Any, offsets: Any, *, split: Any = None,
                          timeout: Any = ...) -> int:
        """send_batch(), awaitable."""
        return await self._asend_batch(data, offsets, timeout, self.send_batch, split)

    async def _asend_batch(self: Any, data: Any, offsets: Any, timeout: Any,
                           send: Callable[..., int], split: Any = None) -> int:
        limit = limit_of(timeout, self._options["send_timeout"])
        sent, n = 0, len(offsets) - 1
        if n < 1:
            return send(data, offsets)

        def attempt() -> int | None:
            nonlocal sent
            try:
                upto = min(sent + CHUNK, n)
                cuts = {} if split is None else {"split": split[sent:upto]}
                done = send(data, offsets[sent:upto + 1], timeout=0, **cuts)
            except SendTimeout as error:
                sent += error.sent
                return error.sent or None
            sent += done
            return done

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
        return await self._asend_ref(data, timeout, self.send_ref)

    async def _asend_ref(self: Any, data: Any, timeout: Any, send: Callable[..., Any]) -> Any:
        if due():
            await turn()
        why: list[SendTimeout] = []

        def attempt() -> Any:
            try:
                return send(data, timeout=0)
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
        seen = self._change()
        found = self._try_recv(kind, arg)
        return found if found is not None else await self._arecv_later(kind, arg, timeout, seen)

    async def _arecv_later(self: Any, kind: int, arg: Any, timeout: Any, seen: int) -> Any:
        default = self._options["recv_timeout"]
        limit = limit_of(timeout, default)
        if limit != 0:
            found = await later(self, lambda: self._try_recv(kind, arg), limit, seen, self._in_line)
            if found is not None:
                return found
        self._fail_recv(default if timeout is ... else timeout)

    async def arecv(self: Any, *, timeout: Any = ...) -> bytes:
        """recv(), awaitable. Cancelled, it has taken no message."""
        if due():
            await turn()
        seen = self._change()
        found: bytes | None = self._try_recv(0)
        if found is None:
            found = await self._arecv_later(0, None, timeout, seen)
        return found

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
        """recv_many(), awaitable; 8192 at most, so that other tasks have their turn."""
        return await self._arecv(4, min(max, TAKE), timeout)  # type: ignore[no-any-return]

    async def arecv_batch(self, max: int = 65536, *, max_bytes: int = 8 << 20,
                          timeout: Any = ...) -> Any:
        """recv_batch(), awaitable; 8192 messages or about 1 MiB at most, so that other tasks have
        their turn."""
        return await self._arecv(5, (min(max, TAKE), min(max_bytes, TAKE_BYTES)), timeout)

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
                await until(self, lambda: self._links.settled(made) or None,
                            limit_of(SETTLE))
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


class Incoming:
    """Messages until we close the socket: iterable in both ways. Time-outs raise."""

    __slots__ = ("_anext", "_next")

    def __init__(self, take: Callable[[], Any], atake: Callable[[], Any]) -> None:
        self._next, self._anext = take, atake

    def __iter__(self) -> Incoming:
        return self

    def __aiter__(self) -> Incoming:
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


