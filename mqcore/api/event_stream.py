"""EventStream: iterate over the events of a socket's connections."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from mqcore.base.waits import Condition, stay_asleep
from mqcore.binding import blocking
from mqcore.binding.timing import left_of, limit_of, passed, span
from mqcore.control.events import Closed, Event
from mqcore.errors import SocketClosed, UsageError, WaitTimeout


class _Feed:
    """What a socket calls with its events. It does not keep the stream: queued events name their
    socket, so a stream that was dropped unread would keep the socket for ever."""

    def __init__(self, stream: EventStream) -> None:
        self._stream = weakref.ref(stream)
        self._links = stream._links

    def __call__(self, event: Event) -> None:
        stream = self._stream()
        if stream is None:
            self.remove()
        else:
            stream._add(event)

    def remove(self) -> None:
        """Idempotent."""
        links = self._links
        with links.hub.lock:
            if links.hub.forked or self not in links.watchers:
                return
            links.watchers.remove(self)
            links.hub.watched(-1)
            core = links.core
            if not links.watched and core is not None and not core.closed:
                core._set("watched", False)

    def abandon(self) -> None:
        """In a forked child."""
        stream = self._stream()
        if stream is not None:
            stream.abandon()


class EventStream:
    """The events since its creation, oldest first, for `for` and `async for`. Iteration ends when
    the socket or the stream is closed. A full backlog loses new events; `lost` counts them."""

    def __init__(self, sock: Any, backlog: int) -> None:
        if isinstance(backlog, bool) or not isinstance(backlog, int) or backlog < 1:
            raise UsageError(f"backlog must be a whole number of at least 1, not {backlog!r}")
        self.backlog = backlog
        self._lost = 0
        self._links = sock._links
        self._untold = self._links.core._unemitted()
        self._queue: deque[Event] = deque()
        self._feed = _Feed(self)
        links = self._links
        # The hub's lock, which emitters often hold: a signal handler may interrupt a reader and
        # wait for the control thread, which emits. The handler's wait then releases it.
        self._changed = Condition(links.hub.lock)
        self._bells: set[Callable[[], Any]] = set()
        self._ended = False
        with links.hub.lock:
            if links.report is not None:  # the final event has passed; this stream would never end
                stay_asleep()
                raise SocketClosed("the socket is closed")
            links.watchers.append(self._feed)
            links.hub.watched(1)
            if not sock.closed:
                links.core._set("watched", True)
        if links.plugin.receives:
            links.idle.start(0.0)  # at once, so that it sees the current peers

    @property
    def lost(self) -> int:
        """Events lost because the backlog was full or they came faster than they could be
        queued."""
        lost: int = self._lost + self._links.core._unemitted() - self._untold
        return lost

    # -- from the control plane --------------------------------------------------------------------

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
        """Wake readers in threads and in event loops."""
        with self._changed:
            self._changed.notify_all()
            bells, self._bells = self._bells, set()
        for ring in bells:
            ring()

    def _stop(self) -> None:
        """Accept no more events. Queued ones can still be read."""
        with self._changed:
            self._ended = True
            self._wake()  # each time: a signal handler may have interrupted the first call before
            self._feed.remove()

    def abandon(self) -> None:
        """In a forked child: replace the lock, which a thread of the parent may have held."""
        self._changed = Condition()
        self._bells = set()
        self._ended = True

    # -- reading -----------------------------------------------------------------------------------

    def get(self, timeout: Any = None) -> Event:
        """The next event. WaitTimeout after `timeout` seconds; SocketClosed once the socket or the
        stream is closed."""
        event = self._get(timeout)
        if event is None:
            stay_asleep()
            raise SocketClosed("the event stream has ended", hint="")
        return event

    def _get(self, timeout: Any) -> Event | None:
        limit = limit_of(timeout)
        if self._ended:  # a forked child must not wait for the lock
            return self._take(limit, timeout)[1]
        with self._changed:
            if not self._queue and not self._ended and limit != 0:
                blocking.check(self)
            while True:
                self._changed.wait_for(lambda: self._queue or self._ended, left_of(limit))
                found, event = self._take(limit, timeout)
                if found:
                    return event

    def _take(self, limit: float | None, timeout: Any) -> tuple[bool, Event | None]:
        """(True, the next event), or None for the end; (False, None): wait. WaitTimeout."""
        ended = self._ended  # read first: nothing is queued after it
        try:
            return True, self._queue.popleft()
        except IndexError:  # empty; or a signal handler took the event
            pass
        if ended:
            return True, None
        if limit == 0 or passed(limit):
            raise WaitTimeout(f"no event occurred{span(timeout)}")
        return False, None

    async def aget(self, timeout: Any = None) -> Event:
        """get(), awaitable."""
        event = await self._aget(timeout)
        if event is None:
            stay_asleep()
            raise SocketClosed("the event stream has ended", hint="")
        return event

    async def _aget(self, timeout: Any) -> Event | None:
        from mqcore.api.turns import due, turn
        from mqcore.binding.sleep import Bell

        limit = limit_of(timeout)
        if due():
            await turn()
        while True:
            with self._changed:
                found, event = self._take(limit, timeout)
                if found:
                    return event
                bell = Bell()
                ring = bell.ring
                self._bells.add(ring)
                if self._queue or self._ended:  # since then, by a signal handler
                    ring()
            try:
                await bell.wait(limit)
            finally:
                with self._changed:
                    self._bells.discard(ring)

    def close(self) -> None:
        """Stop collecting. Iteration ends after the queued events. Idempotent."""
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

    def __reduce__(self) -> Any:
        raise UsageError("an event stream cannot be pickled or copied",
                         hint="call events() again for another one")

    def __enter__(self) -> EventStream:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        state = " ended" if self._ended else ""
        return f"<EventStream {len(self._queue)} waiting, {self.lost} lost{state}>"
