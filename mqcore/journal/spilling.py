"""Spill: what a socket has no room for waits in a journal, and is sent from there in order."""

from __future__ import annotations

import atexit
import logging
import os
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from mqcore.api.running import Running, socket_name
from mqcore.api.turns import due, fair, slept, turn
from mqcore.base.waits import Condition, Event, Released
from mqcore.errors import OptionError, SendTimeout, UsageError, WaitTimeout
from mqcore.journal.errors import JournalFull
from mqcore.journal.reader import Reader
from mqcore.journal.records import HEADER, ROW, Records
from mqcore.journal.store.place import partition_folder
from mqcore.journal.waiting import Deadline, pause
from mqcore.journal.writer import Writer
from mqcore.journal.writer_options import check_limit

_log = logging.getLogger("mqcore.journal")

PART = "part"           # the header of each part before the last
GROUP = "spill"         # the consumer group whose offset says what has been sent
LOOK = 0.2              # seconds between two looks at whether to end
SOON = 0.01             # the same for a task that waits
SAVE = 1.0              # seconds between two times that the offset is saved
MOST = 1024             # messages sent at a time
FREE = {"push", "dealer", "pair", "pair1", "client", "scatter", "channel"}
SINGLE = {"client", "scatter", "channel"}       # their messages have one part
DROPPING = {"pub", "xpub"}      # unless nodrop=True
LIMITS: dict[str, tuple[float, float]] = {"max_bytes": (1, 1 << 62)}


@dataclass(frozen=True)
class SpillStats:
    """Messages since it was opened, and what waits now."""

    direct: int = 0             #: given to the socket at once
    spilled: int = 0            #: appended to the journal
    forwarded: int = 0          #: given to the socket from the journal
    lost: int = 0               #: that a repair of the journal had lost
    waiting: int = 0            #: that wait in the journal now
    waiting_bytes: int = 0      #: as max_bytes counts; about, for what an earlier life has left


