"""Server: answers for the journals of a folder over a ROUTER socket. PROTOCOL.md has the messages.

One thread does all the work, in turns. A turn takes what has come, answers one request of each
peer, sends one piece of each stream, and ends when its time is over, so no peer can starve the
others. `Limits` bounds everything that peers can make the server hold.
"""

from __future__ import annotations

import collections
import logging
import os
import time
import traceback
from typing import Any, cast

from mqcore.base.native import select
from mqcore.base.waits import Wakeup
from mqcore.errors import Error, RecvTimeout
from mqcore.journal.errors import JournalBusy, JournalNotFound
from mqcore.journal.groups.rosters import Rosters
from mqcore.journal.later import np
from mqcore.journal.records import until
from mqcore.journal.rights import Given, granting
from mqcore.journal.server import requests
from mqcore.journal.server.answers import (
    SHORT,
    Answers,
    check_rights,
    fenced,
    passing,
    read,
)
from mqcore.journal.server.codec import encode, error_head, internal_head
from mqcore.journal.server.limits import PIECE, SLICE, WINDOW, Limits, ServerStats
from mqcore.journal.server.listening import listen
from mqcore.journal.server.lists import Lists
from mqcore.journal.server.outbox import FULL, Outbox
from mqcore.journal.server.requests import Request, shown
from mqcore.journal.server.service import Service
from mqcore.journal.server.shares import (
    gives_way,
    guest_to_end,
    owner_of,
    source_to_end,
    stream_to_end,
)
from mqcore.journal.server.sources import Source, Sources
from mqcore.journal.server.streams import Guest, Parts, Stream, Streams
from mqcore.journal.store.segment import Unfinished

FORGET = 30.0           # seconds without a `want` after which a stream ends
PAUSE = 0.5             # the longest sleep, seconds
TICK = 0.1              # seconds between two looks at consumer groups that have members
TIDY = 1.0              # seconds between two checks for departed peers and unused journals
TAKE = 200              # requests taken in a turn

_log = logging.getLogger("mqcore.journal")


