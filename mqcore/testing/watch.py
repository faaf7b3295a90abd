"""What a test leaves behind: connections and messages in mqcore, descriptors, threads.

Ending takes a moment in other threads, so `wait_until_clean` looks again and again for up to two
seconds, and returns as soon as all is well.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

from mqcore.testing import leaks

GRACE = 2.0


class Before(NamedTuple):
    """The numbers of what there was before the test."""

    descriptors: set[int]
    threads: set[int]


def numbers(of: str) -> set[int]:
    """Of this process's descriptors ("fd") or threads ("task"). Names would take ten times as long,
    and each test asks twice."""
    return {int(name) for name in os.listdir(f"/proc/self/{of}")}


def descriptors() -> dict[int, str]:
    """Number and what it is, of each open descriptor of this process."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:  # the one that lists
            pass
    return found


def threads() -> dict[int, str]:
    """Number and name of each thread, Python's and others."""
    pythons = {thread.native_id: thread.name for thread in threading.enumerate()}
    found = {}
    for name in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{name}/comm") as f:
                found[int(name)] = pythons.get(int(name)) or f.read().strip()
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


def doing(native_id: int) -> str:
    """Where a thread is, innermost call last, if it is one of Python's."""
    for thread in threading.enumerate():
        frame = sys._current_frames().get(thread.ident or 0)
        if thread.native_id == native_id and frame is not None:
            return " in " + ", ".join(f"{place.filename}:{place.lineno} {place.name}"
                                      for place in traceback.extract_stack(frame, limit=4))
    return ""


def before() -> Before:
    return Before(numbers("fd"), numbers("task"))


def left_behind(was: Before, fds: int = 0, tasks: int = 0) -> list[str]:
    """One line for each kind of thing that is there now and was not before; so many more
    descriptors and threads are allowed."""
    lines = [f"{n} x {name} alive in mqcore" for name, n in leaks().items() if n]
    for kind, of, old, more in (("descriptor", "fd", was.descriptors, fds),
                                ("thread", "task", was.threads, tasks)):
        count = len(numbers(of)) - len(old)
        if count > more:
            now = threads() if kind == "thread" else descriptors()
            new = {key: name + (doing(key) if kind == "thread" else "")
                   for key, name in now.items() if key not in old}
            lines.append(f"{count} more {kind}s than before: {new}")
    return lines


def wait_until_clean(was: Before, fds: int = 0, tasks: int = 0, grace: float = GRACE) -> list[str]:
    """left_behind(), once it is empty or `grace` seconds are over. Collects garbage if it is not
    empty at once."""
    end = time.monotonic() + grace
    pause = 0.0
    while lines := left_behind(was, fds, tasks):
        if time.monotonic() > end:
            break
        if not pause or time.monotonic() > end - grace / 2:
            gc.collect()
        time.sleep(pause)
        pause = 0.01
    return lines


def until(true: Callable[[], Any], limit: float = 10.0, pause: float = 0.002) -> Any:
    """Call true() repeatedly and return its first true value. AssertionError after `limit`
    seconds."""
    end = time.monotonic() + limit
    while not (value := true()):
        assert time.monotonic() < end, f"still {value!r} after {limit:g} s"
        time.sleep(pause)
    return value
