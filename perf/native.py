"""Native loops side by side: mqcore's C socket and libzmq's C API, without Python on either side.

    native.py [--kind lat|thr] [--size N] [--transport tcp|ipc] [--place idle|awake|together|free]
              [--rounds N] [--seconds X] [--even-if-busy]

Alternating rounds, each end a process of its own, the receiver's rate, bodies that differ: the
method of versus.py. perf/native/libzmq.c is built into a temporary folder; it wants Debian's
libzmq3-dev (or any libzmq with its header) and a C compiler. Prints a table; `run_cases` gives what
versus.run_cases gives.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import report
from pairs import (
    HERE,
    ROLES,
    Case,
    Process,
    address,
    awake,
    cores,
    machine,
    placement,
    quiet_or_exit,
    trip_result,
)
from timing import WARM_TRIPS, warm_messages
from versus import FIRST, FIRST_BYTES, MOST_BYTES, USUAL_PLACE

SOURCE = HERE / "native" / "libzmq.c"
TUNED_HWM = 100_000
MINE = {"mqcore": "native", "mqcore, many a call": "many"}
LIBZMQ = {"libzmq": 0, f"libzmq, marks at {TUNED_HWM:,}": TUNED_HWM}
SIZES = (16, 100, 1 << 10, 64 << 10)


class Program(Process):
    """Any program that speaks the lines of an end."""

    def __init__(self, name: str, command: list[str]):
        self.name = name
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self.seen = b""


@contextlib.contextmanager
def built() -> Iterator[tuple[Path | None, str]]:
    """The C program, and if there is none, why."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        yield None, "left out: no C compiler is installed"
        return
    with tempfile.TemporaryDirectory(prefix="mqperf") as folder:
        program = Path(folder, "libzmq")
        command = [*shlex.split(compiler), "-O2", "-o", str(program), str(SOURCE), "-lzmq"]
        made = subprocess.run(command, capture_output=True, text=True)
        if made.returncode == 0:
            yield program, ""
        elif "zmq.h" in made.stderr or "-lzmq" in made.stderr:
            yield None, "left out: libzmq3-dev is not installed"
        else:
            yield None, f"left out: {SOURCE.name} does not compile: {made.stderr[-200:].strip()}"


def end(program: Path | None, name: str, role: str, case: Case, count: int, url: str, cpu):
    if name in MINE:
        return Process(
            "native_ends.py", "mqcore", role, "--url", url, "--size", case.size,
            "--count", count, "--calls", MINE[name], cpu=cpu,
        )  # fmt: skip
    warm = WARM_TRIPS if case.kind == "lat" else warm_messages(count)
    numbers = case.size, count, warm, LIBZMQ[name], -1 if cpu is None else cpu
    return Program(f"{name} {role}", [str(program), role, url, *map(str, numbers)])


def run_pair(program: Path | None, name: str, case: Case, count: int) -> dict:
    listens, connects = ROLES[case.kind]
    cpus = placement(case.place)
    with address(case.transport) as url:
        with end(program, name, listens, case, count, url, cpus[0]) as first:
            with end(program, name, connects, case, count, first.line(), cpus[1]) as second:
                for process in (first, second) if case.kind == "thr" else (second, first):
                    if process.line() != "done":
                        raise RuntimeError(f"{process.name}: out of step")
                here, there = first.result(), second.result()
    cpu = (here["cpu"] + there["cpu"]) / count
    if case.kind == "lat":
        return trip_result(there, cpu)
    calls = {
        key: side["system_calls"] / count
        for key, side in (("writes", there), ("reads", here))
        if "system_calls" in side
    }
    return {"value": count / here["seconds"], "cpu": cpu, "seconds": here["seconds"],
            "count": count, "sender": count / there["seconds"], **calls}  # fmt: skip


