"""Writing into live sockets: at least once. A task that fails, or a batch that is repeated after a
crash, sends its messages again; give them a key or a number if the receiver must tell.

Each task connects to all endpoints, sends, and ends when the kernel has everything. A full peer
blocks the task, and so the trigger: that is the back-pressure.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

import mqcore
from mqcore.errors import RecvTimeout, SendTimeout
from mqcore.spark.options import Options
from mqcore.spark.rows import SOCKET, check_columns, column, parts_of, with_topics
from mqcore.spark.versions import DataSourceStreamArrowWriter, batches

SHORT = 1.0     # seconds to say goodbye at most, though all is written
LOOK = 0.01     # seconds between two looks at what is still to be written


class Sent(WriterCommitMessage):
    """Nothing is to be committed."""


class _Sink:
    def __init__(self, schema: StructType, options: Options, overwrite: bool) -> None:
        check_columns(schema, SOCKET, overwrite, options.topic)
        self._options = options
        self._schema = schema

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        first = next((batch for batch in iterator if batch.num_rows), None)
        if first is not None:
            self._send(first, iterator)
        return Sent()

    def _send(self, first: Any, rest: Iterator[Any]) -> None:
        options = self._options
        timeout = options.timeoutMs / 1000
        kind = mqcore.Push if options.pattern == "push" else mqcore.XPub
        socket: Any = kind(send_timeout=timeout, send_hwm=options.hwm, on_full="block")
        try:
            for url in options.endpoints:
                socket.connect(url)
            if options.pattern == "push":
                socket.wait_peers(1, timeout=timeout)
            else:
                _await_subscribers(socket, len(options.endpoints), timeout)
            for batch in itertools.chain([first], rest):
                self._batch(socket, batch)
            _drain(socket, timeout)
        except BaseException:
            socket.close(linger=0)
            raise
        report = socket.close(linger=max(timeout, SHORT))
        unsent = report.undelivered + sum(report.dropped.values())
        if unsent:
            raise _unsent(unsent, options.endpoints)

    def _batch(self, socket: Any, batch: Any) -> None:
        values, topics = column(batch, "value"), column(batch, "topic")
        data, ends = parts_of(values, "value")
        split = None
        if topics is not None or self._options.topic is not None:
            data, ends, split = with_topics(values, topics, self._options.topic)
        at = 0
        while at < len(ends) - 1:
            try:
                at += socket.send_batch(data, ends[at:],
                                        split=None if split is None else split[at:])
            except SendTimeout as error:
                if not error.sent:
                    raise           # no progress, that is
                at += error.sent


def _drain(socket: Any, timeout: float) -> None:
    """Until the kernel has everything. As long as it takes something now and then, we wait."""
    least, end = None, 0.0
    while True:
        stats = socket.stats()
        left = stats.waiting + sum(peer.queued_out for peer in stats.peers.values())
        if not left:
            return
        if least is None or left < least:
            least, end = left, time.monotonic() + timeout
        elif time.monotonic() >= end:
            raise _unsent(left, [endpoint.url for endpoint in socket.endpoints])
        time.sleep(LOOK)


def _unsent(n: int, endpoints: Sequence[str]) -> SendTimeout:
    return SendTimeout(f"{n} messages were not written to {', '.join(endpoints)}",
                       hint="does the receiver receive? give more time with timeoutMs")


def _await_subscribers(socket: Any, n: int, timeout: float) -> None:
    """Wait for the subscribers; messages published before that are lost."""
    for i in range(n):
        try:
            socket.recv(timeout=timeout)
        except RecvTimeout:
            raise SendTimeout(f"{i} subscriptions within {timeout:g} s, {n} endpoints",
                              hint="each endpoint must be a SUB that binds and has "
                                   "subscribed") from None


class BatchSink(_Sink, DataSourceArrowWriter):
    """df.write"""


class StreamSink(_Sink, DataSourceStreamArrowWriter):
    """df.writeStream"""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return super().write(batches(iterator, self._schema))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """All is sent by now."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What is sent is sent."""
