"""The runner: moves messages from a source to a target and acknowledges what the target has taken.

Three tasks in one event loop, each behind the other:

    receive    source.receive(), as long as fewer than `window` messages are held
    deliver    target.send(), one batch after the other, so order is kept; repeats what a lost
               connection leaves open, from the first unconfirmed message on
    settle     source.acknowledge()

A message is acknowledged after the target, or the dead-letter target, has confirmed it. Whatever
fails in between leads to a repetition, never to a loss. The bridge keeps the ids of messages that
the target has and whose acknowledgment failed: when the source delivers them again, they are only
acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mqcore.api import monitoring
from mqcore.api.context import Context
from mqcore.base.components import COMPONENTS, State, numbers
from mqcore.base.described import described
from mqcore.bridge import plugins
from mqcore.bridge.connection import FIRST, LONGEST, Connection
from mqcore.bridge.errors import BridgeLost, BridgeRefused
from mqcore.bridge.message import Message
from mqcore.bridge.spi import Source, Target
from mqcore.bridge.table import Table
from mqcore.errors import OptionError
from mqcore.trace import SpanRecord, extract
from mqcore.trace.recent import LONGEST_NAME, RING

_log = logging.getLogger("mqcore.bridge")

REMEMBERED = 100_000        # ids of messages whose acknowledgment failed
ATTEMPTS = 5                # connections that a message alone has ended, until it counts as bad
DISCARD = "discard"
AGAIN = 1.0                 # seconds, until what has not ended is cancelled again


@dataclass
class Stats:
    """Counts of a bridge since it was started.

    `received == delivered + dead + discarded + repeats + waiting`, and
    `received == acknowledged + unacknowledged + held`.
    """

    received: int = 0           # from the source
    delivered: int = 0          # confirmed by the target
    acknowledged: int = 0       # at the source
    unacknowledged: int = 0     # taken over; the source was lost and delivers again
    repeats: int = 0            # delivered again by the source, and only acknowledged
    dead: int = 0               # taken by the dead-letter target
    discarded: int = 0          # bad, with dead="discard"
    resent: int = 0             # sent again to the target, which may have had them
    held: int = 0               # received, not settled
    held_bytes: int = 0
    waiting: int = 0            # received, not taken by the target
    source_reconnects: int = 0
    target_reconnects: int = 0
    source_connected: bool = False
    target_connected: bool = False


class Runner:
    """One bridge in the running event loop. Arguments as for `Bridge`."""

    def __init__(self, source: str | Source, target: str | Target, *,
                 dead: str | Target | None = None, window: int = 1000,
                 window_bytes: int = 64 << 20, batch: int = 200, confirm_timeout: float = 30.0,
                 headers: Mapping[str, str | None] | None = None,
                 map: Callable[[Message], Message | None] | None = None,
                 pause: float = FIRST, longest_pause: float = LONGEST) -> None:
        for name, number, least in (("window", window, 1), ("window_bytes", window_bytes, 1),
                                    ("batch", batch, 1)):
            if type(number) is not int or number < least:
                raise OptionError(f"{name}={number!r}", hint="it is a number above 0")
        if not confirm_timeout > 0 or not 0 < pause <= longest_pause:
            raise OptionError(f"confirm_timeout={confirm_timeout!r}, pause={pause!r}, "
                              f"longest_pause={longest_pause!r}", hint="they are seconds above 0")
        self.source = Connection(plugins.source(source), pause, longest_pause)
        self.target = Connection(plugins.target(target), pause, longest_pause)
        self.dead = None if dead is None or dead == DISCARD else \
            Connection(plugins.target(dead), pause, longest_pause)
        self._discard = dead == DISCARD
        self._window, self._bytes, self._batch = window, window_bytes, min(batch, window)
        self._timeout = confirm_timeout
        self._table = Table(headers)
        self._map = map
        self._refuse_circle()
        self.counts = Stats()
        self._received: asyncio.Queue[list[Message]] = asyncio.Queue()
        self._taken: asyncio.Queue[list[Message]] = asyncio.Queue()
        self._room = asyncio.Event()
        self._idle = asyncio.Event()
        self._stopping = asyncio.Event()
        self._done: dict[str, None] = {}        # ids that the target has, not yet acknowledged

    def _refuse_circle(self) -> None:
        for end, what in (self.target, "target"), (self.dead, "dead-letter target"):
            if end is None or end.side.follows and self._map is not None:
                continue            # the function may set other addresses
            if self.source.side.reads(end.side):
                raise OptionError(f"{self.source.side.explain()} reads what the {what} of this "
                                  f"bridge, {end.side.explain()}, writes: messages would go in a "
                                  "circle", hint="give another target")

    # -- its life --

    async def run(self, linger: float = 5.0) -> None:
        """Until stop(); then what is held has `linger` seconds. Raises what ends it."""
        COMPONENTS.add(self)
        if monitoring.asked():      # a bridge may be all that this process has, and have no socket
            Context.default()
        tasks = [asyncio.ensure_future(work()) for work in
                 (self._receive, self._deliver, self._settle)]
        stop = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait([*tasks, stop], return_when=asyncio.FIRST_COMPLETED)
            if stop.done() and not any(task.done() for task in tasks):
                tasks[0].cancel()
                drained = asyncio.ensure_future(self._drained(tasks[0]))
                await asyncio.wait([*tasks[1:], drained], timeout=linger,
                                   return_when=asyncio.FIRST_COMPLETED)
                await _ended([drained])
        finally:
            await _ended([*tasks, stop])
            for end in (self.source, self.target, self.dead):
                if end is not None:
                    await end.close()
                    end.state = "closed"
        for task in tasks:
            if not task.cancelled() and task.exception() is not None:
                raise task.exception()  # type: ignore[misc]

    def stop(self) -> None:
        """End run(). On the event loop's thread."""
        self._stopping.set()

    async def _drained(self, receiving: asyncio.Future[None]) -> None:
        await asyncio.wait([receiving])     # it may be counting its last messages
        while self.counts.held:
            self._idle.clear()
            await self._idle.wait()

    # -- receive --

    async def _receive(self) -> None:
        end, counts = self.source, self.counts
        while True:
            while counts.held >= self._window or counts.held_bytes >= self._bytes:
                self._room.clear()
                await self._room.wait()
            generation = await end.opened()
            try:
                found = await end.side.receive(min(self._batch, self._window - counts.held))
            except end.transient as error:
                self._note("source", error)
                await end.lost(generation, error)
                continue
            if not found:
                continue
            end.worked()
            for message in found:
                message.generation = generation
                message.size = size = len(message.body)
                counts.held_bytes += size
            counts.received += len(found)
            counts.held += len(found)
            counts.waiting += len(found)
            self._received.put_nowait(found)

    # -- deliver --

    async def _deliver(self) -> None:
        while True:
            batch = await self._received.get()
            while len(batch) < self._batch and not self._received.empty():
                batch = batch + self._received.get_nowait()     # sources that return few at a time
            ids = [message.id for message in batch if message.id is not None]
            await self._through(self._fresh(batch, self._done.keys() & ids))
            self._done.update(dict.fromkeys(ids))
            self._taken.put_nowait(batch)

    def _fresh(self, batch: list[Message], known: set[str]) -> list[Message]:
        """Those that the target does not have yet."""
        if not known:
            return batch
        found = [message for message in batch if message.id not in known]
        self.counts.repeats += len(batch) - len(found)
        self.counts.waiting -= len(batch) - len(found)
        return found

    async def _through(self, messages: list[Message]) -> None:
        """Until the target, or the dead-letter target, has each of them."""
        left = await self._translated(messages)
        end, size, alone = self.target, self._batch, 0
        while left:
            generation = await end.opened()
            size = min(size, end.side.at_once or size)
            some = left[:size]
            start, began = time.time(), time.monotonic()
            try:
                refused = await self._sent(end, some)
            except end.transient as error:
                self._note("target", error)
                await end.lost(generation, error)
                taken = getattr(error, "taken", 0)
                self._took(taken)
                left, some = left[taken:], some[taken:]
                self.counts.resent += len(some)
                size = max(1, len(some) // 2)       # one of them may be what ends the connection
                alone += len(some) == 1 and isinstance(error, ConnectionError)
                if alone >= ATTEMPTS and (self.dead or self._discard):
                    await self._bury(left.pop(0), error)
                    alone = 0
                continue
            end.worked()
            size, alone = min(2 * size, self._batch), 0
            for index, message in enumerate(some):
                if index in refused:
                    await self._bury(message, refused[index])
            self._took(len(some) - len(refused))
            if RING.users:
                self._record(some, refused, start, time.monotonic() - began)
            left = left[len(some):]

    def _record(self, messages: Sequence[Message], refused: Mapping[int, Exception],
                start: float, took: float) -> None:
        """A span for each traced message, for this process's monitor. The headers go on as they
        came, so what follows has the same parent."""
        for index, message in enumerate(messages):
            context = extract(message.headers)
            if context is not None and context.sampled:
                error = refused.get(index)
                RING.add(SpanRecord(
                    context.trace_id, context.child().span_id, context.span_id,
                    f"bridge to {self.target.side.explain()}"[:LONGEST_NAME], "producer", start,
                    took, "" if error is None else type(error).__name__))

    def _took(self, count: int) -> None:
        self.counts.delivered += count
        self.counts.waiting -= count

    async def _sent(self, end: Connection[Target], messages: Sequence[Message]
                    ) -> dict[int, Exception]:
        # a target that confirms nothing returns when it has space; to close it would lose what it
        # has, and what counts as delivered
        timeout = self._timeout if end.side.confirms else None
        try:
            async with asyncio.timeout(timeout) as limit:
                return await end.side.send(messages)
        except TimeoutError:
            if not limit.expired():         # a time-out of the side's own
                raise
            raise BridgeLost(f"{end.side.explain()} has not confirmed {len(messages)} messages "
                             f"within {self._timeout:g} s") from None

    async def _translated(self, messages: list[Message]) -> list[Message]:
        """As they go to the target. What cannot be read or mapped is buried."""
        found = []
        for message in messages:
            error: Exception | None = BridgeRefused(message.fault) if message.fault else None
            mapped: Message | None = message
            if error is None:
                self._table.translate(message, self.source.side, self.target.side)
                if self._map is not None:
                    try:
                        mapped = self._mapped(message)
                    except Exception as cause:
                        error = cause
            if error is not None:
                await self._bury(message, error)
            elif mapped is None:        # the function wants it no more
                self.counts.discarded += 1
                self.counts.waiting -= 1
            else:
                found.append(mapped)
        return found

    def _mapped(self, message: Message) -> Message | None:
        mapped = self._map(message)         # type: ignore[misc]
        if mapped is not None and not isinstance(mapped, Message):
            raise TypeError(f"map= has returned a {type(mapped).__name__}; it returns a Message or "
                            "None")
        if mapped is not None and not isinstance(mapped.body, bytes):
            raise TypeError(f"map= has set the body to a {type(mapped.body).__name__}; it is bytes")
        return mapped

    async def _bury(self, message: Message, error: BaseException) -> None:
        """Until the dead-letter target has it."""
        why = described(error)
        if self._discard:
            _log.warning("discarded a message of %s: %s", self.source.side.explain(), why)
            self.counts.discarded += 1
            self.counts.waiting -= 1
            return
        if self.dead is None:
            raise BridgeRefused(f"{self.target.side.explain()} refuses a message of "
                                f"{len(message.body)} B from {self.source.side.explain()}: {why}")
        letter = Message(message.body, message.key, [
            *message.headers, ("dead-reason", why.encode()),
            ("dead-source", self.source.side.explain().encode()),
            ("dead-target", self.target.side.explain().encode()),
            ("dead-time", f"{time.time():.6f}".encode())], id=message.id, stamp=message.stamp,
            redelivered=message.redelivered)
        Table().translate(letter, self.source.side, self.dead.side)
        while True:
            generation = await self.dead.opened()
            try:
                refused = await self._sent(self.dead, [letter])
            except self.dead.transient as lost:
                self._note("dead-letter target", lost)
                await self.dead.lost(generation, lost)
                continue
            if refused:
                raise BridgeRefused(f"{self.dead.side.explain()} refuses a dead letter: "
                                    f"{refused[0]}", hint="give another dead-letter target")
            self.dead.worked()
            self.counts.dead += 1
            self.counts.waiting -= 1
            return

    # -- settle --

    async def _settle(self) -> None:
        while True:
            batch = await self._taken.get()
            while not self._taken.empty():
                batch = batch + self._taken.get_nowait()
            await self._acknowledge(batch)
            self.counts.held -= len(batch)
            self.counts.held_bytes -= sum(message.size for message in batch)
            self._room.set()
            if not self.counts.held:
                self._idle.set()

    async def _acknowledge(self, batch: list[Message]) -> None:
        end, generation = self.source, self.source.generation
        current = [message for message in batch if message.generation == generation] \
            if end.state == "connected" else []
        if current:
            try:
                async with asyncio.timeout(self._timeout):
                    await end.side.acknowledge(current)
            except end.transient as error:
                self._note("source", error)
                await end.lost(generation, error)
                current = []
            for message in current:
                if message.id is not None:
                    self._done.pop(message.id, None)
        self.counts.acknowledged += len(current)
        self.counts.unacknowledged += len(batch) - len(current)
        while len(self._done) > REMEMBERED:
            self._done.pop(next(iter(self._done)))

    # -- reports --

    def _note(self, side: str, error: BaseException) -> None:
        _log.info("the %s of a bridge: %s: %s", side, type(error).__name__, error)

    def name(self) -> str:
        """Which bridge it is, for people."""
        return f"from {self.source.side.explain()} to {self.target.side.explain()}"

    def _mq_components(self) -> list[State]:
        states = [end.state for end in (self.source, self.target)]
        if "closed" in states:
            return []
        lost = next((end.error for end in (self.source, self.target, self.dead)
                     if end is not None and end.state != "connected" and end.error), None)
        return [State("bridge", self.name(), "running" if states == ["connected"] * 2 else
                      f"source {states[0]}, target {states[1]}",
                      "" if lost is None else str(lost), numbers(self.stats()))]

    def stats(self) -> Stats:
        counts = Stats(**vars(self.counts))
        counts.source_reconnects = self.source.reconnects
        counts.target_reconnects = self.target.reconnects
        counts.source_connected = self.source.state == "connected"
        counts.target_connected = self.target.state == "connected"
        return counts

    def explain(self) -> str:
        counts, source, target = self.stats(), self.source.side, self.target.side
        lines = [f"source: {self.source.explain()}", f"target: {self.target.explain()}"]
        if self.dead is not None:
            lines.append(f"dead letters: {self.dead.explain()}")
        if not source.acknowledges:
            lines.append("the source has no acknowledgments: what the bridge holds is lost if its "
                         "process dies")
        if not target.confirms:
            lines.append("the target confirms nothing: a message counts as taken when it is sent")
        if not target.headed and source.headed:
            lines.append("the target has no headers: those of the source are left out")
        if counts.held >= self._window or counts.held_bytes >= self._bytes:
            lines.append(f"it holds {counts.held} messages, as many as `window` and `window_bytes` "
                         "allow, and waits for the target")
        lines.append(f"received {counts.received}, delivered {counts.delivered}, acknowledged "
                     f"{counts.acknowledged}, dead letters {counts.dead}, held {counts.held}")
        return "\n".join(lines)


async def _ended(tasks: Sequence[asyncio.Future[Any]]) -> None:
    """Cancel them until they have ended. Once is not enough: asyncio.wait_for() before Python 3.12
    forgets a cancellation that comes as its work fails, and some clients catch it."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            _, left = await asyncio.wait(left, timeout=AGAIN)
    for task in tasks:
        task.cancelled() or task.exception()    # seen, so asyncio does not report it


async def run(source: str | Source, target: str | Target, **options: object) -> None:
    """Run a bridge in the current asyncio event loop, until the task is cancelled. Arguments as for
    `Bridge`. Raises what ends it."""
    await Runner(source, target, **options).run()       # type: ignore[arg-type]