class Spill(Running):
    """Sends with a socket, and through a journal while the socket has no room; made by
    `mqcore.journal.spill()`. Use it from any thread, and the socket for nothing else to send
    meanwhile. `with` ends it: what waits stays in the folder. The socket stays open."""

    _kind = "spill"

    def __init__(self, socket: Any, where: str | os.PathLike[str], *, topic: str = "spill",
                 max_bytes: int = 1 << 30, **options: Any) -> None:
        check_limit("max_bytes", max_bytes, int, LIMITS)
        _check_socket(socket)
        folder = partition_folder(where, topic, 0)
        self._socket, self._most = socket, max_bytes
        self._changed = Condition()
        self._stopping, self._going = Event(), Event()
        self._going.set()
        self._direct = self._spilled = self._forwarded = self._lost = 0
        self._writer = Writer(folder, topic, 0, **options)
        try:
            self._reader = Reader(folder, topic, 0, durable=False)
            self._at = self._saved = self._resumed()
            self._held = self._reader.stored_bytes(self._at, self._writer.next)
            self._saved_at, self._failed = time.monotonic(), False
            self._single = socket.pattern in SINGLE
            self._leave = partial(_at_exit, weakref.ref(self))
            self._begin("mqcore-spill")
            atexit.register(self._leave)    # runs before the writer's
        except BaseException:
            self._stopping.set()
            if "_reader" in vars(self):
                self._reader.close()
            self._writer.close()
            raise

    def _resumed(self) -> int:
        """The offset to go on at. A power cut may have taken messages that had been sent, and
        their offsets are given out again."""
        first, end = self._reader.first, self._writer.next
        known = self._reader.committed_offset(GROUP)
        if known is not None and known > end:
            self._reader.commit_offset(GROUP, end)
        return max(first, min(end, known or 0))

    # -- sending --

    def send(self, data: Any, *, timeout: Any = ...) -> None:
        """Send one message of one part, or append it to the journal if the socket has no room, or
        if others wait there. Waits only while max_bytes are there, for up to `timeout` seconds
        (the socket's send_timeout). Then it raises SendTimeout, and the message is not sent.

        Also raises JournalWriteError (a full disk), the error that has ended the forwarding,
        SocketClosed. After JournalWriteError the message is not taken, unless fsync="always" and
        the error's `taken` is 1: then it is kept, but not durable. It is sent in its turn once
        there is room, or, after a failed sync, by the next spill with this folder, if it is on the
        disk. If it is sent again, it may arrive twice.
        """
        self._send((data,), timeout)

    def send_parts(self, parts: Sequence[Any], *, timeout: Any = ...) -> None:
        """send() of one message of several parts."""
        self._send(self._parts(parts), timeout)

    async def asend(self, data: Any, *, timeout: Any = ...) -> None:
        """send(), awaitable."""
        await self._asend((data,), timeout)

    async def asend_parts(self, parts: Sequence[Any], *, timeout: Any = ...) -> None:
        """send_parts(), awaitable."""
        await self._asend(self._parts(parts), timeout)

    def _parts(self, parts: Any) -> Sequence[Any]:
        """What the socket would refuse is refused here, too: nothing goes on behind it later."""
        if not isinstance(parts, list | tuple):
            raise UsageError(f"send_parts() takes a list or a tuple, not {type(parts).__name__}")
        if not parts:
            raise UsageError("a message has at least one part", hint='b"" is an empty one')
        if self._single and len(parts) > 1:
            raise UsageError(f"a message of a {self._socket.pattern} has one part, "
                             f"not {len(parts)}")
        return parts

    def _send(self, parts: Sequence[Any], timeout: Any) -> None:
        deadline = self._deadline(timeout)
        while not self._offer(parts):
            self._wait_room(parts, deadline)

    async def _asend(self, parts: Sequence[Any], timeout: Any) -> None:
        deadline = self._deadline(timeout)
        if due():
            await turn()
        while not self._offer(parts):
            if deadline.over:
                raise self._late(deadline)
            await pause(SOON)
            slept()

    def _deadline(self, timeout: Any) -> Deadline:
        return Deadline(self._socket.send_timeout if timeout is ... else timeout)

    def _wait_room(self, parts: Sequence[Any], deadline: Deadline) -> None:
        size = _size(parts)
        with self._changed:
            if not self._changed.wait_for(lambda: self._fits(size) or self._ends(), deadline.left):
                raise self._late(deadline)

    def _late(self, deadline: Deadline) -> SendTimeout:
        return SendTimeout(f"{self._held} bytes wait in {self._writer.path}, and "
                           f"max_bytes={self._most}: no room came{deadline}", why="full",
                           hint="use a longer timeout=, or raise max_bytes=")

    def _fits(self, size: int) -> bool:
        """A message above max_bytes does so alone."""
        return not self._held or self._held + size <= self._most

    def _ends(self) -> bool:
        return self._stopping.is_set() or not self.running

    def _offer(self, parts: Sequence[Any]) -> bool:
        """Whether the socket or the journal has taken it."""
        with self._changed:
            if self._error is not None:
                raise self._error
            if self._stopping.is_set():
                raise UsageError(f"{self!r} has been stopped", hint="open it again to send")
            if self._at >= self._writer.next:
                try:
                    self._socket.send_many((parts,), timeout=0)
                    self._direct += 1
                    return True
                except SendTimeout:
                    pass
            size = _size(parts)
            if not self._fits(size):
                return False
            before = self._writer.next
            try:
                self._writer.append(parts[-1], headers=[(PART, part) for part in parts[:-1]])
            finally:
                if self._writer.next > before:      # kept, even if it could not be synced
                    self._held += size
                    self._spilled += 1
                    self._changed.notify_all()
            return True

    # -- forwarding --

    def _loop(self) -> None:
        try:
            self._go_on()
        finally:
            if self._at != self._saved:     # here, where no signal handler raises
                self._save()

    def _go_on(self) -> None:
        while not self._stopping.is_set():
            if not self._going.wait(LOOK):
                continue
            before = self._at
            if before < self._writer.next:
                self._forward()
            self._save_in_time()
            if before == self._writer.next:
                with self._changed:
                    self._changed.wait_for(self._has_work, LOOK)
            elif before == self._at:        # the disk is full
                self._stopping.wait(LOOK)

    def _has_work(self) -> bool:
        return self._at < self._writer.next or self._stopping.is_set()

    def _forward(self) -> None:
        """Send what has been written. If the disk is full, that makes room for the rest."""
        try:
            self._writer.flush()
        except JournalFull:
            pass
        end = self._writer.written
        for records in self._reader.batches(self._at, end, gaps="skip"):
            if not self._pass_on(records):
                return
        with self._changed:
            self._move(end, self._at)       # a gap, if it is not there yet

    def _pass_on(self, records: Records) -> bool:
        """Whether all of them were sent; False: it is to end, or to pause."""
        messages = [_message(value, records.headers(i))
                    for i, value in enumerate(records.to_list())]
        with self._changed:
            self._move(records.first, self._at)
        sent = 0
        while sent < len(messages):
            if self._stopping.is_set() or not self._going.is_set():
                return False
            now = self._give(messages[sent:sent + MOST])
            with self._changed:
                self._held -= sum(map(_length, messages[sent:sent + now]))
                sent += now
                self._forwarded += now
                self._move(records.first + sent, records.first + sent)
            self._save_in_time()
        return True

    def _move(self, at: int, had: int) -> None:
        """The next one is at this offset; those from `had` on were lost. With the lock."""
        self._lost += at - had
        self._at = at
        self._held = max(0, self._held) if at < self._writer.next else 0
        self._changed.notify_all()

    def _give(self, messages: list[Any]) -> int:
        try:
            return int(self._socket.send_many(messages, timeout=LOOK))
        except SendTimeout as late:
            return late.sent

    def _save_in_time(self) -> None:
        if self._at != self._saved and time.monotonic() - self._saved_at >= SAVE:
            self._save()

    def _save(self) -> None:
        """Save the offset, and remove the files in front of it. A disk that is full ends nothing:
        a crash would repeat messages, and removing makes room."""
        self._saved_at = time.monotonic()
        at, errors = self._at, []
        try:
            self._reader.commit_offset(GROUP, at)
            self._saved = at
        except OSError as error:
            errors.append(error)
        try:
            self._writer.truncate_before(at)
        except OSError as error:
            errors.append(error)
        if errors and not self._failed:
            _log.warning("%r cannot save that messages below %d are sent: %s", self, at, errors[0])
        self._failed = bool(errors)

    # -- state and end --

    def stats(self) -> SpillStats:
        with self._changed:
            return SpillStats(self._direct, self._spilled, self._forwarded, self._lost,
                              max(0, self._writer.next - self._at), self._held)

    def wait_empty(self, timeout: float | None = None) -> None:
        """Wait until the socket has taken what waits in the journal. WaitTimeout after `timeout`
        seconds; the error that has ended the forwarding."""
        deadline = Deadline(timeout)
        with self._changed:
            if not self._changed.wait_for(self._is_empty, deadline.left):
                raise self._still(deadline)

    async def await_empty(self, timeout: float | None = None) -> None:
        """wait_empty(), awaitable."""
        deadline = Deadline(timeout)
        await fair()
        while not self._is_empty():
            if deadline.over:
                raise self._still(deadline)
            await pause(SOON)

    def _still(self, deadline: Deadline) -> WaitTimeout:
        return WaitTimeout(f"{self._writer.next - self._at} messages still wait in "
                           f"{self._writer.path}{deadline}")

    def _is_empty(self) -> bool:
        if self._error is not None:
            raise self._error
        empty = self._at >= self._writer.next
        if not empty and self._stopping.is_set():
            raise UsageError(f"{self!r} has been stopped, and {self._writer.next - self._at} "
                             "messages wait", hint="the next one that opens the folder sends them")
        return empty

    def pause(self) -> None:
        """Send nothing from the journal. resume() goes on."""
        self._going.clear()

    def resume(self) -> None:
        self._going.set()

    def _run(self) -> None:
        super()._run()
        with self._changed:
            self._changed.notify_all()

    def _forked(self) -> None:
        super()._forked()
        self._changed = Condition()

    def _stop(self, linger: Any) -> tuple[()]:
        """`linger` is for sockets; the socket stays open."""
        with Released(self._changed.lock):      # of a send() that a signal handler interrupts
            with self._changed:
                self._stopping.set()
                self._changed.notify_all()
            self._thread.join()
        self._reader.close()
        self._writer.close()
        atexit.unregister(self._leave)
        return ()

    def _which(self) -> str:
        return f"{socket_name(self._socket)} over {self._writer.path}"

    def __repr__(self) -> str:
        return (f"<Spill of {socket_name(self._socket)} into {self._writer.path} "
                f"{'running' if self.running else 'ended'}>")


