"""What executors write before anything is published: Arrow files, one for each topic and partition.

    WHERE/%spark/staging/QUERY/BATCH/TASK/N.arrow   TASK of a job with a jobId: its run first
                 ledger/QUERY.json                 what has been published, or is being: entries.py

No topic's folder can be called `%spark`. Staged files are durable before their task ends, since the
ledger names them. A running task holds the lock (flock) of its file 0. A failed attempt leaves
files behind; the next publication of the query removes them. What a job or query leaves that never
publishes again is removed by any publication to the same path, once nothing has changed there for a
day: see sweep.py.
"""

from __future__ import annotations

import fcntl
import os
import resource
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pyspark.sql.datasource import WriterCommitMessage

from mqcore.errors import UsageError
from mqcore.journal import JournalError, partition_of_key
from mqcore.journal.store.core import checksum
from mqcore.journal.store.place import sync_folder
from mqcore.spark.options import Options
from mqcore.spark.rows import check_times, check_tombstones, column, parts_of

HOME = "%spark"
CHUNK = 1 << 20     # bytes read at a time
TOGETHER = 256      # files that a task has open at most, or a quarter of its descriptors


class File(NamedTuple):
    topic: str
    partition: int
    name: str           # below staging/QUERY/BATCH
    rows: int
    crc: int = -1       # CRC-32C of the file; -1: not known


class StagedFilesLost(JournalError):
    """Staged files that are to be published were removed, or are damaged."""


@dataclass
class Staged(WriterCommitMessage):
    """What a task has staged."""

    query: str
    files: list[File] = field(default_factory=list)


def folder_of(path: str, query: str, batch: int) -> Path:
    return Path(path) / HOME / "staging" / query / str(batch)


def fault_of(path: Path, crc: int) -> str | None:
    """What is wrong with a staged file; None: nothing."""
    try:
        with open(path, "rb") as file:
            found = 0
            while piece := file.read(CHUNK):
                found = checksum(piece, found)
    except FileNotFoundError:
        return "is missing"
    return "is damaged: its check sum does not match" if crc not in (-1, found) else None


class Stage:
    """The files of one task."""

    def __init__(self, options: Options, query: str, batch: int, task: int,
                 run: str | None = None) -> None:
        self._options = options
        self._task = task
        name = f"{task}-{uuid.uuid4().hex}"             # attempts do not meet
        self._name = name if run is None else f"{run}-{name}"
        self._folder = folder_of(options.folder, query, batch) / self._name
        self._open: dict[tuple[str, int], _Open] = {}
        self._most = max(2, min(TOGETHER, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4))
        self._lock: Any = None          # file 0
        self._done = Staged(query)

    def write(self, batches: Iterator[Any]) -> Staged:
        try:
            for batch in batches:
                if batch.num_rows:
                    self._add(batch)
            return self._end()
        finally:
            for one in self._open.values():
                one.stream.close()
                one.file.close()
            if self._lock is not None:
                self._lock.close()

    def _add(self, batch: Any) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        topics, numbers = self._topics(batch), self._partitions(batch)
        kept = pa.RecordBatch.from_arrays(
            [_plain(pa, batch.column(i), f.type) for i, f in enumerate(batch.schema)
             if f.name in ("value", "key", "timestamp")],
            names=[f.name for f in batch.schema if f.name in ("value", "key", "timestamp")])
        check_tombstones(column(kept, "value"), column(kept, "key"))
        check_times(column(kept, "timestamp"))
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
        key = topic, partition
        if key not in self._open:
            if len(self._open) == self._most:       # the one that was written first
                self._close(next(iter(self._open)))
            self._open[key] = self._make(key, batch.schema)
        one = self._open[key]
        one.stream.write_batch(batch)
        self._done.files[one.at] = one.info = one.info._replace(
            rows=one.info.rows + batch.num_rows)

    def _make(self, key: tuple[str, int], schema: Any) -> _Open:
        import pyarrow as pa

        self._folder.mkdir(parents=True, exist_ok=True)
        at = len(self._done.files)
        path = self._folder / f"{at}.arrow"
        file = open(path, "xb")
        if self._lock is None:
            self._lock = open(path, "rb")
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        info = File(*key, f"{self._name}/{at}.arrow", 0)
        self._done.files.append(info)
        summed = _Summed(file)
        return _Open(file, pa.ipc.new_stream(summed, schema), at, info, summed)

    def _close(self, key: tuple[str, int]) -> None:
        one = self._open.pop(key)
        one.stream.close()
        with one.file as file:
            file.flush()
            os.fsync(file.fileno())
        self._done.files[one.at] = one.info._replace(crc=one.summed.crc)

    def _end(self) -> Staged:
        for key in list(self._open):
            self._close(key)
        if self._done.files:
            for folder in (self._folder, *list(self._folder.parents)[:4]):
                sync_folder(folder)
        return self._done


@dataclass
class _Open:
    """A file that is being staged. at: its number."""

    file: Any
    stream: Any
    at: int
    info: File
    summed: _Summed


class _Summed:
    """A file that Arrow writes to, and the CRC-32C of all that was written."""

    closed = False

    def __init__(self, file: Any) -> None:
        self._file = file
        self.crc = 0

    def write(self, data: Any) -> int:
        piece = memoryview(data).cast("B")
        self.crc = checksum(piece, self.crc) if len(piece) else self.crc
        return int(self._file.write(piece))

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self.closed = True


def _plain(pa: Any, array: Any, kind: Any) -> Any:
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return array.cast(pa.binary() if pa.types.is_string(kind) else pa.large_binary())
    return array
