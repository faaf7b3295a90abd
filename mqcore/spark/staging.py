"""What executors write before anything is published: Arrow files, one for each topic and partition.

    WHERE/%spark/staging/QUERY/BATCH/TASK/N.arrow
                 ledger/QUERY.json                 what has been published, or is being
                 lock                              held by who publishes

No topic's folder can be called `%spark`. Staged files are durable before their task ends, since the
ledger names them. A failed attempt leaves files behind; the next publication of the query removes
them. What a job or query leaves that never publishes again is removed by any publication to the
same path, once nothing has changed there for a day.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pyspark.sql.datasource import WriterCommitMessage

from mqcore.errors import UsageError
from mqcore.journal import partition_of_key
from mqcore.journal.store.place import sync_folder
from mqcore.spark.options import Options
from mqcore.spark.rows import column, parts_of

HOME = "%spark"


class File(NamedTuple):
    topic: str
    partition: int
    name: str           # below staging/QUERY/BATCH
    rows: int


@dataclass
class Staged(WriterCommitMessage):
    """What a task has staged."""

    query: str
    files: list[File] = field(default_factory=list)


def folder_of(path: str, query: str, batch: int) -> Path:
    return Path(path) / HOME / "staging" / query / str(batch)


class Stage:
    """The files of one task."""

    def __init__(self, options: Options, query: str, batch: int, task: int) -> None:
        self._options = options
        self._task = task
        self._name = f"{task}-{uuid.uuid4().hex}"       # attempts do not meet
        self._folder = folder_of(options.folder, query, batch) / self._name
        self._open: dict[tuple[str, int], Any] = {}
        self._rows: dict[tuple[str, int], int] = {}
        self._query = query

    def write(self, batches: Iterator[Any]) -> Staged:
        try:
            for batch in batches:
                if batch.num_rows:
                    self._add(batch)
            return self._end()
        finally:
            for file, stream in self._open.values():
                stream.close()
                file.close()

    def _add(self, batch: Any) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        topics, numbers = self._topics(batch), self._partitions(batch)
        kept = pa.RecordBatch.from_arrays(
            [_plain(pa, batch.column(i), f.type) for i, f in enumerate(batch.schema)
             if f.name in ("value", "key", "timestamp")],
            names=[f.name for f in batch.schema if f.name in ("value", "key", "timestamp")])
        values = column(kept, "value")
        if values.null_count:
            raise UsageError(f"{values.null_count} rows without value",
                             hint='leave them out: df.where("value IS NOT NULL")')
        names = [topics] if isinstance(topics, str) else pc.unique(topics).to_pylist()
        for topic in names:
            mine = None if isinstance(topics, str) or len(names) == 1 else \
                pc.equal(topics, topic).to_numpy(zero_copy_only=False)
            here = numbers if mine is None else numbers[mine]
            for number in np.unique(here).tolist():
                rows = numbers == number if mine is None else mine & (numbers == number)
                some = kept if rows.all() else kept.filter(pa.array(rows))
                self._put(topic, number, some)

    def _topics(self, batch: Any) -> Any:
        """One for all, or an Arrow array."""
        topics = column(batch, "topic")
        default = self._options.topic
        if topics is None:
            return default
        if topics.null_count:
            if default is None:
                raise UsageError(f"{topics.null_count} rows without topic",
                                 hint='option("topic", ...) is for these')
            return topics.fill_null(default)
        return topics

    def _partitions(self, batch: Any) -> Any:
        given, n = column(batch, "partition"), batch.num_rows
        if given is not None:
            if given.null_count:
                raise UsageError(f"{given.null_count} rows without partition",
                                 hint="drop the column, and keys are spread over `partitions`")
            return given.to_numpy()
        count, keys = self._options.partitions, column(batch, "key")
        if count == 1:
            return np.zeros(n, np.int64)
        if keys is None:
            return np.full(n, self._task % count)
        data, ends = parts_of(keys)
        raw, bounds, valid = data.tobytes(), ends.tolist(), keys.is_valid().to_pylist()
        return np.array([partition_of_key(raw[bounds[i]:bounds[i + 1]], count) if valid[i]
                         else self._task % count for i in range(n)], np.int64)

    def _put(self, topic: str, partition: int, batch: Any) -> None:
        import pyarrow as pa

        key = topic, partition
        if key not in self._open:
            self._folder.mkdir(parents=True, exist_ok=True)
            file = open(self._folder / f"{len(self._open)}.arrow", "xb")
            self._open[key] = file, pa.ipc.new_stream(file, batch.schema)
            self._rows[key] = 0
        self._open[key][1].write_batch(batch)
        self._rows[key] += batch.num_rows

    def _end(self) -> Staged:
        done = Staged(self._query)
        for i, (key, (file, stream)) in enumerate(self._open.items()):
            stream.close()
            file.flush()
            os.fsync(file.fileno())
            done.files.append(File(*key, f"{self._name}/{i}.arrow", self._rows[key]))
        if done.files:
            for folder in (self._folder, *list(self._folder.parents)[:4]):
                sync_folder(folder)
        return done


def _plain(pa: Any, array: Any, kind: Any) -> Any:
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return array.cast(pa.binary() if pa.types.is_string(kind) else pa.large_binary())
    return array
