"""Server: answers for the journals of a folder over a ROUTER socket. PROTOCOL.md has the messages.

One thread does all the work, in turns. A turn takes what has come, answers one request of each
peer, sends one piece of each stream, and ends when its time is over, so no peer can starve the
others. `Limits` bounds everything that peers can make the server hold.
"""

from __future__ import annotations

import collections
import logging
import os
import select
import threading
import time
import traceback
import weakref
from typing import Any

from mqcore import Router
from mqcore.errors import Error, PeerError, RecvTimeout, SendTimeout, SocketClosed, WaitTimeout
from mqcore.journal import exposure, requests
from mqcore.journal.answers import Answers, read
from mqcore.journal.complaints import Complaints
from mqcore.journal.errors import JournalBusy, JournalNotFound
from mqcore.journal.limits import PIECE, WINDOW, Limits, ServerStats
from mqcore.journal.requests import Request, shown
from mqcore.journal.sources import Source, Sources
from mqcore.journal.streams import Guest, Parts, Stream, Streams
from mqcore.journal.wire import encode, error_head, internal_head

FORGET = 30.0           # seconds without a `want` after which a stream ends
PAUSE = 0.5             # the longest sleep, seconds
FULL = 0.02             # and while an answer waits for room at its peer
TIDY = 1.0              # seconds between two looks at who has left and what is unused
SLICE = 0.02            # seconds that the answers of a turn may take, and its pieces
TAKE = 200              # requests taken in a turn

_log = logging.getLogger("mqcore.journal")


