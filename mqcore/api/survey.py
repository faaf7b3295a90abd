"""Surveyor, its contexts, and Respondent: ask all peers at once and collect their answers until a
deadline."""

from __future__ import annotations

from typing import Any

from mqcore.api.attributes import add_options
from mqcore.api.exchanges import FOR_EVER, SurveyCalls
from mqcore.api.socket import Socket
from mqcore.api.sp_contexts import NO_TIMES, RepContext, SendingLine
from mqcore.api.turns import due, turn
from mqcore.api.wakers import later
from mqcore.binding.contexts import SurveyOver
from mqcore.binding.tickets import Ticket, Turnstile
from mqcore.binding.timing import left_of, passed
from mqcore.errors import StateError


class SurveyLine(SendingLine):
    """A context for one survey(). It is closed with its survey. SurveyOver tells its end from the
    errors of a signal handler."""

    __slots__ = ()

    def __init__(self, sock: Any, times: dict[str, float | None]) -> None:
        self._sock = sock
        self._times = times

    def _answer(self, kind: int, end: float | None) -> Any:
        """Receive an answer; `end` is the survey's, on the monotonic clock."""
        while True:
            seen = self._sock._change()
            found = self._try_answer(kind)
            if found is None and passed(end):
                found = self._try_answer(kind)      # one may have come before the end
                if found is None:
                    raise SurveyOver
            if found is not None:
                return found
            self._sock._wait(seen, left_of(end))

    async def _aanswer(self, kind: int, end: float | None) -> Any:
        if due():
            await turn()
        seen = self._sock._change()
        found = self._try_answer(kind)
        if found is None:
            found = await later(self._sock, lambda: self._try_answer(kind), end, seen)
        if found is None:
            raise SurveyOver
        return found

    def _try_send(self, parts: Any, single: bool) -> int:
        try:
            return super()._try_send(parts, single)
        except StateError:
            self._raise_if_closed()
            raise

    def _last(self, seconds: float | None) -> None:
        """Set the deadline of its survey. None: none."""
        try:
            self._set_pattern_option("this_deadline", FOR_EVER if seconds is None else seconds)
        except StateError:
            self._raise_if_closed()
            raise

    def _raise_if_closed(self) -> None:
        if not self._number:
            raise SurveyOver from None


class SurveyorContext(SurveyCalls, SendingLine):
    """One of any number of concurrent surveys of a Surveyor."""

    __slots__ = ("_surveying", "_turnstile")

    def __init__(self, sock: Any, **given: Any) -> None:
        self._turnstile = Turnstile(of=sock._turnstile)
        self._surveying: dict[Any, Ticket] = {}  # contexts of surveys that have begun: their turns
        super().__init__(sock, **given)

    def close(self) -> None:
        """Cancel the running survey. Calls that wait raise StateError. Idempotent."""
        super().close()
        self._end_surveys()
        self._turnstile.dismiss()

    def abandon(self) -> None:
        """Cancel the running survey. Its answers are counted as late when they arrive."""
        super().abandon()
        self._end_surveys()

    def _end_surveys(self) -> None:
        for own, ticket in list(self._surveying.items()):
            own._close()
            ticket.leave()

    def _survey_line(self) -> SurveyLine:
        return SurveyLine(self._sock, self._times)

    def _deadline(self) -> float:
        return self._sock._options["deadline"]  # type: ignore[no-any-return]


class Surveyor(SurveyCalls, Socket):
    """Asks all peers at once and collects their answers until a deadline.

    `for answer in s.survey(b"who?", deadline=0.25)` works from any number of threads and tasks,
    which take turns. Use new_context() to run surveys in parallel. Plain send() and recv() are for
    one thread: recv() returns the answers, then raises RecvTimeout once when the survey is over,
    then StateError."""

    __slots__ = ("_surveying", "_turnstile")
    _pattern = "surveyor"

    def __init__(self, **kw: Any) -> None:
        self._turnstile = Turnstile()
        self._surveying: dict[Any, Ticket] = {}  # contexts of surveys that have begun: their turns
        super().__init__(**kw)

    def new_context(self, **timeouts: Any) -> SurveyorContext:
        """A context that runs its own surveys over the same peers, with survey, send, recv and
        their variants, and its own send_timeout= and recv_timeout=. `with` closes it."""
        return SurveyorContext(self, **timeouts)

    def _survey_line(self) -> SurveyLine:
        return SurveyLine(self, NO_TIMES)

    def _close_input(self) -> bool:
        first = super()._close_input()
        self._turnstile.dismiss_all()
        return first

    def _deadline(self) -> float:
        return self._options["deadline"]  # type: ignore[no-any-return]


class Respondent(Socket):
    """Receives surveys and answers them. Any number of threads and tasks can use recv_msg() and
    Message.reply(), or a context each. Plain recv() and send() are for one thread."""

    __slots__ = ()
    _pattern = "respondent"

    def new_context(self, **timeouts: Any) -> RepContext:
        """A context that receives and answers surveys on its own, with recv, send and their
        variants, and its own send_timeout= and recv_timeout=. `with` closes it."""
        return RepContext(self, **timeouts)


add_options(Surveyor, ("deadline", "nodrop", "raw"))
add_options(Respondent, ("raw",))

