"""Streams and guests: what a server remembers of its readers.

A stream is sent only as far as its reader has given credit. So a slow reader costs a window of
memory here at most.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mqcore.journal.rights import NONE, Rights
from mqcore.journal.server.limits import PIECES
from mqcore.journal.server.requests import Request
from mqcore.journal.server.sources import Source

Parts = list[bytes]


@dataclass(eq=False)
class Guest:
    """A connection that has asked for something. `peer` is the socket's record of it, `owner` who
    is behind it (shares.py), `asked` when it last asked."""

    peer: Any
    owner: str = ""
    asked: float = 0.0
    rights: Rights = NONE
    #: by request: the number of the list that it waits for, see lists.py
    lists: dict[int, int] = field(default_factory=dict)
    waiting: dict[tuple[str, int], Request] = field(default_factory=dict)
    tries: dict[tuple[str, int], int] = field(default_factory=dict)     # that were not enough
    streams: dict[int, Stream] = field(default_factory=dict)
    #: an answer that did not fit: nothing else is read for this peer until it is sent
    pending: Parts | None = None
    #: bytes of each message that the socket has taken and may not have written yet
    sizes: collections.deque[int] = field(default_factory=collections.deque)
    unsent: int = 0                     # their sum, and `pending`

    @property
    def idle(self) -> bool:
        """Whether the server need not know of it until it asks again."""
        return not (self.waiting or self.streams or self.pending or self.unsent)

    def settle(self, queued: int) -> int:
        """Only the last `queued` messages are still unwritten. Returns the bytes of the others."""
        before = self.unsent
        while len(self.sizes) > queued:
            self.unsent -= self.sizes.popleft()
        return before - self.unsent


@dataclass(eq=False)
class Stream:
    guest: Guest
    number: int
    source: Source
    at: int                             # the next message to send
    window: int                         # bytes that may be under way
    heard: float                        # when its reader last asked for it
    taken: float                        # when its reader last took something, or had all
    stop: int | None = None             # where the reader's interest ends
    seen: int = -1                      # the source's version at which nothing was left to send
    sent: collections.deque[tuple[int, int]] = field(default_factory=collections.deque)
    out: int = 0                        # bytes in `sent`, which the reader has not acknowledged
    over: bool = False                  # no longer a stream
    tries: int = 0                      # to read on, that were not enough
    durable: bool = False               # only what survives a power cut is sent
    compacted: bool = False             # its reader knows of compaction

    def acknowledge(self, offset: int, now: float) -> None:
        if not self.sent or self.sent[0][0] <= offset:
            self.taken = now
        while self.sent and self.sent[0][0] <= offset:
            self.out -= self.sent.popleft()[1]

    def sends(self, end: int, size: int, now: float) -> None:
        """A piece that ends at this offset goes out."""
        if not self.sent:
            self.taken = now
        self.at = end
        self.sent.append((end, size))
        self.out += size

    @property
    def room(self) -> int:
        """Bytes that may be sent now; 0: the reader has no credit left, or wants no more."""
        if self.stop is not None and self.at >= self.stop or len(self.sent) >= PIECES:
            return 0
        return max(0 if self.sent else 1, self.window - self.out)


class Streams:
    """All of a server's, each in its turn."""

    def __init__(self) -> None:
        self._ring: collections.deque[Stream] = collections.deque()

    def __len__(self) -> int:
        return len(self._ring)

    def __iter__(self) -> Iterator[Stream]:
        return iter(list(self._ring))

    def add(self, stream: Stream) -> None:
        stream.source.follow()
        stream.guest.streams[stream.number] = stream
        self._ring.append(stream)

    def end(self, stream: Stream) -> None:
        """Idempotent."""
        if not stream.over:
            stream.over = True
            self._ring.remove(stream)
            stream.guest.streams.pop(stream.number, None)
            stream.source.unfollow()

    def turn(self) -> Iterator[Stream]:
        """Each once. Where the caller stops, the next turn goes on."""
        for _ in range(len(self._ring)):
            if not self._ring:
                return
            stream = self._ring[0]
            self._ring.rotate(-1)
            yield stream
