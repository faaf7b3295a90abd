"""GroupMember: reads the partitions of a topic together with the other members of its group."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import time
import weakref
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Self

import mqcore as mq
from mqcore.base.components import COMPONENTS, State, numbers
from mqcore.base.native import socket, threading
from mqcore.errors import AddressError, Forked, OptionError, RecvTimeout, SocketClosed, UsageError
from mqcore.journal.errors import (
    JournalClosed,
    JournalDiverged,
    JournalNotFound,
    OffsetGone,
    PartitionLost,
)
from mqcore.journal.groups.beats import Beats
from mqcore.journal.groups.holding import Share
from mqcore.journal.records import Records
from mqcore.journal.server.connection import split
from mqcore.journal.server.failover import Choice
from mqcore.journal.server.limits import WINDOW
from mqcore.journal.server.remote import RemoteReader
from mqcore.journal.server.remote_stream import RemoteStream
from mqcore.journal.store.place import group_name, topic_folder
from mqcore.journal.waiting import Deadline, in_thread

PAUSE = 0.5             # the longest wait between two looks at the shares, seconds
UNSURE = 0.05           # and while the server has to confirm them
_log = logging.getLogger("mqcore.journal")

#: yields a question or a wait, and is sent the answer
Steps = Generator[tuple[Any, ...], Any, Any]
Start = Literal["first", "end"]


@dataclass(frozen=True)
class MemberStats:
    """Counters since the start. `given` and `lost` count partitions; a lost one went to another
    member before this one had let it go."""

    messages: int = 0
    batches: int = 0
    commits: int = 0
    given: int = 0
    released: int = 0
    lost: int = 0


class Part(RemoteReader):
    """A partition that this member reads."""

    def __init__(self, share: Share, url: str, topic: str, durable: bool, timeout: float,
                 window: int, options: dict[str, Any], choice: Choice) -> None:
        self.share = share
        self._durable = durable
        self.stream: RemoteStream | None = None
        self.handed = self.handled = self.known = 0     # offsets: given out, dealt with, committed
        self._begin(url, topic, share.partition, True, timeout, window, options)
        self._choice = choice           # all of a member's connections use one server

    def go_on_at(self, offset: int) -> None:
        """Read on from here."""
        before, self.stream = self.stream, None
        if before is not None:
            before.stop()
        self.stream = RemoteStream(self, offset, self._window, self._bounds(None, None))

    def next_records(self) -> tuple[Records | None, float]:
        """What has come, and otherwise after how many seconds to call again at the latest."""
        stream: Any = self.stream
        wait = stream.patience(None)
        while (got := self._get(stream.socket, 0)) is not None:
            records = stream.taken(got)
            if records is not None:
                return records, 0.0
        return None, wait


class GroupMember:
    """Made by `mqcore.journal.join`. Iterate over it, or call read() in a loop: each step gives the
    next messages of one of the partitions that are this member's. One thread or task reads at a
    time. `with` closes it.

    Coming back for more says that everything given out before is dealt with. With `autocommit` this
    is committed every so many seconds, and when a partition goes to another member.
    """

    def __init__(self, url: str, group: str, *, topic: str | None = None, start: Start = "first",
                 session: float = 10.0, handling: float = 300.0, autocommit: float | None = 1.0,
                 durable: bool = True, timeout: float = 10.0, window: int = WINDOW,
                 **options: Any) -> None:
        _check(url, group, start, session, handling, autocommit)
        where, self.topic = split(url, topic)
        topic_folder(self.topic)        # OptionError, as above
        self.url, self.group = url, group
        self.name = f"{socket.gethostname()[:100]}-{os.getpid()}-{secrets.token_hex(4)}"
        self._start = start
        self._autocommit = autocommit
        self._reader = url, self.topic, durable, timeout, window, options
        self._parts: dict[Share, Part] = {}
        self._turn: list[Part] = []         # whose turn it is, the next one first
        self._counts = dict.fromkeys(MemberStats.__dataclass_fields__, 0)
        self._committed = time.monotonic()
        self._guard = threading.RLock()     # over _call; reentrant: for a handler of signals
        self._call: Callable[[], Steps | None] = lambda: None   # the one under way, held weakly
        self.closed = False
        self._beats = Beats(url, where, {"topic": self.topic, "group": group, "member": self.name,
                                         "handling": float(handling)},
                            float(session), timeout, options)

    def joined(self) -> Self:
        """This member, once the server has answered. Raises what it answered, or RecvTimeout."""
        try:
            self._beats.wait_joined()
        except BaseException:
            self.close()
            raise
        COMPONENTS.add(self)
        return self

    def _mq_components(self) -> list[State]:
        if self.closed:
            return []
        return [State("group member", f"{self.group} of {self.topic} at {self.url}",
                      counts={**numbers(self.stats()), "partitions": len(self.partitions),
                              "members": self.members})]

    @property
    def partitions(self) -> tuple[int, ...]:
        """Those that are this member's now, ascending."""
        return tuple(sorted(share.partition for share in self._beats.shares()
                            if not share.revoked))

    @property
    def members(self) -> int:
        """How many members the group has, as the server said last."""
        return self._beats.members

    def stats(self) -> MemberStats:
        return MemberStats(**self._counts)

    # -- reading --

    def read(self, timeout: float | None = None) -> Records:
        """The next messages of one partition. RecvTimeout if none come within `timeout` seconds.

        Raises OffsetGone if retention has removed what the group would read next; the next call
        goes on at the first message that is there. Raises JournalDiverged if a promoted mirror has
        other messages than those that were read; the next call goes on with the mirror's.
        JournalNotFound, UsageError, JournalClosed.
        """
        return self._handed(self._drive(self._begun(self._reading(Deadline(timeout)))))

    async def aread(self, timeout: float | None = None) -> Records:
        """read(), awaitable on asyncio and trio."""
        steps = self._begun(self._reading(Deadline(timeout)))
        return self._handed(await self._adrive(steps))

    def _handed(self, found: tuple[Part, Records]) -> Records:
        """The last that a call does. One that KeyboardInterrupt, say, has broken off before has
        given nothing out."""
        part, records = found
        self._counts["messages"] += len(records)
        self._counts["batches"] += 1
        part.handed = records.next
        return records

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Records:
        try:
            return self.read()
        except JournalClosed:
            raise StopIteration from None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Records:
        try:
            return await self.aread()
        except JournalClosed:
            raise StopAsyncIteration from None

    # -- committing --

    def commit(self) -> None:
        """Everything that was given out is dealt with. Durable on return.

        Raises PartitionLost if a partition is not this member's any more; those that are, are
        committed all the same. RecvTimeout.
        """
        self._drive(self._begun(self._committing()))

    async def acommit(self) -> None:
        """commit(), awaitable on asyncio and trio."""
        await self._adrive(self._begun(self._committing()))

    # -- the end --

    def close(self) -> None:
        """Leave the group. What was given out last is not committed: call commit() before, if it
        is dealt with. Idempotent."""
        if self.closed:
            return
        if self._autocommit is not None:
            with contextlib.suppress(mq.Error):     # another call may be under way
                self._drive(self._begun(self._committing_handled(list(self._parts.values()))))
        self.closed = True
        self._beats.close()
        for part in list(self._parts.values()):
            part.close()
        self._parts.clear()
        self._turn.clear()

    async def aclose(self) -> None:
        """close(), awaitable."""
        await in_thread(self.close)

    def __enter__(self) -> GroupMember:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> GroupMember:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        beats = self.__dict__.get("_beats")
        if beats is not None and not beats.closed:
            beats.close()

    def __repr__(self) -> str:
        return (f"<GroupMember of {self.group!r} at {self.url}, topic {self.topic!r}"
                f"{', closed' if self.closed else ''}>")

    # -- steps, for both kinds of callers --

    @property
    def _busy(self) -> bool:
        """Whether a call is under way. Its steps tell, and they end with it, however it ends."""
        steps: Any = self._call()
        return steps is not None and steps.gi_frame is not None

    def _begun(self, steps: Steps) -> Steps:
        with self._guard:
            if self._busy:
                raise UsageError("another call of this group member is under way",
                                 hint="one thread or task reads and commits; join once for each")
            self._call = weakref.ref(steps)
        return steps

    def _check_open(self) -> None:
        if self.closed:
            raise JournalClosed(f"this member of {self.group!r} is closed")
        if self._beats.forked:
            raise Forked("this member of a group belongs to the parent process",
                         hint="join in the process that reads")
        if self._beats.error is not None:
            raise self._beats.error.with_traceback(None)    # it would grow with each call

    @contextlib.contextmanager
    def _open(self) -> Iterator[None]:
        """close() in another thread ends a wait."""
        try:
            yield
        except SocketClosed:
            self._check_open()
            raise

    def _drive(self, steps: Steps) -> Any:
        try:
            step = next(steps)
            while True:
                if step[0] == "wait":
                    with self._open():
                        mq.poll(step[1], step[2])
                    step = next(steps)
                else:
                    step = self._told(steps, lambda part, op, facts: part._ask(op, **facts), step)
        except StopIteration as done:
            return done.value
        finally:
            steps.close()

    def _told(self, steps: Steps, ask: Any, step: tuple[Any, ...]) -> tuple[Any, ...]:
        try:
            answer = ask(*step[1:])
        except mq.Error as error:
            found: tuple[Any, ...] = steps.throw(error)
            return found
        return steps.send(answer)

    async def _adrive(self, steps: Steps) -> Any:
        try:
            step = next(steps)
            while True:
                if step[0] == "wait":
                    with self._open():
                        await mq.apoll(step[1], step[2])
                    step = next(steps)
                    continue
                try:
                    answer = await step[1]._aask(step[2], **step[3])
                except mq.Error as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as done:
            return done.value
        finally:
            steps.close()

    def _reading(self, quiet: Deadline) -> Steps:
        self._check_open()
        for part in list(self._parts.values()):
            part.handled = part.handed
            if part.stream is None or part.stream.at != part.handed:    # a call was broken off
                part.go_on_at(part.handed)
        changed = self._beats.changed
        while changed is not None:
            self._check_open()
            changed.clear()
            yield from self._follow_shares()
            if self._autocommit is not None \
                    and time.monotonic() - self._committed >= self._autocommit:
                yield from self._committing_handled(list(self._parts.values()))
            sure = self._beats.sure
            records, wait = self._next_records() if sure else (None, UNSURE)
            if records is not None:
                return records
            if quiet.over:
                raise RecvTimeout(f"no message for this member of {self.group!r} within "
                                  f"{quiet.timeout:g} s", hint=self._why())
            left = quiet.left
            yield ("wait", [changed.fd, *self._sockets()],
                   min(wait, PAUSE, PAUSE if left is None else max(0, left)))
        self._check_open()

    def _sockets(self) -> list[Any]:
        return [part.stream.socket for part in list(self._parts.values())
                if part.stream is not None]

    def _why(self) -> str:
        if self._beats.doubt is not None and not self._beats.sure:
            return f"the server says: {self._beats.doubt.text}"
        if not self._parts:
            return ("it has no partition: the group has more members than there are partitions, "
                    "or another one has not let go yet")
        return "does the writer run, and flush? give more time with timeout="

    def _next_records(self) -> tuple[tuple[Part, Records] | None, float]:
        """Of each partition in its turn."""
        longest = PAUSE
        for part in list(self._turn):
            self._turn = self._turn[1:] + self._turn[:1]
            try:
                records, wait = part.next_records()
            except OffsetGone as gone:
                part.go_on_at(gone.first)
                part.handed = gone.first
                raise
            except JournalDiverged as apart:
                part.go_on_at(apart.first)
                part.handed = part.handled = apart.first
                part.known = min(part.known, apart.first)
                raise
            except JournalNotFound:     # one made anew in its place has offsets of its own
                self._drop(part, "released")
                raise
            if records is not None and not part.share.lost:
                return (part, records), 0.0
            longest = min(longest, wait)
        return None, longest

    # -- shares --

    def _follow_shares(self) -> Steps:
        now = self._beats.shares()
        for share, part in list(self._parts.items()):
            if share.lost:
                self._drop(part, "lost")
            elif share.revoked:
                if self._autocommit is not None:
                    yield from self._committing_handled([part])
                if share in self._parts:
                    self._drop(part, "released")
        for share in now:
            if share not in self._parts and not share.lost and self._beats.take(share):
                yield from self._adopt(share)

    def _adopt(self, share: Share) -> Steps:
        url, topic, durable, timeout, window, options = self._reader
        part = self._parts[share] = Part(share, url, topic, durable, timeout, window, options,
                                         self._beats._choice)
        try:
            self._check_open()      # close() in another thread may not have seen this one
            at = part._place((yield "ask", part, "committed", {"group": self.group}))
            if at is None:
                first, end = part._pair((yield "ask", part, "ends", {}))
                at = first if self._start == "first" else end
            part.go_on_at(at)
        except BaseException:
            self._drop(part, "released")
            raise
        part.handed = part.handled = part.known = at
        self._turn.append(part)
        self._counts["given"] += 1

    def _drop(self, part: Part, why: str) -> None:
        """It is not this member's any more."""
        self._parts.pop(part.share, None)       # close() in another thread clears them
        with contextlib.suppress(ValueError):
            self._turn.remove(part)
        part.close()
        self._counts[why] += 1
        if why != "lost":
            self._beats.release(part.share)
        elif part.handed > part.known:
            _log.warning("partition %d of %r went to another member of %r before this one had let "
                         "it go: %d messages may be handled twice", part.partition, self.topic,
                         self.group, part.handed - part.known)

    # -- offsets --

    def _committing(self) -> Steps:
        self._check_open()
        for part in list(self._parts.values()):
            part.handled = part.handed
        lost = yield from self._committing_handled(list(self._parts.values()))
        if lost:
            raise lost[0]

    def _committing_handled(self, parts: list[Part]) -> Steps:
        """What is dealt with. Returns the errors of partitions that are lost."""
        lost = []
        for part in parts:
            if part.handled <= part.known:
                continue
            offset = part.handled
            try:
                yield "ask", part, "commit", {"group": self.group, "offset": offset,
                                              "token": part.share.token}
            except (PartitionLost, JournalNotFound) as error:   # or another journal is there
                lost.append(error if isinstance(error, PartitionLost) else PartitionLost(
                    error.text, partition=part.share.partition))
                self._drop(part, "lost")
                self._beats.release(part.share)
            else:
                part.known = offset
                self._counts["commits"] += 1
        self._committed = time.monotonic()
        return lost


def _check(url: str, group: Any, start: Any, session: Any, handling: Any, autocommit: Any) -> None:
    if "://" not in url:
        raise AddressError(f"{url!r} is a folder", hint="members of a group meet at a journal "
                           "server: mq journal serve --groups")
    if not isinstance(group, str) or not 1 <= len(group) <= 255:
        raise OptionError(f"a group called {group!r}", hint="a name has 1 to 255 characters")
    if start not in ("first", "end"):
        raise OptionError(f"start={start!r}", hint='a group without an offset begins at "first" '
                                                   'or "end"')
    group_name(group)       # OptionError: it is not Unicode, or too long
    for name, value, least in (("session", session, 0.1), ("handling", handling, 0.1),
                               ("autocommit", autocommit, 0)):
        if value is None and name == "autocommit":
            continue
        if type(value) not in (int, float) or not least <= value <= 86400:
            raise OptionError(f"{name}={value!r}",
                              hint=f"it is a number of seconds, {least:g} to 86400")
