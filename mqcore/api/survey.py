"""Surveyor and Respondent: ask all peers at once and collect their answers until a deadline."""

from __future__ import annotations

from typing import Any

from mqcore.api.attributes import add_options
from mqcore.api.exchanges import SurveyCalls
from mqcore.api.socket import Socket
from mqcore.api.sp_contexts import NO_TIMES, RepContext, SurveyLine, SurveyorContext
from mqcore.binding.tickets import Turnstile


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
        self._surveying: set[Any] = set()  # contexts of surveys that have begun and are not closed
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

