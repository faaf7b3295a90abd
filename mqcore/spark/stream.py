"""The streaming reader: offsets on the driver, ranges in executors.

An offset is {"id|topic|partition": next message}. Spark stores it before a batch is read and hands
the same start and end to partitions() after a failure, so a batch is read again as it was. A
partition that the offset at the start does not name is new, and starts where the journal began,
whatever is left of it by then: what is not there any more is lost data. A topic that was renamed,
and is still read, goes on under its new name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from mqcore.journal import JournalNotFound
from mqcore.spark.columns import arrow_schema, check_schema
from mqcore.spark.nodes import Nodes, Part
from mqcore.spark.options import Options
from mqcore.spark.plan import Range, Ranges, resolve, tasks
from mqcore.spark.read import data_loss, read_ranges
from mqcore.spark.versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    check_limits,
)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):

    def __init__(self, schema: StructType, options: Options) -> None:
        check_schema(schema)
        check_limits(maxOffsetsPerTrigger=options.maxOffsetsPerTrigger,
                     maxBytesPerTrigger=options.maxBytesPerTrigger)
        self._options = options
        self._schema = schema
        self._nodes = Nodes(options)
        self._stop: dict[Part, int] | None = None
        self._turns = Turns()
        try:
            self._find()
        except BaseException:
            self._nodes.close()
            raise

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_stop": None}

    def _find(self) -> list[Part]:
        return self._nodes.find(must_exist=False)

    # -- offsets --

    def initialOffset(self) -> dict[str, int]:
        options = self._options
        found = resolve(self._nodes, self._find(), options.startingOffsets, "latest",
                        options.startingTimestamp)
        return {part.key: at for part, at in found.items()}

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.maxOffsetsPerTrigger is not None:
            return ReadMaxRows(self._options.maxOffsetsPerTrigger)
        if self._options.maxBytesPerTrigger is not None:
            return ReadMaxBytes(self._options.maxBytesPerTrigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._stop = self._ends()

    def latestOffset(self, start: dict[str, int] | None = None,
                     limit: ReadLimit | None = None) -> dict[str, int]:
        """PySpark 4.0 and 4.1 give neither."""
        if start is None or limit is None:
            return self.reportLatestOffset()
        ends = self._ends() if self._stop is None else self._left(self._stop)
        start = by_names_now(start, ends)
        ranges = self._ranges(start, ends)
        if not isinstance(limit, ReadAllAvailable):
            rows = self._room(ranges, limit)
            ranges = self._turns.cut(ranges, rows)
        reached = dict(start)
        reached.update({r.part.key: r.stop for r in ranges})
        gone = set(reached) - {part.key for part in ends}
        for key in gone:        # of partitions that are no more; _ranges has told
            del reached[key]
        return reached

    def reportLatestOffset(self) -> dict[str, int]:
        return {part.key: end for part, end in self._ends().items()}

    def _ends(self) -> dict[Part, int]:
        found = {}
        for part in self._find():
            with contextlib.suppress(JournalNotFound):      # it went meanwhile
                found[part] = self._nodes.end(part)
        return found

    def _left(self, ends: dict[Part, int]) -> dict[Part, int]:
        """Without partitions that have gone, and by the names that topics have now."""
        there = self._find()
        found = by_names_now({part.key: end for part, end in ends.items()}, there)
        return {part: found[part.key] for part in there if part.key in found}

    def _ranges(self, start: dict[str, int], ends: dict[Part, int]) -> list[Range]:
        """Read from start to ends, without lost messages, which failOnDataLoss handles."""
        missing = set(start) - {part.key for part in ends}
        for key in sorted(missing):
            if start[key]:
                data_loss(self._options,
                          f"the journal {key} is gone or was made anew; {start[key]} was next")
        ranges = []
        for part, end in ends.items():
            first = self._nodes.reader(part).first
            at = self._start(start, part)
            if at < first:
                data_loss(self._options, f"messages {at} to {first - 1} of {part} are gone")
                at = first
            if at > end:
                data_loss(self._options, f"{part} ends at {end}, though messages up to "
                                         f"{at - 1} were read: a power cut, or a repair")
                at = end
            ranges.append(Range(part, at, end))
        return ranges

    def _start(self, start: dict[str, int], part: Part) -> int:
        at = start.get(part.key)
        return self._nodes.reader(part).begin if at is None else at

    def _room(self, ranges: list[Range], limit: ReadLimit) -> int:
        """How many messages a micro-batch takes; of both limits the lower one."""
        rooms = []
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) \
            else self._options.maxOffsetsPerTrigger
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) \
            else self._options.maxBytesPerTrigger
        if rows is not None:
            rooms.append(rows)
        backlog = sum(r.stop - r.start for r in ranges)
        if size is not None and backlog:
            stored = sum(self._nodes.reader(r.part).stored_bytes(r.start, r.stop)
                         for r in ranges)
            rooms.append(max(1, int(backlog * min(1.0, size / max(1, stored)))))
        return min(rooms, default=backlog)

    # -- a micro-batch --

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        parts = {part.key: part for part in self._find()}
        start, end = (by_names_now(offsets, parts.values()) for offsets in (start, end))
        for key in sorted(set(end) - set(parts)):
            if end[key] > start.get(key, 0):
                data_loss(self._options, f"the journal {key} is gone; messages "
                                         f"{start.get(key, 0)} to {end[key] - 1} are lost")
        ranges = []
        for key, stop in end.items():
            if key in parts:
                first = self._nodes.reader(parts[key]).first
                at = self._start(start, parts[key])
                if at < min(first, stop):
                    data_loss(self._options, f"messages {at} to {min(first, stop) - 1} of "
                                             f"{parts[key]} are gone")
                if at > stop:
                    data_loss(self._options, f"{parts[key]} ends at {stop}, though messages up to "
                                             f"{at - 1} were read: a power cut, or a repair")
                ranges.append(Range(parts[key], min(max(at, first), stop), stop,
                                    self._nodes.origin(parts[key])))
        return tasks(ranges, self._options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Ranges)
        return read_ranges(partition, self._options, arrow_schema(self._schema))

    def commit(self, end: dict[str, int]) -> None:
        """Nothing: it comes a batch late, and not at all for the last one. Retention is the
        writer's, by size, age and consumer groups."""

    def stop(self) -> None:
        self._nodes.close()


