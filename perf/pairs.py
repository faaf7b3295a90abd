"""Two ends as processes, the spinners that keep cores awake, and the facts of the machine.

Used by versus.py and by the pyperf suites; every process is ended by who started it.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

ENDS = Path(__file__).with_name("ends.py")
ROLES = {"lat": ("echo", "ask"), "thr": ("sink", "source")}
PATIENCE = 120.0
SPIN = "import os\nos.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\nwhile True: pass\n"


class Case(NamedTuple):
    """What is measured; `many` > 0: the calls that take many messages at once."""

    kind: str  # "lat" or "thr"
    transport: str
    size: int
    count: int
    many: int = 0

    @property
    def name(self) -> str:
        what = {"lat": "round trip", "thr": "one way"}[self.kind]
        return f"{what}, {self.transport}, {self.size} B{', many a call' if self.many else ''}"


def cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


@contextlib.contextmanager
def address(transport: str) -> Iterator[str]:
    if transport == "tcp":
        yield "tcp://127.0.0.1:0"
        return
    with tempfile.TemporaryDirectory(prefix="mqperf") as folder:
        yield f"ipc://{folder}/s"


def end(library: str, role: str, case: Case, url: str, cpu: int | None) -> subprocess.Popen:
    command = [
        sys.executable,
        str(ENDS),
        library,
        role,
        "--url",
        url,
        "--size",
        str(case.size),
        "--count",
        str(case.count),
        "--many",
        str(case.many),
    ]
    if cpu is not None:
        command += ["--cpu", str(cpu)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)


@contextlib.contextmanager
def ending(*processes: subprocess.Popen) -> Iterator[None]:
    try:
        yield
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            process.stdout.close()


def run_pair(library: str, case: Case, cpus: tuple[int | None, int | None]) -> dict:
    """One measurement. Rates are the receiver's, round trips the asker's, CPU seconds of both."""
    listens, connects = ROLES[case.kind]
    with address(case.transport) as url:
        first = end(library, listens, case, url, cpus[0])
        with ending(first):
            real = first.stdout.readline().strip()
            if not real:
                raise RuntimeError(f"{library} {listens} did not start")
            second = end(library, connects, case, real, cpus[1])
            with ending(second):
                results = [
                    json.loads(process.communicate(timeout=PATIENCE)[0] or "null")
                    for process in (second, first)
                ]
    if None in results:
        raise RuntimeError(f"{library}, {case.name}: an end failed")
    there, here = results[0], results[1]
    messages = case.count
    cpu = (here["cpu"] + there["cpu"]) / messages
    if case.kind == "lat":
        return {"value": there["p50"], "p99": there["p99"], "cpu": cpu}
    return {"value": messages / here["seconds"], "cpu": cpu}


@contextlib.contextmanager
def awake(cpus: list[int]) -> Iterator[None]:
    """A process at idle priority on each core keeps it from halting and takes no time from others.
    In our own session: the kernel shares time among sessions before it looks at priorities."""
    spinners = []
    try:
        for cpu in cpus:
            pin = f"import os\nos.sched_setaffinity(0, {{{cpu}}})\n"
            spinners.append(subprocess.Popen([sys.executable, "-c", pin + SPIN]))
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


def installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def machine() -> dict:
    model = ""
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as lines:
        model = next(
            (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), ""
        )
    return {
        "cpu": model,
        "cores": len(cores()),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
        "versions": {name: installed(name) for name in ("mqcore", "pyzmq", "numpy")},
    }
