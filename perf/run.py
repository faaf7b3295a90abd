"""What `make perf` and `make perf-quick` run: everything side by side, into one dated file.

    run.py [--quick] [--even-if-busy] [--minutes N] [--only pairs|crowds] [--lib NAME ...]

Writes perf/results/DATE.json and DATE.md (DATE-quick with --quick). What there is no time for any
more is left out, and said.
"""

from __future__ import annotations

import argparse
import sys
import time

import report
import versus
from pairs import Case, cores, machine, quiet_or_exit

KIB, MIB = 1 << 10, 1 << 20
APART = ("awake", "idle")
# the rows of most weight first: if time runs out, it is the last ones that are missing
QUICK = [
    *(Case("lat", "tcp", 16, "plain", place) for place in (*APART, "together")),
    Case("lat", "ipc", 16, "plain", "awake"),
    *(Case("thr", "tcp", size) for size in (16, KIB)),
    *(Case("thr", "tcp", 16, calls) for calls in ("many", "batch", "asyncio")),
    Case("lat", "tcp", 16, "asyncio", "awake"),
    Case("thr", "ipc", 16),
    Case("thr", "inproc", 16),
    Case("lat", "inproc", 16),
]
FULL = [
    *(
        Case("lat", transport, 16, "plain", place)
        for transport in ("tcp", "ipc")
        for place in (*APART, "together")
    ),
    *(Case("thr", "tcp", size) for size in (16, 100, KIB, 64 * KIB, MIB)),
    *(Case("thr", "tcp", size, calls) for calls in ("many", "batch") for size in (16, 100, KIB)),
    *(Case("thr", "tcp", 16, calls) for calls in ("asyncio", "uvloop")),
    *(Case("lat", "tcp", 16, calls, "awake") for calls in ("asyncio", "uvloop")),
    Case("lat", "tcp", 16, "asyncio", "idle"),
    *(Case("thr", "inproc", size) for size in (16, KIB, 64 * KIB)),
    *(Case("lat", "inproc", size) for size in (16, KIB)),
    *(Case("thr", "ipc", size) for size in (16, KIB, 64 * KIB, MIB)),
    *(Case("lat", "tcp", size, "plain", "awake") for size in (KIB, 64 * KIB, MIB)),
    *(Case("lat", "ipc", size, "plain", "awake") for size in (KIB, 64 * KIB, MIB)),
    Case("thr", "tcp", KIB, "asyncio"),
]


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    versus.add_arguments(parser)
    parser.add_argument("--quick", action="store_true", help="under five minutes, not forty")
    parser.add_argument("--minutes", type=float, help="start nothing new after so many")
    parser.add_argument("--only", choices=("pairs", "crowds"))
    parser.set_defaults(rounds=None, seconds=None)
    options = versus.complete(parser.parse_args())
    options.rounds = options.rounds or (3 if options.quick else 5)
    options.seconds = options.seconds or (0.25 if options.quick else 0.8)
    options.minutes = options.minutes or (4.5 if options.quick else 37)
    return options


def main() -> None:
    options = read_arguments()
    about = {**machine(), **quiet_or_exit(options.even_if_busy), "rounds": options.rounds}
    cases = QUICK if options.quick else FULL
    if len(cores()) < 2:
        cases = list(dict.fromkeys(case._replace(place="together") for case in cases))
    start, results = time.monotonic(), {}
    until = start + options.minutes * 60
    if options.only != "crowds":
        results["pairs"] = versus.run_cases(cases, options, until)
    about["took"] = time.monotonic() - start
    name = time.strftime("%Y-%m-%d") + ("-quick" if options.quick else "")
    print(report.write(options.folder, name, about, results))


if __name__ == "__main__":
    sys.exit(main())
