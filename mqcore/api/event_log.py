"""log_events(): writes the events of a socket or a context to a logger.

The thread "mqcore-log" calls the logger. The threads that emit events only queue them, because they
may hold locks of the control plane, and a handler of the logger may be slow or use sockets itself.
"""

from __future__ import annotations

import atexit
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from mqcore.api.context import Context
from mqcore.base.described import printable, report
from mqcore.base.living import Living
from mqcore.base.threads import Thread
from mqcore.base.waits import Event as Flag
from mqcore.base.waits import guest
from mqcore.control.events import Closed, Event
from mqcore.errors import SocketClosed, UsageError

BACKLOG = 1000      # events that wait for the thread; further ones are counted
TURN = 16           # events that the thread logs before it looks whether a report is due
KEYS = 16 << 10     # pairs of socket and kind that have a rate of their own
OTHERS = -1, ""
PAUSE = 1.0         # seconds after which what was suppressed is reported
REPORTED = 10       # attempts of a handler to end the thread whose traceback is printed
#: the level of an event's kind; others are DEBUG
LEVELS = {
    "PatternFailed": logging.ERROR,
    **dict.fromkeys(("HandshakeFailed", "Stopped", "Dropped", "Lost", "TooSlow", "Refused",
                     "AcceptPaused", "ResolveFailed"), logging.WARNING),
    **dict.fromkeys(("Connected", "Disconnected", "Retrying", "FailedOver", "FailedBack", "Idle",
                     "Listening", "Resolved", "Closed"), logging.INFO),
}
Key = tuple[int, str]


class Limit:
    """At most `rate` records a second for each key, and how many it has suppressed since. Keys
    above KEYS share one allowance."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._most = max(1.0, rate)
        self._clock = clock
        self._keys: dict[Key, list[float]] = {}     # [records left, when]
        self._look_at = 0.0
        self.suppressed: dict[Key, int] = {}

    def admit(self, key: Key) -> bool:
        now = self._clock()
        own = key
        if key not in self._keys and len(self._keys) >= KEYS:
            self._forget(now)
            own = key if len(self._keys) < KEYS else OTHERS
        state = self._keys.setdefault(own, [self._most, now])
        state[0] = min(self._most, state[0] + (now - state[1]) * self._rate)
        state[1] = now
        if state[0] < 1.0:
            self.suppressed[key] = self.suppressed.get(key, 0) + 1
            return False
        state[0] -= 1.0
        return True

    def _forget(self, now: float) -> None:
        """Keys that may have all their records again, once a second."""
        if now >= self._look_at:
            self._look_at = now + PAUSE
            for key, (left, at) in list(self._keys.items()):
                if left + (now - at) * self._rate >= self._most:
                    del self._keys[key]


class EventLog:
    """What log_events() returns. close(), or `with`, ends it. `logged`, `suppressed`: events so
    far."""

    def __init__(self, source: Any, logger: logging.Logger, rate: float) -> None:
        self._logger = logger
        self._limit = Limit(rate)
        self._queue: deque[Event] = deque()
        self._lost = 0
        self._told = 0
        self._ended = 0     # how often a handler wanted to end the thread
        self.logged = self.suppressed = 0
        self._wake = Flag()
        self._ending = False
        self._pid = os.getpid()
        whole = isinstance(source, Context)
        self._hub = source._hub if whole else source._links.hub
        # not a weak reference: the garbage collector clears those before the socket is closed
        self._only = None if whole else source._links.number
        self._hub.observe(self._observed)
        self._thread = Thread(self._run, "mqcore-log")
        try:
            self._thread.start()
        except BaseException:
            self._hub.unobserve(self._observed)
            raise
        LOGS.add(self)

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Log what is queued, and what was suppressed, and stop. Idempotent. Does nothing in a
        forked child."""
        if self._pid != os.getpid():
            return
        self._hub.unobserve(self._observed)
        self._ending = True
        self._wake.set()
        if not self._thread.is_current() and not guest():
            self._thread.join()

    def _observed(self, event: Event) -> None:
        """Any thread, perhaps with the hub's lock."""
        if event.socket is None or \
                self._only is not None and event.socket._links.number != self._only:
            return      # None: it is garbage, and its finalizer has not run yet
        if len(self._queue) >= BACKLOG and not self._is_last(event):
            self._lost += 1
        else:
            self._queue.append(event)
        self._wake.set()

    # -- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        due: float | None = None        # when to report
        while True:
            owes = bool(self._limit.suppressed) or self._lost > self._told
            due = None if not owes else due or time.monotonic() + PAUSE
            if not self._queue:
                self._wake.wait(None if due is None else max(0.0, due - time.monotonic()))
            self._wake.clear()
            ending = self._ending       # close() sets it before the flag, so no end is missed
            for _ in range(min(TURN, len(self._queue))):
                event = self._queue.popleft()
                self._log(event)
                if self._is_last(event):
                    self._hub.unobserve(self._observed)
                    self._ending = ending = True
                del event               # it keeps its socket
            ending = ending and not self._queue
            if ending or due is not None and time.monotonic() >= due:
                self._report()
                due = None
            if ending:
                return

    def _is_last(self, event: Event) -> bool:
        """Whether the log ends with it: that of a socket ends with the socket."""
        return self._only is not None and isinstance(event, Closed) and not event.endpoint

    def _log(self, event: Event) -> None:
        key = event.socket._links.number, event.kind
        level = LEVELS.get(event.kind, logging.DEBUG)
        if not self._logger.isEnabledFor(level):
            return
        if not self._limit.admit(key):
            self.suppressed += 1
            return
        before = self._limit.suppressed.pop(key, 0)
        text = f"{event.socket.pattern} {key[0]}: {event}"
        if before:
            text += f" ({before} more like this were suppressed)"
        if self._write(level, text, {
            "mq_event": event.kind, "mq_socket": key[0], "mq_pattern": event.socket.pattern,
            "mq_endpoint": event.endpoint, "mq_reason": event.reason, "mq_at": event.at,
            "mq_peer": event.peer.id if event.peer is not None else None,
            "mq_address": event.peer.address if event.peer is not None else "",
            "mq_suppressed": before}):
            self.logged += 1
        else:
            self._lost += 1

    def _report(self) -> None:
        """Say what was suppressed since the last record of its kind."""
        while self._limit.suppressed:
            (number, kind), count = self._limit.suppressed.popitem()
            self._write(LEVELS.get(kind, logging.DEBUG),
                        f"socket {number}: {count} more {kind} were suppressed",
                        {"mq_event": kind, "mq_socket": number, "mq_suppressed": count})
        lost = self._lost - self._told
        if lost:
            self._told += lost
            self.suppressed += lost
            self._write(logging.WARNING, f"{lost} events were not logged: the logger is too slow, "
                        "or fails", {"mq_event": "", "mq_suppressed": lost})

    def _write(self, level: int, text: str, facts: dict[str, Any]) -> bool:
        """Whether the logger took it. A handler's own failure ends nothing."""
        try:
            self._logger.log(level, "%s", printable(text), extra=facts)
        except Exception:       # logging has no better place for it
            return False
        except BaseException:   # such as SystemExit, which would end this thread unseen
            self._ended += 1
            if self._ended <= REPORTED:
                report()
            return False
        return True


