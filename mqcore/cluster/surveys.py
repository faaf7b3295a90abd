"""Broadcasts to all members of a service, and surveys, which collect what they answer."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mqcore import trace
from mqcore.binding.sleep import Nap
from mqcore.binding.yielding import fair
from mqcore.cluster import frames

if TYPE_CHECKING:
    from mqcore.cluster.directory import Member
    from mqcore.cluster.link import Way
    from mqcore.cluster.node import Core

OPEN = 10_000           # surveys of a node at once; the oldest ends when there are more
ANSWERS = 64 << 20      # bytes of answers that wait to be taken; at least one does, however long


class Answered:
    """What one member answered: `body` (bytes) and `peer`."""

    __slots__ = ("body", "peer")

    def __init__(self, body: bytes, peer: Member) -> None:
        self.body = body
        self.peer = peer

    def __repr__(self) -> str:
        return f"<answer of {len(self.body)} bytes from {self.peer.id[:8]}>"


class Survey:
    """A running survey. It begins with the first step of its iteration. `asked` members, `silent`
    ones among them that had nothing to say or were lost, `dropped` answers: those that came while
    64 MiB of earlier ones had not been taken. Several tasks or threads may iterate over one survey:
    each answer goes to one of them, and all of them end with the survey. A step of `async for` that
    is cancelled ends it, for all of them. One of `for` that a signal handler's exception interrupts
    does not, and takes nothing: another iteration goes on."""

    def __init__(self, node: Core, service: str, body: bytes, seconds: float) -> None:
        self._node = node
        self._service = service
        self._body = body
        self._seconds = seconds
        self._trace = trace.to_text(trace.current())
        self._limit = 0.0
        self._number = 0
        self._out: set[Any] = set()         # links that have not answered
        self._answers: deque[Answered] = deque()
        self._waiting = 0                   # bytes in them
        self._disarm: Any = None            # of the timer
        self._bells: list[Nap] = []         # of steps that wait
        self.asked = self.silent = self.dropped = 0

    def _begin(self) -> None:
        self._limit = time.monotonic() + self._seconds
        self._number = self._node.surveys.begin(self)
        # a caller that leaves the iteration early does not say so
        self._disarm = self._node.loop.later(self._seconds, self._stop)
        for member in self._node.directory.local(self._service):
            frame = frames.Survey(self._number, self._service, max(1, int(self._seconds * 1e6)),
                                  self._body, self._trace)
            self.asked += 1
            if member.link.send(frame):
                self._out.add(member.link)
            else:
                self.silent += 1

    def _take(self, link: Way, body: bytes | None) -> None:
        if link not in self._out:
            self._node.surveys.late += 1
            return
        self._out.discard(link)
        if body is None:
            self.silent += 1
        elif self._answers and self._waiting + len(body) > ANSWERS:
            self.dropped += 1
            self._node.surveys.dropped += 1
        else:
            assert link.member is not None
            self._waiting += len(body)
            self._answers.append(Answered(body, link.member))
        if not self._out:
            self._forget()
        self._wake()

    def _lose(self, link: Way) -> None:
        if link in self._out:
            self._take(link, None)

    def _forget(self) -> None:
        """No answer is expected any more."""
        self._node.surveys.open.pop(self._number, None)
        if self._disarm is not None:
            self._disarm()
            self._disarm = None

    def _stop(self) -> None:
        self._out.clear()
        self._forget()
        self._wake()

    def _wake(self) -> None:
        for nap in self._bells:
            nap.wake()

    async def anext(self) -> Answered | None:
        """The next answer; None when the survey is over. Several tasks or threads may wait: each
        answer goes to one of them."""
        if not self._number:
            self._node.check_here()
            self._begin()
        await fair()
        while not self._answers:
            if not self._out or time.monotonic() >= self._limit:
                self._stop()
                return None
            nap = self._node.loop.nap()
            self._bells.append(nap)
            try:
                await nap.wait(self._limit)
            finally:
                self._bells.remove(nap)
        answer = self._answers.popleft()
        self._waiting -= len(answer.body)
        return answer

    def _put_back(self, answer: Answered | None) -> None:
        """A blocking call has been interrupted."""
        if answer is not None:
            self._answers.appendleft(answer)
            self._waiting += len(answer.body)
            self._wake()

    def __aiter__(self) -> Survey:
        return self

    async def __anext__(self) -> Answered:
        try:
            answer = await self.anext()
        except BaseException:
            self._stop()
            raise
        if answer is None:
            raise StopAsyncIteration
        return answer

    def __iter__(self) -> Iterator[Answered]:
        while (answer := self._node.loop.call(
                self.anext, undo=self._put_back)) is not None:
            yield answer


class Surveys:
    """All surveys and broadcasts of a node."""

    def __init__(self, node: Core) -> None:
        self.node = node
        self.open: dict[int, Survey] = {}
        self.number = 0
        self.broadcasts = self.addressed = self.unsent = self.late = self.dropped = 0

    def broadcast(self, service: str, body: bytes) -> int:
        self.broadcasts += 1
        count = 0
        text = trace.to_text(trace.current())
        for member in self.node.directory.local(service):
            self.number += 1
            if member.link.send(frames.Broadcast(self.number, service, body, text)):
                count += 1
            else:
                self.unsent += 1
        self.addressed += count
        return count

    def begin(self, survey: Survey) -> int:
        self.number += 1
        self.open[self.number] = survey
        while len(self.open) > OPEN:
            self.open[next(iter(self.open))]._stop()
        return self.number

    def answer(self, link: Way, frame: frames.Answer) -> None:
        survey = self.open.get(frame.id)
        if survey is None:
            self.late += 1
        else:
            survey._take(link, frame.body)

    def unlinked(self, link: Way) -> None:
        for survey in list(self.open.values()):
            survey._lose(link)

    def waits_for(self, link: Way) -> bool:
        return any(link in survey._out for survey in self.open.values())

    def close(self) -> None:
        for survey in list(self.open.values()):
            survey._stop()
