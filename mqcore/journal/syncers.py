"""Syncers: a few threads that sync what the flusher has written, and apply retention.

A sync takes as long as its disk takes: milliseconds, or seconds on one in trouble. So writers of
one device never take all of the threads, and the flusher itself waits for none. The threads start
when there is something to do, and end when there has been nothing for a while.
"""

from __future__ import annotations

import collections
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from mqcore.base.native import time
from mqcore.base.threads import Thread
from mqcore.base.waits import Condition
from mqcore.journal.store.process import ring

if TYPE_CHECKING:
    from mqcore.journal.writer import Writer

_log = logging.getLogger("mqcore.journal")
THREADS = 8             # at most
OF_A_DEVICE = 4         # of them: its file system makes one sync of what comes at the same time
IDLE = 0.5              # seconds until a thread without work ends
PAUSE = 1_000_000_000   # ns after an error of the syncers' own


class Syncers:
    """finish(writer, failed): does the work of one writer, and says when the flusher is to look at
    it again (time.monotonic_ns())."""

    def __init__(self, finish: Callable[[Writer, int], int]) -> None:
        self._finish = finish
        self._changed = Condition()
        self._waiting: dict[int, collections.deque[tuple[Writer, int]]] = {}    # by device
        self._busy: collections.Counter[int] = collections.Counter()    # threads, by device
        self._held: set[int] = set()        # id() of every writer that waits or is worked for
        self._threads: list[Thread] = []
        self._idle = 0
        self._ending = False

    def hold(self, writer: Writer) -> bool:
        """They have it, and ring the flusher's bell when they are done."""
        return id(writer) in self._held

    def give(self, writer: Writer, failed: int) -> None:
        """failed: the errno of the flush before, or 0."""
        with self._changed:
            self._held.add(id(writer))
            self._waiting.setdefault(writer._device, collections.deque()).append((writer, failed))
            self._changed.notify_all()
            ready = sum(min(len(jobs), OF_A_DEVICE - self._busy[device])
                        for device, jobs in self._waiting.items())
            if ready > self._idle and len(self._threads) < THREADS:
                self._one_more()
            alone = not self._threads
        if alone:               # no thread can be started: the flusher does it
            self._work_off()

    def _one_more(self) -> None:
        thread = Thread(self._loop, "mqcore-journal-sync")
        self._threads.append(thread)
        try:
            thread.start()
        except Exception:       # those that run do it
            self._threads.remove(thread)

    def end(self) -> None:
        """What has been given is done first."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
            threads = self._threads.copy()
        for thread in threads:
            if not thread.is_current():
                thread.join()

    # -- on their threads --

    def _loop(self) -> None:
        while True:
            self._work_off()
            with self._changed:
                self._idle += 1
                more = self._changed.wait_for(lambda: self._ending or self._next() is not None,
                                              IDLE)
                self._idle -= 1
                if more and self._next() is not None:
                    continue
                self._threads = [one for one in self._threads if not one.is_current()]
                return

    def _next(self) -> int | None:
        """The device with work that has the fewest threads."""
        open_ = [device for device, jobs in self._waiting.items()
                 if jobs and self._busy[device] < OF_A_DEVICE]
        return min(open_, key=self._busy.__getitem__, default=None)

    def _work_off(self) -> None:
        while True:
            with self._changed:
                device = self._next()
                if device is None:
                    return
                writer, failed = self._waiting[device].popleft()
                self._busy[device] += 1
            try:
                due = self._finish(writer, failed)
            except BaseException:       # no caller can get the exception
                _log.exception("the flusher goes on after an error")
                due = time.monotonic_ns() + PAUSE
            with self._changed:
                self._busy[device] -= 1
                self._held.discard(id(writer))
            del writer          # it may be collected here
            ring(due)
