"""The patterns under nng's names: what each adds to Socket."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any

import mqcore as mq
from mqcore.api.sp_contexts import SendingLine
from mqcore.nng import lib, options
from mqcore.nng.endpoints import Dialer, Listener
from mqcore.nng.exceptions import Closed, NoEntry, make, translated
from mqcore.nng.lines import AskLine, Line, PolyLine, ReplyLine, SubLine
from mqcore.nng.options import Option
from mqcore.nng.pipes import Message, Pipe
from mqcore.nng.socket import Socket
from mqcore.nng.talks import Context

__all__ = ["Bus0", "Context", "Dialer", "Listener", "Message", "Pair0", "Pair1", "Pipe", "Pub0",
           "Pull0", "Push0", "Rep0", "Req0", "Respondent0", "Socket", "Sub0", "Surveyor0"]

POLY = lib.OPENERS["nng_pair1_open_poly"]
# The hop limit, where SP has one.
HOPS = Option("Devices that a message may pass, 1 to 15.", lambda self: self._get("max_hops"),
              lambda self, value: self._put("max_hops", options.hops(value)))


class Pair0(Socket):
    """One peer, both ways."""

    _pattern, _protocol, _queues = "pair", 0x10, True


class Pair1(Socket):
    """One peer, both ways; polyamorous: several, each message to the pipe of the Message."""

    _pattern, _protocol, _queues = "pair1", 0x11, True
    ttl_max = HOPS

    def __init__(self, *, polyamorous: bool = False, **kwargs: Any) -> None:
        self._poly = bool(polyamorous) or kwargs.get("opener") is POLY
        super().__init__(**kwargs)

    def _make(self, **more: Any) -> Any:
        return super()._make(poly=self._poly)

    def _first_line(self) -> Line:
        return (PolyLine if self._poly else Line)(self._core, self._core)

    polyamorous = Option("Several peers?", lambda self: self._get("poly"))


class Push0(Socket):
    """Each message to one of the peers."""

    _pattern, _protocol, _buffers, _queues = "push", 0x50, (1, 0), True


class Pull0(Socket):
    """Messages of all peers."""

    _pattern, _protocol, _buffers = "pull", 0x51, (1, 0)


class Pub0(Socket):
    """Each message to all who want it."""

    _pattern, _protocol, _buffers = "pub", 0x20, (1, 16)


class Sub0(Socket):
    """Messages that start with a topic."""

    _pattern, _protocol, _buffers, _least = "sub", 0x21, (128, 0), (1, 0)

    def __init__(self, *, topics: str | bytes | Iterable[str | bytes] | None = None,
                 **kwargs: Any) -> None:
        self._topics: set[bytes] = set()
        self._first = (topics,) if isinstance(topics, (str, bytes)) else tuple(topics or ())
        super().__init__(**kwargs)

    def _make(self, **more: Any) -> Any:
        made = super()._make()
        made.subscribe(_nothing())
        self._core = made
        for topic in self._first:
            self.subscribe(topic)
        return made

    def _new_line(self) -> Line:
        at = self._core.new_context()
        at.subscribe(_nothing())
        return SubLine(self._core, at)

    def subscribe(self, topic: str | bytes) -> None:
        """Want messages that start so. Twice is once."""
        raw = _topic(topic)
        if raw in self._topics:
            return
        try:
            self._core.subscribe(raw)
        except mq.Error as error:
            raise translated(error) from error
        self._topics.add(raw)

    def unsubscribe(self, topic: str | bytes) -> None:
        """Take it back. NoEntry if it is not subscribed to."""
        raw = _topic(topic)
        if raw not in self._topics:
            raise make(NoEntry, f"there is no subscription to {raw!r}")
        try:
            self._core.unsubscribe(raw)
        except mq.Error as error:
            raise translated(error) from error
        self._topics.discard(raw)


def _topic(topic: str | bytes) -> bytes:
    return topic.encode() if isinstance(topic, str) else bytes(memoryview(topic))


def _nothing() -> bytes:
    """A topic that no publisher sends: mqcore refuses to wait on a Sub without topics, nng
    waits."""
    return b"\0mqcore.nng " + secrets.token_bytes(16)


class _Asks(Socket):
    """Req0 and Surveyor0: answers come back to the line that asked."""

    _buffers, _line_of = (1, 0), AskLine
    ttl_max = HOPS

    def _new_line(self) -> Line:
        return AskLine(self._core, SendingLine(self._core))


class _Answers(Socket):
    """Rep0 and Respondent0: a line answers what it received."""

    _buffers = (1, 0)
    ttl_max = HOPS

    def _first_line(self) -> Line:
        return ReplyLine(self._core)

    def _new_line(self) -> Line:
        if self._core.closed:
            raise make(Closed, "the socket is closed")
        return ReplyLine(self._core)


class Req0(_Asks):
    """Asks, and waits for the answer."""

    _pattern, _protocol = "req", 0x30
    resend_time = Option(
        "ms until an unanswered question is asked again.",
        lambda self: 60_000 if self._get("resend") is None
        else options.milliseconds(self._get("resend")),
        lambda self, value: self._put("resend", options.seconds(value) or 0))

    def __init__(self, *, resend_time: int | None = None, **kwargs: Any) -> None:
        self._resend_first = resend_time
        super().__init__(**kwargs)

    def _make(self, **more: Any) -> Any:
        made = super()._make()
        if self._resend_first is not None:
            made.resend = options.seconds(self._resend_first) or 0
        return made


class Rep0(_Answers):
    """Takes questions, answers each."""

    _pattern, _protocol = "rep", 0x31


class Surveyor0(_Asks):
    """Asks all, and takes their answers until survey_time is over."""

    _pattern, _protocol = "surveyor", 0x62
    survey_time = Option(
        "ms for answers.", lambda self: options.milliseconds(self._get("deadline")),
        lambda self, value: self._put("deadline", options.survey_time(value)))

    def __init__(self, *, survey_time: int | None = None, **kwargs: Any) -> None:
        self._survey_first = survey_time
        super().__init__(**kwargs)

    def _make(self, **more: Any) -> Any:
        made = super()._make()
        if self._survey_first is not None:
            made.deadline = options.survey_time(self._survey_first)
        return made


class Respondent0(_Answers):
    """Takes surveys, may answer each."""

    _pattern, _protocol = "respondent", 0x63


class Bus0(Socket):
    """Each message to all direct peers."""

    _pattern, _protocol, _buffers, _least = "bus", 0x70, (16, 16), (1, 1)
