"""request() and survey(), shared by a socket and its contexts."""

from __future__ import annotations

from typing import Any, NoReturn

from mqcore.api import debugging
from mqcore.api.turnstile import await_, wait
from mqcore.base.virtual import monotonic, world
from mqcore.binding.contexts import SurveyOver
from mqcore.binding.sleep import running_task
from mqcore.binding.tickets import FIRST, NONE, Ticket, Turnstile
from mqcore.binding.timing import left_of, limit_of, span
from mqcore.errors import RecvTimeout, SendTimeout, StateError

BODY, MSG = 0, 2  # kinds of result, as in _try_recv()
FOR_EVER = (1 << 63) - 1  # ns: no deadline
AT_ONCE = 1024  # concurrent request() calls on one socket


class RequestCalls:
    """request() and its variants, built on send() and recv(). They run one exchange at a time;
    calls from several threads and tasks queue."""

    __slots__ = ()

    def request(self, data: Any, *, timeout: Any = ...) -> bytes:
        """Send a request and wait for its reply. `data` is a buffer, or a list or tuple of parts.
        `timeout` covers the whole exchange, in seconds (default: recv_timeout). A request that
        times out is abandoned. SendTimeout, RecvTimeout. StateError where requests take turns, and
        it would wait for its own thread, as in a signal handler."""
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
                if limit != 0 and stuck(self._turnstile):
                    _refuse("thread", "request")
                if not wait(ticket, limit, self._usable):
                    self._usable()
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
                if not await await_(ticket, limit, self._usable):
                    self._usable()
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


def stuck(turnstile: Turnstile) -> bool:
    """Whether a blocking wait for a place would keep its own thread from giving it back, for ever:
    in a signal handler, within a survey without a deadline, or in the thread of an event loop. In a
    virtual world one thread runs all."""
    return turnstile.mine and world() is None


def _refuse(who: str, what: str) -> NoReturn:
    raise StateError(f"this {who} already runs a {what}, or waits to, and {what}s of one socket "
                     "take turns",
                     hint=f"use a new_context() for each {what}, or end the other one first")


class Answers:
    """The answers to one survey, for `for` and `async for`. Iteration ends normally at the
    deadline. Calling close(), leaving with an exception, or dropping the last reference cancels the
    survey. Threads and tasks may share one: each answer goes to one of them, and all of them end
    with the survey."""

    # A survey has a context of its own, `_own`, from its beginning to its end. So no call that is
    # still inside when the survey is over can receive an answer to another one.
    __slots__ = ("_begun", "_data", "_door", "_end", "_kind", "_line", "_over", "_own", "_span",
                 "_ticket")

    def __init__(self, line: Any, data: Any, deadline: Any, kind: int) -> None:
        self._own: Any = None
        self._ticket = Ticket(line._turnstile)  # its place is this survey's
        self._over = self._begun = False
        line._usable()
        self._line, self._data, self._kind = line, data, kind
        self._door = Turnstile()  # one of those who share it begins the survey
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
        if not self._begun and (stuck(self._line._turnstile) or stuck(self._door)):
            self._line._usable()
            _refuse("thread", "survey")
        try:
            if not self._begun:
                self._start()
            if self._end is None:
                self._ticket.hold(running_task())
            return self._own._answer(self._kind, self._end)
        except BaseException as error:
            if self._ends(error):
                raise StopIteration from None
            raise

    async def __anext__(self) -> Any:
        if self._over:
            raise StopAsyncIteration
        if not self._begun:
            if self._line._turnstile.held_by(running_task()):
                self._line._usable()
                _refuse("task", "survey")
        try:
            if not self._begun:
                await self._astart()
            if self._end is None:
                self._ticket.hold(running_task())
            return await self._own._aanswer(self._kind, self._end)
        except BaseException as error:
            if self._ends(error):
                raise StopAsyncIteration from None
            raise

    def close(self) -> None:
        """Cancel the survey. Other threads and tasks that iterate over it, or wait for its turn,
        end normally. Answers that arrive later are counted as `late_answer`. Idempotent; no effect
        on a survey that is over."""
        self._over = True
        own = self._own
        if own is not None:
            own._close()
            self._line._surveying.pop(own, None)
        self._ticket.leave()

    async def aclose(self) -> None:
        """close(), for contextlib.aclosing()."""
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_own", None) is not None:
            self._line._surveying.pop(self._own, None)  # the last reference: it closes, too

    def _start(self) -> None:
        """Send the survey, unless another thread or task does or did. Raises if it is over."""
        with Ticket(self._door) as door:
            if door.place == NONE:
                wait(door, None)
            if not self._begun:
                if not self._ticket.take():
                    wait(self._ticket, None, self._check)
                own = self._open()
                if isinstance(self._data, (list, tuple)):
                    own.send_parts(self._data)
                else:
                    own.send(self._data)
                self._begin()

    async def _astart(self) -> None:
        with Ticket(self._door) as door:
            if door.place == NONE:
                await await_(door, None)
            if not self._begun:
                if not self._ticket.take():
                    await await_(self._ticket, None, self._check)
                own = self._open()
                await own._asend(self._data, not isinstance(self._data, (list, tuple)), ...)
                self._begin()

    def _check(self) -> None:
        """Raise if it can no longer begin. Called when others can see what they must end."""
        self._line._usable()
        if self._over:
            raise SurveyOver

    def _open(self) -> Any:
        """Make its context, now that it is this survey's turn."""
        self._check()
        if self._ticket.place == NONE:
            raise SurveyOver
        own = self._own = self._line._survey_line()
        self._line._surveying[own] = self._ticket
        self._check()
        own._last(self._span)
        return own

    def _begin(self) -> None:
        if self._span is not None:
            self._end = monotonic() + self._span
            self._ticket.ends(self._end)
        self._begun = True
        if self._span == 0:  # over at once, even if an answer is already on its way
            raise SurveyOver

    def _ends(self, error: BaseException) -> bool:
        """Close the survey. Whether iteration ends normally: after the deadline or a close() by
        another thread or task. Raises if the socket or context is closed."""
        self.close()
        if isinstance(error, SurveyOver):
            self._line._usable()
            return True
        return False


class SurveyCalls:
    """survey() and its variants, built on send() and recv(), for a Surveyor and its contexts.
    Threads and tasks that share one of these take turns. A turn ends with the survey, at its
    deadline at the latest. Contexts run their surveys in parallel. An answer reaches only the
    survey that it answers, and no plain recv()."""

    __slots__ = ()

    def survey(self, data: Any, *, deadline: Any = ...) -> Answers:
        """Send a survey to all connected peers and iterate over their answers. Iteration ends after
        `deadline` seconds (default: the option; None: never). Leaving the loop early cancels the
        survey; later answers are counted as `late_answer`. The first iteration sends the survey. It
        waits until the survey before it is closed, or its deadline has passed. StateError if it
        would wait for ever for its own thread or task: in a signal handler of a thread that waits
        for its turn, or inside a survey without a deadline. Such a survey belongs to the thread or
        task that asked it for an answer last. SocketClosed if the socket is closed meanwhile."""
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
