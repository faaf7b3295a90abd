"""A member of a Kafka consumer group as a source of a bridge.

One task polls the client, in a thread, without a pause, so the group does not expel a bridge whose
target is away. While the bridge wants no more, the partitions are paused. Offsets are committed
after the target has the messages. Before a rebalance takes a partition away, the source waits for
what the bridge holds of it, and commits that, so the next owner seldom gets a message again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mqcore.base.waits import Condition
from mqcore.bridge.address import Address
from mqcore.bridge.kafka import STEP, KafkaSide
from mqcore.bridge.message import TOMBSTONE, Message
from mqcore.bridge.spi import Source
from mqcore.journal.store.core import checksum

_log = logging.getLogger("mqcore.bridge")

ROOM, ROOM_BYTES = 2000, 8 << 20    # fetched and not yet received by the bridge
BRIEF = 0.003           # instead of STEP, while the bridge has messages, or commits some
KEEP = 1.0              # seconds between polls while the bridge wants no more
ANSWER = 10_000         # ms that the client waits for an answer, also when it closes
AGAIN = 0.2             # seconds until a commit that a rebalance has prevented is repeated
Place = tuple[str, int]             # topic, partition
# the group has moved on: its callbacks take the partitions away
REBALANCING = ("REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID",
               "FENCED_INSTANCE_ID", "_ASSIGNMENT_LOST", "_NO_OFFSET")
PASSING = ("_ALL_BROKERS_DOWN", "_TRANSPORT", "_RESOLVE", "_MAX_POLL_EXCEEDED",
           "UNKNOWN_TOPIC_OR_PART")     # the client goes on by itself


def _end(client: Any) -> None:
    """It may wait for lost brokers for ever. If an assignment comes only while it closes, it would
    in any case, with the GIL held (librdkafka's issue 4884): so that is taken first. None comes
    after unsubscribe()."""
    try:
        client.unsubscribe()
        while client.poll(0) is not None:
            pass
    finally:
        client.close()


class KafkaSource(KafkaSide, Source):
    """`lock` protects what callbacks change, which run in the polling thread: `owned` (the number
    of the assignment by which a partition is ours), `given` (offsets behind what the bridge got),
    `marks` (behind what the target has), `committed`, `waiting`."""

    def __init__(self, at: Address) -> None:
        at.want("topic")
        at.want("group")
        super().__init__(at)
        self.rebalancing = self.codes(REBALANCING)
        self.passing = self.codes(PASSING)
        self.lock = Condition()
        self.polling: asyncio.Future[None] | None = None
        self.assignments = 0
        self.names: dict[Place, tuple[str, int]] = {}       # of ids, and producers of stamps
        self._forget()

    def _forget(self) -> None:
        self.owned: dict[Place, int] = {}
        self.given: dict[Place, int] = {}
        self.marks: dict[Place, int] = {}
        self.committed: dict[Place, int] = {}
        self.waiting: deque[Message] = deque()
        self.bytes = 0
        self.failure: BaseException | None = None
        self.paused = self.ending = self.revoking = self.committing = False

    async def open(self) -> None:
        await self.close()
        self._forget()
        self.loop = asyncio.get_running_loop()
        self.came, self.space, self.answered = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.client = self.made(self.kafka.Consumer, {
            "group.id": self.at["group"], "enable.auto.commit": False,
            "enable.auto.offset.store": False, "auto.offset.reset": self.at["start"],
            "queued.max.messages.kbytes": 16384, "socket.timeout.ms": ANSWER,
            "on_commit": self._on_commit})
        await self.in_thread(self.ask, self.at["topic"])
        self.client.subscribe(self.at["topic"], on_assign=self._on_assign,
                              on_revoke=self._on_revoke, on_lost=self._on_lost)
        self.polling = asyncio.ensure_future(self._poll(self.client))

    async def close(self) -> None:
        client, self.client = self.client, None
        if client is None:
            return
        polling, self.polling = self.polling, None
        with self.lock:
            self.ending = True
            self.lock.notify_all()
        self.space.set()
        self._fail(ConnectionError("the connection to Kafka is closed"))
        if polling is not None:
            await asyncio.wait([polling])
        await self.finished()
        await self.in_thread(_end, client)

    # -- polling --

    async def _poll(self, client: Any) -> None:
        try:
            while not self.ending:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(KEEP):
                        while self.full and not self.ending and not self.committing:
                            self.space.clear()
                            await self.space.wait()
                await self.in_thread(self._turn, client, self.full)
                if self.waiting:
                    self.came.set()
        except Exception as error:
            self._fail(error)

    @property
    def full(self) -> bool:
        return len(self.waiting) >= ROOM or self.bytes >= ROOM_BYTES

    def _turn(self, client: Any, full: bool) -> None:
        """In a thread: callbacks run, and messages come, unless the bridge wants none."""
        if full and (not self.committing or len(self.waiting) >= 2 * ROOM):
            client.pause(client.assignment())
            self.paused = True
        elif self.paused and not full:
            client.resume(client.assignment())
            self.paused = False
        # the client sends no commit while a thread waits in it, and the bridge's next one is near;
        # but with 0, this would not count for max.poll.interval.ms
        first = client.poll(BRIEF if self.waiting or self.committing else STEP)
        if first is not None:
            self._take([first])     # before the next call, which may take its partition away
            if not full:
                self._take(client.consume(ROOM - 1, 0.0))

    def _take(self, found: list[Any]) -> None:
        with self.lock:
            for one in found:
                error = one.error()
                if error is None:
                    self._keep(one)
                elif not (error.retriable() or error.code() in self.passing):
                    self.refuse(error)
                    raise ConnectionError(f"{self.at.shown}: {error.str()}")
                else:
                    self.trouble = error.str()

    def _keep(self, one: Any) -> None:
        place, offset = (one.topic(), one.partition()), one.offset()
        number = self.owned.get(place)
        if number is None:
            return          # fetched before it was taken away: the next owner gets it
        known = self.names.get(place)
        if known is None:
            name = f"{','.join(self.servers)} {place[0]} {place[1]}"
            known = self.names[place] = name, checksum(name.encode()) + 1
        body, found = one.value(), one.headers()
        headers = [(name, value or b"") for name, value in found] if found else []
        if body is None:
            body = b""
            headers.append((TOMBSTONE, b"1"))
        self.bytes += len(body)
        kind, when = one.timestamp()
        self.waiting.append(Message(
            body, one.key(), headers, place[0], f"{known[0]} {offset}", (known[1], offset),
            False, when / 1000 if kind else None, "", (place, offset + 1, number)))

    def _fail(self, error: BaseException) -> None:
        self.failure = self.failure or error
        self.came.set()
        self.answered.set()

    def check(self) -> Any:
        if self.failure is not None:
            raise self.failure
        return self.connected()

    async def receive(self, most: int) -> list[Message]:
        while True:
            self.check()
            with self.lock:
                some = [self.waiting.popleft() for _ in range(min(most, len(self.waiting)))]
                for message in some:
                    self.bytes -= len(message.body)
                    self.given[message.token[0]] = message.token[1]
            if some:
                self.trouble = ""
                self.space.set()
                return some
            self.came.clear()
            await self.came.wait()

    # -- offsets --

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        """Of partitions that are ours no more, nothing is committed: the next owner gets these
        messages again."""
        client = self.check()
        last = {message.token[0]: message.token for message in messages}
        with self.lock:
            for place, offset, number in last.values():
                if self.owned.get(place) == number:
                    self.marks[place] = offset
            self.lock.notify_all()
        try:
            while left := self._left(last.values()):
                self.answered.clear()
                self.committing = True
                client.commit(offsets=self._offsets(left), asynchronous=True)
                self.space.set()        # the polling thread serves the answer
                await self.answered.wait()
                self.check()
                if self._left(last.values()):   # the group rebalances: we lose some, perhaps
                    await asyncio.sleep(AGAIN)
        finally:
            self.committing = False

    def _left(self, tokens: Iterable[tuple[Place, int, int]]) -> dict[Place, int]:
        """Offsets of these that are not committed, of partitions that are still ours."""
        with self.lock:
            return {place: offset for place, offset, number in tokens
                    if self.owned.get(place) == number and self.committed.get(place, -1) < offset}

    def _on_commit(self, error: Any, partitions: Sequence[Any]) -> None:
        """What a rebalance prevents is left as it is."""
        for one in partitions:
            bad = error or one.error
            if bad is None:
                with self.lock:
                    place = one.topic, one.partition
                    self.committed[place] = max(one.offset, self.committed.get(place, -1))
            elif bad.code() not in self.rebalancing:
                self._call(self._fail, ConnectionError(f"{self.at.shown}: {bad.str()}"))
        self._call(self.answered.set)

    def _offsets(self, ends: dict[Place, int]) -> list[Any]:
        return [self.kafka.TopicPartition(*place, end) for place, end in ends.items()]

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        """In the event loop, if that still runs."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(function, *arguments)

    # -- rebalance --

    def _on_assign(self, _: Any, partitions: Sequence[Any]) -> None:
        with self.lock:
            self.assignments += 1
            for one in partitions:
                self.owned[one.topic, one.partition] = self.assignments
        self.paused = True      # these are not; the next turn pauses or resumes all

    def _on_revoke(self, client: Any, partitions: Sequence[Any]) -> None:
        """Wait until the target has what the bridge holds of them."""
        places = {(one.topic, one.partition) for one in partitions}
        with self.lock:
            self._unread(places)
            self.revoking = True
            self.lock.wait_for(lambda: self.ending or not any(
                self.marks.get(place, -1) < self.given.get(place, -1) for place in places),
                self.at["handover"])
            self.revoking = False
            ends = {place: self.marks[place] for place in places
                    if self.marks.get(place, -1) > self.committed.get(place, -1)}
        if ends and not self.ending:    # a broker that is away would keep the end waiting
            try:
                client.commit(offsets=self._offsets(ends), asynchronous=False)
            except self.kafka.KafkaException as error:      # the next owner gets them again
                _log.info("%s: the last commit of a rebalance: %s", self.at.shown, error)
        self._drop(places)

    def _on_lost(self, _: Any, partitions: Sequence[Any]) -> None:
        places = {(one.topic, one.partition) for one in partitions}
        with self.lock:
            self._unread(places)
        self._drop(places)

    def _unread(self, places: set[Place]) -> None:
        """Forget what the bridge has not received."""
        left = deque(message for message in self.waiting if message.token[0] not in places)
        self.bytes = sum(len(message.body) for message in left)
        self.waiting = left

    def _drop(self, places: set[Place]) -> None:
        with self.lock:
            for place in places:
                for table in (self.owned, self.given, self.marks, self.committed):
                    table.pop(place, None)
        self._call(self.answered.set)

    def explain(self) -> str:
        with self.lock:
            count = len(self.owned)
        return f"{super().explain()}, group {self.at['group']}, {count} partitions" + \
            (", paused" if self.paused else "") + \
            (", handing over what the group gives to others" if self.revoking else "")
