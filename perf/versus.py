"""Side by side: alternating rounds of candidates, each end in a process of its own, pinned.

    versus.py [--lib mqcore --lib mqcore@FOLDER --lib pyzmq ...] [--kind lat|thr]
              [--transport tcp|ipc|shm|inproc|tls|ws|wss] [--size N]
              [--calls plain|parts|many|batch|journal|asyncio|uvloop]
              [--place idle|awake|together|free] [--rounds N] [--seconds X]
              [--even-if-busy] [--name NAME] [--folder PATH]

Everything may be given more than once. NAME@FOLDER is another build (candidates.py): two builds
of a library alternate within each round, and a second table has the ratio of the two, round by
round. Prints a table and writes it to perf/results/NAME.md, every
single figure to NAME.json. The method and its pitfalls are in perf/README.md.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import report
from candidates import kind, known, present
from libraries import LIBRARIES, USUAL
from pairs import Case, awake, cores, machine, quiet_or_exit, run_pair

RESULTS = Path(__file__).with_name("results")
USUAL_PLACE = {
    "lat": "idle",
    "thr": "free",
}  # one core a process would be too few for some, one way
OURS_ALONE = ("many", "batch", "journal")
FIRST = {"lat": 500, "thr": 20_000}  # messages of the run that finds out how many to take
FIRST_BUSY = {"lat": 20, "thr": 200}  # a call may take 5 ms there
GROWTH = 20  # of that number at most, from one try to the next
FIRST_BYTES = 256 << 20
MOST_BYTES = 2 << 30  # of a run: a candidate's queues may hold all of it
WATCHED = {"lat": 500, "thr": 5}  # round trips; one way, the part of a usual run
SPINS = 1.9  # cores used by both ends of a round trip, of which only one has work at a time


def all_cases(options: argparse.Namespace) -> list[Case]:
    return [
        Case(kind, transport, size, calls, place)
        for kind in options.kind
        for transport in options.transport
        for calls in options.calls
        for size in options.size
        for place in options.place or [USUAL_PLACE[kind]]
        if not (transport == "inproc" and calls in ("asyncio", "uvloop"))
        and not (kind == "lat" and calls in OURS_ALONE)
    ]


def taking_part(libraries: list[str], case: Case) -> list[str]:
    """What has no calls for many messages is measured by its plain ones, in rows of their own."""
    return [
        name
        for name in libraries
        if case.calls in kind(name).calls and case.transport in kind(name).transports
    ]


def calibrated(library: str, case: Case, seconds: float) -> int:
    """How many messages take about so long; this run also warms caches, and shows what fails."""
    size = max(case.size, 1)
    usual = FIRST_BUSY if case.beside else FIRST
    first = max(20, min(usual[case.kind], FIRST_BYTES // size))
    if seconds <= 0:  # a test of the benchmark, not a measurement
        first = max(20, first // 20)
    most, now = max(first, MOST_BYTES // size), first
    while True:
        took = max(run_pair(library, case, now)["seconds"], 1e-6)
        count = max(first, min(int(now * seconds / took), most))
        if not case.beside or count <= GROWTH * now:
            return count
        now *= GROWTH


def rounds_of(libraries: Sequence[str], rounds: int) -> Iterable[str]:
    """Each round has every candidate once, and begins with another one."""
    for i in range(rounds):
        start = i % len(libraries)
        yield from (*libraries[start:], *libraries[:start])


def watched(library: str, case: Case, count: int) -> float | None:
    """Seconds for which a call held the GIL at longest, in a short run for this alone."""
    if case.kind == "thr":
        count = max(20, count // WATCHED["thr"])
    else:
        count = min(count, WATCHED["lat"])
    try:
        return run_pair(library, case._replace(beside="watch", place="free"), count)["held"]
    except (RuntimeError, ValueError) as error:
        print(f"  {library}, watched: {error}", file=sys.stderr, flush=True)
        return None


def measure(case: Case, libraries: list[str], rounds: int, seconds: float) -> dict[str, list[dict]]:
    """The first round finds out how many messages to take; after the last one, who holds the GIL
    is watched, and left in each candidate's last run as `held`."""
    runs: dict[str, list[dict]] = {library: [] for library in libraries}
    counts: dict[str, int] = {}

    def attempt(library: str) -> None:
        try:
            if library not in counts:
                counts[library] = calibrated(library, case, seconds)
            else:
                runs[library].append(run_pair(library, case, counts[library]))
        except (RuntimeError, ValueError) as error:
            print(f"  {library}: {error}", file=sys.stderr, flush=True)
            runs[library] = [{"error": str(error)}]

    for library in rounds_of(libraries, rounds + 1):
        if "error" not in (runs[library] or [{}])[0]:
            attempt(library)
    for library, some in runs.items():
        if seconds > 0 and not case.beside and "error" not in some[0]:
            some[-1]["held"] = watched(library, case, counts[library])
    return runs


