"""RemoteStream: a reader's side of a stream of records from a journal server."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from mqcore.errors import Error, Forked, RecvTimeout, SocketClosed, UsageError
from mqcore.journal.errors import JournalBusy, JournalClosed, JournalFenced
from mqcore.journal.records import Records
from mqcore.journal.server.connection import AGAIN, Got
from mqcore.journal.server.failover import IDLE, OLD, behind, marked, understood

if TYPE_CHECKING:
    from mqcore.journal.server.remote import RemoteReader


class RemoteStream:
    """What a server sends unasked. `want` says how far we are and how much may be under way; it
    holds for a server that does not know the stream, too, so it is simply repeated."""

    def __init__(self, reader: RemoteReader, offset: int, max_bytes: int,
                 bounds: dict[str, Any]) -> None:
        self.reader = reader
        self.at = offset
        self.bounds = bounds            # `stop` and `durable`, if given
        self.window = min(reader._window, max_bytes)
        self.paused = False             # a time-out has left it; it may go on
        self.over = False
        self.socket = reader._take()
        self.met: set[int] = set()      # the connections whose server's epoch is known
        self.asked = 0                  # the question about it that is under way; 0: none
        self.begun = False              # something came
        self.heard = time.monotonic()
        self._anew()

    def _anew(self) -> None:
        self.number = self.reader._next_number()
        self.unsaid = 0                 # bytes taken since the last `want`
        self.due = 0.0                  # when to repeat it

    def patience(self, left: float | None) -> float:
        """How long to wait for what comes next. Says `want` if that is due."""
        self.paused = False
        now = time.monotonic()
        self._attend(now)
        if now >= self.due or 2 * self.unsaid >= self.window:
            self.due = now + self.reader._put(self.socket, "want", 0, {
                "stream": self.number, "offset": self.at, "window": self.window,
                "compacted": True, **self.bounds})
            self.unsaid = 0
        wait = max(0.0, self.due - now)
        return wait if left is None else min(wait, max(0.0, left))

    def taken(self, got: Got) -> Records | None:
        """What came, if it continues the stream."""
        if got is not None and self.asked and got[0].get("id") == self.asked:
            self._learn(got)
            return None
        if got is None or got[0].get("stream") != self.number:
            return None                 # nothing, or for a stream that has ended
        try:
            records = self.reader._block(self.reader._answer(*got))
        except JournalBusy:
            self.unsaid = 0             # it is repeated after the usual pause
            return None
        except (UsageError, JournalFenced) as error:
            if not self._elsewhere(error):
                raise
            return None
        if not self._trusted(got[0]):
            return None
        if records.since != self.at or records.next <= self.at:
            if records.next > self.at:  # some are missing: anew
                self._say_stop()
                self._anew()
            return None
        self.at = records.next
        self.unsaid += len(got[1]) + 1
        self.begun, self.heard = True, time.monotonic()
        self.reader._known.reached = max(self.reader._known.reached, self.at)
        return records

    # -- epochs and other servers: failover.py --

    def _attend(self, now: float) -> None:
        reader = self.reader
        if not reader._choice.several:
            return
        if reader._known.mirror and now - self.heard >= IDLE:
            self.heard = now            # it may follow a primary that is gone
            reader._move(self.socket)
        reader._attend(self.socket)
        links = reader._links(self.socket)
        if not links <= self.met:
            self.met = links
            self.due = 0.0              # at once, without the records of a server that is behind
            self._ask()

    def _ask(self) -> None:
        self.asked = self.reader._next_number()
        self.reader._put(self.socket, "epochs", self.asked, {})

    def _trusted(self, head: dict[str, Any]) -> bool:
        """Whether the epoch of these records is the one that is known. Otherwise they come again,
        once the server has said what it is."""
        known = self.reader._known
        found = marked(head)
        if known.history is None and found == OLD:
            known.history = ()
        if found == known.mark:
            return True
        self._ask()
        self._say_stop()
        self._anew()
        self.due = time.monotonic() + AGAIN
        return False

    def _learn(self, got: Any) -> None:
        self.asked = 0
        self.due = 0.0
        choice = self.reader._choice
        try:
            epochs = understood(self.reader._answer(*got))
            if epochs.fenced and choice.several:
                raise behind(self.reader.url, epochs.number, epochs.newer[-1].epoch)
            self.reader._known.learn(epochs, self.at, self.reader.url)
        except (JournalBusy, UsageError):       # later; or too old to know
            return
        except JournalFenced:
            if not choice.several:
                raise
            self.reader._move(self.socket)
            return
        choice.highest = max(choice.highest, epochs.number)

    def _elsewhere(self, error: Error) -> bool:
        """Whether another server may have what this one has not."""
        if not self.reader._choice.several:
            return False
        if isinstance(error, JournalFenced):
            self.reader._move(self.socket)
        elif not self.begun and not self.reader._choice.moves:
            return False                # that message does not exist
        return True                     # of a mirror: not yet

    def nothing(self, timeout: float | None) -> RecvTimeout:
        self.paused = True
        return RecvTimeout(f"no message {self.at} in {self.reader.url} within {timeout} s",
                           hint="does the writer run, and flush? give more time with timeout=")

    def _say_stop(self) -> None:
        with contextlib.suppress(SocketClosed, JournalClosed, Forked):
            self.reader._put(self.socket, "stop", 0, {"stream": self.number})

    def stop(self) -> None:
        if not self.over:
            self.over = True
            if not self.reader.closed:
                self._say_stop()
                self.reader._give(self.socket)
