"""The calls that all devices have: a loop in its own thread, until stop() or an error."""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Callable
from functools import partial
from typing import Any, Self

from mqcore.base.components import COMPONENTS, State, numbers
from mqcore.base.living import Living
from mqcore.base.native import threading
from mqcore.base.renamed import renamed
from mqcore.base.threads import Thread
from mqcore.base.waits import Event, Released, guest, start_behind
from mqcore.binding import blocking
from mqcore.binding.sleep import sleep
from mqcore.binding.timing import left_of, limit_of, passed
from mqcore.binding.yielding import fair
from mqcore.control import hub  # noqa: F401 - first, so that its end of the program is after ours
from mqcore.control.stats import CloseReport
from mqcore.errors import Forked, StateError, UsageError, WaitTimeout

LOOK = 0.01     # seconds between two checks of await_stopped()
EXIT = 5.0      # seconds that the end of the program waits for a hook
_log = logging.getLogger("mqcore.device")


class Running:
    """A `with` block stops it at its end. A subclass has _loop(), which moves messages until
    _stop() or an error ends it, stats(), pause(), resume() and _stop(linger). It calls _begin() to
    start the thread. `_kind`: what it is; `_which()`: which one, for monitors. `_its_sockets`:
    its sockets, where a function of the program runs on its thread."""

    _kind = "device"
    _its_sockets: tuple[Any, ...] = ()

    def _begin(self, name: str) -> None:
        self._ended = Event()
        self._error: BaseException | None = None
        self._reports: tuple[CloseReport, ...] | None = None
        self._lock = threading.RLock()  # reentrant: for a signal handler that calls stop()
        self._thread = Thread(self._run, name)
        self._name = self._which()
        _running.add(self)
        COMPONENTS.add(self)
        try:
            self._thread.start()
        except BaseException:
            if not self._thread.is_alive():
                self._ended.set()
                self._release()
            raise

    def _release(self) -> None:
        """It could not begin: its sockets are the program's again."""

    def _forked(self) -> None:
        """In a forked child: the thread runs in the parent, and other threads may hold the
        locks."""
        self._ended = Event()
        self._ended.set()
        self._error = Forked(f"{type(self).__name__} runs in the parent process",
                             hint="make a new one in the child")
        self._reports = ()
        self._lock = threading.RLock()

    def _run(self) -> None:
        if self._ended.is_set():        # a signal handler has interrupted _begin()
            return
        try:
            self._loop()
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()

    def _at_exit(self) -> None:
        """The program ends, and has not stopped it."""

    def _leave_behind(self) -> None:
        """Wait for a function of the program that this has called. If it does not return, the
        program ends without closing the sockets, for that would wait, too."""
        if not self._ended.wait(EXIT):
            _log.warning("%r was left behind at the end of the program: one of its hooks has not "
                         "returned for %g s", self, EXIT)
            for end in self._its_sockets:
                end._links.hub.left_behind = True

    def _loop(self) -> None:
        raise NotImplementedError

    def _stop(self, linger: Any) -> tuple[CloseReport, ...]:
        raise NotImplementedError

    def stats(self) -> Any:
        raise NotImplementedError

    def _which(self) -> str:
        raise NotImplementedError

    def _mq_components(self) -> list[State]:
        if self.running:
            return [State(self._kind, self._name, counts=numbers(self.stats()))]
        if self._error is not None and self._reports is None:
            return [State(self._kind, self._name, "failed", str(self._error))]
        return []

    @property
    def running(self) -> bool:
        """Whether it moves messages, or is paused. False after stop() or an error."""
        return not self._ended.is_set()

    @property
    def error(self) -> BaseException | None:
        """The error that ended it, or None."""
        return self._error

    __getattr__ = renamed(wait="wait_stopped", await_="await_stopped")

    def wait_stopped(self, timeout: float | None = None) -> None:
        """Wait until it has ended. If an error ended it, raise that error (JournalFull if the disk
        of a journal device is full). WaitTimeout after `timeout` seconds."""
        limit = limit_of(timeout)
        if self.running and limit != 0:
            blocking.check(self)
        if not self._ended.wait(left_of(limit)):
            raise WaitTimeout(f"{self!r} still runs after {timeout:g} s")
        if self._error is not None:
            raise self._error

    async def await_stopped(self, timeout: float | None = None) -> None:
        """wait_stopped(), awaitable."""
        limit = limit_of(timeout)
        await fair()
        while not self._ended.is_set():
            if limit == 0 or passed(limit):
                raise WaitTimeout(f"{self!r} still runs after {timeout:g} s")
            await sleep(LOOK)
        self.wait_stopped(0)

    def stop(self, linger: Any = ...) -> tuple[CloseReport, ...]:
        """Stop it and close each socket within `linger` seconds. Returns the sockets' reports.
        Idempotent. In a finalizer that the garbage collector runs, or that interrupts another call
        of the library, it returns no reports, and a thread stops the device."""
        if self._reports is None and (guest() or self._thread.is_current()):
            start_behind(partial(self.stop, linger), "mqcore-close")
            return ()
        with Released(), self._lock:
            if self._reports is None:
                self._reports = self._stop(linger)
            return self._reports

    async def astop(self, linger: Any = ...) -> tuple[CloseReport, ...]:
        """stop(), awaitable."""
        from mqcore.api.turns import in_thread

        return await in_thread(lambda: self.stop(linger))

    def __reduce__(self) -> Any:
        raise UsageError(f"a {type(self).__name__} cannot be pickled or copied",
                         hint="start one in the process that uses it")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.astop()


def socket_name(sock: Any) -> str:
    """A socket as a monitor names it."""
    return f"{sock.pattern} {sock._links.number}"


_running: Living[Running] = Living()      # those of this process


def refuse_in_hook(closes: Callable[[Any], bool]) -> None:
    """StateError on the thread of a device with a socket that is to be closed: close() waits for
    the device, and so for the hook that has called it."""
    for one in _running:
        if one._thread.is_current() and any(map(closes, one._its_sockets)):
            raise StateError("a hook cannot close a socket of its own device: close() waits for "
                             "the hook", hint='raise an exception in a hook with '
                             'on_error="stop", or call close() in another thread')


def _after_fork() -> None:
    for running in _running:
        running._forked()


def _at_exit() -> None:
    """Before the sockets are closed (control/hub.py)."""
    for running in _running:
        if running.running:
            running._at_exit()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
