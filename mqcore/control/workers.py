"""Workers: short-lived threads of a control loop, for what may block. Each kind of work has a pool
of its own, so that slow authentication callbacks hold up no name look-up."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mqcore.base.native import threading

if TYPE_CHECKING:
    from mqcore.control.loop import ControlLoop


class Workers:
    """At most `most` threads at once; more jobs wait their turn. A thread ends when no job is
    left."""

    def __init__(self, loop: ControlLoop, name: str, most: int) -> None:
        self.most = most
        self._loop = loop
        self._name = name
        self._jobs: deque[tuple[Callable[[], Any], Callable[..., Any]]] = deque()
        self._running = 0
        self._stopped = False
        # Reentrant: a finaliser or a signal handler may call in while its thread is inside.
        self._lock = threading.RLock()

    def run(self, fn: Callable[[], Any], callback: Callable[..., Any]) -> None:
        """fn() on a worker; then callback(result, None) or callback(None, error) on the control
        thread."""
        with self._lock:
            if self._stopped:
                return
            self._jobs.append((fn, callback))
            if self._running >= self.most:
                return
            self._running += 1
        try:
            self._loop.spawn(self._work, self._name)
        except RuntimeError as error:  # no more threads: all jobs that wait for one fail
            with self._lock:
                self._running -= 1
                jobs = [] if self._running else list(self._jobs)
                if jobs:
                    self._jobs.clear()
            for _, waiting in jobs:
                self._loop.call(waiting, None, OSError(str(error)))

    def stop(self) -> None:
        """Jobs that have not begun are dropped; what comes of the others is not reported."""
        with self._lock:
            self._stopped = True
            self._jobs.clear()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._running -= 1
                    return
                fn, callback = self._jobs.popleft()
            try:
                result, failure = fn(), None
            except BaseException as error:
                result, failure = None, error
            if not self._stopped:
                self._loop.call(callback, result, failure)
            del fn, callback, result, failure  # nothing is kept alive while waiting