class Server:
    """A running journal server, made by `mqcore.journal.serve`. `with` stops it."""

    def __init__(self, where: str | os.PathLike[str], bind: Any, *, groups: bool = False,
                 insecure: bool = False, limits: Limits | None = None, **options: Any) -> None:
        os.scandir(where).close()           # FileNotFoundError now rather than to every reader
        self.where = where
        self.limits = limits or Limits()
        self._groups = groups
        self._counts = collections.Counter[str]()
        self._complaints = Complaints()
        self._sources = Sources(where, self.limits.partitions, self.limits.idle, self._gone)
        self._answers = Answers(self._sources, groups, self.limits, self._counts, self._complaints)
        self._streams = Streams()
        self._guests: dict[int, Guest] = {}
        self._asking: collections.deque[Guest] = collections.deque()    # those with requests
        self._held: set[Guest] = set()      # those with an answer that found no room
        self._unsent = 0                    # bytes of all guests
        self._weighed = self._tidied = 0.0
        self._error: BaseException | None = None
        self._forked = False
        self._socket = self._open(bind, insecure, options)
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._stopping = threading.Event()
        self._ending = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="mqcore-journal-server", daemon=True)
        _servers.add(self)
        self._thread.start()

    def _open(self, bind: Any, insecure: bool, options: dict[str, Any]) -> Router:
        options = {"max_message_size": requests.REQUEST, "linger": 0, "send_hwm": 1000,
                   "recv_hwm": 1000, "recv_hwm_bytes": 4 * requests.REQUEST, **options}
        urls = [bind] if isinstance(bind, str) else [str(url) for url in bind]
        socket = Router(**options)
        try:
            if not insecure:
                exposure.check(urls, socket.security, "read the journals")
            for url in urls:
                socket.bind(url)
        except BaseException:
            socket.close(0)
            raise
        _log.info("the journals of %s are served at %s, consumer groups are %s", self.where,
                  ", ".join(endpoint.url for endpoint in socket.endpoints),
                  "writable" if self._groups else "read-only")
        if exposure.open_to_all(urls, socket.security, options):
            _log.warning("any peer that reaches %s may read all journals%s: name the peers with "
                         "Curve(allow=...) (--allow), or let them show certificates with tls_ca",
                         ", ".join(urls), " and commit groups" if self._groups else "")
        return socket

    @property
    def urls(self) -> list[str]:
        """The addresses that it listens at: real ones, where port 0 was asked for."""
        return [endpoint.url for endpoint in self._socket.endpoints]

    @property
    def running(self) -> bool:
        return not self._forked and self._thread.is_alive()

    @property
    def error(self) -> BaseException | None:
        """What ended it, if an error did."""
        return self._error

    def stats(self) -> ServerStats:
        counts = dict(self._counts)
        waiting = sum(len(guest.waiting) for guest in list(self._guests.values()))
        return ServerStats(**counts, waiting=waiting, peers=len(self._guests),
                           streams=len(self._streams), partitions=len(self._sources))

    def wait(self, timeout: float | None = None) -> None:
        """Until it has ended; then raises what ended it, if an error did. WaitTimeout."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise WaitTimeout(f"the journal server still runs after {timeout:g} s")
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Idempotent. Streams end in the middle; readers go on when there is a server again. A
        forked child has no server, so there it does nothing."""
        with self._ending:
            self._stopping.set()
            if self._wake < 0:
                return
            os.eventfd_write(self._wake, 1)
            self._thread.join()
            self._socket.close()
            for stream in self._streams:
                self._streams.end(stream)
            self._sources.close()
            self._guests.clear()
            self._asking.clear()
            os.close(self._wake)
            self._wake = -1

    def _abandon(self) -> None:
        """In a forked child: close what it has inherited. The server's thread is not here, and may
        have held any lock at that moment."""
        self._forked = True
        self._stopping.set()
        self._ending = threading.Lock()
        for source in self._sources:
            source.close()
        self._streams, self._guests = Streams(), {}
        if self._wake >= 0:
            os.close(self._wake)
            self._wake = -1

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<journal Server of {self.where}, {'running' if self.running else 'ended'}>"

    # -- its thread --

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                moved = self._take()
                moved = self._serve() or moved
                moved = self._pump() or moved
                self._tidy()
                if not moved:
                    self._sleep()
        except BaseException as error:
            if not self._stopping.is_set():
                self._error = error
                closed = isinstance(error, SocketClosed)    # by its context, or at the exit
                _log.log(logging.INFO if closed else logging.CRITICAL,
                         "the journal server of %s has ended: %s", self.where, error,
                         exc_info=None if closed else error)
                self._socket.close(0)       # readers see that it is gone
        self._complaints.flush(end=True)

    def _sleep(self) -> None:
        poller = select.poll()
        poller.register(self._socket.fileno(), select.POLLIN)
        poller.register(self._wake, select.POLLIN)
        pause = FULL if self._held else PAUSE
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
        present = {peer.id for peer in self._socket.peers()}
        for number, guest in list(self._guests.items()):
            if number not in present:
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
        """False: there is no room. With `keep` it is sent as soon as there is, else never. A peer
        that has left gets nothing any more."""
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
        """A request that is repeated before its turn is served once, as it was said last."""
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
        if isinstance(request, requests.Want):
            self._want(guest, request, self._answers.source(request))
            return None
        allowance = self._allowance(guest)
        if not allowance:
            raise JournalBusy("this reader does not take its answers, and they fill the journal "
                              "server's memory")
        return self._answers.to(request, allowance)

    def _gone(self, source: Source, gone: Exception) -> None:
        """Its journal was deleted: so are its streams."""
        for stream in self._streams:
            if stream.source is source:
                self._fail(stream, gone)

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
            stream.seen = version
            return False
        parts = self._answers.records({"stream": stream.number}, records)
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


_servers: weakref.WeakSet[Server] = weakref.WeakSet()      # those of this process


def _after_fork() -> None:
    for server in list(_servers):
        server._abandon()
    _servers.clear()


os.register_at_fork(after_in_child=_after_fork)


def _addressee(request: Request | None, error: Exception) -> dict[str, Any]:
    """What an error is for: a stream, or the question with this id (null where it is unknown)."""
    stream = getattr(error if request is None else request, "stream", None)
    if stream is not None:
        return {"stream": stream}
    return {"id": getattr(error if request is None else request, "number", None)}
