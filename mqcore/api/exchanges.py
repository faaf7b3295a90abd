"""request() and survey(), shared by a socket and its contexts."""

from __future__ import annotations

from typing import Any, NoReturn

from mqcore.api import debugging
from mqcore.api.turnstile import Elsewhere, await_, wait
from mqcore.base.native import threading
from mqcore.base.virtual import monotonic
from mqcore.binding.sleep import running_task
from mqcore.binding.tickets import FIRST, NONE, Ending, Ticket
from mqcore.binding.timing import left_of, limit_of, span
from mqcore.errors import RecvTimeout, SendTimeout, StateError

FOR_EVER = (1 << 63) - 1  # ns: no deadline
BODY, MSG = 0, 2  # kinds of result, as in _try_recv()
AT_ONCE = 1024  # concurrent request() calls on one socket


class RequestCalls:
    """request() and its variants, built on send() and recv(). They run one exchange at a time;
    calls from several threads and tasks queue."""

    __slots__ = ()

    def request(self, data: Any, *, timeout: Any = ...) -> bytes:
        """Send a request and wait for its reply. `data` is a buffer, or a list or tuple of parts.
        `timeout` covers the whole exchange, in seconds (default: recv_timeout). A request that
        times out is abandoned. SendTimeout, RecvTimeout."""
        return self._request(data, timeout, BODY)  # type: ignore[no-any-return]

    def request_msg(self, data: Any, *, timeout: Any = ...) -> Any:
        """request() that returns a Message."""
        return self._request(data, timeout, MSG)

    async def arequest(self, data: Any, *, timeout: Any = ...) -> bytes:
        """request(), awaitable. Cancelling it abandons the request."""
        return await self._arequest(data, timeout, BODY)  # type: ignore[no-any-return]

    async def arequest_msg(self, data: Any, *, timeout: Any = ...) -> Any:
        """request_msg(), awaitable."""
        return await self._arequest(data, timeout, MSG)

    def _request(self: Any, data: Any, timeout: Any, kind: int) -> Any:
        limit = limit_of(timeout, self.recv_timeout)
        with Ticket(self._turnstile) as ticket:
            if ticket.place == NONE:
                self._usable()
                if not wait(ticket, limit):
                    self._late(timeout)
            if ticket.place == FIRST:
                return self._exchange(data, timeout, kind, limit)
            with self._beside() as line:
                return line._exchange(data, timeout, kind, limit)

    async def _arequest(self: Any, data: Any, timeout: Any, kind: int) -> Any:
        limit = limit_of(timeout, self.recv_timeout)
        with Ticket(self._turnstile) as ticket:
            if ticket.place == NONE:
                self._usable()
                if not await await_(ticket, limit):
                    self._late(timeout)
            if ticket.place == FIRST:
                return await self._aexchange(data, timeout, kind, limit)
            with self._beside() as line:
                return await line._aexchange(data, timeout, kind, limit)

    def _exchange(self: Any, data: Any, timeout: Any, kind: int, limit: float | None) -> Any:
        """Send and receive on this line. `timeout` is the caller's argument."""
        left = ... if limit is None else self._send_left(limit)
        try:
            if isinstance(data, (list, tuple)):
                self.send_parts(data, timeout=left)
            else:
                self.send(data, timeout=left)
        except SendTimeout as error:
            self._unsent(timeout, error)
        try:
            take = self.recv_msg if kind == MSG else self.recv
            return take(timeout=left_of(limit))
        except RecvTimeout as error:
            self._unanswered(timeout, error)
        except BaseException:
            self._give_up()
            raise

    async def _aexchange(self: Any, data: Any, timeout: Any, kind: int, limit: float | None) -> Any:
        left = ... if limit is None else self._send_left(limit)
        try:
            await self._asend(data, not isinstance(data, (list, tuple)), left)
        except SendTimeout as error:
            self._unsent(timeout, error)
        try:
            return await self._arecv(kind, None, left_of(limit))
        except RecvTimeout as error:
            self._unanswered(timeout, error)
        except BaseException:
            self._give_up()
            raise

    def _send_left(self: Any, limit: float | None) -> float | None:
        """The time for sending: send_timeout, but no more than is left for the whole exchange."""
        left, most = left_of(limit), self.send_timeout
        return most if left is None else left if most is None else min(left, most)

    def _give_up(self: Any) -> None:
        if not self.closed:
            self._abandon()

    # -- errors ------------------------------------------------------------------------------------

    def _late(self: Any, timeout: Any) -> NoReturn:
        raise RecvTimeout(
            f"other requests were under way{span(timeout, self.recv_timeout)}",
            hint="each Req context runs one request at a time: create another with new_context()")

    def _unsent(self: Any, timeout: Any, error: SendTimeout) -> NoReturn:
        whole = self.recv_timeout if timeout is ... else timeout
        most = self.send_timeout
        given = whole if most is None else most if whole is None else min(whole, most)
        raise SendTimeout(f"the request could not be sent{span(given)}: {self._obstacle(error)}",
                          hint=error.hint, why=error.why, peers=error.peers) from None

    def _unanswered(self: Any, timeout: Any, error: RecvTimeout) -> NoReturn:
        why = self._obstacle()  # before giving up, which may end the link
        self._give_up()
        raise RecvTimeout(f"no answer came{span(timeout, self.recv_timeout)}: {why}",
                          hint=error.hint) from None

    def _obstacle(self: Any, error: SendTimeout | None = None) -> str:
        """The socket's explanation of the delay."""
        sock = getattr(self, "_sock", self)
        if sock.closed or not (peers := sock._attached()):
            return debugging.why_no_peers(sock)
        if error is not None:
            return error.text.partition(": ")[2]
        return ("the peer is connected, and has not answered" if peers == 1 else
                f"{peers} peers are connected, and the one with the request has not answered")