def count_for(program: Path | None, name: str, case: Case, seconds: float) -> int:
    """How many messages take about so long; this run also warms caches, and shows what fails."""
    size = max(case.size, 1)
    first = max(20, min(FIRST[case.kind], FIRST_BYTES // size))
    if seconds <= 0:  # a test of the benchmark, not a measurement
        return max(20, first // 20)
    found = run_pair(program, name, case, first)
    found = run_pair(program, name, case, max(first, int(count_in(found, first, seconds / 4))))
    return max(first, min(int(count_in(found, found["count"], seconds)), MOST_BYTES // size))


def count_in(found: dict, count: int, seconds: float) -> float:
    return count * seconds / max(found["seconds"], 1e-6)


def measure(case: Case, program: Path | None, names: list[str], options) -> dict[str, list[dict]]:
    """Each round runs every candidate once, and begins with another one."""
    runs: dict[str, list[dict]] = {name: [] for name in names}
    counts: dict[str, int] = {}

    def attempt(name: str) -> None:
        try:
            if name not in counts:
                counts[name] = count_for(program, name, case, options.seconds)
            else:
                runs[name].append(run_pair(program, name, case, counts[name]))
        except (RuntimeError, ValueError) as error:
            print(f"  {name}: {error}", file=sys.stderr, flush=True)
            runs[name] = [{"error": str(error)}]

    for i in range(options.rounds + 1):
        start = i % len(names)
        for name in names[start:] + names[:start]:
            if "error" not in (runs[name] or [{}])[0]:
                attempt(name)
    return runs


def summary(runs: list[dict]) -> dict:
    if "error" in runs[0]:
        return {"error": runs[0]["error"]}
    values = [run["value"] for run in runs]
    more = {
        key: statistics.median(run[key] for run in runs)
        for key in ("p99", "p999", "sender", "writes", "reads")
        if key in runs[0]
    }
    return {
        "median": statistics.median(values),
        "low": min(values),
        "high": max(values),
        "cpu": statistics.median(run["cpu"] for run in runs),
        "spins": False,
        **more,
    }


def compared(found: dict[str, dict]) -> None:
    """`ratio`: to libzmq as it comes, in the same rounds."""
    base = found.get("libzmq", {}).get("median")
    for entry in found.values():
        if base and "median" in entry:
            entry["ratio"] = entry["median"] / base


def run_cases(cases: list[Case], options: argparse.Namespace) -> list[dict]:
    """One entry a case, as versus.run_cases gives them, and a `ratio` in each summary."""
    results = []
    with built() as (program, missing):
        for case in cases:
            names = [name for name in MINE if case.kind == "thr" or MINE[name] == "native"]
            if program is not None:
                names += [name for name in LIBZMQ if case.kind == "thr" or not LIBZMQ[name]]
            print(f"{case.name} ...", file=sys.stderr, flush=True)
            with awake(cores()) if case.place == "awake" else contextlib.nullcontext():
                runs = measure(case, program, names, options)
            found = {name: summary(some) for name, some in runs.items()}
            if program is None:
                found["libzmq"] = {"error": missing}
            compared(found)
            results.append({"name": case.name, **case._asdict(), "runs": runs, "summary": found})
    return results


def row(result: dict, name: str) -> str:
    s, kind = result["summary"][name], result["kind"]
    if "error" in s:
        return f"| {result['name']} | {name} | {s['error']} | | | | | |"
    shown = report.shown
    tail = shown(kind, s["p99"]) if "p99" in s else ""
    calls = f"{s['writes']:.2g}; {s['reads']:.2g}" if "writes" in s else ""
    ratio = f"{s['ratio']:.2f}" if "ratio" in s else ""
    return (
        f"| {result['name']} | {name} | {shown(kind, s['median'])} "
        f"| {shown(kind, s['low'])} to {shown(kind, s['high'])} | {tail} | {s['cpu'] * 1e6:.3g} "
        f"| {calls} | {ratio} |"
    )


def table(results: list[dict]) -> str:
    head = (
        "| what | library | median | lowest to highest | p99 | CPU s per million, both ends "
        "| system calls a message, out; in | to libzmq |\n|---|---|--:|--:|--:|--:|--:|--:|"
    )
    return "\n".join([head] + [row(r, name) for r in results for name in r["summary"]])


def read_arguments(args: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kind", action="append", choices=("lat", "thr"))
    parser.add_argument("--size", action="append", type=int)
    parser.add_argument("--transport", action="append", choices=("tcp", "ipc"))
    parser.add_argument("--place", choices=("idle", "awake", "together", "free"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="about so long is a run")
    parser.add_argument("--even-if-busy", action="store_true", help="measure beside other work")
    return parser.parse_args(args)


def all_cases(options: argparse.Namespace) -> list[Case]:
    return [
        Case(kind, transport, size, "native", options.place or USUAL_PLACE[kind])
        for kind in options.kind or ("thr", "lat")
        for transport in options.transport or ("tcp",)
        for size in options.size or SIZES
    ]


def main(args: list[str] | None = None) -> int:
    options = read_arguments(args)
    about = {**machine(), **quiet_or_exit(options.even_if_busy), "rounds": options.rounds}
    print(report.head(about), table(run_cases(all_cases(options), options)), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
