"""A MultiWriter: several partitions, of one topic or of all that come, as one to append to."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import resource
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from mqcore.base.native import threading
from mqcore.errors import Error, Forked, OptionError, UsageError
from mqcore.journal.errors import NO_FILES, JournalBusy, JournalClosed, JournalWriteError
from mqcore.journal.rights import writing
from mqcore.journal.stamp import NO_STAMP, partition_of_message, producer_of, read_stamp
from mqcore.journal.store.columns import as_bytes, nothing
from mqcore.journal.store.many import WritersCore
from mqcore.journal.store.place import partition_folder, partition_numbers
from mqcore.journal.store.process import forks
from mqcore.journal.store.recovery import Dropped
from mqcore.journal.topic_room import TopicRoom, is_topic
from mqcore.journal.writer import Writer
from mqcore.journal.writer_options import check_limit, check_options
from mqcore.journal.writer_stats import WriterStats

FIRST_PART = "first-part"
FILES = 4               # descriptors of a writer: its segment, folder, lock and the file `durable`
KEPT = 4                # one descriptor in so many is left to the rest of the process
PATIENCE = 10.0         # seconds that a call waits for others to be done with a partition
T = TypeVar("T")
_log = logging.getLogger("mqcore.journal")
BOUNDS: dict[str, tuple[float, float]] = {"partitions": (1, 1024), "max_topics": (1, 1 << 20),
                                          "max_open": (1, 1 << 20)}


class MultiWriter(WritersCore):
    """The writer of several partitions, usable from any thread. Created by `mqcore.journal.open`
    with partitions= or topic_from=.

    A message goes to the partition of its key (CRC-32C modulo their number), else to that of the
    producer in its stamp (with stamps=True), else, from a device, to that of its connection, else
    to 0. So messages with one key, or of one producer, keep their order.

    With topic_from="first-part" the first message of a topic opens its partitions. A topic's name
    is 1 to 255 bytes of UTF-8. There are at most `max_topics`, because any sender can create them.
    Those that the folder has already count, so a new topic never takes the place of one of them,
    and one that is deleted makes room, until these writers have had 2 * max_topics - 1 different
    ones (at least 3). A device refuses and counts messages of further topics.

    At most `max_open` partitions are open at once: by default, what three quarters of the
    process's descriptors (RLIMIT_NOFILE) are enough for. When another one gets a message, the one
    that has been idle for the longest time is made durable and closed. Its next message opens it
    again. Meanwhile its retention rests, and other processes may write, rename or delete it: its
    next message goes to what has that name then.
    """

    def __init__(self, where: str | os.PathLike[str], topic: str | None, *,
                 partitions: int = 1, topic_from: str | None = None, max_topics: int = 100,
                 max_open: int | None = None, **options: Any) -> None:
        if topic_from not in (None, FIRST_PART):
            raise OptionError(f"topic_from={topic_from!r}", hint=f'it is "{FIRST_PART}", or None')
        check_limit("partitions", partitions, int, BOUNDS)
        check_limit("max_topics", max_topics, int, BOUNDS)
        if max_open is not None:
            check_limit("max_open", max_open, int, BOUNDS)
        check_options(**options)
        self._born = forks()
        self.where = where
        self.topic = topic
        self.partitions = partitions
        self.closed = False
        self._options = options
        self._max_topics = 1 if topic is not None else max_topics
        self._open_lock = threading.RLock()
        self._opening = False                   # or closing: with the lock
        self._topics: dict[str, list[Writer | None]] = {}
        self._named: set[str] = set()           # all that have been in _topics
        self._room_left = TopicRoom(where, self._max_topics)
        self._recovered: list[Dropped] = []     # of those that were closed again
        self._past = WriterStats()              # theirs, too
        self._leaving: list[Writer] = []        # those that are just being closed
        self._sums: Any = threading.RLock()     # over the three above, and who is in _topics
        self._begin(partitions, self._max_topics,
                    min(max_open or _room_for_writers(), self._max_topics * partitions),
                    first_part=topic is None, stamped=bool(options.get("stamps")),
                    each=options.get("fsync") == "always")
        if topic is not None:
            self._hold(topic, 0)
            self._give_back(topic.encode(), 0)

    def _same_process(self) -> None:
        """Before any lock, which a thread that was not copied may hold."""
        if self._born != forks():
            raise Forked(f"the writers of {self.where} belong to the process that opened them",
                         hint="open the journal in the process that writes it")

    def _mq_sink(self) -> object:
        self._check_open()
        return super()._mq_sink()

    def _mq_may(self, rights: Any) -> Callable[[Any, bytes], bool]:
        return writing(rights, self.topic)

    # -- opening --

    def _open(self, name: bytes, number: int) -> None:
        """On a device's thread: the first message of a topic, or of a partition that was closed.
        It is borrowed."""
        self._hold(text_of(name), number)

    def _hold(self, topic: str, number: int) -> Writer:
        """The writer, opened if it was not, which stays open until _give_back()."""
        self._same_process()
        if not isinstance(topic, str):
            raise OptionError(f"topic {topic!r}", hint="it is a string")
        name = topic.encode(errors="surrogatepass")
        if not self._borrow(name, number):
            with self._open_lock:
                if not self._borrow(name, number):
                    self._open_one(topic, name, number)
                    self._borrow(name, number)
        writer = self._topics[topic][number]
        assert writer is not None
        return writer

    def _open_one(self, topic: str, name: bytes, number: int) -> None:
        if self.closed:
            raise JournalClosed(f"the writers of {self.where} are closed")
        if self._opening:
            raise JournalBusy(
                f"topic {topic!r}: this signal handler has interrupted a call that opens or closes "
                "a partition of these writers",
                hint="append in the handler to what writer() keeps open, or let it only set a flag")
        self._opening = True
        try:
            self._restore_all()
            self._forget_if_gone(topic)
            writers = self._topics.get(topic)
            if writers is None:
                self._open_topic(topic, name, number)
            else:
                self._make_room(topic)
                self._put(name, writers, [self._new(topic, number)])
        finally:
            self._opening = False

    def _open_topic(self, topic: str, name: bytes, number: int) -> None:
        """All of its partitions, so that readers find them, and this one last."""
        if self.topic is not None and topic != self.topic:
            raise OptionError(f"topic {topic!r}", hint=f"these are writers of {self.topic!r}")
        home = partition_folder(self.where, topic, 0).parent
        new = self._spared(lambda: self._check_topic(topic, home))
        opened: list[Writer] = []
        try:
            for each in (*range(number), *range(number + 1, self.partitions), number):
                while self._room() <= len(opened):
                    if opened:
                        opened.pop(0).close()
                    else:
                        self._make_room(topic)
                opened.append(self._new(topic, each))
        except BaseException:
            for writer in opened:
                writer.close()
            raise
        finally:
            with contextlib.suppress(OSError):      # the next count shows it
                if new and is_topic(home):
                    self._room_left.take(home.name)
        writers: list[Writer | None] = [None] * self.partitions
        with self._sums:        # first: as soon as messages find them, other threads look here
            self._named.add(topic)
            self._topics[topic] = writers
        self._put(name, writers, opened)

    def _check_topic(self, topic: str, home: Path) -> bool:
        """Whether the topic is new in the folder. OptionError: it is one too many."""
        self._check_partitions(topic)
        new = self.topic is None and not is_topic(home)
        full = new and self._room_left.left() <= 0
        if not full and len(self._topics) >= self._max_topics:
            for known in list(self._topics):
                self._forget_if_gone(known)
        if full or len(self._topics) >= self._max_topics:
            raise OptionError(f"topic {topic!r} is one more than max_topics, {self._max_topics}",
                              hint="open with a larger max_topics")
        most = max(3, 2 * self._max_topics - 1)     # the table of topics keeps those that went
        if topic not in self._named and len(self._named) >= most:
            raise OptionError(f"topic {topic!r} is one more than the {most} that these writers can "
                              "have one after the other", hint="open them again")
        return new

    def _forget_if_gone(self, topic: str) -> None:
        """A topic that was deleted while its partitions were closed: it is no longer ours, and if
        it comes again it is a new one."""
        writers = self._topics.get(topic)
        if writers is None or self.topic is not None or any(one is not None for one in writers):
            return
        home = partition_folder(self.where, topic, 0).parent
        if not self._spared(lambda: is_topic(home)):
            with self._sums:
                del self._topics[topic]

    def _put(self, name: bytes, writers: list[Writer | None], opened: list[Writer]) -> None:
        """Messages find them from now on. JournalClosed: a signal handler has closed us."""
        for writer in opened:
            if self.closed:
                writer.close()
            else:
                writers[writer.partition] = writer
                self._take_in(name, writer)
        if self.closed:
            raise JournalClosed(f"the writers of {self.where} are closed")

    def _check_partitions(self, topic: str) -> None:
        """The number of a topic's partitions may grow. With fewer, messages of a key would go on in
        another partition, while those of the ones left over are never continued."""
        home = partition_folder(self.where, topic, 0).parent
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            most = BOUNDS["partitions"][1]      # what lies above was made one by one
            there = 1 + max((n for n in partition_numbers(home) if n < most), default=-1)
            if there > self.partitions:
                raise UsageError(
                    f"topic {topic!r} has {there} partitions, and these writers write "
                    f"{self.partitions}", hint=f"open them with partitions={there}, or more")

    def _new(self, topic: str, number: int) -> Writer:
        folder = partition_folder(self.where, topic, number)
        return self._spared(lambda: Writer(folder, topic, number, **self._options))

    def _spared(self, call: Callable[[], T]) -> T:
        """If other parts of the process have taken the descriptors, one partition makes way, but
        never the last one that is open."""
        try:
            return call()
        except OSError as error:
            if error.errno not in NO_FILES or len(list(self)) < 2 or not self._close_one():
                raise
        return call()

    def _make_room(self, topic: str) -> None:
        while self._room() == 0:
            if not self._close_one():
                raise JournalWriteError(
                    f"topic {topic!r}: all partitions that may be open at once are in use, or have "
                    "failed", errno=errno.EMFILE,
                    hint="raise max_open, or the process's limit of open files (ulimit -n)")

    def _close_one(self, patience: float = PATIENCE) -> bool:
        """Make the partition that has been idle for the longest time durable, and close it. If none
        can be made durable: why."""
        why: Error | None = None
        for _ in self:          # a try for each
            found = self._retire(patience)
            if found is None:
                break
            topic, number = found[0].decode(), found[1]
            writer = self._topics[topic][number]
            assert writer is not None
            try:
                writer.commit()
                if self._remove(*found, patience):
                    self._end(topic, writer)
                    return True
            except Error as error:      # what it has taken is not lost: it stays, and says so
                why = error
            self._restore(*found)
        if why is not None:
            raise why
        return False

    def _end(self, topic: str, writer: Writer) -> None:
        with self._sums:
            self._topics[topic][writer.partition] = None
            self._leaving.append(writer)
        try:
            writer.close()
        except Error as error:      # only a checkpoint is missing: all messages are durable
            _log.error("%s", error)
        finally:
            with self._sums:
                self._leaving.remove(writer)
                self._recovered += writer.recovered
                self._past = summed([self._past, writer.stats()])

    def writer(self, topic: str, partition: int = 0) -> Writer:
        """The writer of one partition, opened if it was not yet. It stays open until close()."""
        if not 0 <= partition < self.partitions:
            raise OptionError(f"partition {partition}", hint=f"there are {self.partitions}")
        writer = self._hold(topic, partition)
        name = topic.encode()
        self._keep(name, partition)
        self._give_back(name, partition)
        return writer

    def __iter__(self) -> Iterator[Writer]:
        """All that are open. An idle one may be closed meanwhile."""
        self._same_process()
        with self._sums:
            every = self._opened_ones()
        yield from every

    def _opened_ones(self) -> list[Writer]:
        return [writer for writers in self._topics.values() for writer in writers
                if writer is not None]

    # -- appending --

    def append(self, value: Any, *, topic: str | None = None, key: bytes | None = None,
               **how: Any) -> tuple[int, int]:
        """Append one message: (partition, offset). value, time, headers: as for `Writer.append`. A
        tombstone, whose value is None, goes where the other messages with its key are."""
        topic = self.topic if topic is None else topic
        if topic is None:
            raise OptionError("topic is missing", hint="these writers take messages of any topic")
        if value is None:
            stamped = nothing(key)
        else:
            stamped = as_bytes(value) if self._options.get("stamps") else b""
        return self._append_to(partition_of_message(stamped, self.partitions, key), topic, value,
                               key, how)

    def _append_to(self, number: int, topic: str, value: Any, key: bytes | None,
                   how: dict[str, Any]) -> tuple[int, int]:
        writer = self._hold(topic, number)
        try:
            return number, writer.append(value, key=key, **how)
        finally:
            self._give_back(topic.encode(), number)

    def append_parts(self, parts: Iterable[Any], *, key: bytes | None = None,
                     **how: Any) -> tuple[int, int]:
        """Append a message as a socket's recv_parts() gives it: with topic_from="first-part" the
        first part is its topic. The others, joined, are the value. A stamp lies within the first
        of these."""
        if isinstance(parts, str | bytes | bytearray | memoryview):
            raise UsageError("append_parts takes a sequence of parts",
                             hint="append() takes one message")
        pieces = [as_bytes(part, "a part") for part in parts]
        topic = self.topic
        if topic is None:
            if not pieces:
                raise OptionError("a message without parts has no topic")
            topic = text_of(pieces.pop(0))
        value = b"".join(pieces)
        if self._options.get("stamps") and read_stamp(value) and not read_stamp(pieces[0]):
            return self._append_to(partition_of_message(b"", self.partitions, key), topic,
                                   NO_STAMP + value, key, how)
        return self.append(value, topic=topic, key=key, **how)

    # -- all of them --

    def commit(self) -> None:
        """Make everything appended so far durable, in every partition."""
        self._check_open()
        for writer in self._each():
            writer.commit()

    def flush(self) -> None:
        """Hand everything appended so far to the kernel, in every partition."""
        self._check_open()
        for writer in self._each():
            writer.flush()

    def _check_open(self) -> None:
        self._same_process()
        if self.closed:
            raise JournalClosed(f"the writers of {self.where} are closed")

    def _each(self) -> Iterator[Writer]:
        """Each of them is kept open while the caller looks at it. Those that are closed meanwhile
        are durable."""
        for writer in self:
            name = writer.topic.encode()
            if self._borrow(name, writer.partition, leaving=True):
                try:
                    if self._topics[writer.topic][writer.partition] is writer:
                        yield writer
                finally:
                    self._give_back(name, writer.partition)

    def life_of(self, producer: int, topic: str | None = None) -> int:
        """The newest life of a producer in any partition of the topic; 0: none. UsageError: the
        writers do not deduplicate."""
        topic = self.topic if topic is None else topic
        if topic is None:
            raise OptionError("topic is missing", hint="these writers take messages of any topic")
        if not self._options.get("deduplicate"):
            raise UsageError(f"the writers of {self.where} know no lives",
                             hint="open them with stamps=True, deduplicate=True")
        producer = producer_of(producer)
        if self.topic is None and topic not in self._topics \
                and not partition_folder(self.where, topic, 0).is_dir():
            return 0
        lives = []
        for number in range(self.partitions):
            writer = self._hold(topic, number)
            try:
                lives.append(writer.life_of(producer))
            finally:
                self._give_back(topic.encode(), number)
        return max(lives)

    @property
    def duplicates(self) -> int:
        """Messages left out since they were stored already (deduplicate=True)."""
        return self.stats().duplicates

    def stats(self) -> WriterStats:
        """The sums over all partitions, closed ones included, and the longest sync of all."""
        self._same_process()
        with self._sums:
            return summed([self._past, *(writer.stats() for writer in (*self._leaving, *self))])

    @property
    def error(self) -> BaseException | None:
        """What keeps one of them from writing; None: nothing."""
        return self.failure or next(filter(None, (writer.error for writer in self._each())), None)

    @property
    def recovered(self) -> tuple[Dropped, ...]:
        """What opening them has dropped."""
        self._same_process()
        with self._sums:
            return (*self._recovered, *(dropped for writer in (*self._leaving, *self)
                                         for dropped in writer.recovered))

    def close(self) -> None:
        """Close them all; then raise the first error there was. A second call does nothing. In a
        forked child it only gives back what the child has inherited."""
        if self._born != forks():
            self.closed = True
            for writer in (*self._leaving, *self._opened_ones()):
                writer.close()
            return
        with self._open_lock:
            self.closed = True
            errors = []
            for writer in (*self, *self._leaving):
                try:
                    writer.close()
                except Exception as error:
                    errors.append(error)
        if errors:
            raise errors[0]

    async def aclose(self) -> None:
        from mqcore.journal.waiting import in_thread

        await in_thread(self.close)

    def __enter__(self) -> MultiWriter:
        return self

    async def __aenter__(self) -> MultiWriter:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return (f"<MultiWriter of {self.where}, {len(self._topics)} topics of {self.partitions} "
                f"partitions{', closed' if self.closed else ''}>")


def text_of(name: bytes) -> str:
    """A topic, as the first part of a message says it."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise OptionError(f"the topic {name!r} is not UTF-8") from None


def summed(every: list[WriterStats]) -> WriterStats:
    sums = {field.name: sum(getattr(one, field.name) for one in every)
            for field in fields(WriterStats)}
    return WriterStats(**{**sums, "longest_sync": max(one.longest_sync for one in every)})


def _room_for_writers() -> int:
    """The number of partitions that may be open by the process's limit of descriptors."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return int(BOUNDS["max_open"][1])
    return max(1, (files - files // KEPT) // FILES)
