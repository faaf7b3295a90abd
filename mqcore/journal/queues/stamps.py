"""Stamps: which put requests of a producer are stored, so that a repetition is not stored again."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from mqcore.errors import UsageError


class Stamps:
    """Remembers the last `requests` answers of each producer, and the last `producers` of them."""

    def __init__(self, producers: int, requests: int) -> None:
        self._most = producers
        self._requests = requests
        self._done: OrderedDict[int, dict[int, tuple[int, int]]] = OrderedDict()
        self._floors: dict[int, int] = {}

    def known(self, producer: int, sequence: int, floor: int) -> int | None:
        """The first id that this request was answered with; None: it is new. UsageError: it is too
        old to tell."""
        if not producer:
            return None
        done = self._done.get(producer, {})
        if sequence in done:
            self._done.move_to_end(producer)
            return done[sequence][0]
        if sequence < self._floors.get(producer, 0) or sequence < floor:
            raise UsageError("this put is a repetition whose first answer the producer has had",
                             hint="count requests upwards, and take a new producer id to begin at "
                                  "0 again")
        return None

    def remember(self, producer: int, sequence: int, floor: int, first: int, n: int) -> None:
        if not producer:
            return
        done = self._done.setdefault(producer, {})
        if floor > self._floors.get(producer, 0):
            self._floors[producer] = floor
            for number in [number for number in done if number < floor]:
                del done[number]
        if len(done) >= self._requests:     # it may not have so many without an answer
            oldest = min(done)
            self._floors[producer] = max(oldest + 1, self._floors.get(producer, 0))
            del done[oldest]
        done[sequence] = first, n
        self._done.move_to_end(producer)
        if len(self._done) > self._most:
            gone, _ = self._done.popitem(last=False)
            self._floors.pop(gone, None)

    def rows(self) -> list[Any]:
        """All of it, for a record."""
        return [[producer, self._floors.get(producer, 0),
                 [[number, first, n] for number, (first, n) in done.items()]]
                for producer, done in self._done.items()]

    def load(self, rows: list[Any]) -> None:
        """What rows() returned."""
        self._done.clear()
        self._floors.clear()
        for producer, floor, done in rows:
            self._done[producer] = {number: (first, n) for number, first, n in done}
            self._floors[producer] = floor
