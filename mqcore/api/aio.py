"""Async variants of the blocking calls, for asyncio and trio, on the same socket.

A socket remembers no event loop: each call determines the running one. The task itself takes a
message, synchronously, after it has resumed (wakers.py). So a cancelled call has either taken
nothing or returned, and no message is lost in between. A call that does not wait still lets other
tasks run from time to time (turns.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mqcore.api.turns import due, fair, in_thread, turn
from mqcore.api.wakers import end_idle, later, until
from mqcore.binding.arguments import several
from mqcore.binding.timing import left_of, limit_of, span
from mqcore.errors import SendTimeout, SocketClosed

CHUNK = 1024  # messages of a batch that are sent before other tasks run
TAKE, TAKE_BYTES = 8192, 1 << 20  # limits of one receive call, about a millisecond


def least(wanted: Any, most: int) -> Any:
    """`wanted`, limited to `most`. The callee rejects values that are not numbers."""
    return most if isinstance(wanted, int) and wanted > most else wanted


def check(timeout: Any) -> None:
    """Refuse an invalid `timeout`, even in a call that does not wait."""
    if timeout is not None and not (type(timeout) is float and timeout >= 0):
        limit_of(timeout)


class AsyncFace:
    """The async calls of Socket."""

    __slots__ = ()

    # -- sending -----------------------------------------------------------------------------------

    async def _asend(self: Any, data: Any, single: bool, timeout: Any, peer: int = 0) -> None:
        if timeout is not ...:
            check(timeout)
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
        if timeout is not ...:
            check(timeout)
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
        for data in several("send_many() takes several messages", messages, False):
            try:
                await self._asend(data, not isinstance(data, (list, tuple)), left_of(limit))
            except SendTimeout as error:
                error.sent = count
                raise
            count += 1
        if not count:
            await fair()
        return count

    async def asend_batch(self: Any, data: Any, offsets: Any, *, split: Any = None,
                          timeout: Any = ...) -> int:
        """send_batch(), awaitable."""
        sent: int = await self._asend_batch(data, offsets, timeout, self.send_batch, split)
        return sent

    async def _asend_batch(self: Any, data: Any, offsets: Any, timeout: Any,
                           send: Callable[..., int], split: Any = None) -> int:
        limit = limit_of(timeout, self._options["send_timeout"])
        from mqcore.binding.arrays import numbers_of

        if split is not None:
            split = numbers_of("split", split)
        offsets = numbers_of("offsets", offsets)
        sent, n = 0, len(offsets) - 1
        if n < 1 or split is not None and len(split) != n:
            await fair()
            return send(data, offsets, **({} if split is None else {"split": split}))

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
        if timeout is not ...:
            check(timeout)
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
        """recv(), awaitable. A cancelled call has taken no message."""
        if timeout is not ...:
            check(timeout)
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
        """recv_many(), awaitable. Returns at most 8192 messages, so that other tasks can run."""
        return await self._arecv(4, least(max, TAKE), timeout)  # type: ignore[no-any-return]

    async def arecv_batch(self, max: int = 65536, *, max_bytes: int = 8 << 20,
                          timeout: Any = ...) -> Any:
        """recv_batch(), awaitable. Returns at most 8192 messages or about 1 MiB, so that other
        tasks can run."""
        return await self._arecv(5, (least(max, TAKE), least(max_bytes, TAKE_BYTES)), timeout)

    async def _areply(self: Any, message: Any, parts: tuple[Any, ...], timeout: Any) -> None:
        if timeout is not ...:
            check(timeout)
        if due():
            await turn()
        default = self._options["send_timeout"]
        done = await until(self, lambda: self._try_answer(message, parts) or None,
                           limit_of(timeout, default))
        if done is None:
            self._fail_send(10, default if timeout is ... else timeout)

    # -- endpoints, peers, the end -----------------------------------------------------------------

    async def abind(self: Any, url: str, **endpoint: Any) -> Any:
        """bind(), awaitable, because it may have to resolve a name."""
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
        limit_of(wait, name="wait")
        await fair()
        made = self.connect(url, prio=prio, **endpoint)
        if wait != 0:
            try:
                await made.await_ready(wait)
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
        self._check_count(n, "peers")
        if due():
            await turn()
        if await until(self, lambda: self._enough(n, self._attached), limit_of(timeout)) is None:
            self._fail_wait(self._attached(), n, "peers", timeout)

    async def aclose(self: Any, linger: Any = ...) -> Any:
        """close(), awaitable. If cancelled, it closes with linger=0."""
        try:
            return await in_thread(lambda: self.close(linger), lambda: self._links.hurry())
        finally:
            end_idle(self)

    async def __aenter__(self: Any) -> Any:
        return self.__enter__()

    async def __aexit__(self, *_: Any) -> None:
        await self.aclose()


class Incoming:
    """Iterates over messages until the socket is closed, both sync and async. Time-outs raise."""

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


