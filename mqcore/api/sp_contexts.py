"""Contexts of a socket: any number of exchanges at once over the same peers.

`sock.new_context()` creates a separate line: on Req for requests, on Rep and Respondent for
replies, on Surveyor for surveys, on Sub for subscriptions. Each has its own time-outs, and `with`
closes it. Different contexts may be used by different threads and tasks at once; one context is for
one at a time, as a Req is.

Every change of the socket wakes all waiters, and each checks for itself. An answer belongs to one
particular waiter, so waking the waiters one by one could wake the wrong one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NoReturn

from mqcore.api.aio import Incoming
from mqcore.api.exchanges import RequestCalls
from mqcore.api.turns import due, turn
from mqcore.api.wakers import answered, later
from mqcore.binding.contexts import ContextCore
from mqcore.binding.tickets import Turnstile
from mqcore.binding.timing import left_of, limit_of, passed
from mqcore.errors import NoSuchPeer, NotSubscribed, StateError, UsageError

NO_TIMES: dict[str, Any] = {}  # no own time-outs


class Timeouts:
    """send_timeout and recv_timeout: the context's own, or else the socket's."""

    __slots__ = ()

    def _begin(self: Any, sock: Any, given: dict[str, Any]) -> None:
        self._sock = sock
        self._times: dict[str, float | None] = {}
        for name in given:
            if name not in ("send_timeout", "recv_timeout"):
                raise UsageError(f"a context has no option {name!r}",
                                 hint="it has send_timeout and recv_timeout; others are the "
                                      "socket's")
            setattr(self, name, given[name])

    def _time(self: Any, name: str) -> float | None:
        return self._times.get(name, self._sock._options[name])  # type: ignore[no-any-return]

    def _set_time(self: Any, name: str, value: float | None) -> None:
        limit_of(value)
        self._times[name] = value if value is None else float(value)

    @property
    def send_timeout(self) -> float | None:
        """How long a send waits, in seconds; None: for ever."""
        return self._time("send_timeout")

    @send_timeout.setter
    def send_timeout(self, value: float | None) -> None:
        self._set_time("send_timeout", value)

    @property
    def recv_timeout(self) -> float | None:
        """How long a receive waits, in seconds; None: for ever."""
        return self._time("recv_timeout")

    @recv_timeout.setter
    def recv_timeout(self, value: float | None) -> None:
        self._set_time("recv_timeout", value)

    @property
    def socket(self: Any) -> Any:
        """The socket of this context."""
        return self._sock

    def __enter__(self: Any) -> Any:
        self._usable()
        return self

    def __exit__(self: Any, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self: Any) -> Any:
        self._usable()
        return self

    async def __aexit__(self: Any, *_: Any) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise UsageError("a context cannot be pickled or copied",
                         hint="pass the URL, and open a socket where it is used")

    def __repr__(self: Any) -> str:
        return f"<{type(self).__name__}{' closed' if self.closed else ''} of {self._sock!r}>"


class Line(Timeouts, ContextCore):
    """A context that its pattern keeps state for."""

    __slots__ = ("_sock", "_times")

    def __init__(self, sock: Any, **given: Any) -> None:
        try:
            self._begin(sock, given)
        except BaseException:
            self._close()
            raise

    def close(self) -> None:
        """Abandon the outstanding exchange. Calls that wait in it raise StateError. Idempotent."""
        self._close()

    def _usable(self) -> None:
        self._check()

    # -- waiting -----------------------------------------------------------------------------------

    def _put(self, data: Any, single: bool, timeout: Any) -> None:
        limit = limit_of(timeout, self.send_timeout)
        while True:
            seen = self._sock._change()
            why = self._try_send(data, single)
            if not why:
                return
            if limit == 0 or passed(limit):
                self._fail_send(why, timeout)
            self._sock._wait(seen, left_of(limit))

    async def _asend(self, data: Any, single: bool, timeout: Any) -> None:
        if due():
            await turn()
        limit = limit_of(timeout, self.send_timeout)
        seen = self._sock._change()
        why = self._try_send(data, single)

        def attempt() -> bool | None:
            nonlocal why
            why = self._try_send(data, single)
            return True if why == 0 else None

        if why and (limit == 0 or await later(self._sock, attempt, limit, seen) is None):
            self._fail_send(why, timeout)

    def _fail_send(self, why: int, timeout: Any) -> NoReturn:
        self._sock._fail_send(why, self.send_timeout if timeout is ... else timeout)
        raise AssertionError("it raises")

    def _fail_recv(self, timeout: Any) -> NoReturn:
        self._sock._fail_recv(self.recv_timeout if timeout is ... else timeout)
        raise AssertionError("it raises")

    def _take(self, kind: int, timeout: Any) -> Any:
        limit = limit_of(timeout, self.recv_timeout)
        while True:
            seen = self._sock._change()
            found = self._try(kind)
            if found is not None:
                return found
            if limit == 0 or passed(limit):
                self._fail_recv(timeout)
            self._sock._wait(seen, left_of(limit))

    async def _arecv(self, kind: int, _: Any, timeout: Any) -> Any:
        if due():
            await turn()
        limit = limit_of(timeout, self.recv_timeout)
        seen = self._sock._change()
        found = self._try(kind)
        if found is None and limit != 0:
            found = await later(self._sock, lambda: self._try(kind), limit, seen)
        if found is None:
            self._fail_recv(timeout)
        return found

    def _try(self, kind: int) -> Any:
        return self._try_recv(kind)

    # -- receiving ---------------------------------------------------------------------------------

    def recv(self, *, timeout: Any = ...) -> bytes:
        """Receive one message with its parts joined. RecvTimeout after `timeout` seconds."""
        return self._take(0, timeout)  # type: ignore[no-any-return]

    def recv_parts(self, *, timeout: Any = ...) -> list[bytes]:
        """Receive one message as a list of its parts."""
        return self._take(1, timeout)  # type: ignore[no-any-return]

    def recv_msg(self, *, timeout: Any = ...) -> Any:
        """Receive one Message."""
        return self._take(2, timeout)

    async def arecv(self, *, timeout: Any = ...) -> bytes:
        """recv(), awaitable. A cancelled call has taken no message."""
        return await self._arecv(0, None, timeout)  # type: ignore[no-any-return]

    async def arecv_parts(self, *, timeout: Any = ...) -> list[bytes]:
        """recv_parts(), awaitable."""
        return await self._arecv(1, None, timeout)  # type: ignore[no-any-return]

    async def arecv_msg(self, *, timeout: Any = ...) -> Any:
        """recv_msg(), awaitable."""
        return await self._arecv(2, None, timeout)


class SendingLine(Line):
    """A Line that can send."""

    __slots__ = ()

    def send(self, data: Any, *, timeout: Any = ...) -> None:
        """Send one message of one part: all or nothing. Abandons this context's outstanding
        exchange."""
        self._put(data, True, timeout)

    def send_parts(self, parts: Any, *, timeout: Any = ...) -> None:
        """send() for a message of several parts."""
        self._put(parts, False, timeout)

    async def asend(self, data: Any, *, timeout: Any = ...) -> None:
        """send(), awaitable."""
        await self._asend(data, True, timeout)

    async def asend_parts(self, parts: Any, *, timeout: Any = ...) -> None:
        """send_parts(), awaitable."""
        await self._asend(parts, False, timeout)

    def abandon(self) -> None:
        """Abandon the outstanding exchange. Its answer is counted as late when it arrives."""
        self._abandon()


class ReqContext(RequestCalls, SendingLine):
    """One of any number of concurrent requests of a Req."""

    __slots__ = ("_turnstile",)

    def __init__(self, sock: Any, **given: Any) -> None:
        self._turnstile = Turnstile(of=sock._turnstile)
        super().__init__(sock, **given)

    def close(self) -> None:
        """Abandon the outstanding request. Calls that wait raise StateError. Idempotent."""
        super().close()
        self._turnstile.dismiss()


class RequestLine(ReqContext):
    """A ReqContext for one call of Req.request(). No other code uses it, so only its reply can end
    the wait: the loop wakes the task for that and for nothing else."""

    __slots__ = ()

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self._times = NO_TIMES

    def close(self) -> None:
        """Abandon the request. Idempotent."""
        self._close()

    async def _arecv(self, kind: int, _: Any, timeout: Any) -> Any:
        if due():
            await turn()
        limit = limit_of(timeout, self.recv_timeout)
        seen = self._sock._change()
        found = self._try(kind)
        if found is None and limit != 0:
            found = await answered(self._sock, lambda: self._try(kind), limit, seen, self._number)
        if found is None:
            self._fail_recv(timeout)
        return found


class SubContext(Line):
    """Own subscriptions over a Sub's publishers, with an own queue for their messages."""

    __slots__ = ("_wanted",)

    def __init__(self, sock: Any, **given: Any) -> None:
        self._wanted: dict[bytes, int] = {}
        super().__init__(sock, **given)

    def subscribe(self, *topics: Any) -> None:
        """Subscribe to messages that start with these topics; b"" matches everything. Subscriptions
        are counted: unsubscribe as many times as you subscribed."""
        self._usable()
        for raw in [self._sock._name(topic) for topic in topics]:
            if not self._wanted.get(raw):
                self._subscribe(raw, 1)
            self._wanted[raw] = self._wanted.get(raw, 0) + 1

    def unsubscribe(self, *topics: Any) -> None:
        """Undo one subscribe() of each topic. NotSubscribed if there is none."""
        self._usable()
        for raw in [self._sock._name(topic) for topic in topics]:
            if raw not in self._wanted:
                known = ", ".join(map(repr, self._wanted)) or "nothing"
                raise NotSubscribed(f"this context has no subscription to {raw!r}",
                                    hint=f"subscribed to {known}")
            if self._wanted[raw] == 1:
                self._subscribe(raw, 0)
                del self._wanted[raw]
            else:
                self._wanted[raw] -= 1

    @property
    def topics(self) -> tuple[bytes, ...]:
        """The subscribed topics, each once, in order."""
        return tuple(list(self._wanted))

    def _try(self, kind: int) -> Any:
        found = self._try_recv(kind)
        if found is None and not self._wanted:
            raise NotSubscribed("this context has no subscription, so no message can arrive",
                                hint='subscribe(b"") subscribes to everything')
        return found

    def __iter__(self) -> Any:
        return Incoming(self.recv, self.arecv)

    __aiter__ = __iter__


