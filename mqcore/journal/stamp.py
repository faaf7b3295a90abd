"""Stamps: who sent a message, as its how-manieth, and when; and what is missing or twice by them.

A producer puts 32 bytes, or 40 with a life, and a key perhaps, in front of its message (or sends
them as its first part). A writer opened with stamps=True takes them off and stores them as columns.
FORMAT.md has the bytes.
"""

from __future__ import annotations

import operator
import struct
import time as clock
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mqcore.errors import OptionError
from mqcore.journal.errors import (
    DENIED,
    FENCED,
    STAMP_FAULTS,
    JournalDenied,
    JournalRefused,
    producer_fenced,
    stamp_refused,
)
from mqcore.journal.later import np
from mqcore.journal.records import Records
from mqcore.journal.store.core import checksum

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FORM = struct.Struct("<4sIQQq")
_ANSWER = struct.Struct("<IIq")
_LIVING = struct.Struct("<4sIQQqII")
MAGIC = b"MQS1"
SIZE = _FORM.size
NO_STAMP = _FORM.pack(MAGIC, 0, 0, 0, 0)    # in front of what must not be taken for a stamp
LIFE_MAGIC = b"MQS2"


def stamp(producer: int, sequence: int, time: float | None = None, *, key: bytes = b"",
          life: int = 0) -> bytes:
    """The 32 bytes of a stamp, or 40 with a life, followed by the key. producer: 1 to 2**64 - 1,
    unique per sender, and per start unless it has lives. sequence: counted from 0 by the sender,
    without gaps. time: seconds since the epoch (None: now). key: b"" for none. life: 1 to
    2**32 - 1, higher at each start of the producer; a writer with deduplicate=True refuses older
    lives than the newest one that it has (ProducerFenced)."""
    producer = _whole("producer", producer)
    sequence, life = _whole("sequence", sequence), _whole("life", life)
    if not 0 < producer < 1 << 64 or not 0 <= sequence < 1 << 64:
        raise OptionError(f"producer {producer}, sequence {sequence}",
                          hint="both have 64 bits, and producer 0 means that there is no stamp")
    if not 0 <= life < 1 << 32:
        raise OptionError(f"life={life}", hint="it has 32 bits, and 0 is the first one")
    if time is not None and not -9e12 <= time <= 9e12:
        raise OptionError(f"time={time!r}", hint="it is in seconds since the epoch")
    us = clock.time_ns() // 1000 if time is None else round(time * 1e6)
    if life:
        return _LIVING.pack(LIFE_MAGIC, len(key), producer, sequence, us, life, 0) + key
    return _FORM.pack(MAGIC, len(key), producer, sequence, us) + key


def _whole(name: str, value: Any) -> int:
    if type(value) is int:
        return value
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise OptionError(f"{name}={value!r}", hint="it is a whole number")


def producer_of(value: Any) -> int:
    """The number of a producer. OptionError: it cannot be one."""
    number = _whole("producer", value)
    if not 1 <= number < 1 << 64:
        raise OptionError(f"producer={value!r}", hint="it has 64 bits, and 0 is for no producer")
    return number


def _size_of(message: bytes) -> int:
    """Of the stamp that it begins with, without the key; 0: it has none."""
    magic = bytes(message[:4])
    size = SIZE if magic == MAGIC else _LIVING.size if magic == LIFE_MAGIC else 0
    if not size or len(message) < size or any(message[36:size]):
        return 0
    return size if int.from_bytes(message[4:8], "little") <= len(message) - size else 0


def read_stamp(message: bytes) -> tuple[int, int, float] | None:
    """(producer, sequence, seconds) of a message that begins with a stamp; None: it does not."""
    if not _size_of(message):
        return None
    _, _, producer, sequence, us = _FORM.unpack_from(message)
    return producer, sequence, us / 1e6


