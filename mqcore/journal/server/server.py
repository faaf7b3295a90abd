"""Server: answers for the journals of a folder over a ROUTER socket. PROTOCOL.md has the messages.

One thread does all the work, in turns. A turn takes what has come, answers one request of each
peer, sends one piece of each stream, and ends when its time is over, so no peer can starve the
others. `Limits` bounds everything that peers can make the server hold.
"""

from __future__ import annotations

import collections
import errno
import logging
import os
import time
import traceback
from typing import Any

from mqcore.base.native import select
from mqcore.base.waits import Wakeup
from mqcore.errors import Error, PeerError, RecvTimeout, SendTimeout
from mqcore.journal.errors import JournalBusy, JournalNotFound
from mqcore.journal.groups.rosters import Rosters
from mqcore.journal.server import requests
from mqcore.journal.server.answers import Answers, fenced, read
from mqcore.journal.server.codec import encode, error_head, internal_head
from mqcore.journal.server.limits import PIECE, WINDOW, Limits, ServerStats
from mqcore.journal.server.listening import listen
from mqcore.journal.server.requests import Request, shown
from mqcore.journal.server.service import Service
from mqcore.journal.server.sources import Source, Sources
from mqcore.journal.server.streams import Guest, Parts, Stream, Streams

FORGET = 30.0           # seconds without a `want` after which a stream ends
PAUSE = 0.5             # the longest sleep, seconds
FULL = 0.02             # and while an answer waits for space in its peer's queue
TICK = 0.1              # seconds between two looks at consumer groups that have members
TIDY = 1.0              # seconds between two checks for departed peers and unused journals
SLICE = 0.02            # seconds that the answers of a turn may take, and its pieces
TAKE = 200              # requests taken in a turn
SHORT = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS}

_log = logging.getLogger("mqcore.journal")


