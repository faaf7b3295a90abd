"""Beats: keeps a member in its consumer group. A thread tells the journal server every few seconds
that the member is there and what it has, and learns which partitions are its own."""

from __future__ import annotations

import time
from typing import Any

from mqcore.base.native import threading
from mqcore.base.threads import Thread
from mqcore.base.waits import Event, Wakeup
from mqcore.errors import Error, NotSupported, UsageError
from mqcore.journal.errors import (
    JournalBusy,
    JournalClosed,
    JournalDenied,
    JournalError,
    JournalFenced,
    JournalNotFound,
)
from mqcore.journal.groups.holding import Holding, Share
from mqcore.journal.server.codec import is_offset
from mqcore.journal.server.connection import SOON, Connection

PER_SESSION = 4         # beats during a lease
LATE = 16               # beats whose answers are waited for at a time
FATAL = UsageError, NotSupported, JournalNotFound, JournalDenied    # what does not pass by itself


class Beats(Connection):
    """shares(): what the member has, and `changed`, whose descriptor is readable when that has
    changed. Both are for the thread that reads; take() and release() are its answers."""

    def __init__(self, url: str, where: str, about: dict[str, Any], session: float,
                 timeout: float, options: dict[str, Any]) -> None:
        super().__init__(url, where, about, timeout, options)
        self.members = 0
        self.error: Error | None = None         # what ended it
        self.doubt: Error | None = None         # what the server said instead of an answer
        self.forked = False                     # this is a child of the process that joined
        self._state: Any = threading.RLock()
        self._holding = Holding(session)
        self._sent: dict[int, float] = {}       # beats without an answer: when they were sent
        self._due = 0.0
        self._met: set[int] = set()             # the links over which the last answer came
        self._first = Event()                   # an answer, or an error, is there
        self.changed: Wakeup | None = Wakeup()      # None: closed
        self._socket = self._take()
        self._thread = Thread(self._run, "mqcore-group-member")
        self._thread.start()

    def close(self) -> None:
        """The server notices that the connection is gone, and gives the partitions away."""
        super().close()
        self._wake()
        self.changed = None     # a call that waits holds it, too
        # the thread may wait for the lock if this is a handler of a signal that came with it held
        if not self._thread.is_current() and not self._state._is_owned():
            self._thread.join()

    def _forked(self) -> None:
        super()._forked()
        self.forked = True
        self._state = threading.RLock()
        if self.changed is not None:
            self.changed.abandon()

    def _wake(self) -> None:
        changed = self.changed
        if changed is not None:
            changed.write()

    # -- for the thread that reads --

    def wait_joined(self) -> None:
        """Until the server has answered. Raises what it answered, or RecvTimeout."""
        if not self._first.wait(self._timeout):
            raise self.doubt or self._away(self._timeout)
        if self.error is not None:
            raise self.error

    def shares(self) -> list[Share]:
        with self._state:
            return list(self._holding.shares.values())

    def take(self, share: Share) -> bool:
        """The member begins to read it. False: it is not to be read any more."""
        with self._state:
            return self._holding.take(share)

    def release(self, share: Share) -> None:
        """The member does not read it any more."""
        with self._state:
            if self._holding.release(share) and not self.closed:
                self._beat()

    @property
    def sure(self) -> bool:
        """The lease has not ended, and the server that gave it is still connected."""
        if time.monotonic() >= self._holding.expires or self.closed:
            return False
        if self._links(self._socket) == self._met \
                and self._aimed.get(self._socket) == self._choice.now:
            return True
        with self._state:
            if not self._sent:
                self._beat()
        return False

    # -- its thread --

    def _run(self) -> None:
        try:
            while not self.closed and self.error is None:
                with self._state:
                    if time.monotonic() >= self._due:
                        self._beat()
                    wait = self._due - time.monotonic()
                got = self._get(self._socket, min(wait, 1.0))
                if got is not None:
                    self._heard(got[0])
                self._expire()
        except JournalClosed:
            pass
        except Error as error:      # the peer does not speak this protocol
            self._fail(error)

    def _beat(self) -> None:
        """With the lock, so that beats leave in the order of what they say."""
        number = self._next_number()
        now = time.monotonic()
        if self._choice.several:
            if self._sent and now - min(self._sent.values()) >= self._holding.session:
                self._move(self._socket)        # it does not answer
                self._sent.clear()
            self._attend(self._socket)
        wait = self._put(self._socket, "beat", number, {
            "session": self._holding.session, "seen": self._holding.seen,
            "held": self._holding.held})
        if wait > SOON:
            self._sent[number] = now
            while len(self._sent) > LATE:
                del self._sent[next(iter(self._sent))]
            wait = self._holding.session
        self._due = now + min(wait, self._holding.session / PER_SESSION)

    def _heard(self, head: dict[str, Any]) -> None:
        if "group" in head:             # something has changed
            self._due = 0.0
            return
        number = head.get("id")
        with self._state:
            sent = self._sent.pop(number, None) if type(number) is int else None
        if sent is None:
            return
        try:
            answer = self._expected(self._answer(head, b""), _is_answer)
        except FATAL as error:
            self._fail(error)
        except JournalError as error:       # it is busy, say
            self.doubt = error
            if self._choice.several and isinstance(error, (JournalBusy, JournalFenced)):
                with self._state:
                    self._move(self._socket)
                    self._due = time.monotonic() + SOON
        else:
            self._apply(answer, sent)

    def _apply(self, answer: dict[str, Any], sent: float) -> None:
        links = self._links(self._socket)
        with self._state:
            had = set(self._holding.shares)
            changed = self._holding.heard(sent, answer["number"], answer["partitions"],
                                        answer["lost"])
            self._met = links
            self.members = answer["members"]
            if had != set(self._holding.shares):      # tell the server what was taken or let go
                self._due = 0.0
        self._first.set()
        if changed:
            self._wake()

    def _expire(self) -> None:
        with self._state:
            expired = self._holding.expire(time.monotonic())
        if expired:
            self._wake()

    def _fail(self, error: Error) -> None:
        with self._state:
            self.error = error
            self._holding.end()     # no beat renews the lease any more
        self._first.set()
        self._wake()


def _is_answer(answer: Any) -> bool:
    return (is_offset(answer["number"]) and is_offset(answer["members"])
            and all(map(is_offset, answer["lost"]))
            and all(is_offset(partition) and is_offset(token)
                    for partition, token in answer["partitions"]))
