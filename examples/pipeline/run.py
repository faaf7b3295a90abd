"""A whole run: processes started, the job beside them, everything compared, everything ended.

The order is what makes the comparison exact. The feed is stored. The job reads all of it. Only then
the producers send their last messages, which move the watermarks beyond everything; the job reads
these; the job is stopped; the collectors are stopped.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import platform
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from examples.pipeline import feed, report, truth
from examples.pipeline.cluster import Cluster
from examples.pipeline.feed import Days
from examples.pipeline.fleet import LOOPBACK, Fleet
from examples.pipeline.job import Job
from examples.pipeline.pace import SPEED, Pace
from examples.pipeline.processes import Worker, descendants, end_all
from mqcore.errors import Error, OptionError
from mqcore.spark.needs import need_java
from mqcore.spark.start import session

LATE = "30 days"    # far beyond the skew that the fleet keeps: nothing may come too late
STOP = 10.0         # seconds for Spark to end by itself
DRAIN = 300.0       # seconds for the job to read what is there
EVERY = 5.0         # seconds between two lines about how far it is
QUIET = {"spark_log_level": "ERROR", "spark_ui_showConsoleProgress": "false",
         "spark_sql_streaming_stopTimeout": "10s"}
MARK = ".pipeline"      # an empty file: the folder is a run's
FILES = ("run.json", report.PAGE, "hourly.txt", "hourly.json")
# removed after a successful run, except with keep
BULKY = ("collector-0", "collector-1", "checkpoints")
FOLDERS = (*BULKY, "producers", "results")


class SparkFailed(Error):
    """What ended a query, or kept Spark from starting."""


@dataclass
class Outcome:
    """What a run came to. sums: (what, found, expected); problems: a sentence each."""

    out: Path
    seconds: float = 0.0
    sums: list[tuple[str, int, int]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    comparison: str = ""
    progress: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems

    @property
    def report(self) -> Path:
        return self.out / report.PAGE

    def sum(self, what: str, found: int, expected: int) -> None:
        self.sums.append((what, found, expected))
        if found != expected:
            self.problems.append(f"{what}: {found:,} instead of {expected:,}")


@dataclass
class Settings:
    """How to run the pipeline.

    days: the days of the year to feed. speed: days of the feed per second, 0 for no clock.
    master: Spark's master URL. cluster: workers of a cluster of its own, which replaces `master`.
    through: "path" (the job reads the journals' folders) or "servers" (it reads from the
    collectors). keep: whether journals and checkpoints stay. live: whether the subscriber prints
    its rows on standard error."""

    out: Path
    days: Days = Days()
    speed: float = SPEED
    master: str = "local[*]"
    cluster: int = 0
    through: str = "path"
    keep: bool = False
    live: bool = False


def run(settings: Settings, *, spark: Any = None,
        note: Callable[[str], None] = lambda text: None) -> Outcome:
    """Run the pipeline and write the report; every process has ended when it returns or raises.

    spark: a session to use, which stays; None: one of its own. note: told in a line now and then
    how far it is. Raises NotSupported for what is not installed, OptionError, WorkerFailed,
    WaitTimeout, and what ended a query: SparkFailed, or with a given session Spark's own error.
    """
    report.need_matplotlib()
    feed.located("flights.csv.zip")
    need_java()
    settings = dataclasses.replace(settings, out=settings.out.resolve())   # executors are elsewhere
    prepare(settings.out)
    began = time.time()
    outcome = Outcome(settings.out)
    with contextlib.ExitStack() as stack:
        fleet = stack.enter_context(Fleet(settings.out, Pace(settings.days, settings.speed)))
        subscriber = _subscriber(settings)
        stack.callback(subscriber.kill)
        url = subscriber.hear()["url"]
        session = stack.enter_context(_spark(settings)) if spark is None else spark
        where = {"path": ",".join(map(str, fleet.folders))} if settings.through == "path" \
            else {"endpoints": ",".join(fleet.servers)}
        results = settings.out / "results"
        stack.enter_context(_no_query_left(session))
        job = Job(session, where, results, url, settings.out / "checkpoints", late=LATE)
        job.start()
        _drive(fleet, job, _Teller(fleet, job, subscriber, note, settings.live))
        fleet.stop()
        hours = truth.read_table(None, results / "hourly")
        subscriber.tell(expect=len(hours))
        published = subscriber.hear()
        subscriber.end()
        outcome.progress = job.progress()
    note("comparing")
    _sums(outcome, fleet, results)
    _published(outcome, hours, published["rows"])
    _compare(outcome, settings.days, results)
    outcome.seconds = time.time() - began
    _write(outcome, settings, fleet)
    report.write(settings.out)
    if outcome.ok and not settings.keep:
        for name in BULKY:
            shutil.rmtree(settings.out / name)
    return outcome


def prepare(out: Path) -> None:
    """An empty folder for a run. What an earlier run has left there is deleted; a folder with
    anything else in it is refused: OptionError."""
    out.mkdir(parents=True, exist_ok=True)
    names = {path.name for path in out.iterdir()}
    foreign = sorted(names - {MARK, *FILES, *FOLDERS} if MARK in names else names)
    if foreign:
        raise OptionError(f"{out} has things that no run has left: {', '.join(foreign[:5])}",
                          hint="give an empty folder, or one of an earlier run")
    (out / MARK).touch()
    for name in FOLDERS:
        shutil.rmtree(out / name, ignore_errors=True)
    for name in FILES:
        (out / name).unlink(missing_ok=True)


# -- while it runs -------------------------------------------------------------------------------

def _subscriber(settings: Settings) -> Worker:
    return Worker("subscriber", bind=LOOPBACK, live=settings.live,
                  lines=str(settings.out / "hourly.txt"), rows=str(settings.out / "hourly.json"))


@contextlib.contextmanager
def _spark(settings: Settings) -> Iterator[Any]:
    """A session, and the cluster under it if one is wanted; both end with the block."""
    with contextlib.ExitStack() as stack:
        master = settings.master
        if settings.cluster:
            master = stack.enter_context(Cluster(settings.cluster)).url
        try:
            yield session(master, **QUIET)
        except (PySparkException, Py4JError) as error:  # their texts are in Java, which ends here
            raise SparkFailed(re.split(r"\n\s+at |\n+JVM stacktrace", str(error))[0]) from None
        finally:
            _end_spark()


@contextlib.contextmanager
def _no_query_left(spark: Any) -> Iterator[None]:
    """After a failure queries are stopped as they are; after good work the job has done it."""
    before = {query.id for query in spark.streams.active}
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):        # the failure may be Spark's own end
            for query in list(spark.streams.active):
                if query.id not in before:
                    query.stop()
        raise


def _end_spark() -> None:
    """Its own way, if that takes no longer than it should; then nothing of it is left."""
    from pyspark import SparkContext

    context: Any = SparkContext
    gateway, running = context._gateway, context._active_spark_context
    if gateway is None:
        return
    java = gateway.proc.pid
    below = descendants(java)

    def stop() -> None:
        with contextlib.suppress(Exception):        # of calls that were interrupted
            if running is not None:
                running.stop()
            gateway.shutdown()

    asked = threading.Thread(target=stop, name="mqcore-spark-end", daemon=True)
    asked.start()
    asked.join(STOP)
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(STOP)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()
    end_all(below)
    context._gateway = context._jvm = None


class _Teller:
    """Says how far the run is: to the subscriber's screen, or as lines."""

    def __init__(self, fleet: Fleet, job: Job, subscriber: Worker, note: Callable[[str], None],
                 live: bool) -> None:
        self._fleet, self._job, self._subscriber = fleet, job, subscriber
        self._note, self._live = note, live
        self._next = 0.0
        self.rows = 0

    def __call__(self) -> None:
        """All the time; tells now and then."""
        self._subscriber.check()
        if time.monotonic() > self._next:
            self._next = time.monotonic() + (1.0 if self._live else EVERY)
            self.tell()

    def tell(self, more: str = "") -> None:
        read = sum(batch["rows"] for batch in self._job.progress()
                   if batch["query"] == "arrivals")
        text = f"{max(0.0, time.time() - self._fleet.started):4.0f} s  " \
               f"{self._fleet.arrivals.distinct:,} of {self.rows:,} messages stored, " \
               f"{read:,} read{more}"
        if self._live:
            self._subscriber.tell(status=text)
        else:
            self._note(text)