def _check_socket(socket: Any) -> None:
    kind = getattr(socket, "pattern", None)
    if kind in DROPPING and not socket.nodrop:
        raise OptionError(f"a {kind} drops messages for slow peers and never waits, so nothing "
                          "would be spilled", hint="open it with nodrop=True")
    if kind not in FREE and kind not in DROPPING:
        raise UsageError(f"{socket!r} cannot spill",
                         hint=f"it takes one of {', '.join(sorted(FREE | DROPPING))}")
    for name, wrong in (("on_full", socket.on_full not in ("pattern", "block")),
                        ("conflate", getattr(socket, "conflate", False))):
        if wrong:
            raise OptionError(f"{name}={getattr(socket, name)!r} drops what would be spilled",
                              hint=f"leave {name}= out")


def _size(parts: Sequence[Any]) -> int:
    """As Records.size counts: empty messages take space, too."""
    return _beside(len(parts)) + sum(memoryview(part).nbytes for part in parts)


def _length(message: Any) -> int:
    """_size() of what _message() has made."""
    if isinstance(message, bytes):
        return ROW + len(message)
    return _beside(len(message)) + sum(map(len, message))


def _beside(parts: int) -> int:
    """The bytes of a message beside its parts."""
    return ROW + (parts - 1) * (HEADER + len(PART))


