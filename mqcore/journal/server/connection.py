"""Connection: questions to a journal server, and the sockets that carry them.

Each call takes a socket out of a pool for as long as it lasts. So threads, and tasks of asyncio and
trio, that use one connection at the same time never receive each other's answers.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any, TypeVar
from urllib.parse import unquote

from mqcore import Dealer
from mqcore.base.living import Living
from mqcore.base.native import threading
from mqcore.errors import OptionError, RecvTimeout, SendTimeout, SocketClosed
from mqcore.journal.errors import JournalBusy, JournalClosed, JournalError, JournalFenced
from mqcore.journal.server.codec import VERSION, decode, encode, error_from, unpack
from mqcore.journal.server.failover import DEAF, Choice, addresses, behind, marked
from mqcore.journal.waiting import Deadline

AGAIN = 1.0             # seconds until a call looks whether to ask again
SOON = 0.1              # and if there was no server to take the question
UNMARKED = "list", "beat", "members"    # questions that are about no single partition
SPARE = 2               # sockets that are kept for the next calls

T = TypeVar("T")
Got = tuple[dict[str, Any], bytes] | None
#: yields how many seconds to wait, is sent what came within them, returns the answer
Steps = Generator[float, Got, T]


def split(url: str, topic: str | None) -> tuple[str, str]:
    """(where to connect, topic): over TCP, with whatever filters, the path names the topic."""
    found = [_split(one, topic) for one in addresses(url)]
    topics = {name for _, name in found}
    if len(topics) > 1:
        raise OptionError(f"{url!r} names the topics {', '.join(sorted(map(repr, topics)))}",
                          hint="all addresses are of servers of the same journal")
    return ",".join(where for where, _ in found), topics.pop()


def _split(url: str, topic: str | None) -> tuple[str, str]:
    scheme, _, rest = url.partition("://")
    if scheme.rpartition("+")[2] == "tcp":
        address, mark, query = rest.partition("?")
        address, _, path = address.partition("/")
        if path and topic not in (None, unquote(path)):
            raise OptionError(f"topic {topic!r} and {unquote(path)!r}", hint="say it once")
        return f"{scheme}://{address}{mark}{query}", topic or unquote(path) or "default"
    return url, topic or "default"


class Connection:
    """To a journal server. `_ask` and `_aask` put a question and return the answer."""

    topic = ""
    partition = 0
    _server = "journal"     # what is expected to answer; `mq ... serve` starts it
    _fails_over = True      # `where` may be several addresses, of a primary and of its mirrors

    def __init__(self, url: str, where: str, about: dict[str, Any], timeout: float,
                 options: dict[str, Any]) -> None:
        """about: what all questions have in common."""
        self.url = url
        self.closed = False
        self._about = about
        self._timeout = timeout
        self._numbers = itertools.count(1)
        self._choice = Choice(addresses(where) if self._fails_over else [where])
        self._aimed: dict[Dealer, int] = {}        # which address a socket is connected to
        self._options = {"linger": 0, "reconnect_max": AGAIN, **options}
        self._lock = threading.RLock()  # reentrant: for a signal handler that calls close()
        self._all: set[Dealer] = set()
        self._spare: list[Dealer] = []
        _connections.add(self)
        self._give(self._take())        # what is wrong with the options is raised here

    # -- sockets --

    def _take(self) -> Dealer:
        with self._lock:
            if not self.closed:
                with contextlib.suppress(IndexError):
                    return self._spare.pop()
        self._check()
        at = self._choice.now
        made = Dealer(connect=self._choice.urls[at], **self._options)
        with self._lock:
            self._all.add(made)
            self._aimed[made] = at
        if self.closed:
            made.close()
            self._check()
        return made

    def _give(self, socket: Dealer) -> None:
        with self._lock:
            if socket not in self._all:         # close() has closed it
                return
            if len(self._spare) < SPARE:
                self._spare.append(socket)
                return
            self._all.discard(socket)
            self._aimed.pop(socket, None)
        self._choice.forget(socket)
        socket.close()

    def _aim(self, socket: Dealer) -> None:
        """Connect it to the address that is used now."""
        at = self._aimed.get(socket)
        if at is None or at == self._choice.now:
            return
        self._aimed[socket] = self._choice.now
        socket.disconnect(self._choice.urls[at])
        socket.connect(self._choice.urls[self._choice.now])

    def _attend(self, socket: Dealer) -> None:
        """Move to another address if this one has no server."""
        if self._choice.several:
            self._choice.attend(socket, self._aimed.get(socket, -1), bool(self._links(socket)))
            self._aim(socket)

    def _move(self, socket: Dealer) -> None:
        self._choice.move(self._aimed.get(socket, -1))

    @contextlib.contextmanager
    def _link(self) -> Iterator[Dealer]:
        socket = self._take()
        try:
            yield socket
        finally:
            self._give(socket)

    def _forked(self) -> None:
        """In a forked child, where a thread of the parent may hold the lock. Its sockets raise
        Forked."""
        self._lock = threading.RLock()

    def _check(self) -> None:
        if self.closed:
            raise JournalClosed(f"the reader of {self.url} is closed")

    def close(self) -> None:
        """Ends calls in whatever thread or task they wait. Records handed out stay valid."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
            every = list(self._all)
            self._all.clear()
            self._aimed.clear()
            self._spare.clear()
        for socket in every:
            socket.close()

    # -- questions --

    def _next_number(self) -> int:
        with self._lock:  # without the GIL, itertools.count gives a number twice
            return next(self._numbers)

    def _put(self, socket: Dealer, op: str, number: int, facts: dict[str, Any]) -> float:
        """Returns after how many seconds to ask again."""
        return self._post(socket, encode({"v": VERSION, "id": number, "op": op, **self._about,
                                          **facts}))

    def _post(self, socket: Dealer, raw: bytes) -> float:
        try:
            self._aim(socket)
            socket.send(raw, timeout=0)
        except SendTimeout:             # no server is there
            return SOON
        except SocketClosed:
            self._check()
            raise
        return AGAIN

    def _links(self, socket: Dealer) -> set[int]:
        """The connections that there are now, by numbers that are used once."""
        try:
            return {peer.id for peer in socket.peers()}
        except SocketClosed:
            self._check()
            raise

    def _decoded(self, raw: bytes, *body: bytes) -> Any:
        """What comes: its head, and the columns. ValueError."""
        return decode(raw), body[0] if body else b""

    def _read_parts(self, parts: list[bytes]) -> Any:
        try:
            return self._decoded(*parts)
        except ValueError:
            raise JournalError(f"what answers at {self.url} is not a {self._server} server",
                               hint=f"`mq {self._server} serve` starts one") from None

    def _get(self, socket: Dealer, seconds: float) -> Any:
        """The next that comes; None: nothing in time."""
        try:
            return self._read_parts(socket.recv_parts(timeout=max(0.0, seconds)))
        except RecvTimeout:
            return None
        except SocketClosed:
            self._check()
            raise

    async def _aget(self, socket: Dealer, seconds: float) -> Any:
        try:
            return self._read_parts(await socket.arecv_parts(timeout=max(0.0, seconds)))
        except RecvTimeout:
            return None
        except SocketClosed:
            self._check()
            raise

    def _drive(self, socket: Dealer, steps: Generator[float, Any, T]) -> T:
        try:
            wait = next(steps)
            while True:
                wait = steps.send(self._get(socket, wait))
        except StopIteration as answered:
            found: T = answered.value
            return found
        finally:
            steps.close()

    async def _adrive(self, socket: Dealer, steps: Generator[float, Any, T]) -> T:
        try:
            wait = next(steps)
            while True:
                wait = steps.send(await self._aget(socket, wait))
        except StopIteration as answered:
            found: T = answered.value
            return found
        finally:
            steps.close()

    def _ask(self, op: str, **facts: Any) -> Any:
        with self._link() as socket:
            return self._drive(socket, self._asking(socket, op, facts))

    async def _aask(self, op: str, **facts: Any) -> Any:
        with self._link() as socket:
            return await self._adrive(socket, self._asking(socket, op, facts))

    def _asking(self, socket: Dealer, op: str, facts: dict[str, Any]) -> Steps[Any]:
        number = self._next_number()
        deadline = Deadline(self._timeout)
        busy: JournalBusy | None = None
        stale: JournalFenced | None = None
        asked: set[int] = set()
        since = time.monotonic()        # the question was put
        while not deadline.over:
            wait = AGAIN
            self._attend(socket)
            here = self._links(socket)
            if asked & here and time.monotonic() - since >= DEAF:
                self._move(socket)
                asked = set()
            # an answer that is long under way on the same connection comes nevertheless: to ask
            # again would only put another one behind it
            if not asked & here:
                wait = self._put(socket, op, number, facts)
                asked = here
                since = time.monotonic()
            again = Deadline(max(0.0, min(wait, deadline.left or 0.0)))
            while not again.over:
                got = yield again.left or 0.0
                if got is None or "stream" in got[0] or got[0].get("id") not in (number, None):
                    continue
                try:
                    found = self._answer(*got)
                    if op not in UNMARKED and self._choice.stale(got[0]):
                        stale = behind(self.url, marked(got[0])[0], self._choice.highest)
                    else:
                        return found
                except JournalBusy as error:
                    busy = error
                except JournalFenced as error:
                    if not self._choice.several:
                        raise
                    stale = error
                asked = set()
                if self._choice.several:
                    self._move(socket)
                    again = Deadline(min(SOON, deadline.left or 0.0))
        raise busy or stale or self._away(self._timeout)

    def _away(self, timeout: float | None) -> RecvTimeout:
        with self._lock:
            every = list(self._all)
        why = "".join(f": {endpoint.error.text}" for socket in every[:1]
                      for endpoint in socket.endpoints if endpoint.error is not None)
        return RecvTimeout(f"no answer from the {self._server} server at {self.url} within "
                           f"{timeout or 0:g} s{why}", hint="does it run? `mq doctor URL` looks; "
                                                              "give more time with timeout=")

    def _answer(self, head: dict[str, Any], body: bytes) -> Any:
        if "error" in head:
            raise error_from(head["error"])
        if "records" in head:
            return unpack(head["records"], body, self.topic, self.partition)
        return head.get("ok")

    def _expected(self, answer: Any, good: Callable[[Any], bool]) -> Any:
        try:
            if good(answer):
                return answer
        except (TypeError, ValueError, AttributeError, LookupError):
            pass
        raise JournalError(f"the journal server at {self.url} gave an answer that cannot be read",
                           hint="is it a journal server, and of this version?")


_connections: Living[Connection] = Living()      # those of this process


def _after_fork() -> None:
    for connection in _connections:
        connection._forked()


os.register_at_fork(after_in_child=_after_fork)
