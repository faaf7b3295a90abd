"""Figures of Spark on a journal: batch, server, stream, sizes.

    journal_spark.py [--only NAME ...] [--row TEXT] [--rounds N] [--quick] [--even-if-busy]
                     [--disk PATH] [--name NAME] [--folder PATH]

batch   Spark reads a journal of two partitions in one job into its no-op sink; beside its own
        Parquet source with the same rows and columns, which Spark has written from that journal
sent    what that leaves to any source in Python: nothing is read, but the first Arrow batch of each
        partition is sent again and again, as many rows in all; beside Parquet as well
server  the same through a journal server on loopback, a process of its own
stream  the same journal by Structured Streaming with Trigger.AvailableNow, in large micro-batches,
        from the start of the query to its end
sizes   Arrow batches as the source hands them to Spark, without the last one of a task

One Spark, local[2], for all of it. A JVM compiles what runs often, beside it and on the same cores:
batches run three times before they are measured, on both sides, the stream once. Java 17 must be
installed.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from figures import Reach, main_of, row
from rows import Row

SIZE = 100  # bytes of a message
MIB = 1 << 20
PARTITIONS = 2
MICRO_BATCHES = 3
WARM = 3  # runs: after two, a JVM still gets faster from one to the next, by half
REACH = {"batch": Reach(ratio=0.7), "stream": Reach(figure=1e6)}
COLUMNS = {
    "all columns": "key binary, value binary, topic string, partition int, offset long, "
    "timestamp timestamp",
    "value and offset": "value binary, offset long",
}


def warm(run: Callable[[], dict], times: int) -> Callable[[], dict]:
    """Runs so often before it is measured for the first time."""

    @functools.cache
    def first() -> None:
        for _ in range(times):
            run()

    def again() -> dict:
        first()
        return run()

    return again


@functools.cache
def session():
    from mqcore import spark

    made = spark.session(f"local[{PARTITIONS}]", spark_driver_memory="2g",
                         spark_ui_showConsoleProgress="false")  # fmt: skip
    made.sparkContext.setLogLevel("OFF")
    return made


@functools.cache
def filled(place: Path, count: int) -> Path:
    import numpy as np

    from mqcore import journal

    folder, several = place / f"journal{count}", min(100_000, count // PARTITIONS)
    data = np.random.default_rng(1).integers(0, 256, several * SIZE, np.uint8)
    ends = np.arange(several + 1) * SIZE
    for partition in range(PARTITIONS):
        with journal.open(folder, "a", topic="perf", partition=partition) as log:
            for _ in range(count // PARTITIONS // several):
                log.append_batch(data, ends)
    return folder


@functools.cache
def parquet(place: Path, count: int) -> Path:
    """All columns; Spark reads the selected ones."""
    folder = place / f"parquet{count}"
    of_journal(session().read, filled(place, count)).write.parquet(str(folder))
    return folder


def of_journal(reader, folder: Path, columns: str = ""):
    reader = reader.schema(columns) if columns else reader
    return (
        reader.format("mqcore").option("subscribe", "perf")
        .option("startingOffsets", "earliest").option("path", str(folder)).load()
    )  # fmt: skip


def timed(frame, count: int) -> dict:
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return {"value": count / (time.perf_counter() - began)}


def names_of(columns: str) -> list[str]:
    return [column.split()[0] for column in columns.split(", ")]


def by_journal(place: Path, count: int, columns: str) -> dict:
    return timed(of_journal(session().read, filled(place, count), columns), count)


@functools.cache
def sending() -> None:
    """format("sent")"""
    from pyspark.sql.datasource import DataSource

    from mqcore.spark.options import BATCH, check
    from mqcore.spark.read import Reader

    class First(Reader):
        def read(self, partition):
            first, left = next(super().read(partition)), partition.stop - partition.start
            while left > 0:
                yield first.slice(0, left)
                left -= first.num_rows

    class Sent(DataSource):     # in a function: pickled as it is, since executors cannot import it
        @classmethod
        def name(cls):
            return "sent"

        def reader(self, schema):
            return First(schema, check(self.options, BATCH))

    session().dataSource.register(Sent)


def by_sending(place: Path, count: int, columns: str) -> dict:
    sending()
    reader = session().read.schema(columns).format("sent").option("subscribe", "perf")
    return timed(reader.option("path", str(filled(place, count))).load(), count)


def by_parquet(place: Path, count: int, columns: str) -> dict:
    frame = session().read.parquet(str(parquet(place, count))).select(*names_of(columns))
    return timed(frame, count)


@contextlib.contextmanager
def server(folder: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "mqcore", "journal", "serve", str(folder),
               "--bind", "tcp://127.0.0.1:0"]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield next(word for word in process.stdout.readline().split() if "://" in word)
        finally:
            process.terminate()


def by_server(place: Path, count: int, columns: str) -> dict:
    with server(filled(place, count)) as url:
        reader = session().read.schema(columns).format("mqcore").option("subscribe", "perf")
        return timed(reader.option("endpoints", url).load(), count)


def by_stream(place: Path, count: int) -> dict:
    """The whole query, its start included; beside it the micro-batches without the first one."""
    checkpoint = place / "checkpoint"
    shutil.rmtree(checkpoint, ignore_errors=True)
    reader = session().readStream.option("maxOffsetsPerTrigger", -(-count // MICRO_BATCHES))
    frame = of_journal(reader, filled(place, count), COLUMNS["value and offset"])
    began = time.perf_counter()
    query = (
        frame.writeStream.format("noop").trigger(availableNow=True)
        .option("checkpointLocation", str(checkpoint)).start()
    )  # fmt: skip
    query.awaitTermination()
    took = time.perf_counter() - began
    batches = [p for p in query.recentProgress if p["numInputRows"]]
    if sum(p["numInputRows"] for p in batches) != count:
        raise RuntimeError(f"{count} rows are there, {[p['numInputRows'] for p in batches]} came")
    later = [p["numInputRows"] / p["durationMs"]["triggerExecution"] * 1e3 for p in batches[1:]]
    return {"value": count / took, "rows/s of later batches": statistics.median(later),
            "batches": len(batches)}  # fmt: skip


def sizes(place: Path, count: int, columns: str) -> dict:
    """As an executor makes them, without Spark."""
    from pyspark.sql.types import StructType

    from mqcore.spark.columns import full_schema
    from mqcore.spark.options import BATCH, check
    from mqcore.spark.read import Reader

    wanted = [field for field in full_schema(False, False) if field.name in names_of(columns)]
    options = check({"path": str(filled(place, count)), "subscribe": "perf"}, BATCH)
    reader = Reader(StructType(wanted), options)
    found = []
    for partition in reader.partitions():
        found += [batch.nbytes / MIB for batch in reader.read(partition)][:-1]
    return {"value": statistics.median(found), "least": min(found), "most": max(found)}


def rows(quick: bool, place: Path) -> list[Row]:
    count = 400_000 if quick else 10_000_000

    def part(run: Callable[..., dict], *columns: str, times: int = WARM) -> Callable[[], dict]:
        return warm(functools.partial(run, place, count, *columns), 1 if quick else times)

    fewer = COLUMNS["value and offset"]
    return [
        *(row(f"Spark, batch, {name}", "rows/s", "batch", part(by_journal, columns),
              "Parquet", part(by_parquet, columns))
          for name, columns in COLUMNS.items()),
        *(row(f"Spark, batch, only sent, {name}", "rows/s", "sent", part(by_sending, columns),
              "Parquet", part(by_parquet, columns), rounds=3)
          for name, columns in COLUMNS.items()),
        row("Spark, batch through a server, value and offset", "rows/s", "server",
            part(by_server, fewer), "Parquet", part(by_parquet, fewer), rounds=3),
        row(f"Spark, stream, {MICRO_BATCHES} micro-batches", "rows/s", "stream",
            part(by_stream, times=1)),
        *(row(f"Arrow batches for Spark, {name}", "MiB", "sizes",
              part(sizes, columns, times=0), rounds=1)
          for name, columns in COLUMNS.items()),
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main_of(__doc__, "journal-spark", rows, REACH))