class ConcurrentRequestCalls(RequestCalls):
    """RequestCalls for a socket: concurrent calls run in parallel. The first call uses the socket
    itself and costs a send and a recv. Each other call creates a context for its duration. Up to
    AT_ONCE calls run at once, further ones queue.

    With correlate=False, requests carry no numbers, so replies to concurrent requests could not be
    told apart. Calls then run one after another."""

    __slots__ = ()

    def _late(self: Any, timeout: Any) -> NoReturn:
        late = span(timeout, self.recv_timeout)
        if not self._turnstile.beside:
            raise RecvTimeout(f"another request was under way{late}",
                              hint="with correlate=False requests run one after another")
        raise RecvTimeout(f"{self._turnstile.beside + 1} other requests were under way{late}",
                          hint="that is the limit of concurrent requests on one socket")


def _refuse(who: str) -> NoReturn:
    raise StateError(f"this {who} already runs a survey, and surveys of one socket take turns",
                     hint="use a new_context() for each survey, or close() the running one first")


class Answers:
    """The answers to one survey, for `for` and `async for`. Iteration ends normally at the
    deadline. Calling close(), leaving with an exception, or dropping the last reference cancels the
    survey."""

    __slots__ = ("_data", "_end", "_kind", "_line", "_over", "_span", "_ticket")

    def __init__(self, line: Any, data: Any, deadline: Any, kind: int) -> None:
        self._ticket = Ticket(line._turnstile)  # its place is this survey's
        self._over = False
        line._usable()
        self._line, self._data, self._kind = line, data, kind
        self._span = line._deadline() if deadline is ... else \
            None if limit_of(deadline) is None else float(deadline)
        self._end: float | None = None

    def __iter__(self) -> Answers:
        return self

    def __aiter__(self) -> Answers:
        return self

    def __next__(self) -> Any:
        if self._over:
            raise StopIteration
        line = self._line
        try:
            if self._ticket.place == NONE:
                me = (threading.get_ident(), running_task())
                if not self._ticket.take():
                    if line._surveying is not None and line._surveying[0] == me[0]:
                        _refuse("thread")
                    line._usable()
                    wait(self._ticket, None)
                if self._over or self._ticket.place == NONE:    # closed meanwhile
                    raise StopIteration
                line._surveying = me
                self._announce()
                if isinstance(self._data, (list, tuple)):
                    line.send_parts(self._data)
                else:
                    line.send(self._data)
                self._begin()
            take = line.recv_msg if self._kind == MSG else line.recv
            return take(timeout=self._left())
        except Elsewhere:
            raise
        except BaseException as error:
            self.close()
            if isinstance(error, RecvTimeout):
                raise StopIteration from None
            raise

    async def __anext__(self) -> Any:
        if self._over:
            raise StopAsyncIteration
        line = self._line
        try:
            if self._ticket.place == NONE:
                me = (threading.get_ident(), running_task())
                if not self._ticket.take():
                    if line._surveying == me:
                        _refuse("task")
                    line._usable()
                    await await_(self._ticket, None)
                if self._over or self._ticket.place == NONE:
                    raise StopAsyncIteration
                line._surveying = me
                self._announce()
                await line._asend(self._data, not isinstance(self._data, (list, tuple)), ...)
                self._begin()
            return await line._arecv(self._kind, None, self._left())
        except Elsewhere:
            raise
        except BaseException as error:
            self.close()
            if isinstance(error, RecvTimeout):
                raise StopAsyncIteration from None
            raise

    def close(self) -> None:
        """Cancel the survey. Answers that arrive later are counted as `late_answer`. Idempotent; no
        effect on a survey that is over."""
        self._over = True
        self._ticket.quit()
        with Ending(self._ticket) as mine:
            if mine:
                line = self._line
                line._surveying = None
                if not line.closed:
                    line._abandon()

    async def aclose(self) -> None:
        """close(), for contextlib.aclosing()."""
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_ticket"):  # else __init__ was interrupted
            self.close()

    def _announce(self) -> None:
        """Set the deadline of the next survey. Called while holding the turnstile."""
        line = self._line
        line._usable()
        line._set_pattern_option("this_deadline", FOR_EVER if self._span is None else self._span)

    def _begin(self) -> None:
        self._end = None if self._span is None else monotonic() + self._span
        if self._span == 0:  # over at once, even if an answer is already on its way
            raise RecvTimeout("no time was given to answer")

    def _left(self) -> float | None:
        return None if self._end is None else max(0.0, self._end - monotonic())


class SurveyCalls:
    """survey() and its variants, built on send() and recv(), for a Surveyor and its contexts.
    Threads and tasks that share one of these take turns, because a new survey cancels the previous
    one. Contexts run their surveys in parallel."""

    __slots__ = ()

    def survey(self, data: Any, *, deadline: Any = ...) -> Answers:
        """Send a survey to all connected peers and iterate over their answers. Iteration ends after
        `deadline` seconds (default: the option; None: never). Leaving the loop early cancels the
        survey; later answers are counted as `late_answer`. The first iteration sends the survey."""
        return Answers(self, data, deadline, BODY)

    def survey_msg(self, data: Any, *, deadline: Any = ...) -> Answers:
        """survey() that yields Messages, which know their peer."""
        return Answers(self, data, deadline, MSG)

    def asurvey(self, data: Any, *, deadline: Any = ...) -> Answers:
        """survey() for `async for`."""
        return Answers(self, data, deadline, BODY)

    def asurvey_msg(self, data: Any, *, deadline: Any = ...) -> Answers:
        """survey_msg() for `async for`."""
        return Answers(self, data, deadline, MSG)
