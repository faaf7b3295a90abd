"""Ends as processes, the spinners that keep cores awake, and the facts of the machine.

Used by versus.py, many.py and by the pyperf suites; every process is ended by who started it.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from candidates import interpreter

HERE = Path(__file__).parent
ROLES = {"lat": ("echo", "ask"), "thr": ("sink", "source")}
PATIENCE = 20.0
BUSY = 0.2  # of a core: more than this, by others, and no figure is worth its ink
SPIN = """import os
os.sched_setaffinity(0, {%d})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
parent = %d
while os.getppid() == parent:
    for _ in range(1000000):
        pass
"""


class Case(NamedTuple):
    """What is measured, and where its ends run."""

    kind: str  # "lat" or "thr"
    transport: str
    size: int
    calls: str = "plain"
    place: str = "idle"  # "awake": with spinners; "together": on one core; "free": unpinned
    beside: str = ""  # a second thread in each process: "busy" or "watch" (beside.py)

    @property
    def name(self) -> str:
        what = {"lat": "round trip", "thr": "one way"}[self.kind]
        calls = {"plain": "", "parts": ", two parts", "many": ", many a call",
                 "batch": ", batches"}  # fmt: skip
        where = "" if self.kind == "thr" and self.place == "free" else f", {self.place}"
        how = calls.get(self.calls, f", {self.calls}")
        thread = ", beside a busy thread" if self.beside == "busy" else ""
        return f"{what}, {self.transport}, {size_name(self.size)}{how}{where}{thread}"


def size_name(size: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def placement(place: str) -> tuple[int | None, int | None]:
    have = cores()
    if place == "free":
        return None, None
    return (have[0], have[0]) if place == "together" else (have[0], have[-1])


@contextlib.contextmanager
def address(transport: str) -> Iterator[str]:
    if transport in ("tcp", "tls", "ws", "wss"):
        yield f"{'tls+tcp' if transport == 'tls' else transport}://127.0.0.1:0"
    elif transport == "inproc":
        yield "inproc://perf"
    else:
        with tempfile.TemporaryDirectory(prefix="mqperf") as folder:
            yield f"{transport}://{folder}/s"


class Process:
    """A process of ours: lines out, and an end when its standard input ends."""

    def __init__(self, program: str, *args: object, cpu: int | None = None, python: str = ""):
        command = [python or sys.executable, str(HERE / program), *map(str, args)]
        self.name = " ".join(map(str, args[:2]))
        if cpu is not None:
            command += ["--cpu", str(cpu)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self.seen = b""

    def line(self, patience: float = PATIENCE) -> str:
        end = time.monotonic() + patience
        out = self.process.stdout
        assert out is not None
        while b"\n" not in self.seen:
            left = end - time.monotonic()
            if left <= 0 or not select.select([out], [], [], left)[0]:
                raise RuntimeError(f"{self.name}: nothing for {patience:.0f} s")
            piece = os.read(out.fileno(), 65536)
            if not piece:
                raise RuntimeError(f"{self.name}: ended with status {self.process.wait()}")
            self.seen += piece
        line, _, self.seen = self.seen.partition(b"\n")
        return line.decode()

    def tell(self, line: str) -> None:
        self.process.stdin.write(f"{line}\n".encode())

    def result(self, patience: float = PATIENCE) -> dict:
        self.process.stdin.close()
        return json.loads(self.line(patience))

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
            try:
                self.process.wait(0.5 if self.seen or _[0] is None else 0)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def side(program: str, library: str, *args: object, cpu: int | None = None) -> Process:
    """A process in which a candidate takes part, of its own build."""
    return Process(program, library, *args, cpu=cpu, python=interpreter(library))


def end(library: str, role: str, case: Case, count: int, url: str, cpu: int | None) -> Process:
    return side(
        "ends.py", library, role, "--url", url, "--size", case.size, "--count", count,
        "--calls", case.calls, "--beside", case.beside, cpu=cpu,
    )  # fmt: skip


def run_pair(library: str, case: Case, count: int) -> dict:
    """One measurement. Rates are the receiver's, round trips the asker's, CPU seconds of both."""
    if case.transport == "inproc":
        return run_threads(library, case, count)
    listens, connects = ROLES[case.kind]
    cpus = placement(case.place)
    with address(case.transport) as url, end(library, listens, case, count, url, cpus[0]) as first:
        with end(library, connects, case, count, first.line(), cpus[1]) as second:
            for process in (first, second) if case.kind == "thr" else (second, first):
                if process.line() != "done":
                    raise RuntimeError(f"{process.name}: out of step")
            here, there = first.result(), second.result()
    cpu = (here["cpu"] + there["cpu"]) / count
    held = {"held": max(here["held"], there["held"])} if "held" in here else {}
    if case.kind == "lat":
        return {**trip_result(there, cpu), **held}
    sender = count / there["seconds"]
    return {"value": count / here["seconds"], "cpu": cpu, "seconds": here["seconds"],
            "count": count, "sender": sender, **held}  # fmt: skip


def run_threads(library: str, case: Case, count: int) -> dict:
    """Unpinned except for `together`: threads of one process share the process's cores."""
    cpu = placement("together")[0] if case.place == "together" else None
    with end(library, f"both_{case.kind}", case, count, "inproc://perf", cpu) as process:
        found = process.result()
    held = {"held": found["held"]} if "held" in found else {}
    if case.kind == "lat":
        return {**trip_result(found, found["cpu"] / count), **held}
    return {"value": count / found["seconds"], "cpu": found["cpu"] / count,
            "seconds": found["seconds"], "count": count, **held}  # fmt: skip


