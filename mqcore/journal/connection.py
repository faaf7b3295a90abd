"""Connection: questions to a journal server, and the sockets that carry them.

Each call takes a socket out of a pool for as long as it lasts. So threads, and tasks of asyncio and
trio, that use one connection at the same time never receive each other's answers.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any, TypeVar
from urllib.parse import unquote

from mqcore import Dealer
from mqcore.errors import OptionError, RecvTimeout, SendTimeout, SocketClosed
from mqcore.journal.errors import JournalBusy, JournalClosed, JournalError
from mqcore.journal.waiting import Deadline
from mqcore.journal.wire import VERSION, decode, encode, error_from, unpack

AGAIN = 1.0             # seconds until a call asks again: the server may have been started anew
SOON = 0.1              # and if there was no server to take the question
SPARE = 2               # sockets that are kept for the next calls

T = TypeVar("T")
Got = tuple[dict[str, Any], bytes] | None
#: yields how many seconds to wait, is sent what came within them, returns the answer
Steps = Generator[float, Got, T]


def split(url: str, topic: str | None) -> tuple[str, str]:
    """(where to connect, topic): over TCP, with whatever filters, the path names the topic."""
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

    def __init__(self, url: str, where: str, about: dict[str, Any], timeout: float,
                 options: dict[str, Any]) -> None:
        """about: what all questions have in common."""
        self.url = url
        self.closed = False
        self._about = about
        self._timeout = timeout
        self._numbers = itertools.count(1)
        self._where = where
        self._options = {"linger": 0, "reconnect_max": AGAIN, **options}
        self._lock = threading.Lock()
        self._all: set[Dealer] = set()
        self._spare: list[Dealer] = []
        self._give(self._take())        # what is wrong with the options is raised here

    # -- sockets --

    def _take(self) -> Dealer:
        with self._lock:
            if not self.closed and self._spare:
                return self._spare.pop()
        self._check()
        made = Dealer(connect=self._where, **self._options)
        with self._lock:
            self._all.add(made)
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
        socket.close()

    @contextlib.contextmanager
    def _link(self) -> Iterator[Dealer]:
        socket = self._take()
        try:
            yield socket
        finally:
            self._give(socket)

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
            self._spare.clear()
        for socket in every:
            socket.close()

    # -- questions --

    def _put(self, socket: Dealer, op: str, number: int, facts: dict[str, Any]) -> float:
        """Returns after how many seconds to ask again."""
        head = {"v": VERSION, "id": number, "op": op, **self._about, **facts}
        try:
            socket.send(encode(head), timeout=0)
        except SendTimeout:             # no server is there
            return SOON
        except SocketClosed:
            self._check()
            raise
        return AGAIN

    def _read_parts(self, parts: list[bytes]) -> Got:
        try:
            raw, *body = parts
            return decode(raw), body[0] if body else b""
        except ValueError:
            raise JournalError(f"what answers at {self.url} is not a journal server",
                               hint="`mq journal serve` starts one") from None

    def _get(self, socket: Dealer, seconds: float) -> Got:
        """The next that comes: its head, and the columns."""
        try:
            return self._read_parts(socket.recv_parts(timeout=max(0.0, seconds)))
        except RecvTimeout:
            return None
        except SocketClosed:
            self._check()
            raise

    async def _aget(self, socket: Dealer, seconds: float) -> Got:
        try:
            return self._read_parts(await socket.arecv_parts(timeout=max(0.0, seconds)))
        except RecvTimeout:
            return None
        except SocketClosed:
            self._check()
            raise

    def _ask(self, op: str, **facts: Any) -> Any:
        with self._link() as socket:
            steps = self._asking(socket, op, facts)
            try:
                wait = next(steps)
                while True:
                    wait = steps.send(self._get(socket, wait))
            except StopIteration as answered:
                return answered.value

    async def _aask(self, op: str, **facts: Any) -> Any:
        with self._link() as socket:
            steps = self._asking(socket, op, facts)
            try:
                wait = next(steps)
                while True:
                    wait = steps.send(await self._aget(socket, wait))
            except StopIteration as answered:
                return answered.value

    def _asking(self, socket: Dealer, op: str, facts: dict[str, Any]) -> Steps[Any]:
        number = next(self._numbers)
        deadline = Deadline(self._timeout)
        busy: JournalBusy | None = None
        while not deadline.over:
            wait = self._put(socket, op, number, facts)
            again = Deadline(min(wait, deadline.left or 0.0))
            while not again.over:
                got = yield again.left or 0.0
                if got is None or "stream" in got[0] or got[0].get("id") not in (number, None):
                    continue
                try:
                    return self._answer(*got)
                except JournalBusy as error:
                    busy = error
        raise busy or self._away()

    def _away(self) -> RecvTimeout:
        with self._lock:
            every = list(self._all)
        why = "".join(f": {endpoint.error.text}" for socket in every[:1]
                      for endpoint in socket.endpoints if endpoint.error is not None)
        return RecvTimeout(f"no answer from the journal server at {self.url} within "
                           f"{self._timeout:g} s{why}", hint="does it run? `mq doctor URL` looks; "
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
        except (TypeError, ValueError, AttributeError):
            pass
        raise JournalError(f"the journal server at {self.url} gave an answer that cannot be read",
                           hint="is it a journal server, and of this version?")