def _drive(fleet: Fleet, job: Job, teller: _Teller) -> None:
    teller.rows = fleet.ready()
    fleet.feed(teller)
    teller.tell("; reading the rest")
    job.drain(DRAIN)
    fleet.finish()
    teller.tell("; closing all hours")
    job.drain(DRAIN)
    job.stop()


# -- afterwards ----------------------------------------------------------------------------------

def _sums(outcome: Outcome, fleet: Fleet, results: Path) -> None:
    """What was sent against what each station has of it."""
    sent = {account["producer"]: account["messages"] for account in fleet.accounts}
    total = sum(sent.values())
    outcome.sum("taken by the collectors", sum(s["messages"] for s in fleet.stored), total)
    outcome.sum("in the journals", sum(sum(s["stored"].values()) for s in fleet.stored), total)
    outcome.sum("read by Spark", int(truth.read_table(None, results / "topics")["messages"].sum()),
                total)
    seen = truth.read_table(None, results / "sequences").set_index("producer")
    for number, messages in sent.items():
        outcome.sum(f"of producer {number}", int(seen["messages"].get(number, 0)), messages)
    outcome.sum("missing in a sequence", int(seen["missing"].sum()), 0)
    outcome.sum("twice in a sequence", int(seen["duplicates"].sum()), 0)
    outcome.sum("undelivered, refused or cut in two",
                sum(a["undelivered"] + a["dropped"] for a in fleet.accounts)
                + sum(s["refused"] + s["unwritten"] for s in fleet.stored), 0)
    outcome.sum("too late for their hour", sum(batch["late"] for batch in outcome.progress), 0)


