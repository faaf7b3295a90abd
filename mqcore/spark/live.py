"""A batch of what live sockets send now: each task connects to its share of the endpoints and
receives until there is enough, or nothing more. At most once: what a socket has handed out is
nowhere else, so a task that failed cannot be repeated, and says so instead of trying.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

import mqcore
from mqcore.errors import MessageTooLarge, NotSupported, RecvTimeout
from mqcore.spark.columns import LIVE, arrow_schema, check_schema, gathered
from mqcore.spark.options import Options

_log = logging.getLogger("mqcore.spark")
LOOK = 0.1      # seconds between two looks at who has connected


@dataclass
class Share(InputPartition):
    """What one task receives: from where, and how many messages at most."""

    endpoints: tuple[str, ...]
    most: int | None


class LiveReader(DataSourceReader):

    def __init__(self, schema: StructType, options: Options) -> None:
        check_schema(schema, LIVE)
        self._schema = schema
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """As many as endpoints, or as wanted: then some have several, or one has several tasks."""
        options = self._options
        n = options.numPartitions or len(options.endpoints)
        if options.maxMessages is not None:
            n = min(n, options.maxMessages)
        where = [options.endpoints[i::n] or (options.endpoints[i % len(options.endpoints)],)
                 for i in range(n)]
        most = [None if options.maxMessages is None else
                options.maxMessages * (i + 1) // n - options.maxMessages * i // n
                for i in range(n)]
        return [Share(*share) for share in zip(where, most, strict=True)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Share)
        _first_try(partition)
        return gathered(self._batches(partition), self._options.batchBytes)

    def _batches(self, share: Share) -> Iterator[Any]:
        options, schema = self._options, arrow_schema(self._schema)
        socket: Any = mqcore.Pull(recv_hwm=options.hwm) if options.pattern == "pull" else \
            mqcore.Sub(topics=options.subscribe or "", recv_hwm=options.hwm)
        try:
            for url in share.endpoints:
                socket.connect(url)
            for batch in self._received(socket, share.most):
                yield record_batch(batch, schema, options.topicFrom is not None)
        finally:
            stats = socket.stats()
            waiting = sum(peer.queued_in for peer in stats.peers.values())
            socket.close(linger=0)
            if waiting or stats.reconnects:
                _log.warning("%s: %d messages had come and were not read; %d connections broke, "
                             "with what was on the way", ", ".join(share.endpoints), waiting,
                             stats.reconnects)

    def _received(self, socket: Any, most: int | None) -> Iterator[Any]:
        """Batches until `most` messages, or until nothing comes for idleMs."""
        options = self._options
        patience = (options.idleMs or options.timeoutMs) / 1000
        begun = quiet = time.monotonic()
        count, unmet = 0, list(socket.endpoints)
        while most is None or count < most:
            try:
                batch = socket.recv_batch(65536 if most is None else min(65536, most - count),
                                          max_bytes=options.batchBytes, timeout=LOOK)
                count += len(batch)
                largest = int(np.diff(batch.offsets).max())
                if largest > options.maxMessageBytes:
                    raise MessageTooLarge(f"a message has {largest} bytes",
                                          hint="more than maxMessageBytes; raise it, and the "
                                               "executor's memory")
                yield batch
                # the time that Spark needs for a batch does not count as silence
                quiet = time.monotonic()
                continue
            except RecvTimeout:
                now = time.monotonic()
            if unmet:
                unmet = _unmet(socket, unmet)
                if unmet and now - begun >= options.timeoutMs / 1000:
                    why = "; ".join(f"{endpoint.url}, {endpoint.error.text}" if endpoint.error
                                    else endpoint.url for endpoint in unmet)
                    raise RecvTimeout(f"not connected within {options.timeoutMs} ms: {why}",
                                      hint="do the senders bind there? give more time with "
                                           "timeoutMs")
                quiet = now
            elif now - quiet >= patience:
                if options.idleMs is None:
                    raise RecvTimeout(
                        f"{count} of {most} messages came, then nothing for {options.timeoutMs} ms",
                        hint="give more time with timeoutMs, or say idleMs to take what there is")
                return


def _unmet(socket: Any, endpoints: list[Any]) -> list[Any]:
    """Endpoints that were never connected. A peer that connected and left has sent everything."""
    met = {peer.endpoint for peer in socket.stats().peers}
    return [endpoint for endpoint in endpoints
            if met.isdisjoint([endpoint.url, *(member.url for member in endpoint.members)])]


def _first_try(share: Share) -> None:
    context = TaskContext.get()
    again = 0 if context is None else context.attemptNumber()
    if again:
        raise NotSupported(
            f"attempt {again + 1} of the task that reads {', '.join(share.endpoints)}: what the "
            "first one received is gone, so the result would lack it",
            hint="Spark's log says why the first one failed (\"Lost task\"); to be able to repeat, "
                 "record the messages in a journal and read that")


def record_batch(batch: Any, schema: Any, topics: bool) -> Any:
    """A socket's Batch with these columns. topics: the first part is the topic, the rest is the
    value; else all parts joined are the value."""
    import pyarrow as pa

    n = len(batch)
    columns: dict[str, Any] = {"timestamp": pa.repeat(
        pa.scalar(time.time_ns() // 1000, pa.timestamp("us", "UTC")), n)}
    if topics:
        ends = np.empty(2 * n + 1, np.int32)
        ends[::2], ends[1::2] = batch.offsets, batch.split
        parts = pa.Array.from_buffers(pa.binary(), 2 * n,
                                      [None, pa.py_buffer(ends), pa.py_buffer(batch.data)])
        columns["topic"] = _text(pa, parts.take(pa.array(np.arange(0, 2 * n, 2))))
        columns["value"] = parts.take(pa.array(np.arange(1, 2 * n, 2)))
    else:
        columns["topic"] = pa.nulls(n, pa.string())
        columns["value"] = batch.to_arrow()
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _text(pa: Any, raw: Any) -> Any:
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:     # a peer's mistake, which is not to cost what others have sent
        return pa.array([topic.decode(errors="replace") for topic in raw.to_pylist()], pa.string())
