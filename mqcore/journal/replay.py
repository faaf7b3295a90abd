"""replay(): what a journal holds, sent again, as fast as it came or at another speed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from mqcore.base.waits import Event
from mqcore.errors import OptionError
from mqcore.journal.later import np
from mqcore.journal.reader import Reader
from mqcore.journal.records import Records
from mqcore.journal.stamp import stamp

NAP = 0.2               # seconds between two looks at whether to end
MOST = 1024             # messages sent at a time


def replay(reader: Reader, socket: Any, *, start: int | None = None, stop: int | None = None,
           speed: float = 1.0, topic: bool = False, stamps: bool = False,
           progress: Callable[[int], None] | None = None,
           stopping: Event | None = None, gaps: str = "raise") -> int:
    """Send the messages from offset start (None: the first) to before stop (None: the end as it is
    now) with `socket`; how many were sent.

    speed: 1 keeps the time stamps' distances, 2 halves them; 0: as fast as the socket takes them.
    A message whose time is before its predecessor's is sent at once. topic: the journal's topic
    becomes the first part. stamps: what was taken off a message as stamp and key is put in front
    again, with the time when it was first sent. progress(n) after each n messages; stopping ends it
    early. gaps: as for Reader.batches(). A socket has no null value, so a tombstone is sent as an
    empty message.
    """
    if not 0 <= speed < 1e9:
        raise OptionError(f"speed={speed!r}", hint="1 is the original, 0 as fast as possible")
    head = (reader.topic.encode(),) if topic else ()
    clock = _Clock(speed, stopping or Event())
    sent = 0
    for records in reader.batches(start, stop, gaps=gaps):
        messages = _plain(records) if not stamps else _stamped(records)
        at = 0
        while at < len(messages):
            n = clock.due(records._microseconds, at)
            if clock.stopping.is_set():
                return sent
            if head:
                for message in messages[at:at + n]:
                    socket.send_parts((*head, message))
            else:
                socket.send_many(messages[at:at + n])
            at += n
            sent += n
            if progress is not None:
                progress(n)
    return sent


class _Clock:
    """When a message of the journal is due here."""

    def __init__(self, speed: float, stopping: Event) -> None:
        self.speed = speed
        self.stopping = stopping
        self.began: tuple[float, int] | None = None     # (monotonic, the first message's time)

    def due(self, times: Any, at: int) -> int:
        """Wait for the message at `at`; how many from there on are due then."""
        if self.speed == 0:
            return min(MOST, len(times) - at)
        if self.began is None:
            self.began = time.monotonic(), int(times[at])
        start, first = self.began
        wait = (int(times[at]) - first) / 1e6 / self.speed - (time.monotonic() - start)
        while wait > 0 and not self.stopping.wait(min(wait, NAP)):
            wait = (int(times[at]) - first) / 1e6 / self.speed - (time.monotonic() - start)
        now = first + (time.monotonic() - start) * 1e6 * self.speed
        later = np.flatnonzero(times[at:at + MOST] > now)
        return max(1, int(later[0])) if len(later) else min(MOST, len(times) - at)


def _plain(records: Records) -> list[bytes]:
    return [message or b"" for message in records]


def _stamped(records: Records) -> list[bytes]:
    producers, sequences, sent = records.producers, records.sequences, records._optional("sent")
    messages = _plain(records)
    if producers is None or sequences is None or sent is None:
        return messages
    return [message if not producers[i] else
            stamp(int(producers[i]), int(sequences[i]), int(sent[i]) / 1e6,
                  key=records.key(i) or b"",
                  life=0 if records.lives is None else int(records.lives[i])) + message
            for i, message in enumerate(messages)]