def read_key(message: bytes) -> bytes | None:
    """The key in the stamp that a message begins with; None: there is none."""
    size = _size_of(message)
    if not size:
        return None
    return bytes(message[size:size + int.from_bytes(message[4:8], "little")]) or None


def read_life(message: bytes) -> int:
    """The life in the stamp that a message begins with; 0: there is none."""
    living = _size_of(message) > SIZE and any(message[8:16])
    return int.from_bytes(message[SIZE:SIZE + 4], "little") if living else 0


def partition_of_key(key: bytes, partitions: int) -> int:
    """The partition of a key: its CRC-32C modulo their number."""
    return checksum(key) % partitions


def partition_of_message(message: bytes, partitions: int, key: bytes | None = None) -> int:
    """The partition of a message: by its key (None: the one in its stamp), else by the producer in
    its stamp, else 0."""
    key = read_key(message) if key is None else key
    if key is not None:
        return partition_of_key(key, partitions)
    return partition_of_key(message[8:16], partitions) if _size_of(message) else 0


def stored_at(answer: bytes) -> tuple[int, int]:
    """(partition, offset) from a journal device's reply: the message is durable there. Offset -1:
    it was stored before, at a forgotten offset. JournalRefused: it was not stored.
    StampRefused, a subclass: because of its sequence number. ProducerFenced, another one: because
    a newer life of its producer has begun. A copy of it that was sent before may be stored even so,
    after ProducerFenced and status 2 of StampRefused. JournalDenied: we may not write its topic."""
    if len(answer) != _ANSWER.size:
        raise JournalRefused(f"{len(answer)} bytes are no acknowledgement",
                             hint="16 are what a journal device answers: who is there?")
    status, partition, offset = _ANSWER.unpack(answer)
    if status in STAMP_FAULTS:
        raise stamp_refused(status)
    if status == FENCED:
        raise producer_fenced(offset)
    if status == DENIED:
        raise JournalDenied("you may not write this topic of the journal")
    if status:
        raise JournalRefused("the journal refused the message",
                             hint="a topic has 1 to 255 bytes of UTF-8, a message at most 2 GiB; "
                                  "or there are as many topics as the journal may have")
    return partition, offset


@dataclass
class Sequences:
    """Gaps and duplicates of the messages shown to it, in order, by producer.

    `missing` counts sequence numbers skipped, `duplicates` messages with a number not above the
    highest seen before (a late one counts as a duplicate, and stays missing). Each life of a
    producer counts by itself, from its first message on.
    """

    messages: int = 0
    missing: int = 0
    duplicates: int = 0
    highest: dict[int | tuple[int, int], int] = field(default_factory=dict)
    """By producer, or by (producer, life)."""

    @property
    def producers(self) -> int:
        return len({who if isinstance(who, int) else who[0] for who in self.highest})

    def add(self, records: Records) -> None:
        producers, sequences = records.producers, records.sequences
        if producers is None or sequences is None:
            return
        for producer in np.unique(producers).tolist():
            if producer:
                mine = producers == producer
                if records.lives is None:
                    self._add(producer, sequences[mine])
                    continue
                for life in np.unique(records.lives[mine]).tolist():
                    self._add((producer, life) if life else producer,
                              sequences[mine & (records.lives == life)])

    def _add(self, producer: int | tuple[int, int], numbers: NDArray[np.uint64]) -> None:
        signed = numbers.astype(object) if numbers.max() >> np.uint64(63) \
            else numbers.astype(np.int64)
        begun = -1 if isinstance(producer, int) else int(numbers[0]) - 1
        before = self.highest.get(producer, begun)
        tops = np.maximum.accumulate(np.concatenate(([before], signed)))
        fresh = signed > tops[:-1]
        steps = (signed - tops[:-1])[fresh]
        self.messages += len(numbers)
        self.duplicates += int(len(numbers) - fresh.sum())
        self.missing += int((steps - 1).sum())
        self.highest[producer] = int(tops[-1])
