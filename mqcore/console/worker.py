"""A thread that looks at something again and again, while pages want to see it."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable

from mqcore.base.native import threading
from mqcore.base.threads import Thread
from mqcore.base.waits import Event

WANTED = 10.0       # seconds for which a request keeps a worker looking
REPORTED = 10       # failures that are logged; the others are counted
_log = logging.getLogger("mqcore.console")


class Worker:
    """Calls `look` every `every` seconds for as long as want() is called at least every WANTED
    seconds, and `rest` once when that ends. It starts with the first want()."""

    def __init__(self, name: str, look: Callable[[], None], rest: Callable[[], None],
                 every: float, ending: Event) -> None:
        self._look = look
        self._rest = rest
        self._every = every
        self._ending = ending
        self._until = 0.0
        self._wake = Event()
        self._looked = Event()
        self._name = name
        self._lock = threading.Lock()
        self._thread: Thread | None = None
        #: looks that raised something unexpected
        self.failed = 0

    def want(self) -> None:
        """A page wants to see this. Does not wait. Thread-safe."""
        self._until = time.monotonic() + WANTED
        with self._lock:
            if self._thread is None:
                self._thread = Thread(self._run, f"mqcore-console-{self._name}")
                self._thread.start()
        self._wake.set()

    def looked(self, timeout: float) -> bool:
        """Whether there has been a look since the worker last rested; waits for one."""
        return self._looked.wait(timeout)

    def stop(self) -> None:
        """Wait for the thread's end; `ending` is set."""
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                began = time.monotonic()
                if began > self._until:
                    self._looked.clear()
                    self._guarded(self._rest)
                    self._wake.clear()
                    if time.monotonic() > self._until and not self._ending.is_set():
                        self._wake.wait()
                    continue
                self._guarded(self._look)
                self._looked.set()
                self._ending.wait(max(0.05, began + self._every - time.monotonic()))
        finally:
            self._guarded(self._rest)

    def _guarded(self, work: Callable[[], None]) -> None:
        """A failure of ours must not end the console."""
        try:
            work()
        except Exception as error:
            self.failed += 1
            if self.failed <= REPORTED:
                _log.error("%s failed: %s", self._name,
                           "".join(traceback.format_exception(error)))
