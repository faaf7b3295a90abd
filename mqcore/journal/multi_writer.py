"""A MultiWriter: several partitions, of one topic or of all that come, as one to append to."""

from __future__ import annotations

import logging
import os
import resource
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any

from mqcore.base.native import threading
from mqcore.errors import Forked, OptionError, UsageError
from mqcore.journal.errors import JournalClosed
from mqcore.journal.stamp import partition_of_message
from mqcore.journal.store.columns import as_bytes
from mqcore.journal.store.many import WritersCore
from mqcore.journal.store.place import partition_folder
from mqcore.journal.store.process import forks
from mqcore.journal.store.recovery import Dropped
from mqcore.journal.writer import Writer, WriterStats, check_limit, check_options

FIRST_PART = "first-part"
FILES = 4               # descriptors of a writer: its segment, folder, lock and the file `durable`
KEPT = 4                # one descriptor in so many is left to the rest of the process
_log = logging.getLogger("mqcore.journal")
BOUNDS: dict[str, tuple[float, float]] = {"partitions": (1, 1024), "max_topics": (1, 1 << 20)}


class MultiWriter(WritersCore):
    """The writer of several partitions, usable from any thread. Created by `mqcore.journal.open`
    with partitions= or topic_from=.

    A message goes to the partition of its key (CRC-32C modulo their number), else to that of the
    producer in its stamp (with stamps=True), else, from a device, to that of its connection, else
    to 0. So messages with one key, or of one producer, keep their order.

    With topic_from="first-part" the first message of a topic opens its partitions. A topic's name
    is 1 to 255 bytes of UTF-8. There are at most `max_topics`, because any sender can create them.
    A device refuses and counts messages of further topics.
    """

    def __init__(self, where: str | os.PathLike[str], topic: str | None, *,
                 partitions: int = 1, topic_from: str | None = None, max_topics: int = 100,
                 **options: Any) -> None:
        if topic_from not in (None, FIRST_PART):
            raise OptionError(f"topic_from={topic_from!r}", hint=f'it is "{FIRST_PART}", or None')
        check_limit("partitions", partitions, int, BOUNDS)
        check_limit("max_topics", max_topics, int, BOUNDS)
        check_options(**options)
        self._born = forks()
        self.where = where
        self.topic = topic
        self.partitions = partitions
        self.closed = False
        self._options = options
        self._max_topics = 1 if topic is not None else max_topics
        self._open_lock = threading.RLock()
        self._topics: dict[str, list[Writer]] = {}
        self._most = _most_topics(where, self._max_topics, partitions)
        self._begin(partitions, self._max_topics, first_part=topic is None,
                    stamped=bool(options.get("stamps")), each=options.get("fsync") == "always")
        if topic is not None:
            self._of(topic)

    def _same_process(self) -> None:
        """Before any lock, which a thread that was not copied may hold."""
        if self._born != forks():
            raise Forked(f"the writers of {self.where} belong to the process that opened them",
                         hint="open the journal in the process that writes it")

    def _mq_sink(self) -> object:
        self._same_process()
        if self.closed:
            raise JournalClosed(f"the writers of {self.where} are closed")
        return super()._mq_sink()

    # -- topics --

    def _open(self, name: bytes) -> None:
        """On a device's thread: the first message of a topic."""
        try:
            topic = name.decode()
        except UnicodeDecodeError:
            raise OptionError(f"the topic {name!r} is not UTF-8") from None
        if len(self._topics) >= self._most and topic not in self._topics:
            raise OptionError(
                f"topic {topic!r}: the process may have no more open files",
                hint=f"its limit (ulimit -n) has room for {self._most} topics of "
                     f"{self.partitions} partitions: raise it")
        self._of(topic)

    def _of(self, topic: str) -> list[Writer]:
        self._same_process()
        found = self._topics.get(topic)
        if found is not None:
            return found
        with self._open_lock:
            if topic in self._topics:
                return self._topics[topic]
            if self.closed:
                raise JournalClosed(f"the writers of {self.where} are closed")
            if self.topic is not None and topic != self.topic:
                raise OptionError(f"topic {topic!r}", hint=f"these are writers of {self.topic!r}")
            if len(self._topics) == self._max_topics:
                raise OptionError(f"topic {topic!r} is one more than max_topics, "
                                  f"{self._max_topics}", hint="open with a larger max_topics")
            opened: list[Writer] = []
            try:
                for number in range(self.partitions):
                    opened.append(Writer(partition_folder(self.where, topic, number), topic, number,
                                         **self._options))
                self._take_in(topic.encode(), [*opened])
            except BaseException:
                for writer in opened:
                    writer.close()
                raise
            self._topics[topic] = opened
            return opened

    def writer(self, topic: str, partition: int = 0) -> Writer:
        """The writer of one partition, opened if it was not yet."""
        writers = self._of(topic)
        if not 0 <= partition < self.partitions:
            raise OptionError(f"partition {partition}", hint=f"there are {self.partitions}")
        return writers[partition]

    def __iter__(self) -> Iterator[Writer]:
        """All that are open."""
        self._same_process()
        with self._open_lock:
            every = list(self._topics.values())
        for writers in every:
            yield from writers

    # -- appending --

    def append(self, value: Any, *, topic: str | None = None, key: bytes | None = None,
               **how: Any) -> tuple[int, int]:
        """Append one message: (partition, offset). time, headers: as for `Writer.append`."""
        topic = self.topic if topic is None else topic
        if topic is None:
            raise OptionError("topic is missing", hint="these writers take messages of any topic")
        writers = self._of(topic)
        stamped = as_bytes(value) if self._options.get("stamps") else b""
        number = partition_of_message(stamped, self.partitions, key)
        return number, writers[number].append(value, key=key, **how)

    def append_parts(self, parts: Iterable[Any], *, key: bytes | None = None,
                     **how: Any) -> tuple[int, int]:
        """Append a message as a socket's recv_parts() gives it: with topic_from="first-part" the
        first part is its topic. The others, joined, are the value."""
        if isinstance(parts, str | bytes | bytearray | memoryview):
            raise UsageError("append_parts takes a sequence of parts",
                             hint="append() takes one message")
        pieces = [as_bytes(part, "a part") for part in parts]
        topic = self.topic
        if topic is None:
            if not pieces:
                raise OptionError("a message without parts has no topic")
            name = pieces.pop(0)
            self._open(name)
            topic = name.decode()
        return self.append(b"".join(pieces), topic=topic, key=key, **how)

    # -- all of them --

    def commit(self) -> None:
        """Make everything appended so far durable, in every partition."""
        self._same_process()
        if self.closed:
            raise JournalClosed(f"the writers of {self.where} are closed")
        for writer in self:
            writer.commit()

    def flush(self) -> None:
        """Hand everything appended so far to the kernel, in every partition."""
        self._same_process()
        if self.closed:
            raise JournalClosed(f"the writers of {self.where} are closed")
        for writer in self:
            writer.flush()

    @property
    def duplicates(self) -> int:
        """Messages left out since they were stored already (deduplicate=True)."""
        return sum(writer.duplicates for writer in self)

    def stats(self) -> WriterStats:
        """The sums over all partitions, and the longest sync of all."""
        all_ = [writer.stats() for writer in self]
        sums = {field.name: sum(getattr(one, field.name) for one in all_)
                for field in fields(WriterStats)}
        longest = max((one.longest_sync for one in all_), default=0.0)
        return WriterStats(**{**sums, "longest_sync": longest})

    @property
    def error(self) -> BaseException | None:
        """What keeps one of them from writing; None: nothing."""
        return self.failure or next(filter(None, (writer.error for writer in self)), None)

    @property
    def recovered(self) -> tuple[Dropped, ...]:
        return tuple(dropped for writer in self for dropped in writer.recovered)

    def close(self) -> None:
        """Close them all; then raise the first error there was. A second call does nothing. In a
        forked child it only gives back what the child has inherited."""
        if self._born != forks():
            self.closed = True
            for writers in self._topics.values():
                for writer in writers:
                    writer.close()
            return
        with self._open_lock:
            self.closed = True
            errors = []
            for writer in self:
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

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> MultiWriter:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return (f"<MultiWriter of {self.where}, {len(self._topics)} topics of {self.partitions} "
                f"partitions{', closed' if self.closed else ''}>")


def _most_topics(where: str | os.PathLike[str], most: int, partitions: int) -> int:
    """The number of topics that senders can make these writers open: at least one."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY or most == 1:
        return most
    room = max(1, (files - files // KEPT) // (FILES * partitions))
    if room < most:
        _log.warning("%s: max_topics=%d with %d partitions takes %d open files, and the limit of "
                     "this process is %d (ulimit -n): messages of more than %d topics will be "
                     "refused", where, most, partitions, most * partitions * FILES, files, room)
    return min(room, most)
