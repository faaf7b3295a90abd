"""A standalone Spark cluster on this machine: a master and workers of the installed PySpark, on
loopback. To try a program on a real cluster, with executors in processes of their own.

    with Cluster(workers=2) as cluster:
        spark = mqcore.spark.session(cluster.url)
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from examples.pipeline.processes import search_path
from mqcore.errors import Error, StateError
from mqcore.spark.needs import need_java

LOOPBACK = "127.0.0.1"
DAEMON_MEMORY = "256m"      # of the master and of each worker; executors come on top
# these processes live for seconds to minutes: a quick start is worth more than fast code
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
UP = re.compile(r"Starting Spark master at (spark://\S+)")
REGISTERED = re.compile(r"Successfully registered with master (\S+)")
GRACE = 10.0                # seconds for an orderly end
TAIL = 20                   # lines of a log in an error
# standard input is a pipe from the process that starts the cluster: when that process ends, this
# ends the process group, which includes executors
UNDER_WATCH = 'exec 3<&0; (read -r _ <&3; kill -s KILL 0) & exec "$@" 3<&- </dev/null'


class ClusterFailed(Error):
    """A process of the cluster did not come up."""

    code = "cluster_failed"
    hint = "its log is above; is there memory, and is Java 17 or later what `java` starts?"


class Daemon(NamedTuple):
    name: str
    process: subprocess.Popen[bytes]
    log: Path


class Cluster:
    """From start() to stop(), or `with`; it does not outlive this process, however that ends. Ports
    are free ones; work folders and logs are in
    `folder`, or in a temporary one that goes away.

    workers: how many, each with so many cores and so much memory for executors; less than
    `spark.executor.memory` ("1g" by default), and there will be none. They find this
    mqcore whether it is installed or not. timeout: seconds for each process to come up.
    start() raises ClusterFailed with the end of a log, NotSupported without Java.
    """

    def __init__(self, workers: int = 2, *, cores: int = 1, memory: str = "1g",
                 folder: Path | None = None, timeout: float = 60) -> None:
        self._workers, self._cores, self._memory = workers, cores, memory
        self._given = folder
        self._timeout = timeout
        self._folder = Path()
        self._running: list[Daemon] = []
        self.url = ""

    @property
    def pids(self) -> list[int]:
        """Of the master and the workers."""
        return [daemon.process.pid for daemon in self._running]

    def start(self) -> None:
        if self._running:
            raise StateError("the cluster has been started", hint="stop() it first")
        need_java()
        self._folder = self._given or Path(tempfile.mkdtemp(prefix="mqcore-spark-"))
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            master = self._launch("master", "master.Master")
            self.url = self._await(master, UP)
            found = [self._launch(
                f"worker-{i}", "worker.Worker", "--cores", str(self._cores), "--memory",
                self._memory, "--work-dir", str(self._folder / f"worker-{i}"), self.url)
                for i in range(self._workers)]
            for worker in found:
                self._await(worker, REGISTERED)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the processes that start() has started, executors of the workers with them, and
        wait for them."""
        for daemon in reversed(self._running):
            daemon.process.terminate()
        until = time.monotonic() + GRACE
        for daemon in reversed(self._running):
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.process.wait(max(0.0, until - time.monotonic()))
            # executors are in their worker's group
            with contextlib.suppress(ProcessLookupError):
                os.killpg(daemon.process.pid, signal.SIGKILL)
            daemon.process.wait()
            assert daemon.process.stdin is not None
            daemon.process.stdin.close()
        self._running.clear()
        self.url = ""
        if self._given is None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Cluster:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.stop()

    def _launch(self, name: str, main: str, *arguments: str) -> Daemon:
        import pyspark

        home = Path(pyspark.__file__).parent
        log = self._folder / f"{name}.log"
        with open(log, "wb") as file:
            process = subprocess.Popen(
                ["sh", "-c", UNDER_WATCH, "sh", str(home / "bin" / "spark-class"),
                 f"org.apache.spark.deploy.{main}",
                 "--host", LOOPBACK, "--port", "0", "--webui-port", "0", *arguments],
                # no settings of this machine: they are not meant for us
                env={**os.environ, "SPARK_HOME": str(home),
                     "SPARK_CONF_DIR": str(self._folder / "none"),
                     "SPARK_LOCAL_IP": LOOPBACK, "SPARK_DAEMON_MEMORY": DAEMON_MEMORY,
                     # for executors, which have their worker's environment
                     "SPARK_DAEMON_JAVA_OPTS": QUICK, "PYTHONPATH": search_path()},
                stdin=subprocess.PIPE, stdout=file, stderr=file, start_new_session=True)
        daemon = Daemon(name, process, log)
        self._running.append(daemon)
        return daemon

    def _await(self, daemon: Daemon, pattern: re.Pattern[str]) -> str:
        """What the pattern finds in the log."""
        until = time.monotonic() + self._timeout
        while True:
            ended = daemon.process.poll()
            text = daemon.log.read_text(errors="replace")
            found = pattern.search(text)
            if found:
                return found[1]
            if ended is not None or time.monotonic() > until:
                what = f"did not come up in {self._timeout:g} s" if ended is None else \
                    f"ended with status {ended}"
                tail = "".join(f"\n    {line}" for line in text.splitlines()[-TAIL:])
                raise ClusterFailed(f"the {daemon.name} {what}:{tail}\n")
            time.sleep(0.05)
