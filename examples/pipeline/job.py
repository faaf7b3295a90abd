"""The job: journals in, tables out. The same on one machine and on a cluster.

Two streaming queries, since each costs some 0.2 s a micro-batch and a Python process beside it:

- `hourly`: flights joined with weather, windowed; state in the checkpoint, mode append.
- `arrivals`: everything about how messages came. It keeps no state. Each micro-batch is read once,
  counted in four ways, and the counts are kept; counts add up, so the tables are made from all
  that were kept (`mqcore.spark.tables`).

Both write in `foreachBatch`: what comes of a micro-batch is small, goes through the driver, and
becomes one Parquet file that is named by the number of the micro-batch. After a crash Spark repeats
the last one with the same messages and the same state, and the file is written over. So everything
is there once, whichever moment the driver dies at; any reader of Parquet may read the folder.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from examples.pipeline import hours
from mqcore.errors import OptionError, StateError, WaitTimeout
from mqcore.journal.store.place import sync_folder
from mqcore.spark import tables

_log = logging.getLogger("mqcore.spark")
VALUE = "origin string, hour timestamp, dest string, carrier string, end boolean"
PARTS = "parts"
OWNER = "job"               # the file with the id of the job that a folder belongs to
PATIENCE = 5000             # ms that publishing waits for the subscriber
DataFrame = Any


def _rates(messages: DataFrame, every: str) -> DataFrame:
    """Both ends in one table: arrived by the time of arrival, sent by the time of sending."""
    none = F.lit(0).cast("long")
    arrived = tables.rates(messages, every, ends=F.col("end"), unreadable=F.isnull("origin")
                           | F.isnull("hour")).withColumn("sent", none)
    sent = tables.rates(messages, every, at="sent").withColumnRenamed("messages", "sent")
    return arrived.unionByName(sent.withColumns(
        dict.fromkeys(("messages", "bytes", "ends", "unreadable"), none)))


def _per_second(counts: DataFrame) -> DataFrame:
    return tables.added(counts).drop("ends", "unreadable").withColumns(
        {f"{name}_per_s": F.col(name) / F.col("seconds") for name in ("messages", "bytes", "sent")})


def _collected(frames: dict[str, DataFrame]) -> Any:
    """All rows in one Arrow table, whose column `what` has the name of the frame; columns that a
    frame has not are null. In one action, since an action costs more than all that is counted."""
    named = [frame.withColumn("what", F.lit(name)) for name, frame in frames.items()]
    return functools.reduce(
        lambda a, b: a.unionByName(b, allowMissingColumns=True), named).toArrow()


class Count(NamedTuple):
    """take: what is counted in a micro-batch, with these columns."""

    columns: str
    take: Callable[[DataFrame, str], DataFrame]


COUNTS = {
    "rates": Count("start seconds topic messages bytes ends unreadable sent", _rates),
    "latencies": Count("start topic us messages", tables.latencies),
    "sequences": Count("producer life block messages lowest highest seen",
                       lambda messages, every: tables.sequences(messages)),
    "talkers": Count("by name messages bytes", lambda messages, every: tables.talkers(
        messages, "key", "dest", "carrier")),
}
# table: (of which count, what is made of all that was counted)
TABLES: dict[str, tuple[str, Callable[[DataFrame], DataFrame]]] = {
    "topics": ("rates", lambda counts: tables.added(
        counts.select("topic", "messages", "ends", "unreadable"))),
    "rates": ("rates", _per_second),
    "latency": ("latencies", tables.percentiles),
    "sequences": ("sequences", tables.gaps),
    "talkers": ("talkers", tables.added),
}


class Job:
    """Both queries, from start() to stop(); also `with Job(...) as job:`.

    options: those of `format("mqcore")` that say where the journals are (`path` or `endpoints`),
    and any others; topics, stamps and the start at the earliest are given here.
    out: the folder of the results; publish: the address of a SUB that binds and gets the rows of
    `hourly` as JSON, topic "hourly", or None; checkpoint: the folder of Spark's, which executors
    must reach as well. Results belong to their checkpoint: start() refuses others (OptionError).
    late: how far behind the newest hour one may come (see `hours.hourly`); every: the interval of
    micro-batches; window: that of `rates` and `latency`.
    """

    def __init__(self, spark: Any, options: Mapping[str, str], out: Path, publish: str | None,
                 checkpoint: Path, *, late: str = "1 day", every: str = "2 seconds",
                 window: str = "1 second") -> None:
        self._options = dict(options)
        self._out = Path(out)
        self._checkpoint = Path(checkpoint)
        self._publish_to = publish
        self._late, self._every, self._window = late, every, window
        self._spark = spark
        self._queries: dict[str, Any] = {}
        self._progress: dict[tuple[str, int], dict[str, Any]] = {}
        self._unpublished: dict[int, int] = {}
        self._finished: Path | None = None      # the newest counts that the tables have

    # -- from start to stop --

    def start(self) -> None:
        """Both queries run when it returns. Raises what is wrong with the options or the
        journals, and OptionError if results and checkpoint do not belong together."""
        if self._queries:
            raise StateError("the job has been started", hint="make another Job")
        self._claim()
        hourly = hours.hourly(hours.flights(self._messages("flights")),
                              hours.weather(self._messages("weather")), self._late)
        arrivals = self._messages("flights,weather", includeStamps="true")
        try:
            self._run("hourly", hourly, self._closed)
            self._run("arrivals", arrivals, self._arrived)
        except BaseException:
            for query in self._queries.values():
                query.stop()
            raise

    def drain(self, timeout: float) -> None:
        """Wait until all that was in the journals at the call is in the results, then make the
        tables. Only what watermarks have passed is in `hourly`. Producers should be done: queries
        that never run out of messages never get there. Raises WaitTimeout after so many seconds,
        or what ended a query."""
        failed: list[Exception] = []

        def wait() -> None:
            try:
                for query in self._queries.values():
                    query.processAllAvailable()
            except Exception as error:
                failed.append(error)
        thread = threading.Thread(target=wait, name="mqcore-spark-drain", daemon=True)
        thread.start()
        thread.join(timeout)
        if failed:
            raise failed[0]
        if thread.is_alive():
            states = ", ".join(f"{name}: {query.status['message']}"
                               for name, query in self._queries.items())
            raise WaitTimeout(f"the journals were not read to their ends in {timeout:g} s "
                              f"({states})", hint="more time, or are messages still coming?")
        self._finish()

    def stop(self) -> None:
        """Stop both queries and make the tables of what they have counted. A Job that is started
        later with the same folders goes on."""
        for query in self._queries.values():
            query.stop()
        self.progress()
        if self._queries:
            self._finish()

    def __enter__(self) -> Job:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def progress(self) -> list[dict[str, Any]]:
        """The micro-batches done since start(), in order: query, batch, at (ISO 8601), rows (read
        from the journals), seconds, late (dropped by watermarks), state_rows, watermark, and
        unpublished (rows of `hourly` that no subscriber took)."""
        for query in self._queries.values():
            for report in query.recentProgress:
                self._note(report)
        rows = [self._progress[key] for key in sorted(self._progress)]
        return [{**row, "unpublished": self._unpublished.get(row["batch"], 0)
                 if row["query"] == "hourly" else 0} for row in rows]

    # -- queries --

    def _messages(self, topics: str, **more: str) -> DataFrame:
        reader = self._spark.readStream.format("mqcore")
        wanted = {**self._options, "subscribe": topics, "startingOffsets": "earliest", **more}
        return reader.options(**wanted).load()

    def _run(self, name: str, rows: DataFrame, take: Callable[[DataFrame, int], None]) -> None:
        self._queries[name] = rows.writeStream.queryName(name).outputMode("append").option(
            "checkpointLocation", str(self._checkpoint / name)).trigger(
            processingTime=self._every).foreachBatch(take).start()

    def _arrived(self, batch: DataFrame, number: int) -> None:
        self._note_last("arrivals")
        messages = hours.decoded(batch, VALUE).persist()
        try:
            rows = _collected({name: count.take(messages, self._window)
                               for name, count in COUNTS.items()})
        finally:
            messages.unpersist()
        self._keep(PARTS, number, rows)

    def _closed(self, batch: DataFrame, number: int) -> None:
        self._note_last("hourly")
        rows = batch.toArrow()
        if rows.num_rows or not number:     # the first file has the columns, if nothing else
            self._keep("hourly", number, rows)
        if rows.num_rows and self._publish_to is not None:
            self._publish(batch.sparkSession.createDataFrame(rows), number, rows.num_rows)

    def _publish(self, rows: DataFrame, number: int, n: int) -> None:
        """At least once while there is a subscriber; without one the rows are counted, and the
        job goes on: they are in the Parquet files."""
        messages = rows.selectExpr(
            "to_json(struct(*), map('timeZone', 'UTC')) AS value", "'hourly' AS topic").coalesce(1)
        try:
            messages.write.format("mqcore").options(
                endpoints=self._publish_to, pattern="pub", timeoutMs=str(PATIENCE)).mode(
                "append").save()
        except Exception as error:
            self._unpublished[number] = n
            _log.warning("%d rows of hourly did not reach %s: %s", n, self._publish_to, error)

    # -- files --

    def _claim(self) -> None:
        """Results are named by the numbers of micro-batches, which each checkpoint begins anew: one
        would write over another's. And a checkpoint that goes on has counted what it had read."""
        ours, theirs = (_read(folder / OWNER) for folder in (self._checkpoint, self._out))
        if ours != theirs and (theirs or (self._checkpoint / "hourly").exists()):
            raise OptionError(f"the results in {self._out} and the checkpoint {self._checkpoint} "
                              "do not belong together", hint="keep both or delete both")
        if not ours:
            ours = uuid.uuid4().hex
            _write(self._checkpoint / OWNER, lambda file: file.write(ours.encode()))
        if not theirs:
            _write(self._out / OWNER, lambda file: file.write(ours.encode()))

    def _keep(self, name: str, number: int, rows: Any) -> None:
        import pyarrow.parquet as pq

        _write(self._out / name / f"{number:08}.parquet", lambda file: pq.write_table(rows, file))

    def _finish(self) -> None:
        """The tables, from all that has been counted."""
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        counted = max((self._out / PARTS).glob("*.parquet"), default=None)
        if counted == self._finished:
            return      # nothing since the last time, or not a single micro-batch yet
        counts = self._spark.createDataFrame(pq.read_table(self._out / PARTS)).persist()
        made = {name: make(counts.where(F.col("what") == count).select(
            *COUNTS[count].columns.split())) for name, (count, make) in TABLES.items()}
        rows = _collected(made)
        counts.unpersist()
        for name, table in made.items():
            self._keep(name, 0, rows.filter(pc.equal(rows["what"], name)).select(table.columns))
        self._finished = counted

    # -- progress --

    def _note_last(self, name: str) -> None:
        """Spark keeps the last hundred; so each micro-batch looks at the one before it."""
        query = self._queries.get(name)
        if query is not None and query.lastProgress is not None:
            self._note(query.lastProgress)

    def _note(self, report: Any) -> None:
        if "addBatch" not in report.durationMs:     # idle: not a micro-batch
            return
        self._progress[report.name, report.batchId] = {
            "query": report.name, "batch": report.batchId, "at": report.timestamp,
            "rows": report.numInputRows, "seconds": report.durationMs["triggerExecution"] / 1000,
            "late": sum(state.numRowsDroppedByWatermark for state in report.stateOperators),
            "state_rows": sum(state.numRowsTotal for state in report.stateOperators),
            "watermark": report.eventTime.get("watermark")}


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def _write(path: Path, fill: Callable[[Any], Any]) -> None:
    """The file is there whole or not at all, and durable when this returns. Names that begin with
    a dot are nothing to readers of Parquet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    with open(fresh, "wb") as file:
        fill(file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)
    sync_folder(path.parent)
