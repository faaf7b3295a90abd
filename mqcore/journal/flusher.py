"""The flusher: one thread that watches all writers of a process.

It writes what was appended, as each writer's policy says. Syncers (syncers.py) sync it, and apply
retention, so that no writer waits for another one's disk. A writer with nothing pending costs
nothing: its next append wakes the flusher (process.pxd), which looks at it once the writer's
interval has passed. The thread starts with the first writer and ends with the last one. No error
ends it: the log reports the error, and so does the writer's `error`.

It holds writers by weak references only, so that a forgotten writer is still collected.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from mqcore.base.native import threading, time
from mqcore.base.threads import Thread
from mqcore.base.waits import Released
from mqcore.journal.errors import write_error
from mqcore.journal.store.process import quiet, ring, wait
from mqcore.journal.syncers import Syncers

if TYPE_CHECKING:
    from mqcore.journal.writer import Writer

_log = logging.getLogger("mqcore.journal")
NEVER = (1 << 63) - 1
PAUSE = 1_000_000_000   # ns after an error of the flusher's own


class _Run:
    """One life of the thread. It begins when the one before has ended: there is one bell, and who
    hears it silences it."""

    def __init__(self, loop: Callable[[_Run], None], before: _Run | None) -> None:
        self.stopping = False
        self.before = before
        self.syncers = Syncers(_finish)
        self.thread = Thread(loop, "mqcore-journal", (self,))


class Flusher:
    """Writers may be collected at any moment, and then remove themselves, on any thread: this
    lock's owner and the flusher's own thread, too. So the lock is reentrant, and the thread never
    waits for it while it looks."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """As new: in a forked child the thread is not there, and its locks may be held for good."""
        self._lock = threading.RLock()
        self._writers: dict[int, weakref.ref[Writer]] = {}
        self._runs: list[_Run] = []     # the first one's thread runs
        self._ending: _Run | None = None

    def add(self, writer: Writer) -> None:
        with self._lock:
            self._writers[id(writer)] = weakref.ref(writer)
            try:
                if self._run is None:
                    self._go()
            except BaseException:
                del self._writers[id(writer)]
                raise
        ring()

    @property
    def _run(self) -> _Run | None:
        return next((run for run in self._runs if not run.stopping), None)

    def _go(self) -> None:
        run = _Run(self._loop, self._ending)
        self._runs.append(run)
        if self._run is not run:    # a signal handler has added a writer, too
            self._runs.remove(run)
            return
        try:
            run.thread.start()
        except BaseException:
            run.stopping = True     # if it runs: a signal handler may have raised since
            self._runs.remove(run)
            if run.thread.is_alive():
                self._ending = run
            ring()
            raise

    def remove(self, writer: Writer, join: bool) -> None:
        """A writer that is closed. join: wait for the thread if that was the last one."""
        with self._lock:
            self._writers.pop(id(writer), None)
            run = self._run
            if self._writers or run is None:
                return
            run.stopping = True     # first: a signal handler may start the next, which waits
            self._ending = run
            with contextlib.suppress(ValueError):   # a signal handler was here, too
                self._runs.remove(run)
            if self._writers and self._run is None:     # a handler has opened another one since
                self._go()
        ring()
        if join and run.thread.is_alive() and not run.thread.is_current():
            with Released(self._lock):
                run.thread.join()

    def writers(self) -> list[Writer]:
        found = [ref() for ref in self._writers.copy().values()]
        return [writer for writer in found if writer is not None]

    # -- on the flusher's thread --

    def _loop(self, run: _Run) -> None:
        if run.before is not None:
            run.before.thread.join()
        run.before = None
        while True:
            quiet()
            if run.stopping:        # looked at behind quiet(), which forgets a ring() before it
                run.syncers.end()
                ring()              # it may have been for the next one
                return
            try:
                due = self._round(run.syncers)
            except BaseException:   # no caller can get the exception
                _log.exception("the flusher goes on after an error")
                due = time.monotonic_ns() + PAUSE
            wait(due)

    def _round(self, syncers: Syncers) -> int:
        """Look at the writers whose time has come. When to look again (time.monotonic_ns())."""
        now = time.monotonic_ns()
        due = NEVER
        for writer in self.writers():
            if syncers.hold(writer):
                continue
            at = min(writer._due, writer._look_at)
            if at <= now:
                failed = _attempt(writer, writer._tick_flush)
                if writer._is_work(now):    # also if the disk is full
                    syncers.give(writer, failed)
                    continue
                at = _rested(writer, failed)
            due = min(due, at)
        return due


def _finish(writer: Writer, failed: int) -> int:
    """On a syncer's thread."""
    synced = _attempt(writer, writer._tick_sync)
    return _rested(writer, failed or synced or _attempt(writer, writer._look_around))


def _rested(writer: Writer, failed: int) -> int:
    return min(writer._rest(failed, writer._rotations), writer._look_at)


def _attempt(writer: Writer, call: Callable[[], int]) -> int:
    """0, or an errno. What fails is reported, and tried again later."""
    name = getattr(call, "__name__", "")
    try:
        number = call()
    except BaseException as error:
        writer._report(name, error)
        return getattr(error, "errno", None) or errno.EIO
    writer._report(name, write_error(number, writer.path) if number else None)
    return number


FLUSHER = Flusher()


def _after_fork_in_child() -> None:
    inherited = FLUSHER.writers()
    FLUSHER.reset()
    for writer in inherited:
        writer._let_go()


os.register_at_fork(after_in_child=_after_fork_in_child)
