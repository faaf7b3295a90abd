"""kill -9 of everything that a stream from journal to journal is made of, at random moments: the
Java of its driver, the Python workers of its executors, the Python in which the driver runs our
source and our commits, the recorder that fills the source. In the end every message is in the
target, once, and in order by producer.

MQ_KILLS=40 kills more often than the five times of an ordinary run, which has each victim at least
once.
"""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pip install mqcore[spark]")
psutil = pytest.importorskip("psutil")

from kills import RECORDER, Line, Producer  # noqa: E402

from mqcore import journal  # noqa: E402

KILLS = int(os.environ.get("MQ_KILLS", "5"))
LIMIT = 120.0            # a Java that starts beside others takes half a minute
ROOT = Path(__file__).resolve().parents[2]
DRIVER = """
import sys, threading
source, target, checkpoint = sys.argv[1:]
from pyspark.errors.exceptions.base import PySparkException
from mqcore.spark import session
spark = session("local[2,100]", spark_ui_showConsoleProgress="false", spark_driver_memory="512m",
                spark_driver_extraJavaOptions="-Dlog4j2.level=error")
spark.sparkContext.setLogLevel("OFF")
df = (spark.readStream.format("mqcore").option("path", source).option("subscribe", "default")
      .option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "10000")
      .option("includeStamps", "true").load().selectExpr(
          "CAST(producer AS STRING) AS key", "'out' AS topic",
          "concat(CAST(sequence AS STRING), ':', CAST(value AS STRING)) AS value"))
finish = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), finish.set()), daemon=True).start()
while True:                     # as a supervisor begins a failed query again
    query = (df.writeStream.format("mqcore").option("path", target).option("partitions", "2")
             .option("checkpointLocation", checkpoint).start())
    try:
        while not finish.is_set() and not query.awaitTermination(0.2):
            pass
        query.processAllAvailable()
        query.stop()
        break
    except PySparkException as error:
        print("the query failed:", str(error).splitlines()[0][:150], flush=True)
"""


VICTIMS = {
    "java": ["java"],
    "executor": ["pyspark.worker", "pyspark.sql.worker.write_into_data_source"],
    "runner": ["pyspark.sql.streaming.python_streaming_source_runner",
               "pyspark.sql.worker.python_streaming_sink_runner"],
}
ORDER = ["executor", "recorder", "java", "runner", "executor", "recorder", "executor", "executor"]


def of_sessions(numbers):
    """All processes of these sessions of the system."""
    found = []
    for one in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(one.pid) in numbers:
                found.append(one)
    return found


def named(process):
    """A process's name and its last argument, the program; empty for one that has ended."""
    try:
        return process.name(), *process.cmdline()[-1:]
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ()


class Driver:
    """A driver, the Java that it starts, and their Python processes: one session of the system."""

    def __init__(self, folder, source, target):
        self.folder = folder
        self.arguments = [source, target, str(folder / "checkpoint")]
        self.log = open(folder / "driver.log", "ab")
        self.killed = Counter()
        self.sessions = []
        self.start()

    def start(self):
        environment = dict(os.environ, PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1",
                           SPARK_LOCAL_DIRS=str(self.folder), PYTHONPATH=os.pathsep.join(
                               [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", DRIVER, *self.arguments], env=environment,
            stdin=subprocess.PIPE, stdout=self.log, stderr=self.log, start_new_session=True)
        self.sessions.append(self.process.pid)

    def processes(self, words):
        """Those of the present driver with one of these names. A worker whose daemon was killed has
        another parent, and the daemon makes a group of its own: only the session stays."""
        return [one for one in of_sessions([self.process.pid])
                if any(word in words for word in named(one))]

    def kill(self, name, rng):
        found = []
        while not found:
            found = self.processes(VICTIMS[name])
            time.sleep(0.01)
        rng.choice(found).kill()
        self.killed[name] += 1
        if name == "java":
            self.end()
            self.start()

    def end(self):
        self.process.kill()
        self.process.stdin.close()
        self.process.wait()

    def finish(self):
        self.process.stdin.write(b"finish\n")
        self.process.stdin.close()
        assert self.process.wait(LIMIT) == 0

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.end()
        self.log.close()
        for one in of_sessions(self.sessions):  # what of a killed driver has not noticed yet
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        print((self.folder / "driver.log").read_text(errors="replace")[-3000:])


def stored(where, topic):
    """Messages by partition; a partition may be missing yet."""
    found = []
    for name, number, _ in journal.store.topic_names.partitions(where):
        if name == topic:
            with journal.open(where, topic=name, partition=number) as log:
                found.append([m for records in log.batches() for m in records])
    return found


def until_more(where):
    """Until more has been stored than there is now."""
    def count():
        found = 0
        for name, number, _ in journal.store.topic_names.partitions(where):
            if name == "out":
                with journal.open(where, topic=name, partition=number) as log:
                    found += log.end
        return found
    before, end = count(), time.monotonic() + LIMIT
    while count() <= before:
        assert time.monotonic() < end, "the stream does not go on"
        time.sleep(0.02)


@pytest.mark.usefixtures("quick_java")
@pytest.mark.timeout(240 + 60 * KILLS)
def test_kill_9_of_everybody(ctx, tmp_path, rng):
    url, target = f"ipc://{tmp_path}/front", tmp_path / "out"
    target.mkdir()
    victims = (ORDER * KILLS)[:KILLS]
    rng.shuffle(victims)
    acknowledged = threading.Semaphore(0)
    gang = [Producer(ctx, url, who, window, acknowledged, pace=0.005)
            for who, window in ((1, 1), (2, 50), (3, 100))]
    with Line({"recorder": RECORDER}, tmp_path / "j", [url]) as line, \
            Driver(tmp_path, str(tmp_path / "j"), str(target)) as driver:
        for thread in gang:
            thread.start()
        for name in victims:
            until_more(target)
            time.sleep(rng.random() * 0.3)
            if name == "recorder":
                line.kill(name)
                line.start(name)
                line.wait(name)
            else:
                driver.kill(name, rng)
        for thread in gang:
            thread.finish()
        driver.finish()
        total = sum(thread.sent for thread in gang)
        print(f"{dict(driver.killed + line.killed)}, {total} messages")
    there = stored(target, "out")
    assert sum(map(len, there)) == total
    for thread in gang:
        wanted = [b"%d:" % i + thread.value(i) for i in range(thread.sent)]
        assert wanted in [[m for m in part if m.split(b":")[1] == b"%d" % thread.who]
                          for part in there]