def log_events(source: Any, logger: logging.Logger | str | None = None, *,
               rate: float = 10.0) -> EventLog:
    """Write the events of a socket, or of all sockets of a context, to a logger. Keep what it
    returns: close() ends it. The log of a socket ends with the socket.

    logger: a logger or its name; None (default) is "mqcore.events". Refusals and drops are
    warnings, connections are information, and the rest is for debugging. Each record has the
    attributes mq_event, mq_socket, mq_pattern, mq_endpoint, mq_peer, mq_address, mq_reason, mq_at
    and mq_suppressed.

    rate: records per second for each kind of event of each socket, 10.0 by default. Further ones
    are suppressed, and the next record, or one a second later, has their number.

    UsageError for a wrong argument, SocketClosed for a closed socket."""
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 < rate <= 1e6:
        raise UsageError(f"rate must be above 0 and at most 1000000 per second, not {rate!r}")
    if logger is None or isinstance(logger, str):
        logger = logging.getLogger(logger or "mqcore.events")
    if not isinstance(logger, logging.Logger):
        raise UsageError(f"logger= must be a logging.Logger or a name, not {type(logger).__name__}")
    if not isinstance(source, Context):
        if getattr(source, "_links", None) is None:
            raise UsageError("log_events() takes a socket or a Context, not "
                             f"{type(source).__name__}")
        if source.closed:
            raise SocketClosed("the socket is closed")
    return EventLog(source, logger, rate)


LOGS: Living[EventLog] = Living()       # to be written to the end at exit


def _at_exit() -> None:
    for log in LOGS:
        log.close()


atexit.register(_at_exit)
