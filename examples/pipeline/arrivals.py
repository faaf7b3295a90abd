"""What readers of the collectors' journals see, by producer: so it is known up to which event time
everything has arrived, and producers can be kept within a bounded distance of each other.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mqcore import journal

if TYPE_CHECKING:
    from numpy.typing import NDArray

PATIENCE = 10.0     # seconds that a gap holds everybody up; then it is taken for a loss


class Seen:
    """The sequence numbers of one producer that are in some journal."""

    def __init__(self) -> None:
        self.messages = 0
        self._there = np.zeros(1024, bool)
        self._prefix = 0
        self._since: float | None = None        # when it was noticed that one is missing

    @property
    def distinct(self) -> int:
        return int(np.count_nonzero(self._there))

    @property
    def duplicates(self) -> int:
        return self.messages - self.distinct

    def add(self, numbers: NDArray[np.int64]) -> None:
        self.messages += len(numbers)
        self._make_room(int(numbers.max()))
        self._there[numbers] = True

    def _make_room(self, number: int) -> None:
        """One behind it stays free: that is where prefix() stops."""
        if number + 2 > len(self._there):
            self._there = np.concatenate((self._there, np.zeros(2 * (number + 2), bool)))

    def prefix(self, patience: float, sent: int | None) -> int:
        """The first number that is missing. One that is missing for `patience` seconds, though
        later ones are there or `sent` says that it was sent, is passed over."""
        later = self._there[self._prefix:]
        ahead = int(np.argmin(later))
        waiting = bool(later.any()) or sent is not None and self._prefix < sent
        now = time.monotonic()
        if ahead or not waiting:
            self._since = None
        elif self._since is None:
            self._since = now
        elif now - self._since > patience:
            ahead = int(np.argmax(later)) or (sent or 0) - self._prefix
            self._make_room(self._prefix + ahead)
            self._since = None
        self._prefix += ahead
        return self._prefix


class Arrivals:
    """Follows the journals in these folders; poll() looks for what is new."""

    def __init__(self, folders: Iterable[Path], patience: float = PATIENCE) -> None:
        self.folders = list(folders)
        self.patience = patience
        self.seen: dict[int, Seen] = {}
        self._readers: dict[tuple[str, str, int], journal.Reader] = {}
        self._at: dict[tuple[str, str, int], int] = {}

    @property
    def messages(self) -> int:
        """All that are there, duplicates too."""
        return sum(seen.messages for seen in self.seen.values())

    @property
    def distinct(self) -> int:
        return sum(seen.distinct for seen in self.seen.values())

    def poll(self) -> None:
        for folder in self.folders:
            for topic, partition, _ in journal.list_partitions(folder):
                place = str(folder), topic, partition
                if place not in self._readers:
                    self._readers[place] = journal.open(folder, topic=topic, partition=partition)
                    self._at[place] = 0
                for records in self._readers[place].batches(self._at[place]):
                    self._at[place] = records.next
                    self._add(records)

    def _add(self, records: journal.Records) -> None:
        producers, sequences = records.producers, records.sequences
        if producers is None or sequences is None:
            return
        for number in np.unique(producers).tolist():
            self.seen.setdefault(number, Seen()).add(
                sequences[producers == number].astype(np.int64))

    def prefix(self, producer: int, sent: int | None = None) -> int:
        """How many of a producer's first messages are there, or given up; sent: it has sent so
        many."""
        return self.seen.setdefault(producer, Seen()).prefix(self.patience, sent)

    def close(self) -> None:
        with contextlib.ExitStack() as stack:
            for reader in self._readers.values():
                stack.callback(reader.close)
        self._readers.clear()
