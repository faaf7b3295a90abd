"""Failing over between the journal servers of a primary and of its mirrors: what a server says of
its epochs, and how a reader that has several addresses chooses among them.

A reader talks to one server at a time. It moves to the next address when it has had no connection
for AWAY seconds, when a question stays without an answer for DEAF seconds, or when the server is
behind: its journal is fenced, or in an older epoch than the reader has seen.
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator
from typing import Any

from mqcore.errors import AddressError, UsageError
from mqcore.journal.errors import JournalDiverged, JournalError, JournalFenced
from mqcore.journal.store.epoch import MOST, Entry, Epochs, History, parting

AWAY = 1.0              # seconds without a connection
DEAF = 3.0              # seconds without an answer
IDLE = 5.0              # seconds without a message from a mirror, whose primary may be gone
ADDRESSES = 16
OLD = (0, "")           # the mark of a journal that was never promoted
_NEXT = re.compile(r",(?=[a-z][a-z0-9+.-]*://)")

Mark = tuple[int, str]


def addresses(url: str) -> list[str]:
    """Of "tcp://a:5558/flights,tcp://b:5558/flights"."""
    found = _NEXT.split(url)
    if len(found) > ADDRESSES or len(set(found)) < len(found):
        raise AddressError(f"{len(found)} addresses of a journal", hint=f"give 1 to {ADDRESSES} "
                           "different addresses, with commas between them")
    return found


# -- in messages -----------------------------------------------------------------------------------


def origin_of(epochs: Epochs, ident: str | None) -> str | None:
    """The journal that all copies come from: a reader's offsets are of all of them. None: nothing
    has been written yet."""
    return epochs.origin.hex() or ident


def mark_of(epochs: Epochs, ident: str | None) -> dict[str, Any]:
    """What the head of an answer says."""
    origin = origin_of(epochs, ident)
    head: dict[str, Any] = {} if origin is None else {"origin": origin}
    if epochs.own:
        head["epoch"] = [epochs.number, epochs.own[-1].token.hex()]
    if epochs.fenced:
        head["fenced"] = epochs.newer[-1].epoch
    return head


def marked(head: dict[str, Any]) -> Mark:
    found = head.get("epoch")
    try:
        number, token = found if found is not None else OLD
    except (TypeError, ValueError):
        number, token = None, None
    if type(number) is not int or not isinstance(token, str):
        raise JournalError("the journal server's answer has an epoch that cannot be read")
    return number, token


def mark(history: History) -> Mark:
    return (history[-1].epoch, history[-1].token.hex()) if history else OLD


def described(epochs: Epochs, ident: str | None) -> dict[str, Any]:
    return {"origin": origin_of(epochs, ident), "mirror": epochs.mirror,
            "own": _rows(epochs.own), "newer": _rows(epochs.newer)}


def _rows(history: History) -> list[list[Any]]:
    return [[entry.epoch, entry.start, entry.token.hex(), entry.time] for entry in history]


def understood(answer: Any) -> Epochs:
    """What `described` made. JournalError."""
    try:
        origin = bytes.fromhex(answer["origin"] or "")
        own, newer = _history(answer["own"]), _history(answer["newer"])
        if len(origin) in (0, 16) and type(answer["mirror"]) is bool:
            return Epochs(own, newer, answer["mirror"], origin)
    except (KeyError, TypeError, ValueError, AttributeError):
        pass
    raise JournalError("the journal server gave an answer about its epochs that cannot be read")


def _history(rows: Any) -> History:
    if not isinstance(rows, list) or len(rows) > MOST:
        raise ValueError
    found = []
    for epoch, start, token, when in rows:
        raw = bytes.fromhex(token)
        if not all(type(n) is int and 0 <= n < 1 << 62 for n in (epoch, start, when)) \
                or len(raw) != 16:
            raise ValueError
        found.append(Entry(epoch, start, raw, when))
    return tuple(found)


# -- a reader's side -------------------------------------------------------------------------------


class Known:
    """What a reader knows of the history of the journal that it reads."""

    def __init__(self) -> None:
        self.history: History | None = None
        self.epochs: Epochs | None = None       # as a server said last
        self.mirror = False
        self.reached = 0                        # all below may have been handed out

    @property
    def mark(self) -> Mark | None:
        return None if self.history is None else mark(self.history)

    def learn(self, epochs: Epochs, position: int, url: str) -> None:
        """The server's journal has this history, and is to be read on from `position`. Raises
        JournalDiverged if other messages were read below it, JournalFenced if it is behind."""
        before = () if self.history is None else self.history
        if len(epochs.own) < len(before):
            raise behind(url, epochs.number, before[-1].epoch)
        apart = None if self.history is None else parting(before, epochs.own)
        end = max(position, self.reached)
        lost = apart is not None and apart < end
        if apart is None or position <= apart:      # else the next reader gets it again
            self.history, self.epochs, self.mirror = epochs.own, epochs, epochs.mirror
        if lost:
            self.reached = min(self.reached, apart or 0)
            raise JournalDiverged(
                f"the journal at {url} has other messages from {apart} on than those that were "
                f"read: epoch {epochs.number} began at {apart}, and this reader has come to {end}",
                epoch=epochs.number, first=apart, end=end,
                hint=f"undo what messages {apart} to {end - 1} of the former primary did, if that "
                     f"matters, and read on from {apart}")


def behind(url: str, epoch: int, newest: int) -> JournalFenced:
    return JournalFenced(f"the journal at {url} is in epoch {epoch}, and a mirror of it was "
                         f"promoted to epoch {newest}", epoch=newest,
                         hint="read from the promoted mirror's server; give the addresses of both")


class Choice:
    """Which of several addresses a connection uses, and since when its sockets are in trouble."""

    def __init__(self, urls: list[str]) -> None:
        self.urls = urls
        self.now = 0
        self.moves = 0
        self.highest = 0                # the newest epoch that was seen
        self._lonely: dict[Any, float] = {}

    @property
    def several(self) -> bool:
        return len(self.urls) > 1

    def move(self, away: int) -> None:
        """To the next address, unless another call has done so."""
        if self.several and away == self.now:
            self.now = (away + 1) % len(self.urls)
            self.moves += 1

    def attend(self, socket: Any, at: int, linked: bool) -> None:
        """Called now and then for a socket that is connected to address `at`."""
        if not self.several or at != self.now:
            return
        if linked:
            self._lonely.pop(socket, None)
        elif time.monotonic() - self._lonely.setdefault(socket, time.monotonic()) >= AWAY:
            self._lonely.pop(socket)
            self.move(at)

    def forget(self, socket: Any) -> None:
        self._lonely.pop(socket, None)

    def stale(self, head: dict[str, Any]) -> bool:
        """Whether the answer is from a server that is behind. Others raise `highest`."""
        number = marked(head)[0]
        if number < self.highest:
            return True
        self.highest = number
        return self.several and "fenced" in head


def scouting(connection: Any, socket: Any) -> Generator[float, Any, None]:
    """Steps that ask every address for its epoch and choose the newest, a primary if possible.
    Those that do not answer in time are left out."""
    choice: Choice = connection._choice
    ranks: dict[int, tuple[bool, int, bool]] = {}
    for i in range(len(choice.urls)):
        choice.now = i
        end = time.monotonic() + AWAY
        number = connection._next_number()
        again = 0.0
        while (left := end - time.monotonic()) > 0 and i not in ranks:
            if time.monotonic() >= again:
                again = time.monotonic() + connection._put(socket, "epochs", number, {})
            got = yield max(0.0, min(left, again - time.monotonic()))
            if got is None or got[0].get("id") != number:
                continue
            try:
                epochs = understood(connection._answer(*got))
            except UsageError:          # it is too old to know of epochs
                epochs = Epochs()
            except JournalError:
                break
            ranks[i] = not epochs.fenced, epochs.number, not epochs.mirror
            if not epochs.fenced:
                choice.highest = max(choice.highest, epochs.number)
    choice.now = max(ranks, key=lambda i: (ranks[i], -i), default=0)