def trip_result(found: dict, cpu: float) -> dict:
    return {
        "value": found["p50"], "p99": found["p99"], "p999": found["p999"], "cpu": cpu,
        "seconds": found["seconds"], "count": found["messages"],
    }  # fmt: skip


@contextlib.contextmanager
def awake(cpus: list[int]) -> Iterator[None]:
    """A process at idle priority on each core keeps it from halting and takes no time from others.
    In our own session: the kernel shares time among sessions before it looks at priorities."""
    spinners = []
    try:
        for cpu in cpus:
            code = SPIN % (cpu, os.getpid())
            spinners.append(subprocess.Popen([sys.executable, "-c", code]))
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


def core_times() -> dict[int, tuple[int, int]]:
    """Per core: (busy, all) ticks since boot; a guest's stolen time counts as busy."""
    found = {}
    with open("/proc/stat") as lines:
        for line in lines:
            name, *fields = line.split()
            if name.startswith("cpu") and name != "cpu":
                ticks = [int(field) for field in fields[:8]]
                found[int(name[3:])] = (sum(ticks) - ticks[3] - ticks[4], sum(ticks))
    return found


def others(seconds: float = 1.0) -> list[float]:
    """How busy each of our cores is while we do nothing."""
    try:
        before = core_times()
        time.sleep(seconds)
        after = core_times()
    except OSError:  # no /proc
        return []
    return [
        round((after[c][0] - before[c][0]) / max(1, after[c][1] - before[c][1]), 2)
        for c in cores()
        if c in after
    ]


def quiet_or_exit(even_if_busy: bool) -> dict:
    """Refuses to measure beside something else; what was found is recorded with the results."""
    busy = others()
    if any(part > BUSY for part in busy) and not even_if_busy:
        sys.exit(
            f"something else keeps a core busy ({', '.join(f'{part:.0%}' for part in busy)}): "
            "stop it, or measure all the same with --even-if-busy, which the results will say"
        )
    return {"busy": busy, "even_if_busy": even_if_busy}


def installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def watched_floor() -> float:
    """What beside.py's watcher finds where no call holds the GIL, at both ends at once."""
    several = [Process("beside.py") for _ in range(2)]
    try:
        return max(float(process.line()) for process in several)
    finally:
        for process in several:
            process.__exit__(None)


def congestion_control() -> str:
    """The system's, which all libraries use that choose none."""
    with socket.socket() as s:
        return s.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()


def machine() -> dict:
    model = ""
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as lines:
        model = next(
            (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), ""
        )
    names = ("mqcore", "pyzmq", "pyomq", "pynng", "eclipse-zenoh", "uvloop", "trio", "numpy")
    return {
        "cpu": model,
        "cores": len(cores()),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "tcp": congestion_control(),
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
        "floor": watched_floor(),
        "versions": {name: installed(name) for name in names if installed(name)},
    }