class Server(Service):
    """A running journal server, made by `mqcore.journal.serve`. `with` stops it."""

    _name = "journal"

    def __init__(self, where: str | os.PathLike[str], bind: Any, *, groups: bool = False,
                 insecure: bool = False, limits: Limits | None = None, **options: Any) -> None:
        where = os.fsdecode(where)
        os.scandir(where).close()           # FileNotFoundError now rather than to every reader
        super().__init__(where)
        self.limits = limits or Limits()
        self._groups = groups
        self._sources = Sources(where, self.limits.partitions, self.limits.idle, self._gone)
        self._rosters = Rosters(where, self.limits)
        self._answers = Answers(self._sources, groups, self._rosters, self.limits, self._counts,
                                self._complaints)
        self._streams = Streams()
        self._guests: dict[int, Guest] = {}
        self._asking: collections.deque[Guest] = collections.deque()    # those with requests
        self._held: set[Guest] = set()      # those with an answer that did not fit
        self._unsent = 0                    # bytes of all guests
        self._weighed = self._tidied = self._ticked = 0.0
        self._wake: Wakeup | None = None
        may = "read all journals and commit groups" if groups else "read all journals"
        self._socket = listen("journal", "tcp://127.0.0.1:5558", may, bind, insecure,
                              requests.REQUEST, 4, options)
        _log.info("the journals of %s are served at %s, consumer groups are %s", where,
                  ", ".join(self.urls), "writable" if groups else "read-only")
        try:
            self._wake = Wakeup()
        except BaseException:       # no descriptor
            self._socket.close(0)
            raise
        self._begin()

    def stats(self) -> ServerStats:
        counts = dict(self._counts)
        waiting = sum(len(guest.waiting) for guest in list(self._guests.values()))
        return ServerStats(**counts, waiting=waiting, peers=len(self._guests),
                           streams=len(self._streams), partitions=len(self._sources))

    def stop(self) -> None:
        """Idempotent. Streams end in the middle; readers go on when there is a server again. A
        forked child has no server, so there it does nothing."""
        with self._ending:
            self._stopping.set()
            wake = self._wake
            if wake is None:
                return
            wake.write()
            self._thread.join()
            self._socket.close()
            for stream in self._streams:
                self._streams.end(stream)
            self._sources.close()
            self._rosters.close()
            self._guests.clear()
            self._asking.clear()
            self._wake = None

    def _abandon(self) -> None:
        """Also close what the child has inherited."""
        super()._abandon()
        for source in self._sources:
            source.close()
        self._rosters.abandon()
        self._streams, self._guests = Streams(), {}
        if self._wake is not None:
            self._wake.abandon()
        self._wake = None

    # -- its thread --

    def _turn(self) -> None:
        try:
            self._work()
        except (OSError, MemoryError) as error:
            self._short(error)

    def _work(self) -> None:
        moved = self._take()
        moved = self._serve() or moved
        moved = self._pump() or moved
        self._coordinate()
        self._tidy()
        if not moved:
            self._sleep()

    def _short(self, error: OSError | MemoryError) -> None:
        """The system is out of descriptors or memory: go on as soon as it has some again."""
        if isinstance(error, OSError) and error.errno not in SHORT:
            raise error
        if self._complaints.due("turns without memory or descriptors"):
            _log.error("the journal server of %s waits: %s", self.where, error or "no memory")
        self._stopping.wait(PAUSE)

    def _sleep(self) -> None:
        wake = self._wake
        if wake is None:        # it is being stopped
            return
        poller = select.poll()
        poller.register(self._socket.fileno(), select.POLLIN)
        poller.register(wake.fd, select.POLLIN)
        pause = FULL if self._held else TICK if self._rosters else PAUSE
        for source in self._sources:
            if source.watch is not None:
                pause = min(pause, source.watch.longest)
                if source.watch.fd >= 0:
                    poller.register(source.watch.fd, select.POLLIN)
        poller.poll(1000 * pause)

    def _tidy(self) -> None:
        now = time.monotonic()
        if now - self._tidied < TIDY:
            return
        self._tidied = now
        for guest in self._left(self._guests):
            self._leave(guest)
        for stream in self._streams:
            if now - stream.heard > FORGET:
                self._streams.end(stream)
        for source in self._sources:
            if source.streams:
                self._sources.checked(source)
        self._sources.release_idle(now)
        self._weigh()
        self._complaints.flush()

    def _coordinate(self) -> None:
        """Consumer groups: who has gone, and who is to hear of it."""
        now = time.monotonic()
        if self._rosters and now - self._ticked >= TICK:
            self._ticked = now
            for guest in self._left(self._guests):
                self._leave(guest)
            self._rosters.tick()
        while self._rosters.due:
            guest = self._guests.get(self._rosters.due.pop())
            if guest is not None and guest.pending is None:
                self._send(guest, [encode({"group": "changed"})])

    # -- peers --

    def _leave(self, guest: Guest) -> None:
        for stream in list(guest.streams.values()):
            self._streams.end(stream)
        self._counts["unsent"] += guest.pending is not None
        self._counts["dropped"] += len(guest.waiting)
        guest.waiting.clear()
        guest.pending = None
        self._held.discard(guest)
        self._unsent -= guest.unsent
        guest.unsent = 0
        guest.sizes.clear()
        self._guests.pop(guest.peer.id, None)
        self._rosters.unlinked(guest.peer.id)

    def _weigh(self) -> None:
        """How much of what was sent still waits in the socket."""
        self._weighed = time.monotonic()
        for peer, stats in self._socket.stats().peers.items():
            guest = self._guests.get(peer.id)
            if guest is not None:
                self._unsent -= guest.settle(stats.queued_out)

    def _allowance(self, guest: Guest) -> int:
        """Bytes that may be read for this peer now. Once slow peers make the server hold as much as
        it may, each has its share of that."""
        if self._unsent >= self.limits.bytes and time.monotonic() - self._weighed > FULL:
            self._weigh()
        if self._unsent < self.limits.bytes:
            return WINDOW
        return max(0, self.limits.bytes // max(1, len(self._guests)) - guest.unsent)

    def _send(self, guest: Guest, parts: Parts, keep: bool = False) -> bool:
        """False: the peer's queue is full. With `keep` it is sent as soon as there is space, else
        never. A peer that has left gets nothing any more."""
        try:
            self._socket.send_to(guest.peer, *parts, timeout=0)
        except PeerError:
            self._counts["unsent"] += 1
            self._leave(guest)
            return True
        except SendTimeout:
            if keep:
                guest.pending = parts
                self._held.add(guest)
                self._hold(guest, parts)
            else:
                self._counts["unsent"] += 1
            return False
        if guest.peer.id in self._guests:
            guest.sizes.append(self._hold(guest, parts))
            if len(guest.sizes) > 4000:
                self._weigh()
        return True

    def _hold(self, guest: Guest, parts: Parts) -> int:
        size = sum(map(len, parts))
        guest.unsent += size
        self._unsent += size
        return size

    def _ready(self, guest: Guest) -> bool:
        """Whether the peer has taken all that was made for it."""
        if guest.pending is None:
            return True
        parts, guest.pending = guest.pending, None
        self._held.discard(guest)
        size = sum(map(len, parts))
        guest.unsent -= size
        self._unsent -= size
        return self._send(guest, parts, keep=True)

    # -- requests --

    def _take(self) -> bool:
        """What has come: into the line of its peer."""
        for i in range(TAKE):
            try:
                message = self._socket.recv_msg(timeout=0)
            except RecvTimeout:
                return i > 0
            self._counts["requests"] += 1
            if message.peer is None:        # it left so long ago that nothing is known of it
                self._counts["dropped"] += 1
                continue
            guest = self._guests.get(message.peer_id) or Guest(message.peer)
            request = None
            try:
                request = requests.decode(message.parts)
                self._admit(guest)
                self._line_up(guest, request)
            except Exception as error:
                self._refuse(guest, request, error)
        return True

    def _admit(self, guest: Guest) -> None:
        if guest.peer.id not in self._guests:
            if len(self._guests) >= self.limits.peers:
                raise JournalBusy(f"the journal server has {len(self._guests)} readers, its limit")
            self._guests[guest.peer.id] = guest

    def _line_up(self, guest: Guest, request: Request) -> None:
        """Queue a request. A request repeated before its turn is served once, in its latest
        form."""
        key = type(request).__name__, getattr(request, "stream", request.number)
        if guest.waiting.pop(key, None) is not None:
            self._counts["repeated"] += 1
        elif len(guest.waiting) >= self.limits.requests:
            raise JournalBusy(f"{len(guest.waiting)} requests of this reader wait already")
        elif not guest.waiting:
            self._asking.append(guest)
        guest.waiting[key] = request

    def _serve(self) -> bool:
        """One request of each peer, then another of each, as long as there is time."""
        for guest in list(self._held):
            self._ready(guest)
        end = time.monotonic() + SLICE
        moved = False
        blocked = []
        while self._asking and not (moved and time.monotonic() > end):
            guest = self._asking.popleft()
            if not self._ready(guest):
                blocked.append(guest)
            elif guest.waiting:
                request = guest.waiting.pop(next(iter(guest.waiting)))
                if guest.waiting:
                    self._asking.append(guest)
                self._attempt(guest, request)
                moved = True
        self._asking.extend(blocked)
        return moved

    def _attempt(self, guest: Guest, request: Request) -> None:
        try:
            answer = self._answer(guest, request)
        except Exception as error:
            self._refuse(guest, request, error)
            return
        self._counts["answered"] += 1
        if answer is not None:
            self._send(guest, answer, keep=True)

    def _refuse(self, guest: Guest, request: Request | None, error: Exception) -> None:
        self._counts["errors"] += 1
        what = "a message" if request is None else f"a request {requests.op(request)!r}"
        self._send(guest, [encode(self._judged(guest, what, error, _addressee(request, error)))])

    def _judged(self, guest: Guest, what: str, error: Exception,
                to: dict[str, Any]) -> dict[str, Any]:
        """Count the error and log it; the answer that reports it."""
        if isinstance(error, requests.Malformed):
            self._counts["malformed"] += 1
            self._complain("malformed requests", "malformed request from %s: %s", guest, error)
        elif isinstance(error, JournalBusy):
            self._counts["refused"] += 1
            self._complain("refused requests", f"refused {what} from %s: %s", guest, error)
        elif not isinstance(error, (Error, OSError)):
            self._counts["failed"] += 1
            if self._complaints.due("failed requests"):
                # as text: a handler may keep the record, and with it the readers in the frames
                _log.error("the journal server failed at %s from %s\n%s", what,
                           shown(str(guest.peer)), "".join(traceback.format_exception(error)))
            return internal_head(**to)
        return error_head(error, **to)

    def _complain(self, kind: str, words: str, guest: Guest, error: Exception) -> None:
        if self._complaints.due(kind):
            user = "" if guest.peer.user is None else f", user {guest.peer.user}"
            _log.warning(words, shown(f"{guest.peer}{user}"), shown(str(error)))

    def _answer(self, guest: Guest, request: Request) -> Parts | None:
        if isinstance(request, requests.Stop):
            stream = guest.streams.get(request.stream)
            if stream is not None:
                self._streams.end(stream)
            return None
        if isinstance(request, (requests.Beat, requests.Members)):
            return self._answers.of_group(guest.peer.id, request)
        if isinstance(request, requests.Want):
            self._want(guest, request, self._answers.source(request))
            return None
        allowance = self._allowance(guest)
        if not allowance:
            raise JournalBusy("this reader does not take its answers, and they fill the journal "
                              "server's memory")
        return self._answers.to(request, allowance)

    def _gone(self, source: Source, gone: Exception) -> None:
        """Its journal was deleted: its streams end, and what members hold of it."""
        for stream in self._streams:
            if stream.source is source:
                self._fail(stream, gone)
        self._rosters.renewed(*source.key)

    # -- streams --

    def _want(self, guest: Guest, request: requests.Want, source: Source) -> None:
        stream = guest.streams.get(request.stream)
        if stream is not None and stream.source is not source:
            self._streams.end(stream)
            stream = None
        if stream is None:
            self._room_for_stream(guest)
            stream = Stream(guest, request.stream, source, request.offset, 1, 0,
                            durable=request.durable)
            self._streams.add(stream)
        stream.window = min(max(1, request.window), WINDOW)
        stream.stop = request.stop
        stream.heard = time.monotonic()
        stream.seen = -1
        stream.acknowledge(request.offset)

    def _room_for_stream(self, guest: Guest) -> None:
        if len(guest.streams) >= self.limits.streams_per_peer:
            raise JournalBusy(f"this reader has {len(guest.streams)} streams, its limit")
        if len(self._streams) >= self.limits.streams:
            raise JournalBusy(f"the journal server has {len(self._streams)} streams, its limit")

    def _pump(self) -> bool:
        """A piece for every stream that may have one, as long as there is time."""
        now = time.monotonic()
        moved = False
        for source in self._sources:
            source.look(now)
        for stream in self._streams.turn():
            if stream.seen != stream.source.version and stream.room \
                    and self._ready(stream.guest) and not stream.over:
                moved = self._try(stream) or moved
                if time.monotonic() - now > SLICE:
                    break
        return moved

    def _try(self, stream: Stream) -> bool:
        try:
            return self._piece(stream)
        except Exception as error:
            self._fail(stream, error)
            return True

    def _piece(self, stream: Stream) -> bool:
        version = stream.source.version
        size = min(PIECE, stream.room, self._allowance(stream.guest))
        if size == 0:
            return False
        records = read(stream.source, stream.at, size, stream.durable)
        if stream.stop is not None:
            records = records.slice(0, stream.stop - stream.at)
        if not len(records):
            if stream.stop is None and stream.source.epochs.look().fenced:
                raise fenced(stream.source.epochs.look(), *stream.source.key)
            stream.seen = version
            return False
        parts = self._answers.records({"stream": stream.number}, records, stream.source)
        stream.at = records.next
        stream.sent.append((records.next, len(parts[1])))
        stream.out += len(parts[1])
        self._send(stream.guest, parts, keep=True)
        return True

    def _fail(self, stream: Stream, error: Exception) -> None:
        """It ends, and its reader learns why."""
        self._streams.end(stream)
        self._counts["streams_failed"] += 1
        if isinstance(error, FileNotFoundError) and not isinstance(error, Error):
            error = JournalNotFound(f"the journal of topic {stream.source.key[0]!r} was deleted")
        head = self._judged(stream.guest, f"the stream {stream.number}", error,
                            {"stream": stream.number})
        self._send(stream.guest, [encode(head)], keep=stream.guest.pending is None)


def _addressee(request: Request | None, error: Exception) -> dict[str, Any]:
    """What an error is for: a stream, or the question with this id (null where it is unknown)."""
    stream = getattr(error if request is None else request, "stream", None)
    if stream is not None:
        return {"stream": stream}
    return {"id": getattr(error if request is None else request, "number", None)}