def _listed(parts: Any) -> list[Any]:
    """The parts of a reply, as send_parts() takes them."""
    if isinstance(parts, (bytes, bytearray, memoryview, str)):
        raise UsageError("send_parts() takes a sequence of parts", hint="use send() for one")
    if isinstance(parts, (dict, set, frozenset)) or not isinstance(parts, Iterable):
        raise UsageError(f"send_parts() takes a sequence of parts, not {type(parts).__name__}",
                         hint="give a list")
    return list(parts)


class RepContext(Timeouts):
    """One of any number of requests or surveys that a socket answers at once: recv() receives one,
    send() answers it."""

    __slots__ = ("__weakref__", "_closed", "_request", "_sock", "_times")

    def __init__(self, sock: Any, **given: Any) -> None:
        self._closed = False
        self._request: Any = None
        sock._usable()
        self._begin(sock, given)

    def close(self) -> None:
        """Close the context. A request that it has received stays unanswered. Idempotent."""
        self._closed = True
        self._request = None

    @property
    def closed(self) -> bool:
        """Whether the context or its socket is closed."""
        return self._closed or self._sock.closed

    def _usable(self) -> None:
        self._sock._usable()
        if self._closed:
            raise StateError("the context is closed", hint="open another: socket.new_context()")

    def _time_of(self, timeout: Any, name: str) -> Any:
        return self._time(name) if timeout is ... else timeout

    def recv_msg(self, *, timeout: Any = ...) -> Any:
        """Receive one Message. send() replies to it, as its reply() does."""
        self._usable()
        self._request = self._sock.recv_msg(timeout=self._time_of(timeout, "recv_timeout"))
        return self._request

    async def arecv_msg(self, *, timeout: Any = ...) -> Any:
        """recv_msg(), awaitable."""
        self._usable()
        timeout = self._time_of(timeout, "recv_timeout")
        self._request = await self._sock.arecv_msg(timeout=timeout)
        return self._request

    def recv_parts(self, *, timeout: Any = ...) -> list[bytes]:
        """Receive one request as a list of its parts."""
        return list(map(bytes, self.recv_msg(timeout=timeout).parts))

    async def arecv_parts(self, *, timeout: Any = ...) -> list[bytes]:
        """recv_parts(), awaitable."""
        return list(map(bytes, (await self.arecv_msg(timeout=timeout)).parts))

    def recv(self, *, timeout: Any = ...) -> bytes:
        """Receive one request with its parts joined. A previous unanswered request stays so."""
        return bytes(self.recv_msg(timeout=timeout))

    async def arecv(self, *, timeout: Any = ...) -> bytes:
        """recv(), awaitable. A cancelled call has taken no request."""
        return bytes(await self.arecv_msg(timeout=timeout))

    @contextmanager
    def _answering(self) -> Iterator[Any]:
        """Take the pending request. If the reply fails, the request becomes pending again."""
        self._usable()
        request, self._request = self._request, None
        if request is None:
            raise StateError("there is no request to answer", hint="call recv() first")
        try:
            yield request
        except NoSuchPeer:
            pass
        except BaseException:
            if self._request is None and not self._closed:
                self._request = request
            raise

    def send(self, data: Any, *, timeout: Any = ...) -> None:
        """Reply to the request that was received last."""
        self.send_parts((data,), timeout=timeout)

    async def asend(self, data: Any, *, timeout: Any = ...) -> None:
        """send(), awaitable."""
        await self.asend_parts((data,), timeout=timeout)

    def send_parts(self, parts: Iterable[Any], *, timeout: Any = ...) -> None:
        """Reply with several parts. If the requester has disconnected, the reply is dropped and
        counted."""
        with self._answering() as request:
            request.reply(_listed(parts), timeout=self._time_of(timeout, "send_timeout"))

    async def asend_parts(self, parts: Iterable[Any], *, timeout: Any = ...) -> None:
        """send_parts(), awaitable."""
        with self._answering() as request:
            await request.areply(_listed(parts), timeout=self._time_of(timeout, "send_timeout"))
