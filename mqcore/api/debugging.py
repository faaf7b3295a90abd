"""MQCORE_DEBUG=1: explains calls that are blocked, and names sockets that were not closed.

The thread "mqcore-debug" looks once a second at the table of calls that sleep, which the extension
module of handles keeps (`watch_waits`). It logs to "mqcore.debug", so without any configuration its
warnings appear on standard error. Without the variable mqcore has neither, and a call makes one
comparison before it sleeps.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import time
from types import FrameType
from typing import Any

from mqcore.base.described import printable, report
from mqcore.base.native import threading
from mqcore.base.threads import Thread
from mqcore.base.waits import Event as Flag
from mqcore.binding.handle import watch_waits
from mqcore.control.hub import HUBS
from mqcore.errors import Error

VARIABLE = "MQCORE_DEBUG"
ON = ("1", "on", "yes", "true")
EVERY = 1.0         # seconds between two looks; a call is blocked once it has slept for so long
MOST = 20           # calls that one look explains
LONGEST = 4000      # characters of one explanation
OURS = "mqcore-"    # begins the names of mqcore's threads
DOCTOR = "`mq doctor URL` tries each step of the way to the peer"  # a hint
_log = logging.getLogger("mqcore.debug")
_waits: dict[int, tuple[Any, int]] = {}     # thread: (socket, when it fell asleep, in ns)
_state: dict[str, Any] = {"on": False, "thread": None}


def wanted() -> bool:
    return os.environ.get(VARIABLE, "").lower() in ON


def begin() -> None:
    """Called with each new Context: starts what the environment asks for, once per process."""
    if _state["thread"] is not None or not wanted():
        return
    thread = Thread(_run, "mqcore-debug")
    _state.update(on=True, thread=thread)
    watch_waits(_waits)
    try:
        thread.start()
    except RuntimeError:        # the interpreter is shutting down
        return


def made_at() -> str:
    """Where the program makes the socket that is being made now; "" if nothing debugs."""
    return place_of(sys._getframe(1)) if _state["on"] else ""


def place_of(frame: FrameType | None) -> str:
    """The innermost line of this stack that is not mqcore's: "file:line in function"."""
    while frame is not None:
        module = (frame.f_globals.get("__name__") or "").partition(".")[0]
        if module == "threading":
            return ""           # a thread of mqcore
        if module != "mqcore":
            code = frame.f_code
            return f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"
        frame = frame.f_back
    return ""


def thread_of(name: str) -> str:
    """The same for a call without a line of the program, such as Thread(target=sock.recv). "" for
    a thread of mqcore."""
    return "" if name.startswith(OURS) else f"the thread {name!r}"


# -- blocked calls ---------------------------------------------------------------------------------


class Looks:
    """Remembers which call each thread was sleeping in. The same call is one on the same socket,
    from the same place, while nothing was sent or received: the main thread wakes many times in a
    call, to let signal handlers run."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[Any, float]] = {}       # thread: (call, since when)

    def look(self, now: float) -> int:
        """Explain the calls that have slept for EVERY seconds, the longest first; returns how
        many."""
        frames = sys._current_frames()
        names = {one.ident: one.name for one in threading.enumerate()}
        seen: dict[int, tuple[Any, float]] = {}
        late = []
        for thread, (sock, since) in list(_waits.items()):
            place = place_of(frames.get(thread)) or thread_of(names.get(thread, OURS))
            call = id(sock), place, moved(sock)
            before = self._seen.get(thread)
            first = before[1] if before is not None and before[0] == call else since / 1e9
            seen[thread] = call, first
            if place and now - first >= EVERY:
                late.append((now - first, place, sock))
        self._seen = seen
        late.sort(key=lambda one: -one[0])
        for seconds, place, sock in late[:MOST]:
            _log.warning("blocked for %.0f s: %s: %s", seconds, place, clean(why(sock)))
        if len(late) > MOST:
            _log.warning("%d more calls are blocked", len(late) - MOST)
        return len(late)


def _run() -> None:
    pause = Flag()
    looks = Looks()
    while not pause.wait(EVERY):
        try:
            looks.look(time.monotonic())
        except BaseException:   # such as a handler's SystemExit, which would end this thread unseen
            report()


def moved(sock: Any) -> tuple[int, int]:
    """How many messages a socket has sent and received; -1 if it is closed."""
    try:
        accounts = sock._accounts()
    except Error:
        return -1, -1
    return accounts["sent"], accounts["received"]


def why_no_peers(sock: Any) -> str:
    """For the text of a time-out, which is raised also if no descriptor is left to import with."""
    try:
        from mqcore.api import explain
    except (OSError, ImportError) as error:
        return f"the reason cannot be loaded ({error})"
    return explain.why_no_peers(sock)


def why(sock: Any) -> str:
    from mqcore.api.explain import explain

    try:
        return str(explain(sock)).replace("\n", " | ")
    except Error as error:
        return error.text


def clean(text: str) -> str:
    """Peers choose parts of it."""
    return printable(text if len(text) <= LONGEST else text[:LONGEST - 3] + "...")


# -- leaked sockets --------------------------------------------------------------------------------


def leaked(sock: Any, how: str) -> None:
    """A socket has become garbage, or the program ends, and it was not closed."""
    if _state["on"] and sock._made:
        _log.warning("%s %s; it was made at %s. Close it, or use `with`.", clean(repr(sock)), how,
                     sock._made)


def _at_exit() -> None:
    for hub in HUBS:
        if not _state["on"] or hub.internal or hub.forked or hub._pid != os.getpid():
            continue
        with hub.lock:
            cores = [links.core for links in hub.sockets.values()]
        places: dict[str, list[Any]] = {}       # a program may leave thousands open
        for core in cores:
            if core is not None and not core.closed:
                places.setdefault(core._made, []).append(core)
        for first, *more in places.values():
            also = f", like {len(more):,} more that were made there" if more else ""
            leaked(first, f"was still open when the program ended{also}")


def _after_fork() -> None:
    """The thread is the parent's. The child's first context starts one of its own."""
    _state["thread"] = None
    _waits.clear()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
