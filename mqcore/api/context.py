"""Context: the I/O threads, the inproc names and the default options that a group of sockets
shares."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import Any

from mqcore import options as table
from mqcore.base.native import threading, time
from mqcore.control.hub import Hub, side_by_side
from mqcore.control.records import CloseReport, Peer, PeerStats
from mqcore.errors import ContextClosed, Forked, UsageError
from mqcore.spi.pattern import refuse_inside

MADE = 5.0  # seconds that close() waits for sockets that other threads are just making

_lock = threading.Lock()
_default: Context | None = None


def _after_fork() -> None:
    """A child makes its own default when it first needs one."""
    global _default, _lock
    _default = None
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def merged(reports: Mapping[Any, CloseReport], elapsed: float) -> CloseReport:
    """The reports of several sockets as one."""
    dropped: dict[str, int] = {}
    peers: dict[Peer, PeerStats] = {}
    for report in reports.values():
        peers.update(report.peers)
        for reason, count in report.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + count
    return CloseReport(
        written=sum(r.written for r in reports.values()),
        undelivered=sum(r.undelivered for r in reports.values()), dropped=dropped,
        unacked=sum(r.unacked for r in reports.values()), elapsed=elapsed, peers=peers)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class Context:
    """Keyword arguments besides the three are default options of its sockets. Thread-safe. Its
    threads start with the first socket.

    lead_tick: seconds. A blocking receive reads for itself what comes for its socket. When a thread
    that did so does something else, what comes meanwhile stays in the kernel for one to two ticks;
    then the I/O thread reads it. Longer: fewer wake-ups; shorter: sooner in our queues."""

    def __init__(self, *, io_threads: int = 1, max_sockets: int = 65536, lead_tick: float = 0.01,
                 **defaults: Any) -> None:
        if not _whole(io_threads) or not 1 <= io_threads <= 64:
            raise UsageError(f"io_threads must be 1 to 64, not {io_threads!r}")
        if not _whole(max_sockets) or max_sockets < 1:
            raise UsageError(f"max_sockets must be at least 1, not {max_sockets!r}")
        self._defaults, self._link_defaults = _validated(defaults)
        if not isinstance(lead_tick, (int, float)) or not 0.001 <= lead_tick <= 3600:
            raise UsageError(f"lead_tick must be 0.001 to 3600 seconds, not {lead_tick!r}")
        self._hub = Hub(io_threads, max_sockets, lead_tick=lead_tick)
        self._report: CloseReport | None = None
        self._closing = threading.Lock()

    def _shared(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """The defaults for a socket whose pattern has the options `known`."""
        return {name: value for name, value in self._defaults.items()
                if name in known or name in self._link_defaults}

    @staticmethod
    def default() -> Context:
        """The process's own, made on first use; a new one after it was closed, and in a child."""
        global _default
        with _lock:
            if _default is None or _default.closed:
                _default = Context()
            return _default

    def socket(self, pattern: str, **kw: Any) -> Any:
        """A new socket of this context."""
        from mqcore.api.patterns import socket

        return socket(pattern, context=self, **kw)

    @property
    def sockets(self) -> tuple[Any, ...]:
        """Those that are open."""
        hub = self._hub
        if hub.forked:
            return ()
        with hub.lock:
            found = [links.core for links in hub.sockets.values()]
        return tuple(core for core in found if core is not None)

    @property
    def closed(self) -> bool:
        return self._hub.closed

    def close(self, linger: Any = ...) -> CloseReport:
        """Close all sockets side by side, each within `linger` seconds (left out: its own), then
        end the threads. Meanwhile no socket can be made. Idempotent."""
        if self._hub.forked:
            raise Forked("this context belongs to the parent process",
                         hint="make a new one in the child")
        refuse_inside()
        started = time.monotonic()
        with self._closing:
            if self._report is None:
                self._hub.seal(True)
                try:
                    reports = self._close_sockets(linger)
                    self._hub.stop()
                finally:
                    self._hub.seal(False)
                self._report = merged(reports, time.monotonic() - started)
            return self._report

    def _close_sockets(self, linger: Any) -> dict[Any, CloseReport]:
        """All of them, those too that other threads are just making."""
        reports: dict[Any, CloseReport] = {}
        tried: set[Any] = set()
        patience = time.monotonic() + MADE
        while left := [sock for sock in self.sockets if sock not in tried]:
            whole = [sock for sock in left if sock._links is not None]
            if not whole:
                if time.monotonic() >= patience:  # its thread does not go on: it may be ours
                    break
                time.sleep(0.001)
            reports |= close_all(tuple(whole), linger)
            tried.update(whole)
        return reports

    async def aclose(self, linger: Any = ...) -> CloseReport:
        """close(), awaitable. Cancelled: linger 0."""
        from mqcore.api.aio import in_thread

        def hurry() -> None:
            for sock in self.sockets:
                if sock._links is not None:
                    sock._links.hurry()

        return await in_thread(lambda: self.close(linger), hurry)

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
        if hub is None or hub.closed or hub.forked or hub.sockets or not hub.started:
            return
        try:  # not here: this may be one of the threads that end
            threading.Thread(target=hub.stop, name="mqcore-stop").start()
        except RuntimeError:  # the interpreter ends
            pass

    def __repr__(self) -> str:
        state = "closed" if self._hub.closed else f"{len(self.sockets)} sockets"
        return f"<mqcore.Context {state}>"


def _validated(values: Mapping[str, Any]) -> tuple[dict[str, Any], frozenset[str]]:
    """The clean values, and the names among them that transports and filters own. Defaults may name
    options of any pattern; which sockets they reach is seen when one is made."""
    from mqcore.spi import registry

    rows: list[table.Option] = []
    link: tuple[table.Option, ...] = ()
    if set(values) - set(table.CORE):  # only then is it worth loading every pattern
        rows = [row for info in registry.patterns() if not info.refused
                for row in registry.pattern_options(info.name)]
    if set(values) - set(table.table(rows)):
        link = registry.link_options()
    return (table.validate_all(values, extra=(*rows, *link)),
            frozenset(row.name for row in link) & set(values))


def close_all(sockets: tuple[Any, ...], linger: Any) -> dict[Any, CloseReport]:
    """Side by side: the longest linger counts, not the sum."""
    reports: dict[Any, CloseReport] = {}

    def one(sock: Any) -> None:
        reports[sock] = sock.close(linger)

    side_by_side(*(partial(one, sock) for sock in sockets))
    return reports
