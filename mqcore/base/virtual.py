"""The clock that a thread's calls go by: the kernel's, unless the thread runs a simulated world
(mqcore/testing/network). Such a world passes its own time while a call waits."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, Protocol

from mqcore.base.native import threading

FOREVER = 3600  # seconds that a call without a timeout waits in such a world


class World(Protocol):
    """Runs the contexts of one thread in place of their own threads, in its own time."""

    def clock(self) -> float:
        """Seconds, as of time.monotonic()."""

    def random(self) -> float:
        """From 0 to 1."""

    def check_scheme(self, scheme: str) -> None:
        """Raise UsageError if it does not have such connections."""

    def step(self, deadline: int) -> bool:
        """Let the next thing happen, but nothing after `deadline` (ns of the clock). False: it has
        come. -1: a call without a timeout has waited for FOREVER; raise."""

    def wait_for(self, done: Callable[[], bool], timeout: float | None) -> bool:
        """Let time pass until done() is true. False after `timeout` seconds; None: as step(-1)
        after FOREVER."""


WORLDS: dict[int, World] = {}  # by thread


def world() -> World | None:
    """That of the calling thread."""
    return WORLDS.get(threading.get_ident()) if WORLDS else None


def enter(here: World) -> None:
    WORLDS[threading.get_ident()] = here


def leave(here: World) -> None:
    """Idempotent."""
    for ident, one in list(WORLDS.items()):
        if one is here:
            del WORLDS[ident]


def monotonic() -> float:
    """time.monotonic(), in the time of the calling thread."""
    here = world()
    return time.monotonic() if here is None else here.clock()


def look_until(here: World, look: Callable[[bool], list[Any]], deadline: int) -> list[Any]:
    """A poll: let time pass until look() finds something. look(False) is the last one. deadline:
    -1 without one."""
    end = deadline if deadline >= 0 else int((here.clock() + FOREVER) * 1e9)
    more = True
    while more:
        more = here.step(end)
        found = look(more)
        if found:
            return found
    if deadline < 0:
        here.step(-1)
    return []


os.register_at_fork(after_in_child=WORLDS.clear)
