"""A standalone cluster of a master and two workers, and the pipeline's job on it."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pip install mqcore[spark]")

import pipeline_feed as feed  # noqa: E402
from programs import starter  # noqa: E402

from examples.pipeline import Cluster, ClusterFailed, compare, truth  # noqa: E402
from examples.pipeline.processes import descendants  # noqa: E402
from mqcore.errors import NotSupported  # noqa: E402
from mqcore.testing.watch import until  # noqa: E402

LIMIT = 150.0       # seconds for the driver


def alive(text):
    """Processes of this machine whose command line has this text."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if text in (place / "cmdline").read_bytes().decode(errors="replace"):
                found.append(int(place.name))
        except OSError:
            continue
    return found


def running(pid):
    """Whether it has not ended; its parent need not have asked."""
    with contextlib.suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def executors(cluster):
    """The executors' processes of each worker."""
    def is_one(pid):
        with contextlib.suppress(OSError):
            return b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return [[pid for pid, _ in descendants(worker) if is_one(pid)] for worker in cluster.pids[1:]]


@pytest.mark.usefixtures("quick_java")
@pytest.mark.timeout(300)
@pytest.mark.keeps(threads=12, why="Arrow's own pool")
def test_the_job_runs_on_a_cluster(tmp_path):
    """Unchanged, with an executor in each worker, of which one is killed; nothing is left of it."""
    flights, weather = feed.tables_until("2013-01-04T00:00:00Z", "JFK")
    rows, feeder = feed.messages(flights, weather), feed.Feeder(tmp_path)
    feeder.write(rows[:len(rows) // 2])
    with Cluster(workers=2, folder=tmp_path / "cluster", timeout=LIMIT) as cluster:
        url = cluster.url
        assert len(cluster.pids) == 3 and url.startswith("spark://127.0.0.1:")
        driver = subprocess.Popen([sys.executable, feed.__file__, url, str(tmp_path)],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                  env=feed.found())
        try:
            until(lambda: list((tmp_path / "results").glob("parts/0*")) or driver.poll(), LIMIT)
            first, second = executors(cluster)
            assert len(first) == len(second) == 1
            os.kill(first[0], signal.SIGKILL)
            feeder.write([*rows[len(rows) // 2:], *feed.ends("JFK")])
            assert driver.communicate("drain\n", timeout=LIMIT) == ("drained\n", None)
        finally:
            driver.kill()
            driver.wait()
    told = compare(None, tmp_path / "results", flights, weather)
    assert told.ok, str(told)
    sequences = truth.read_table(None, tmp_path / "results" / "sequences")
    assert sequences["messages"].sum() == len(flights) + len(weather) + 2
    assert not sequences["missing"].any()
    until(lambda: not alive(url), 20)
    assert (tmp_path / "cluster" / "master.log").exists()       # a folder that was given stays


PROGRAM = """
import sys
from examples.pipeline import Cluster
with Cluster(workers=1, timeout=150) as cluster:
    print(cluster.url, *cluster.pids, flush=True)
    sys.stdin.read()
"""


@pytest.mark.usefixtures("quick_java", "pipeline_path")
def test_a_killed_parent_leaves_nobody():
    with starter() as start:
        program = start("-c", PROGRAM, stdin=True)
        url, *pids = program.line(patience=LIMIT).split()
        assert {int(pid) for pid in pids} <= set(alive(url)) | {int(pids[0])}
        program.end(signal.SIGKILL)
        until(lambda: not alive(url) and not any(map(running, pids)))


@pytest.mark.parametrize("script, told", [
    ("echo too few goblins; exit 3", "ended with status 1:\n    too few goblins"),
    ("echo thinking; exec sleep 1000", "did not come up in 0.5 s:\n")])
def test_what_does_not_come_up_is_told(tmp_path, monkeypatch, script, told):
    """The end of its log is in the error, and nothing is left running."""
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text(f"#!/bin/sh\n{script} # {tmp_path}\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    cluster = Cluster(timeout=0.5 if "sleep" in script else 60)
    with pytest.raises(ClusterFailed, match="the master") as caught:
        cluster.start()
    assert told in str(caught.value)
    assert cluster.pids == [] and cluster.url == ""
    until(lambda: not alive(str(tmp_path)))


def test_without_java(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NotSupported, match="Java 17"):
        Cluster().start()
