"""Reading ranges in executors, and the batch reader."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from mqcore.errors import MessageTooLarge
from mqcore.journal import JournalError, JournalNotFound, OffsetGone
from mqcore.journal import Reader as JournalReader
from mqcore.spark.columns import arrow_schema, check_schema, gathered, record_batch
from mqcore.spark.nodes import Nodes
from mqcore.spark.options import Options
from mqcore.spark.plan import Range, Ranges, resolve, tasks
from mqcore.spark.versions import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

_log = logging.getLogger("mqcore.spark")
ADVICE = ("retain for longer, or begin anew with another checkpoint; failOnDataLoss=false warns "
          "and goes on with what is there")


def data_loss(options: Options, text: str) -> None:
    """Raise, or warn, as failOnDataLoss says."""
    if options.failOnDataLoss:
        raise JournalError(text, hint=ADVICE)
    _log.warning("%s", text)


def read_ranges(task: Ranges, options: Options, schema: Any) -> Iterator[Any]:
    """Arrow batches of batchBytes at most."""
    pieces = (piece for r in task.ranges for piece in _pieces(r, options, schema))
    yield from gathered(pieces, options.batchBytes)


def _pieces(r: Range, options: Options, schema: Any) -> Iterator[Any]:
    at = r.start
    try:
        with r.part.open(options, r.origin) as reader:
            for batch, behind in _rest(r, reader, options, schema):
                yield batch
                at = behind
    except JournalNotFound:
        data_loss(options, f"{r.part} is gone: messages {at} to {r.stop - 1} are lost")


def _rest(r: Range, reader: JournalReader, options: Options,
          schema: Any) -> Iterator[tuple[Any, int]]:
    """Each with the offset behind it."""
    at = r.start
    while at < r.stop:
        try:
            for records in reader.batches(at, r.stop, max_bytes=options.batchBytes):
                if records.size > options.maxMessageBytes and len(records) == 1:
                    raise MessageTooLarge(
                        f"message {records.first} of {r.part} has {records.size} bytes",
                        hint="more than maxMessageBytes; a message passes through the executor's "
                             "memory several times, so raise both")
                at = records.next
                yield record_batch(records, schema), at
        except OffsetGone as error:
            to = min(max(error.first, at + 1), r.stop)
            data_loss(options, f"messages {at} to {to - 1} of {r.part} are gone")
            at = to
            continue
        if at < r.stop:
            to = min(reader.read(at, max_bytes=1).first, r.stop)
            if to > at:     # compaction has removed them
                at = to
                continue
            data_loss(options, f"{r.part} ends at {at}: messages up to {r.stop - 1} are lost, "
                               "perhaps in a power cut")
            return


class Reader(DataSourceReader):
    """One read of a journal, up to where it was when the query was planned."""

    def __init__(self, schema: StructType, options: Options) -> None:
        check_schema(schema)
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        ranges = []
        with Nodes(options) as nodes:
            parts = nodes.find(must_exist=True)
            starts = resolve(nodes, parts, options.startingOffsets, "earliest",
                             options.startingTimestamp)
            ends = resolve(nodes, parts, options.endingOffsets, "latest")
            for part in parts:
                start, first = starts[part], nodes.reader(part).first
                if start < first:
                    data_loss(options, f"messages {start} to {first - 1} of {part} are gone")
                    start = first
                ranges.append(Range(part, start, ends[part], nodes.origin(part)))
        return self._cut(ranges)

    def _cut(self, ranges: list[Range]) -> Sequence[InputPartition]:
        return tasks(ranges, self._options) or [NOTHING]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, Ranges):
            return iter(())
        return read_ranges(partition, self._options, arrow_schema(self._schema))


NOTHING = InputPartition("nothing to read")      # Spark wants one partition at least


class FilteredReader(Reader):
    """With filterPushdown: filters on topic, partition and offset choose what is read. Spark
    applies them again, so they need only be sound."""

    def __init__(self, schema: StructType, options: Options) -> None:
        super().__init__(schema, options)
        self._filters: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._filters = list(filters)
        return filters

    def _cut(self, ranges: list[Range]) -> Sequence[InputPartition]:
        for r in ranges:
            for condition in self._filters:
                _narrow(r, condition)
        return super()._cut(ranges)


def _narrow(r: Range, condition: Filter) -> None:
    """The range without what the filter surely leaves out."""
    name = ".".join(getattr(condition, "attribute", ()))
    value: Any = getattr(condition, "value", None)
    fixed = {"topic": r.part.topic, "partition": r.part.partition}
    if name in fixed:
        if (isinstance(condition, EqualTo) and fixed[name] != value
                or isinstance(condition, In) and fixed[name] not in value):
            r.stop = r.start
    elif name == "offset" and isinstance(value, int):
        if isinstance(condition, EqualTo | GreaterThanOrEqual):
            r.start = max(r.start, value)
        if isinstance(condition, GreaterThan):
            r.start = max(r.start, value + 1)
        if isinstance(condition, EqualTo | LessThanOrEqual):
            r.stop = min(r.stop, value + 1)
        if isinstance(condition, LessThan):
            r.stop = min(r.stop, value)