def _at_exit(ref: Callable[[], Spill | None]) -> None:
    found = ref()
    if found is not None:
        found.stop()


def _message(value: bytes | None, headers: list[tuple[str, bytes]]) -> Any:
    last = value or b""
    return [*(part for name, part in headers if name == PART), last] if headers else last


def spill(socket: Any, where: str | os.PathLike[str], *, topic: str = "spill",
          max_bytes: int = 1 << 30, fsync: Literal["always", "interval", "never"] = "interval",
          fsync_interval: float = 0.1, segment_bytes: int = 16 << 20, block_bytes: int = 1 << 20,
          compression: Literal["zstd", "lz4"] | None = None) -> Spill:
    """Send with `socket` as long as it has room, and append to a journal what it has no room for.
    A thread sends that in order as soon as there is room again, and removes it.

    socket: one that waits when its queues are full, with no receiver to name and no turn to keep:
    push, dealer, pair, pair1, client, scatter or channel; pub and xpub with nodrop=True.
    where: the folder of the journal, which is made. It belongs to one process at a time. What is
    left in it when the program ends is sent first by the next one that opens it. After a crash, the
    messages of about the last second may be sent once more.
    max_bytes: of messages that wait there at most, with 12 for each message and 12 for each part
    before its last one; beyond, send() waits. The other options are those of open(..., "a").

    Raises UsageError (the pattern has no such queue), OptionError (the socket drops instead of
    waiting), JournalLocked, JournalCorrupt, OSError.
    """
    return Spill(socket, where, topic=topic, max_bytes=max_bytes, fsync=fsync,
                 fsync_interval=fsync_interval, segment_bytes=segment_bytes,
                 block_bytes=block_bytes, compression=compression)