def _published(outcome: Outcome, hours: pd.DataFrame, rows: int) -> None:
    """The subscriber has what the files have."""
    outcome.sum("hours that the subscriber has", rows, len(hours))
    got = pd.DataFrame(json.loads((outcome.out / "hourly.json").read_text()),
                       columns=list(hours.columns))
    got["hour"] = pd.to_datetime(got["hour"], utc=True)
    want = hours.assign(hour=pd.to_datetime(hours["hour"], utc=True))
    keys = ["origin", "hour"]
    try:
        pd.testing.assert_frame_equal(
            got.sort_values(keys, ignore_index=True), want.sort_values(keys, ignore_index=True),
            check_dtype=False, check_exact=True)
    except AssertionError as error:
        outcome.problems.append(f"the subscriber's hours are not those of the files: {error}")


def _compare(outcome: Outcome, days: Days, results: Path) -> None:
    def chosen(rows: pd.DataFrame) -> pd.DataFrame:
        hours = rows["time_hour"].map(feed.seconds)
        return rows[(hours >= days.start) & (hours < days.stop)]

    comparison = truth.compare(None, results, chosen(truth.read_flights()),
                               chosen(truth.read_weather()))
    outcome.comparison = str(comparison)
    if not comparison.ok:
        outcome.problems.append(outcome.comparison)


def _write(outcome: Outcome, settings: Settings, fleet: Fleet) -> None:
    """run.json, which the report reads."""
    shown = {**dataclasses.asdict(settings), "days": str(settings.days), "out": str(settings.out)}
    about = {
        "settings": {**{name: value for name, value in shown.items() if name != "live"},
                     "started": datetime.fromtimestamp(fleet.started).isoformat(" ", "seconds"),
                     "seconds": round(outcome.seconds, 1),
                     "Python": platform.python_version(), "PySpark": pyspark.__version__},
        "started": fleet.started, "fed": fleet.fed, "steps": fleet.pace.steps, "sums": outcome.sums,
        "problems": outcome.problems, "comparison": outcome.comparison, "stored": fleet.stored,
        "progress": outcome.progress}
    (settings.out / "run.json").write_text(json.dumps(about, indent=1, default=str))


