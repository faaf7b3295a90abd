"""Surveyor and Respondent: ask everybody at once, take what is answered until a deadline."""

from __future__ import annotations

from typing import Any

from mqcore.api.asking import Surveying
from mqcore.api.attributes import add_options
from mqcore.api.contexts import RepContext, SurveyorContext
from mqcore.api.socket import Socket
from mqcore.api.turnstile import Turnstile


class Surveyor(Surveying, Socket):
    """Asks all peers at once, takes their answers until a deadline.

    `for answer in s.survey(b"who?", deadline=0.25)` is for any number of threads and tasks, which
    take turns; context() gives each a line of its own. Plain send() and recv() are for one: recv()
    gives the answers, then RecvTimeout once when the survey is over, then StateError."""

    __slots__ = ("_surveying", "_turnstile")
    _pattern = "surveyor"

    def __init__(self, **kw: Any) -> None:
        self._turnstile = Turnstile()
        self._surveying: Any = None  # the thread and task whose survey it is
        super().__init__(**kw)

    def context(self, **timeouts: Any) -> SurveyorContext:
        """Surveys beside the others, over the same peers: survey, send, recv and their twins;
        send_timeout= and recv_timeout= of its own. Closed by `with`."""
        return SurveyorContext(self, **timeouts)

    def _deadline(self) -> float:
        return self._options["deadline"]  # type: ignore[no-any-return]


class Respondent(Socket):
    """Takes a survey, answers whoever asked. recv_msg() and Message.reply() are for any number of
    threads and tasks, and so are contexts, one each; plain recv() and send() for one."""

    __slots__ = ()
    _pattern = "respondent"

    def context(self, **timeouts: Any) -> RepContext:
        """One more who takes surveys and answers them: recv, send and their twins; send_timeout=
        and recv_timeout= of its own. Closed by `with`."""
        return RepContext(self, **timeouts)


add_options(Surveyor, ("deadline", "nodrop", "raw"))
add_options(Respondent, ("raw",))

