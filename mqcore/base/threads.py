"""The threads of mqcore's own."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from mqcore.base.native import threading
from mqcore.base.waits import Event, start, start_masked

LOOK = 1.0      # seconds between two looks whether this process has the thread it waits for


class Thread:
    """A daemon thread of the system's, also under gevent's patches.

    join() returns when target(*args) has, however often the exception of a signal handler has
    interrupted it before: the standard library's own (CPython 3.11 and 3.12) takes an interrupted
    thread for ended. In a forked child, which has no such thread, it returns at once."""

    def __init__(self, target: Callable[..., Any], name: str, args: tuple[Any, ...] = ()) -> None:
        self._pid = os.getpid()
        self._ended = Event()
        self._thread = threading.Thread(target=self._run, args=(target, args), name=name,
                                        daemon=True)

    def start(self, masked: bool = False) -> None:
        """As start() and start_masked() of `waits`: if a signal handler's exception ends this, the
        thread may or may not run. masked: the thread gets no signals."""
        (start_masked if masked else start)(self._thread)

    def _run(self, target: Callable[..., Any], args: tuple[Any, ...]) -> None:
        try:
            target(*args)
        finally:
            self._ended.set()

    @property
    def ident(self) -> int | None:
        """None before it runs."""
        return self._thread.ident

    def is_alive(self) -> bool:
        return self.ident is not None and not self._ended.is_set() and self._pid == os.getpid()

    def is_current(self) -> bool:
        """An ended thread's ident is given to new ones."""
        return self.is_alive() and self.ident == threading.get_ident()

    def join(self) -> None:
        """Wait for its end. Returns at once if it does not run yet."""
        while self.is_alive() and not self._ended.wait(LOOK):
            pass        # a signal handler may fork meanwhile
        if self.ident is not None:
            self._thread.join()
