"""Writing into journals: exactly once in a stream, all or nothing in a batch job.

Executors stage (staging.py), the driver publishes (ledger.py). A streaming batch is named by the
query's id, which lies in the checkpoint, and its number. Executors learn both from properties of
the task that Spark does not document; if they are missing, the first task says so.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from pyspark import TaskContext
from pyspark import __version__ as pyspark_version
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from mqcore.errors import NotSupported, OptionError
from mqcore.spark.entries import JOB, check_home, name_of
from mqcore.spark.ledger import discard, publish
from mqcore.spark.options import Options
from mqcore.spark.rows import JOURNAL, check_columns
from mqcore.spark.staging import Stage, Staged
from mqcore.spark.versions import DataSourceStreamArrowWriter, batches

QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


def staged(messages: list[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]


class BatchSink(DataSourceArrowWriter):

    def __init__(self, schema: StructType, options: Options, overwrite: bool) -> None:
        check_columns(schema, JOURNAL, overwrite, options.topic)
        self._options = options
        self._path = check_home(options.folder)
        self._job = f"{JOB}{uuid.uuid4()}" if options.jobId is None else name_of(options.jobId)
        # two runs of a job with a jobId may be under way at the same time
        self._run = None if options.jobId is None else uuid.uuid4().hex

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return Stage(self._options, self._job, 0, _task(), self._run).write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        files = [file for message in staged(messages) for file in message.files]
        if files:
            publish(self._path, self._job, 0, files, self._options.timeoutMs / 1000,
                    self._options.compression)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        for message in staged(messages):
            discard(self._path, message.query, 0, message.files)


class StreamSink(DataSourceStreamArrowWriter):

    def __init__(self, schema: StructType, options: Options, overwrite: bool) -> None:
        check_columns(schema, JOURNAL, False, options.topic)
        if options.jobId is not None:
            raise OptionError("jobId names a batch job; a streaming query is known by its "
                              "checkpoint", hint="leave it out")
        self._schema = schema
        self._options = options
        self._path = check_home(options.folder)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        query, batch = _where()
        return Stage(self._options, query, batch, _task()).write(batches(iterator, self._schema))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        done = staged(messages)
        if done:
            publish(self._path, done[0].query, batchId,
                    [file for message in done for file in message.files],
                    self._options.timeoutMs / 1000, self._options.compression)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        for message in staged(messages):
            discard(self._path, message.query, batchId, message.files)


def _task() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _where() -> tuple[str, int]:
    """(query id, batch number) of the task that runs this."""
    context = TaskContext.get()
    query, batch = (None if context is None else context.getLocalProperty(name)
                    for name in (QUERY, BATCH))
    if query is None or batch is None or not batch.isdecimal():
        raise NotSupported(
            f"PySpark {pyspark_version} does not tell tasks their query and batch ({QUERY}: "
            f"{query}, {BATCH}: {batch}), so nothing can be written exactly once",
            hint="use a version that mqcore[spark] names, or write with foreachBatch and "
                 "df.write, which is at least once")
    return query, int(batch)