def by_names_now(offsets: dict[str, int], parts: Iterable[Part]) -> dict[str, int]:
    """The same offsets, if topics were renamed: their partitions have kept their ids."""
    parts = list(parts)
    gone: dict[tuple[str, str], list[str]] = {}
    for key in offsets.keys() - {part.key for part in parts}:
        gone.setdefault((key.partition("|")[0], key.rpartition("|")[2]), []).append(key)
    found = dict(offsets)
    for part in parts:
        before = gone.get((part.id, str(part.partition)), [])
        if part.key not in offsets and len(before) == 1:
            found[part.key] = found.pop(before.pop())
    return found


class Turns:
    """Cuts micro-batches to a number of messages. Every partition gets its share of it by what
    waits there. What rounding down leaves goes to those that got nothing, first to the one that has
    waited longest; so with more partitions than messages, each has its turn."""

    def __init__(self) -> None:
        self._turn = 0
        self._served: dict[str, int] = {}       # in which turn a partition last got something

    def cut(self, ranges: list[Range], rows: int) -> list[Range]:
        backlog = sum(r.stop - r.start for r in ranges)
        if backlog <= rows:
            return ranges
        takes = [(r.stop - r.start) * rows // backlog for r in ranges]
        left = rows - sum(takes)                # less than there are ranges that are not empty
        begin = sum(r.start for r in ranges)    # another one after each restart of the query
        waiting = [i for i, r in enumerate(ranges) if takes[i] < r.stop - r.start]
        waiting.sort(key=lambda i: (takes[i] > 0, self._served.get(ranges[i].part.key, -1),
                                    (i - begin) % len(ranges)))
        for i in waiting[:left]:
            takes[i] += 1
        self._turn += 1
        here = {r.part.key for r in ranges}
        self._served = {key: turn for key, turn in self._served.items() if key in here}
        self._served.update({r.part.key: self._turn
                             for r, n in zip(ranges, takes, strict=True) if n})
        return [replace(r, stop=r.start + n) for r, n in zip(ranges, takes, strict=True)]
