"""Service: what the journal server and the queue server share. A ROUTER socket, one thread that
works in turns, and their end."""

from __future__ import annotations

import collections
import logging
import os
from typing import Any, Self

from mqcore import Router
from mqcore.base.components import COMPONENTS, State, numbers
from mqcore.base.living import Living
from mqcore.base.native import threading
from mqcore.base.renamed import renamed
from mqcore.base.threads import Thread
from mqcore.base.waits import Event
from mqcore.errors import ContextClosed, SocketClosed, WaitTimeout
from mqcore.journal.awaitable import AwaitableServer
from mqcore.journal.server.complaints import Complaints

_log = logging.getLogger("mqcore.journal")


class Service(AwaitableServer):
    """A subclass sets `_name`, opens the socket, calls _begin() as the last step of its
    constructor, and has _turn(), stop() and _abandon()."""

    _name = ""      # what it is, in messages: "the ... server"

    def __init__(self, where: str | os.PathLike[str]) -> None:
        self.where = os.fsdecode(where)
        self._counts = collections.Counter[str]()
        self._complaints = Complaints()
        self._error: BaseException | None = None
        self._forked = False
        self._stopping = Event()
        self._ended = Event()
        self._ending = threading.RLock()  # reentrant: for a signal handler that calls stop()
        self._socket: Router
        self._thread = Thread(self._run, f"mqcore-{self._name}-server")

    def _begin(self) -> None:
        _services.add(self)
        COMPONENTS.add(self)
        try:
            self._thread.start()
        except BaseException:       # no thread
            self._socket.close(0)
            raise

    @property
    def urls(self) -> list[str]:
        """The addresses that it listens at, with actual ports instead of 0."""
        return [endpoint.url for endpoint in self._socket.endpoints]

    @property
    def running(self) -> bool:
        return not self._ended.is_set()

    @property
    def error(self) -> BaseException | None:
        """What ended it, if an error did."""
        return self._error

    __getattr__ = renamed(wait="wait_stopped", await_="await_stopped")

    def wait_stopped(self, timeout: float | None = None) -> None:
        """Until it has ended; then raises what ended it, if an error did. WaitTimeout."""
        if not self._ended.wait(timeout):
            raise WaitTimeout(f"the {self._name} server still runs after {timeout:g} s")
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        raise NotImplementedError

    def stats(self) -> Any:
        raise NotImplementedError

    def _mq_components(self) -> list[State]:
        kind, where = f"{self._name} server", self.where
        if not self.running:
            return [State(kind, where, "failed", str(self._error))] if self._error else []
        return [State(kind, f"{where} at {', '.join(self.urls)}",
                      error="" if self.error is None else str(self.error),
                      counts=numbers(self.stats()))]

    def _turn(self) -> None:
        raise NotImplementedError

    def _abandon(self) -> None:
        """In a forked child, where its thread is not, and may have held any lock at that moment."""
        self._forked = True
        self._stopping.set()
        self._ended = Event()
        self._ended.set()
        self._ending = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return (f"<{type(self).__name__} of {self.where}, "
                f"{'running' if self.running else 'ended'}>")

    def _run(self) -> None:
        try:
            self._turns()
        finally:
            self._ended.set()

    def _turns(self) -> None:
        try:
            while not self._stopping.is_set():
                self._turn()
        except BaseException as error:
            if not self._stopping.is_set():
                self._error = error
                closed = isinstance(error, SocketClosed | ContextClosed)    # or at the exit
                _log.log(logging.INFO if closed else logging.CRITICAL,
                         "the %s server of %s has ended: %s", self._name, self.where, error,
                         exc_info=None if closed else error)
                self._socket.close(0)       # peers see that it is gone
        self._complaints.flush(end=True)

    def _left(self, guests: dict[int, Any]) -> list[Any]:
        """Those of these guests that are not connected any more."""
        present = {peer.id for peer in self._socket.peers()}
        return [guest for number, guest in list(guests.items()) if number not in present]


_services: Living[Service] = Living()     # those of this process


def _after_fork() -> None:
    for service in _services:
        service._abandon()
    _services.clear()


os.register_at_fork(after_in_child=_after_fork)
