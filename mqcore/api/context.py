"""Context: the I/O threads, inproc names and default options that a group of sockets shares."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import Any

from mqcore import options as table
from mqcore.api import debugging, monitoring
from mqcore.api.running import refuse_in_hook
from mqcore.base.native import threading, time
from mqcore.base.waits import Released, interrupting
from mqcore.binding.timing import limit_of
from mqcore.control.hub import Hub, side_by_side
from mqcore.control.stats import CloseReport, Peer, PeerStats
from mqcore.errors import ContextClosed, Forked, UsageError
from mqcore.spi.pattern import refuse_inside

MAX_INTERRUPTS = 100  # that one close() survives
MADE = 5.0  # seconds that close() waits for sockets that other threads are still creating

# Reentrant, like every lock that a caller's thread holds for more than a moment: a signal handler
# may make a call while its thread holds the lock.
_lock = threading.RLock()
_default: Context | None = None


def _after_fork() -> None:
    """A child process creates its own default context on first use."""
    global _default, _lock
    _default = None
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


def merged(reports: Mapping[Any, CloseReport], elapsed: float) -> CloseReport:
    """Combine the reports of several sockets."""
    dropped: Counter[str] = Counter()
    dropped_in: Counter[str] = Counter()
    peers: dict[Peer, PeerStats] = {}
    for report in reports.values():
        peers.update(report.peers)
        dropped.update(report.dropped)
        dropped_in.update(report.dropped_in)
    return CloseReport(
        written=sum(r.written for r in reports.values()),
        undelivered=sum(r.undelivered for r in reports.values()), dropped=dict(dropped),
        unacked=sum(r.unacked for r in reports.values()),
        unread=sum(r.unread for r in reports.values()), dropped_in=dict(dropped_in),
        elapsed=elapsed, peers=peers)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class Context:
    """The sockets of one application. Thread-safe. The threads start with the first socket.

    io_threads: 1 to 64. max_sockets: at least 1. All other keyword arguments are default options of
    its sockets.

    lead_tick: seconds, 0.01 by default. A thread that blocks in a receive reads from the network
    itself. When the thread goes on to do something else, new data stays in the kernel for one to
    two ticks before the I/O thread reads it. A longer tick saves wake-ups; a shorter one queues
    messages sooner.

    monitor: publishes the context's sockets, peers and counters for `mq top` and other monitors.
    True: in the folder of this user's monitors. A URL: there. A mqcore.monitor.Publish: there, with
    its settings. False: never. None (default): as the environment variable MQCORE_MONITOR says.

    histograms: True lets its sockets measure latencies, for Socket.histograms(). A message
    then costs a look at the clock at each end of its queue. False (default): they do not."""

    __slots__ = ("__weakref__", "_closing", "_defaults", "_hub", "_inside", "_link_defaults",
                 "_monitor", "_report")

    def __init__(self, *, io_threads: int = 1, max_sockets: int = 65536, lead_tick: float = 0.01,
                 monitor: Any = None, histograms: bool = False, **defaults: Any) -> None:
        if not _whole(io_threads) or not 1 <= io_threads <= 64:
            raise UsageError(f"io_threads must be 1 to 64, not {io_threads!r}")
        if not _whole(max_sockets) or max_sockets < 1:
            raise UsageError(f"max_sockets must be at least 1, not {max_sockets!r}")
        self._defaults, self._link_defaults = _validated(defaults)
        if (isinstance(lead_tick, bool) or not isinstance(lead_tick, (int, float))
                or not 0.001 <= lead_tick <= 3600):
            raise UsageError(f"lead_tick must be 0.001 to 3600 seconds, not {lead_tick!r}")
        if not isinstance(histograms, bool):
            raise UsageError(f"histograms must be True or False, not {histograms!r}")
        debugging.begin()
        self._hub = Hub(io_threads, max_sockets, lead_tick=lead_tick)
        self._hub.histograms = histograms
        self._report: CloseReport | None = None
        self._closing = threading.RLock()
        self._inside = False  # a close() is running
        self._monitor: Any = None
        self._monitor = monitoring.attach(self, monitor)

    def _shared(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """The defaults that apply to a socket whose pattern has the options `known`."""
        return {name: value for name, value in self._defaults.items()
                if name in known or name in self._link_defaults}

    @staticmethod
    def default() -> Context:
        """The default context of this process, created on first use. After it was closed, and in a
        forked child, the next call creates a new one."""
        global _default
        with _lock:
            if _default is None or _default.closed:
                made = Context()
                if _default is None or _default.closed:  # a signal handler may have made one
                    _default = made
            return _default

    def socket(self, pattern: str, **kw: Any) -> Any:
        """Create a socket in this context."""
        from mqcore.api.patterns import socket

        return socket(pattern, context=self, **kw)

    @property
    def sockets(self) -> tuple[Any, ...]:
        """The open sockets."""
        hub = self._hub
        if hub.forked:
            return ()
        with hub.lock:
            found = [links.core for links in hub.sockets.values()]
        return tuple(core for core in found if core is not None)

    @property
    def closed(self) -> bool:
        """Whether close() has been called, or this process is a fork of the context's."""
        return self._hub.closed

    def close(self, linger: Any = ...) -> CloseReport:
        """Close all sockets in parallel, then end the threads. Each socket lingers for `linger`
        seconds (default: its own option). No socket can be created meanwhile. Idempotent. Ctrl-C
        ends the lingering, and is raised when everything is closed. In a finalizer that the
        garbage collector runs, or that interrupts another call of the library, it returns an empty
        report at once, and a thread closes the context. So it does in a signal handler that
        interrupts the close() of a socket while another thread closes the context."""
        if self._hub.forked:
            raise Forked("this context belongs to the parent process",
                         hint="make a new one in the child")
        refuse_inside()
        if linger is not ...:
            limit_of(linger, name="linger")
        if self._hub.guest:
            self._hub.behind(partial(self.close, linger))
            return self._report or CloseReport()
        refuse_in_hook(lambda end: end._links.hub is self._hub)
        started = time.monotonic()
        if linger == 0:
            self._hurry()
        with Released(self._hub.lock):
            if not interrupting():
                with self._closing:
                    return self._close(linger, started)
            if not self._closing.acquire(blocking=False):
                return CloseReport()    # the thread that has it waits for the socket closed here
            try:
                return self._close(linger, started)
            finally:
                self._closing.release()

    def _close(self, linger: Any, started: float) -> CloseReport:
        if self._report is not None:
            return self._report
        reports: dict[Any, CloseReport] = {}
        if self._inside:  # a signal handler, in the middle of a close() of this thread
            self._close_sockets(linger, reports, started + MADE)
            return merged(reports, time.monotonic() - started)
        interrupted: list[BaseException] = []
        while self._report is None:
            try:
                self._inside = True
                self._hub.seal(True)
                self._close_sockets(linger, reports, started + MADE)
                self._hub.stop()
                if self._monitor is not None:
                    self._monitor.close()
                self._report = merged(reports, time.monotonic() - started)
            except BaseException as error:
                interrupted.append(error)
                if isinstance(error, Exception) or len(interrupted) > MAX_INTERRUPTS:
                    raise
                self._hurry()
            finally:
                self._inside = False
                self._hub.seal(False)
        if interrupted:
            raise interrupted[0]
        return self._report

    def _hurry(self) -> None:
        """Cut short a close() that is running in any thread."""
        for sock in self.sockets:
            if sock._links is not None:
                sock._links.hurry()

    def _close_sockets(self, linger: Any, reports: dict[Any, CloseReport],
                       patience: float) -> None:
        """Close all sockets, including those that other threads have created by `patience`."""
        tried: set[Any] = set()
        while left := [sock for sock in self.sockets if sock not in tried]:
            whole = [sock for sock in left if sock._links is not None]
            if not whole:
                if time.monotonic() >= patience:  # its thread is stuck: it may be this one
                    break
                time.sleep(0.001)
            reports |= close_all(tuple(whole), linger)
            tried.update(whole)

    async def aclose(self, linger: Any = ...) -> CloseReport:
        """close(), awaitable. If cancelled, it closes with linger=0."""
        from mqcore.api.turns import in_thread

        return await in_thread(lambda: self.close(linger), self._hurry)

    def __enter__(self) -> Context:
        if self._hub.closed:
            raise ContextClosed("the context is closed", hint="make a new one")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Context:
        return self.__enter__()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self.aclose()

    def __reduce__(self) -> Any:
        raise UsageError("a Context cannot be pickled", hint="make one in each process, pass URLs")

    def __del__(self) -> None:
        hub = getattr(self, "_hub", None)
        if hub is not None:
            hub.leave()
        monitor = getattr(self, "_monitor", None)
        if monitor is not None:
            monitor.leave()

    def __repr__(self) -> str:
        state = "closed" if self._hub.closed else f"{len(self.sockets)} sockets"
        return f"<mqcore.Context {state}>"


def _validated(values: Mapping[str, Any]) -> tuple[dict[str, Any], frozenset[str]]:
    """The checked values, and the names among them that belong to transports and filters. Defaults
    may name options of any pattern. Each new socket takes those that apply to it."""
    from mqcore.spi import registry

    rows: list[table.Option] = []
    link: tuple[table.Option, ...] = ()
    if set(values) - set(table.CORE):  # load all patterns only if needed
        rows = [row for info in registry.patterns() if not info.refused
                for row in registry.pattern_options(info.name)]
    if set(values) - set(table.table(rows)):
        link = registry.link_options()
    return (table.validate_all(values, extra=(*rows, *link)),
            frozenset(row.name for row in link) & set(values))


def close_all(sockets: tuple[Any, ...], linger: Any) -> dict[Any, CloseReport]:
    """Close them in parallel: the call takes as long as the longest linger, not the sum."""
    reports: dict[Any, CloseReport] = {}

    def one(sock: Any) -> None:
        reports[sock] = sock.close(linger)

    side_by_side(*(partial(one, sock) for sock in sockets))
    return reports