def summary(case: Case, runs: list[dict]) -> dict:
    if "error" in runs[0]:
        return {"error": runs[0]["error"]}
    values = [run["value"] for run in runs]
    used = statistics.median(run["cpu"] * run["count"] / run["seconds"] for run in runs)
    held = runs[-1].get("held")
    more = {
        key: statistics.median(run[key] for run in runs)
        for key in ("p99", "p999", "sender")
        if key in runs[0]
    }
    return {
        "median": statistics.median(values),
        "low": min(values),
        "high": max(values),
        "cpu": statistics.median(run["cpu"] for run in runs),
        "held": held,
        "spins": case.kind == "lat" and not case.beside and used > SPINS,
        **more,
    }


def in_time(name: str, until: float) -> bool:
    """Whether this row may begin. Reports it if not."""
    if time.monotonic() <= until:
        return True
    print(f"{name}: no time left", file=sys.stderr, flush=True)
    return False


def run_cases(cases: list[Case], options: argparse.Namespace, until: float = float("inf")) -> list:
    """One entry per case: the case, its runs, their summaries. Reports cases without time left."""
    results = []
    for case in cases:
        taking = taking_part(options.lib, case)
        if not taking:
            continue
        if not in_time(case.name, until):
            continue
        print(f"{case.name} ...", file=sys.stderr, flush=True)
        with awake(cores()) if case.place == "awake" else contextlib.nullcontext():
            runs = measure(case, taking, options.rounds, options.seconds)
        found = {library: summary(case, some) for library, some in runs.items()}
        results.append({"name": case.name, **case._asdict(), "runs": runs, "summary": found})
    return results


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Those that the other scenarios have too."""
    parser.add_argument("--lib", action="append", type=known, metavar="NAME[@BUILD]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="about so long is a run")
    parser.add_argument("--even-if-busy", action="store_true", help="measure beside other work")
    parser.add_argument("--folder", type=Path, default=RESULTS, help="where the files go")


def complete(options: argparse.Namespace) -> argparse.Namespace:
    options.lib = [name for name in dict.fromkeys(options.lib or USUAL) if present(name)]
    return options


def read_arguments(args: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_arguments(parser)
    parser.add_argument("--kind", action="append", choices=("lat", "thr"))
    parser.add_argument("--transport", action="append",
                        choices=("tcp", "ipc", "shm", "inproc", "tls", "ws", "wss"))
    parser.add_argument("--size", action="append", type=int)
    parser.add_argument("--calls", action="append", choices=LIBRARIES["mqcore"].calls)
    parser.add_argument("--place", action="append", choices=("idle", "awake", "together", "free"))
    parser.add_argument("--name", default="versus", help="of the files")
    options = complete(parser.parse_args(args))
    options.kind = options.kind or ["lat", "thr"]
    options.transport = options.transport or ["tcp"]
    options.size = options.size or [16, 1024]
    options.calls = options.calls or ["plain", "many"]
    return options


def main(args: list[str] | None = None) -> int:
    options = read_arguments(args)
    if len(cores()) < 2 and {"idle", "awake"} & {case.place for case in all_cases(options)}:
        sys.exit("one core only: use --place together or free")
    about = {**machine(), **quiet_or_exit(options.even_if_busy), "rounds": options.rounds}
    results = run_cases(all_cases(options), options)
    print(report.write(options.folder, options.name, about, {"pairs": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
