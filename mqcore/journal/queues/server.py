"""QueueServer: durable queues over a ROUTER socket. QUEUES.md has the messages.

One thread does all the work, in turns. A turn takes what has come, changes the Book, stores the
changes with one write (and one fsync, with fsync="always") and only then sends the answers. So an
answer says what has happened, and nothing that it says is lost with the process.
"""

from __future__ import annotations

import logging
import math
import os
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from mqcore.base.components import State, numbers
from mqcore.errors import (
    Error,
    PeerError,
    RecvTimeout,
    SendTimeout,
)
from mqcore.journal.errors import JournalBusy, JournalWriteError
from mqcore.journal.queues import requests
from mqcore.journal.queues.desk import Answer, Desk, permitted
from mqcore.journal.queues.options import QueueLimits, QueueOptions, QueueServerStats
from mqcore.journal.queues.parking import Guest
from mqcore.journal.queues.requests import shown
from mqcore.journal.queues.store import Store
from mqcore.journal.server.listening import listen
from mqcore.journal.server.service import Service

PAUSE = 0.5             # the longest sleep, seconds
TIDY = 0.2              # seconds between two looks for departed peers
AWAY = 1.0              # by how much a turn is late if the server was stopped, seconds
PATIENCE = 0.25         # for what waits to be read then
AGAIN = 0.2             # and between two attempts to write to a full disk
TAKE = 200              # requests taken in a turn
SHOWN = 200             # queues that a monitor shows
WITH_PEER = 2           # a message as recv_msg() returns it
SENT = 0                # what _try_send() returns then; it makes no exception of a full peer

T = TypeVar("T")

_log = logging.getLogger("mqcore.journal")


