"""Attempts of one task: those that fail and are repeated, and speculative ones, which run beside
each other. What is read and written is there once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pip install mqcore[spark]")

import pyarrow as pa  # noqa: E402
from spark_streams import run  # noqa: E402
from staged import aged, publish, stage_to, values  # noqa: E402

from examples.pipeline import Cluster  # noqa: E402
from mqcore import journal  # noqa: E402
from mqcore.spark import sweep  # noqa: E402
from mqcore.spark.options import WRITE, check  # noqa: E402
from mqcore.spark.staging import HOME, Stage  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PARTITIONS, EACH = 3, 200
ALL = sorted(b"%d %d" % (p, i) for p in range(PARTITIONS) for i in range(EACH))


@pytest.fixture
def source(tmp_path):
    for p in range(PARTITIONS):
        with journal.open(tmp_path / "in", "a", topic="t", partition=p, block_bytes=1024) as log:
            log.append_many([b"%d %d" % (p, i) for i in range(EACH)])
    return str(tmp_path / "in")


def of(reader, source):
    return reader.format("mqcore").option("path", source).option("subscribe", "t").option(
        "startingOffsets", "earliest").schema("value binary").load()


def left(where):
    return [path for path in (where / HOME / "staging").rglob("*") if path.is_file()]


@pytest.mark.slow
def test_tasks_that_are_repeated(spark, source, tmp_path):
    """Spark tries each four times here. The first two attempts end behind their rows, which are
    staged by then."""
    def failing_twice(batches):
        from pyspark import TaskContext

        task = TaskContext.get()
        Path(place, f"{task.stageId()}-{task.partitionId()}-{task.attemptNumber()}").touch()
        yield from batches
        if task.attemptNumber() < 2:
            raise RuntimeError("this attempt fails")

    place = tmp_path / "attempts"
    place.mkdir()
    target = tmp_path / "out"
    df = of(spark.read, source).mapInArrow(failing_twice, "value binary")
    df.write.format("mqcore").option("path", str(target)).option("topic", "batch").mode(
        "append").save()
    assert sorted(values(target, "batch")) == ALL
    df = of(spark.readStream, source).mapInArrow(failing_twice, "value binary")
    assert run(df, tmp_path / "checkpoint", "mqcore", path=target, topic="stream")
    assert sorted(values(target, "stream")) == ALL
    assert left(target) == [] and len(list(place.iterdir())) == 2 * PARTITIONS * 3


class TwoHosts(Cluster):
    """Spark runs a speculative attempt on another host only."""

    def _launch(self, name, main, *arguments):
        if name == "worker-1":
            arguments = "--host", "127.0.0.2", *arguments
        return super()._launch(name, main, *arguments)


DRIVER = """
import sys, time
from pathlib import Path
from mqcore.spark import session
url, source, target, place = sys.argv[1:]
spark = session(url, spark_speculation="true", spark_speculation_interval="50ms",
                spark_speculation_multiplier="1.01", spark_speculation_quantile="0.1",
                spark_speculation_minTaskRuntime="50ms", spark_executor_memory="512m",
                spark_driver_memory="512m", spark_ui_showConsoleProgress="false",
                spark_driver_extraJavaOptions="-Dlog4j2.level=error")

def slow(batches):
    '''The first attempt of one task stages its rows, and ends when the test says so.'''
    from pyspark import TaskContext
    task = TaskContext.get()
    yield from batches
    name = f"{task.getLocalProperty('sql.streaming.queryId')}-{task.stageId()}"
    if task.attemptNumber() == 0 and task.partitionId() == 2:
        Path(place, f"waits-{name}").touch()
        while not Path(place, "go").exists():
            time.sleep(0.01)
    elif task.partitionId() == 2:
        while not Path(place, f"waits-{name}").exists():
            time.sleep(0.01)
        Path(place, f"overtakes-{name}").touch()

def of(reader):
    return reader.format("mqcore").option("path", source).option("subscribe", "t").option(
        "startingOffsets", "earliest").schema("value binary").load().mapInArrow(
        slow, "value binary")

of(spark.read).write.format("mqcore").option("path", target).option("topic", "batch").mode(
    "append").save()
query = (of(spark.readStream).writeStream.format("mqcore").option("path", target)
         .option("topic", "stream").option("checkpointLocation", place + "/checkpoint")
         .trigger(availableNow=True).start())
query.awaitTermination()
print("done", flush=True)
sys.stdin.readline()
"""


@pytest.mark.slow
@pytest.mark.usefixtures("quick_java", "pipeline_path")
@pytest.mark.timeout(300)
@pytest.mark.keeps(threads=12, why="Arrow's own pool")
def test_speculative_attempts(source, tmp_path):
    """A task that gets stuck is overtaken by another attempt of it, whose rows are published. A
    local Spark runs none, so this is a cluster of two hosts."""
    target = tmp_path / "out"
    environment = dict(os.environ, PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1",
                       PYTHONPATH=os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    with TwoHosts(workers=2, cores=2, folder=tmp_path / "cluster", timeout=150) as cluster:
        driver = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", DRIVER, cluster.url, source, str(target),
             str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=environment)
        try:
            assert driver.stdout.readline() == "done\n"
            assert sorted(values(target, "batch")) == ALL
            assert sorted(values(target, "stream")) == ALL
            (tmp_path / "go").touch()
            driver.communicate("\n", timeout=150)
        finally:
            (tmp_path / "go").touch()
            driver.kill()
            driver.communicate()
    for word in ("waits", "overtakes"):
        assert len(list(tmp_path.glob(f"{word}-*"))) == 2
    assert sorted(values(target, "batch")) == ALL
    assert sorted(values(target, "stream")) == ALL


def test_attempts_side_by_side(tmp_path):
    """One is published. What another leaves that ends later goes with the next batch of its query,
    or a day later."""
    options = check({"path": str(tmp_path), "topic": "a"}, WRITE)

    def batches(rows):
        for row in rows:
            yield pa.record_batch({"value": pa.array([row], pa.binary())})

    for query in ("q", "job-1"):
        slow = batches([b"one", b"two"])
        late = Stage(options, query, 0, 0)
        late._add(next(slow))
        files = Stage(options, query, 0, 0).write(batches([b"one", b"two"])).files
        assert publish(tmp_path, query, 0, files)
        with pytest.raises(FileNotFoundError):      # the task's; Spark has what it needs
            late.write(slow)
    assert values(tmp_path, "a") == [b"one", b"two"] * 2
    for query in ("q", "job-1"):
        Stage(options, query, 0, 0).write(batches([b"one", b"two"]))    # begins after all is over
        aged(tmp_path / HOME / "staging" / query, sweep.ABANDONED + 100)
    publish(tmp_path, "r", 0, stage_to(tmp_path, "r", b"x", 1, ["b"]))
    assert values(tmp_path, "a") == [b"one", b"two"] * 2 and left(tmp_path) == []