class Server(Service):
    """A running journal server, made by `mqcore.journal.serve`. `with` stops it."""

    _name = "journal"

    def __init__(self, where: str | os.PathLike[str], bind: Any, *, groups: bool = False,
                 insecure: bool = False, limits: Limits | None = None, rights: Given = None,
                 **options: Any) -> None:
        where = os.fsdecode(where)
        self._rights_of = granting(rights)
        os.scandir(where).close()           # FileNotFoundError now rather than to every reader
        _ = np.ndarray                      # imported now rather than while readers wait
        super().__init__(where)
        self.limits = limits or Limits()
        self._groups = groups
        self._sources = Sources(where, self.limits.partitions, self.limits.idle, self._gone,
                                self._crowded)
        self._rosters = Rosters(where, self.limits)
        self._answers = Answers(self._sources, groups, self._rosters, self.limits, self._counts)
        self._lists = Lists(self._sources, self._complaints)
        self._streams = Streams()
        self._guests: dict[int, Guest] = {}
        self._asker: Guest | None = None    # of the request that is being answered
        self._asking: collections.deque[Guest] = collections.deque()    # those with requests
        self._tidied = self._ticked = self._longest_turn = 0.0
        self._wake: Wakeup | None = None
        what = "all journals" if rights is None else "the journals that rights= says"
        may = f"read {what} and commit groups" if groups else f"read {what}"
        self._socket = listen("journal", "tcp://127.0.0.1:5558", may, bind, insecure,
                              requests.REQUEST, 4, options)
        self._outbox = Outbox(self._socket, self._guests, self.limits.bytes, self._counts,
                              self._leave)
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
                           streams=len(self._streams), partitions=len(self._sources),
                           longest_turn=self._longest_turn)

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
        begin = time.monotonic()
        moved = self._take()
        moved = self._serve() or moved
        moved = self._lists.go_on(SLICE) or moved
        moved = self._pump() or moved
        self._coordinate()
        self._tidy()
        self._longest_turn = max(self._longest_turn, time.monotonic() - begin)
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
        pause = FULL if self._outbox.held else TICK if self._rosters else PAUSE
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
        self._outbox.weigh()
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
                self._outbox.send(guest, [encode({"group": "changed"})])

    # -- peers --

    def _leave(self, guest: Guest) -> None:
        for stream in list(guest.streams.values()):
            self._streams.end(stream)
        self._counts["dropped"] += len(guest.waiting)
        guest.waiting.clear()
        self._outbox.forget(guest)
        self._guests.pop(guest.peer.id, None)
        self._rosters.unlinked(guest.peer.id)

    # -- requests --

    def _take(self) -> bool:
        """What has come: into the line of its peer."""
        end = time.monotonic() + SLICE
        for i in range(TAKE):
            if time.monotonic() > end:
                break
            try:
                message = self._socket.recv_msg(timeout=0)
            except RecvTimeout:
                return i > 0
            self._counts["requests"] += 1
            if message.peer is None:        # it left so long ago that nothing is known of it
                self._counts["dropped"] += 1
                continue
            guest = self._guests.get(message.peer_id) \
                or Guest(message.peer, owner_of(message.peer))
            request = None
            try:
                request = requests.decode(message.parts)
                self._admit(guest)
                self._line_up(guest, request)
            except Exception as error:
                self._refuse(guest, request, error)
        return True

    def _admit(self, guest: Guest) -> None:
        guest.asked = time.monotonic()
        if guest.peer.id not in self._guests:
            if len(self._guests) >= self.limits.peers:
                self._room_for_guest(guest)
            guest.rights = self._rights_of(guest.peer)
            self._guests[guest.peer.id] = guest

    def _room_for_guest(self, guest: Guest) -> None:
        self._outbox.weigh_again()
        found = guest_to_end(self._guests.values(), guest.owner, self._rosters.links)
        if found is None:
            raise JournalBusy(f"the journal server has {len(self._guests)} readers, its limit")
        slow = found.unsent > 0
        for stream in list(found.streams.values()):
            self._fail(stream, gives_way())
        while found.waiting:
            self._refuse(found, found.waiting.popitem()[1], gives_way())
        self._leave(found)
        if slow:        # the account forgets what the socket holds for it, so that goes, too
            cast("Any", self._socket)._links.end_peer(found.peer.id)

    def _line_up(self, guest: Guest, request: Request) -> None:
        """Queue a request. A request repeated before its turn is served once, in its latest
        form."""
        key = _key(request)
        if guest.waiting.pop(key, None) is not None:
            self._counts["repeated"] += 1
        elif len(guest.waiting) >= self.limits.requests:
            raise JournalBusy(f"{len(guest.waiting)} requests of this reader wait already")
        elif not guest.waiting:
            self._asking.append(guest)
        guest.waiting[key] = request
        if isinstance(request, requests.List):
            self._lists.expect(guest, request.number)

    def _serve(self) -> bool:
        """One request of each peer, then another of each, as long as there is time."""
        for guest in list(self._outbox.held):
            self._outbox.ready(guest)
        end = time.monotonic() + SLICE
        moved = False
        blocked = []
        while self._asking and not (moved and time.monotonic() > end):
            guest = self._asking.popleft()
            if not self._outbox.ready(guest):
                blocked.append(guest)
            elif guest.waiting:
                key = next(iter(guest.waiting))
                request = guest.waiting.pop(key)
                if isinstance(request, requests.List) and not self._lists.ready(
                        guest, request.number):
                    guest.waiting[key] = request
                    blocked.append(guest)
                    continue
                if guest.waiting:
                    self._asking.append(guest)
                self._attempt(guest, request)
                moved = True
        self._asking.extend(blocked)
        return moved

    def _attempt(self, guest: Guest, request: Request) -> None:
        self._asker = guest
        key = _key(request)
        tries = guest.tries.pop(key, 0)
        self._answers.patience = SLICE * 2**tries
        try:
            answer = self._answer(guest, request)
        except Unfinished:
            self._put_back(guest, request)
            guest.tries[key] = tries + 1
            return
        except Exception as error:
            self._refuse(guest, request, error)
            return
        self._counts["answered"] += 1
        if answer is not None:
            self._outbox.send(guest, answer, keep=True)

    def _put_back(self, guest: Guest, request: Request) -> None:
        """It is not answered yet, and others have waited long enough. It gets more time with each
        try: among many looks it may have to begin again."""
        if not guest.waiting:
            self._asking.append(guest)
        guest.waiting.setdefault(_key(request), request)

    def _refuse(self, guest: Guest, request: Request | None, error: Exception) -> None:
        self._counts["errors"] += 1
        what = "a message" if request is None else f"a request {requests.op(request)!r}"
        head = self._judged(guest, what, error, _addressee(request, error))
        self._outbox.send(guest, [encode(head)])

    def _judged(self, guest: Guest, what: str, error: Exception,
                to: dict[str, Any]) -> dict[str, Any]:
        """Count the error and log it; the answer that reports it."""
        error = passing(error)
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
        check_rights(guest.rights, request)
        if isinstance(request, requests.List):
            return [self._lists.answer(guest, request.number)]
        if isinstance(request, (requests.Beat, requests.Members)):
            return self._answers.of_group(guest.peer.id, request)
        if isinstance(request, requests.Want):
            self._want(guest, request, self._answers.source(request))
            return None
        allowance = self._outbox.allowance(guest)
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
            now = time.monotonic()
            stream = Stream(guest, request.stream, source, request.offset, 1, now, now,
                            durable=request.durable, compacted=request.compacted)
            self._streams.add(stream)
        stream.window = min(max(1, request.window), WINDOW)
        stream.stop = request.stop
        stream.heard = time.monotonic()
        stream.seen = -1
        stream.acknowledge(request.offset, stream.heard)

    def _room_for_stream(self, guest: Guest) -> None:
        if len(guest.streams) >= self.limits.streams_per_peer:
            raise JournalBusy(f"this reader has {len(guest.streams)} streams, its limit")
        if len(self._streams) >= self.limits.streams:
            found = stream_to_end(self._streams, guest.owner, time.monotonic())
            if found is None:
                raise JournalBusy(f"the journal server has {len(self._streams)} streams, its limit")
            self._fail(found, gives_way())

    def _crowded(self) -> None:
        """All partitions that may be open have streams, and the request under way names another."""
        if self._asker is not None:
            for stream in source_to_end(self._sources, self._streams, self._asker.owner,
                                        time.monotonic()):
                self._fail(stream, gives_way())

    def _pump(self) -> bool:
        """A piece for every stream that may have one, as long as there is time."""
        now = time.monotonic()
        moved = False
        for source in self._sources:
            source.look(now)
        for stream in self._streams.turn():
            if stream.seen != stream.source.version and stream.room \
                    and self._outbox.ready(stream.guest) and not stream.over:
                moved = self._try(stream) or moved
                if time.monotonic() - now > SLICE:
                    break
        return moved

    def _try(self, stream: Stream) -> bool:
        try:
            return self._piece(stream)
        except Unfinished:
            stream.tries += 1
            return True
        except Exception as error:
            self._fail(stream, error)
            return True

    def _piece(self, stream: Stream) -> bool:
        version = stream.source.version
        size = min(PIECE, stream.room, self._outbox.allowance(stream.guest))
        if size == 0:
            return False
        stream.source.reader._hurry(time.monotonic() + SLICE * 2**stream.tries)
        records = read(stream.source, stream.at, size, stream)
        stream.tries = 0
        if stream.stop is not None:
            records = until(records, stream.stop)
        if not len(records) and (stream.stop is None or records.next == stream.at):
            if stream.stop is None and stream.source.epochs.look().fenced:
                raise fenced(stream.source.epochs.look(), *stream.source.key)
            stream.seen = version
            return False
        parts = self._answers.records({"stream": stream.number}, records, stream.source)
        stream.sends(records.next, len(parts[1]), time.monotonic())
        self._outbox.send(stream.guest, parts, keep=True)
        return True

    def _fail(self, stream: Stream, error: Exception) -> None:
        """It ends, and its reader learns why."""
        self._streams.end(stream)
        self._counts["streams_failed"] += 1
        if isinstance(error, FileNotFoundError) and not isinstance(error, Error):
            error = JournalNotFound(f"the journal of topic {stream.source.key[0]!r} was deleted")
        head = self._judged(stream.guest, f"the stream {stream.number}", error,
                            {"stream": stream.number})
        self._outbox.send(stream.guest, [encode(head)], keep=stream.guest.pending is None)


def _key(request: Request) -> tuple[str, int]:
    return type(request).__name__, getattr(request, "stream", request.number)


def _addressee(request: Request | None, error: Exception) -> dict[str, Any]:
    """What an error is for: a stream, or the question with this id (null where it is unknown)."""
    stream = getattr(error if request is None else request, "stream", None)
    if stream is not None:
        return {"stream": stream}
    return {"id": getattr(error if request is None else request, "number", None)}
