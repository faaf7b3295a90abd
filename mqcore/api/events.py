"""EventStream: what happens to a socket's connections, as something to iterate."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from mqcore.api.timing import left_of, limit_of, passed, span
from mqcore.base.native import threading
from mqcore.control.records import Closed, Event
from mqcore.errors import SocketClosed, UsageError, WaitTimeout


class EventStream:
    """Events from its making on, oldest first; `for` and `async for`. It ends when the socket, or
    it itself, is closed. `lost` counts events that found the backlog full (the newest are lost)."""

    def __init__(self, sock: Any, backlog: int) -> None:
        if isinstance(backlog, bool) or not isinstance(backlog, int) or backlog < 1:
            raise UsageError(f"backlog must be a whole number from 1 on, not {backlog!r}")
        self.backlog = backlog
        self._lost = 0
        self._links = sock._links
        self._untold = self._links.core._unemitted()
        self._queue: deque[Event] = deque()
        self._changed = threading.Condition()
        self._bells: set[Callable[[], Any]] = set()
        self._ended = False
        links = self._links
        with links.hub.lock:
            if links.report is not None:  # its last event is out: none would end this stream
                raise SocketClosed("the socket is closed")
            links.watchers.append(self._add)
            links.hub.watched(1)
            if not sock.closed:
                links.core._set("watched", True)
        if links.plugin.receives:
            links.idle.start(0.0)  # soon: it looks at the peers that are there

    @property
    def lost(self) -> int:
        """Events that found the backlog full, or that came faster than they could be told."""
        return self._lost + self._links.core._unemitted() - self._untold

    # -- from the control plane --------------------------------------------------------------------

    # The hub's lock comes before `_changed`: who emits an event may hold it. So nothing is called
    # under `_changed`.

    def _add(self, event: Event) -> None:
        last = isinstance(event, Closed) and not event.endpoint
        with self._changed:
            if self._ended:
                return
            if len(self._queue) >= self.backlog and not last:
                self._lost += 1
                return
            self._queue.append(event)
        if last:
            self._stop()
        else:
            self._wake()

    def _wake(self) -> None:
        """Readers look again, those in threads and those in event loops."""
        with self._changed:
            self._changed.notify_all()
            bells, self._bells = self._bells, set()
        for ring in bells:
            ring()

    def _stop(self) -> None:
        """No more events. What is queued can still be read."""
        with self._changed:
            self._ended = True
        self._wake()
        links = self._links
        with links.hub.lock:
            if links.hub.forked or self._add not in links.watchers:
                return
            links.watchers.remove(self._add)
            links.hub.watched(-1)
            core = links.core
            if not links.watchers and core is not None and not core.closed:
                core._set("watched", False)

    def abandon(self) -> None:
        """In a forked child: a thread of the parent may have held the lock."""
        self._changed = threading.Condition()
        self._bells = set()
        self._ended = True

    # -- reading -----------------------------------------------------------------------------------

    def get(self, timeout: Any = None) -> Event:
        """The next event. WaitTimeout; SocketClosed once the socket or the stream is closed."""
        event = self._get(timeout)
        if event is None:
            raise SocketClosed("the event stream has ended", hint="")
        return event

    def _get(self, timeout: Any) -> Event | None:
        limit = limit_of(timeout)
        with self._changed:
            while True:
                if self._queue:
                    return self._queue.popleft()
                if self._ended:
                    return None
                if limit == 0 or passed(limit):
                    raise WaitTimeout(f"nothing happened{span(timeout)}")
                self._changed.wait(left_of(limit))

    async def aget(self, timeout: Any = None) -> Event:
        """get(), awaitable."""
        event = await self._aget(timeout)
        if event is None:
            raise SocketClosed("the event stream has ended", hint="")
        return event

    async def _aget(self, timeout: Any) -> Event | None:
        from mqcore.api.aio import due, turn
        from mqcore.sock.sleep import Bell

        limit = limit_of(timeout)
        if due():
            await turn()
        while True:
            with self._changed:
                if self._queue:
                    return self._queue.popleft()
                if self._ended:
                    return None
                if limit == 0 or passed(limit):
                    raise WaitTimeout(f"nothing happened{span(timeout)}")
                bell = Bell()
                self._bells.add(bell.ring)
                ring = bell.ring
            try:
                await bell.wait(limit)
            finally:
                with self._changed:
                    self._bells.discard(ring)

    def close(self) -> None:
        """Stop collecting; iteration ends after what is queued. Idempotent."""
        self._stop()

    def __len__(self) -> int:
        return len(self._queue)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> EventStream:
        return self

    def __next__(self) -> Event:
        event = self._get(None)
        if event is None:
            raise StopIteration
        return event

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> Event:
        event = await self._aget(None)
        if event is None:
            raise StopAsyncIteration
        return event

    def __enter__(self) -> EventStream:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        state = " ended" if self._ended else ""
        return f"<EventStream {len(self._queue)} waiting, {self.lost} lost{state}>"
