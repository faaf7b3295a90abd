"""Writing into live sockets: at least once. A task that fails, or a batch that is repeated after a
crash, sends its messages again; give them a key or a number if the receiver must tell.

Each task connects to all endpoints, sends, and ends when the kernel has everything. A full peer
blocks the task, and so the trigger: that is the back-pressure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

import mqcore
from mqcore.errors import RecvTimeout, SendTimeout
from mqcore.spark.options import Options
from mqcore.spark.rows import SOCKET, check_columns, column, parts_of

SHORT = 1.0     # seconds to say goodbye at most, though all is written


class Sent(WriterCommitMessage):
    """Nothing is to be committed."""


class _Sink:
    def __init__(self, schema: StructType, options: Options, overwrite: bool) -> None:
        check_columns(schema, SOCKET, overwrite, options.topic)
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        first = next((batch for batch in iterator if batch.num_rows), None)
        if first is not None:
            self._send(first, iterator)
        return Sent()

    def _send(self, first: Any, rest: Iterator[Any]) -> None:
        options = self._options
        timeout = options.timeoutMs / 1000
        with mqcore.Context() as context:
            kind = mqcore.Push if options.pattern == "push" else mqcore.XPub
            socket: Any = kind(context=context, send_timeout=timeout, on_full="block")
            try:
                for url in options.endpoints:
                    socket.connect(url)
                if options.pattern == "push":
                    socket.wait_peers(1, timeout=timeout)
                else:
                    _await_subscribers(socket, len(options.endpoints), timeout)
                self._batch(socket, first)
                for batch in rest:
                    self._batch(socket, batch)
            except BaseException:
                socket.close(linger=0)
                raise
            report = socket.close(linger=max(timeout, SHORT))
            unsent = report.undelivered + sum(report.dropped.values())
            if unsent:
                raise SendTimeout(f"{unsent} messages were not written to {options.endpoints}",
                                  hint="does the receiver receive? give more time with timeoutMs")

    def _batch(self, socket: Any, batch: Any) -> None:
        if not batch.num_rows:
            return
        values, ends = parts_of(column(batch, "value"), "value")
        topics = column(batch, "topic")
        if topics is None and self._options.topic is None:
            socket.send_batch(values, ends)
            return
        raw, bounds = values[ends[0]:ends[-1]].tobytes(), (ends - ends[0]).tolist()
        names = [None] * batch.num_rows if topics is None else topics.to_pylist()
        default = self._options.topic
        socket.send_many(_parts(name if name is not None else default, raw[a:b]) for name, a, b
                         in zip(names, bounds, bounds[1:], strict=False))


def _await_subscribers(socket: Any, n: int, timeout: float) -> None:
    """Until so many have subscribed; what is published before that is for nobody."""
    for i in range(n):
        try:
            socket.recv(timeout=timeout)
        except RecvTimeout:
            raise SendTimeout(f"{i} subscriptions within {timeout:g} s, {n} endpoints",
                              hint="each endpoint must be a SUB that binds and has "
                                   "subscribed") from None


def _parts(topic: str | None, value: bytes) -> Any:
    return value if topic is None else (topic.encode(), value)


class BatchSink(_Sink, DataSourceArrowWriter):
    """df.write"""


class StreamSink(_Sink, DataSourceStreamArrowWriter):
    """df.writeStream"""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """All is sent by now."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What is sent is sent."""