class QueueServer(Service):
    """A running queue server, made by `mqcore.journal.serve_queues`. `with` stops it."""

    _name = "queue"
    _socket: Any        # its tries, which make no exceptions, are not public

    def __init__(self, where: str | os.PathLike[str], bind: Any, *, fsync: str = "interval",
                 fsync_interval: float = 0.1, segment_bytes: int = 64 << 20,
                 compression: str | None = None,
                 insecure: bool = False, configure: bool | Iterable[str] = True,
                 limits: QueueLimits | None = None, defaults: QueueOptions | None = None,
                 **options: Any) -> None:
        super().__init__(where)
        may = permitted(configure)
        self.limits = limits or QueueLimits()
        self._always = fsync == "always"
        self._guests: dict[int, Guest] = {}
        self._sending: list[Answer] = []        # answers whose changes are not stored yet
        self._stalled: JournalWriteError | None = None
        self._tidied = self._kept = 0.0
        self._awaited = math.inf        # when the turn that comes next was due
        self._patient = 0.0             # until then no time-out of a job ends
        self._early: Any = None         # a message that has ended the sleep
        self._largest = 2 * requests.ROOM + self.limits.job_bytes + self.limits.header_bytes
        self._store = Store(self.where, fsync, defaults or QueueOptions(), self.limits,
                            segment_bytes=segment_bytes, fsync_interval=fsync_interval,
                            compression=compression)
        try:
            self._desk = Desk(self._store.book, self._counts, may)
            self._settle()      # a full disk: it waits from its first turn on
            self._socket = listen("queue", "tcp://127.0.0.1:5559", "take and put jobs", bind,
                                  insecure, self._largest, 2, options)
            _log.info("the queues of %s are served at %s", self.where, ", ".join(self.urls))
            self._begin()
        except BaseException:
            self._store.close()
            raise

    def _now(self) -> float:
        """Seconds since the epoch; setting the machine's clock changes nothing."""
        return self._store.clock.now()

    @property
    def error(self) -> BaseException | None:
        """What ended it, if an error did; else what keeps it from storing at the moment."""
        return self._error or self._stalled

    def stats(self) -> QueueServerStats:
        book = self._store.book
        return QueueServerStats(
            **dict(self._counts), waiting=self._desk.parking.count, peers=len(self._guests),
            queues=len(book.queues), jobs=len(book.jobs), bytes=book.bytes, memory=book.memory,
            spilled=book.spilled, stored=self._store.size, moved=self._store.moved)

    def _mq_components(self) -> list[State]:
        """The server, and its queues."""
        states = super()._mq_components()
        if self.running:
            states += [State("queue", f"{name} of {self.where}", counts=numbers(queue.stats()))
                       for name, queue in list(self._store.book.queues.items())[:SHOWN]]
        return states

    def stop(self) -> None:
        """Idempotent. Jobs that consumers hold stay theirs for the visibility time-out of their
        queue, and may be acknowledged to the next server of the folder. A call that Ctrl-C
        interrupts ends the server nevertheless; after two, call it again."""
        with self._ending:
            if self._forked:
                return
            self._stopping.set()
            try:
                self._socket.close()        # ends the thread's sleep
                self._thread.join()
            finally:
                self._socket.close()
                self._thread.join()    # it ends within a turn
                self._store.close()

    # -- its thread --

    def _turn(self) -> None:
        now = self._now()
        desk = self._desk
        moved = False
        if now > self._awaited + AWAY:  # it was stopped: acknowledgments may wait unread
            self._patient = now + PATIENCE
        self._awaited = now
        if self._stalled is None and now >= self._patient:
            due = desk.book.due
            if due is not None and due <= now:
                moved = self._bear(desk.book.tick, now) or False
        moved = self._take(now) or moved
        out, desk.out = desk.out, []
        if self._stalled is None:
            self._bear(desk.turn, now)
            out += desk.out
            desk.out = []
            self._sending += out
        else:                           # refusals: they report nothing that must be stored
            self._send_all(out, now)
        if self._settle():
            sending, self._sending = self._sending, []
            self._send_all(sending, now)
            moved = moved or bool(desk.book.fresh or desk.book.roomy)
        self._tidy(now)
        if not moved:
            self._sleep()

    def _bear(self, what: Callable[[float], T], now: float) -> T | None:
        """What a full disk keeps from being done is done later; _settle() reports it."""
        try:
            return what(now)
        except JournalWriteError:
            if self._store.broken:
                raise
            return None

    def _settle(self) -> bool:
        """Whether all changes are stored."""
        try:
            self._store.settle(self._always)
        except JournalWriteError as error:
            if self._store.broken:
                raise
            if self._stalled is None:
                _log.error("the queue server of %s waits: %s", self.where, error)
            self._stalled = error
            return False
        if self._stalled is not None:
            _log.warning("the queue server of %s goes on", self.where)
            self._stalled = None
        return True

    def _sleep(self) -> None:
        """Until a message comes, or something is due. This thread itself reads the connections
        meanwhile, which saves a request two changes of threads."""
        pause = PAUSE
        if self._stalled is not None:
            pause = AGAIN
        else:
            now = self._now()
            for due in (self._desk.book.due, self._desk.parking.next):
                if due is not None:
                    pause = min(pause, max(0.0, due - now) + 0.001)
        if self._guests:
            pause = min(pause, TIDY)
        self._awaited += pause
        try:
            self._early = self._socket.recv_msg(timeout=pause)
        except RecvTimeout:
            pass

    def _tidy(self, now: float) -> None:
        monotonic = time.monotonic()
        if monotonic - self._tidied < TIDY or self._stalled is not None:
            return
        self._tidied = monotonic
        for guest in self._left(self._guests):
            self._leave(guest, now)
        if self._store.broken:
            raise self._store.writer.error or JournalWriteError()
        if monotonic >= self._kept:
            self._kept = monotonic + (0.0 if self._tidied_store() else 1.0)
        self._complaints.flush()

    def _tidied_store(self) -> bool:
        """Whether there is more to do at once. A full disk keeps the files as they are."""
        try:
            return self._store.tidy()
        except (JournalWriteError, OSError) as error:
            if self._store.broken:
                raise
            if self._complaints.due("tidying"):
                _log.warning("the files of the queue server of %s stay long: %s", self.where, error)
            return False

    def _leave(self, guest: Guest, now: float) -> None:
        if self._guests.pop(guest.peer.id, None) is not None:
            self._desk.leave(guest, now)

    # -- requests --

    def _take(self, now: float) -> bool:
        """True: there may be more. No exception is made for a socket that has nothing: it
        costs as much as a request."""
        said = 0        # bytes of answers
        guests, counts, out = self._guests, self._counts, self._desk.out
        message, self._early = self._early, None
        for _ in range(TAKE):
            if message is None:
                message = self._socket._try_recv(WITH_PEER)
                if message is None:
                    return False
            counts["requests"] += 1
            guest = guests.get(message.peer_id)
            if guest is None:
                peer = message.peer
                if peer is None:        # it left so long ago that nothing is known of it
                    counts["dropped"] += 1
                    message = None
                    continue
                guest = Guest(peer)
            request = None
            try:
                request = requests.decode(message.parts, self._largest)
                if self._stalled is not None:
                    raise self._stalled
                self._admit(guest)
                self._desk.ask(guest, request, now)
            except Exception as error:
                self._refuse(guest, request, error)
            message = None
            said += len(out[-1][1]) if out else 0
            if said > requests.ROOM:
                break
        return True

    def _admit(self, guest: Guest) -> None:
        if guest.peer.id not in self._guests:
            if len(self._guests) >= self.limits.peers:
                raise JournalBusy(f"the queue server has {len(self._guests)} connections, its "
                                  "limit", hint="raise it: QueueLimits(peers=...)")
            self._guests[guest.peer.id] = guest

    def _refuse(self, guest: Guest, request: Any, error: Exception) -> None:
        number = getattr(error if request is None else request, "number", None)
        what = "a message" if request is None else f"a request {requests.op(request)!r}"
        if isinstance(error, requests.Malformed):
            self._counts["malformed"] += 1
            if self._complaints.due("malformed requests"):
                _log.warning("malformed request from %s: %s", shown(str(guest.peer)),
                             shown(str(error)))
        elif not isinstance(error, Error | OSError):
            self._counts["failed"] += 1
            if self._complaints.due("failed requests"):
                _log.error("the queue server failed at %s from %s\n%s", what,
                           shown(str(guest.peer)), "".join(traceback.format_exception(error)))
            error = Error("the queue server failed at this request", hint="its log has the reason")
        self._desk.refuse(guest, number, error)

    def _send_all(self, sending: list[Answer], now: float) -> None:
        for guest, raw, jobs in sending:
            try:
                if self._socket._try_send(raw, True, guest.peer.id) != SENT:
                    self._socket.send_to(guest.peer, raw, timeout=0)    # raises why
                continue
            except PeerError:
                self._leave(guest, now)
            except SendTimeout:
                pass
            self._counts["unsent"] += 1
            if jobs:
                self._desk.take_back(jobs, now)
