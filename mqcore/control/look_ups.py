"""Look-ups of names, on workers. A name server that does not answer delays only its own names.

There is one look-up at a time for each name, and all askers get its result. A look-up is skipped if
all its askers have given up when its turn comes. Names whose last look-up was quick have workers of
their own, so they do not queue behind names that wait for a name server. Names of this machine's
own table never come here (spi/hosts.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from mqcore.control.workers import Workers

if TYPE_CHECKING:
    from mqcore.control.loop import ControlLoop

MOST = 32       # look-ups at once; further ones queue
MOST_QUICK = 8  # and of names that were quick
QUICK = 0.5     # seconds
REMEMBERED = 1000   # quick names

#: callback(result, None) or callback(None, error), and whether it still wants that
Asker: TypeAlias = tuple[Callable[..., Any], Callable[[], bool]]


class LookUps:
    """Everything but `_work` runs on the control thread."""

    def __init__(self, loop: ControlLoop) -> None:
        self._loop = loop
        self._pools = Workers(loop, "mqcore-resolve", MOST), Workers(
            loop, "mqcore-resolve", MOST_QUICK)
        self._askers: dict[Hashable, list[Asker]] = {}
        self._quick: dict[Hashable, None] = {}      # in the order in which they were last quick

    def run(self, name: Hashable, fn: Callable[[], Any], callback: Callable[..., Any],
            wanted: Callable[[], bool]) -> None:
        """fn() on a worker, then callback(result, None) or callback(None, error) here. If no asker
        wants the result when a worker gets to it, callback(None, Unwanted())."""
        askers = self._askers.setdefault(name, [])
        askers.append((callback, wanted))
        if len(askers) == 1:
            self._start(name, fn, askers)

    def stop(self) -> None:
        for workers in self._pools:
            workers.stop()

    def _start(self, name: Hashable, fn: Callable[[], Any], askers: list[Asker]) -> None:
        self._pools[name in self._quick].run(
            partial(self._work, fn, askers), partial(self._done, name, fn))

    @staticmethod
    def _work(fn: Callable[[], Any], askers: list[Asker]) -> tuple[Any, bool]:
        """On the worker: the result, and whether it was quick."""
        if not any(wanted() for _, wanted in tuple(askers)):
            raise Unwanted
        started = time.monotonic()
        return fn(), time.monotonic() - started < QUICK

    def _done(self, name: Hashable, fn: Callable[[], Any], got: tuple[Any, bool] | None,
              error: BaseException | None) -> None:
        askers = self._askers.pop(name)
        if isinstance(error, Unwanted):
            again = [asker for asker in askers if asker[1]()]   # wants it since
            if again:
                self._askers[name] = again
                self._start(name, fn, again)
                askers = [asker for asker in askers if asker not in again]
        result, quick = (None, False) if got is None else got
        self._quick.pop(name, None)
        if quick:
            self._quick[name] = None
            while len(self._quick) > REMEMBERED:
                del self._quick[next(iter(self._quick))]
        for callback, _ in askers:
            self._loop.call(callback, result, error)


class Unwanted(Exception):
    """All who had asked for the look-up had given up when its turn came."""
