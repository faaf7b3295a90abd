"""What `make perf` and `make perf-quick` run: everything side by side, into one dated file.

    run.py [--quick] [--even-if-busy] [--minutes N] [--only pairs|crowds] [--lib NAME[@BUILD] ...]

Writes perf/results/DATE.json, DATE.md and DATE.svg (DATE-quick with --quick). What there
is no time for any more is left out, and said.
"""

from __future__ import annotations

import argparse
import sys
import time

import many
import plots
import report
import versus
from pairs import Case, cores, machine, quiet_or_exit

QUICK_CROWDS = ("device", "fan-out", "fan-in")
KIB, MIB = 1 << 10, 1 << 20


def one_way(transport: str, size: int, calls: str = "plain") -> Case:
    return Case("thr", transport, size, calls, versus.USUAL_PLACE["thr"])


APART = ("awake", "idle")
# the rows of most weight first: if time runs out, it is the last ones that are missing
QUICK = [
    *(Case("lat", "tcp", 16, "plain", place) for place in (*APART, "together")),
    Case("lat", "ipc", 16, "plain", "awake"),
    *(one_way("tcp", size) for size in (16, KIB)),
    *(one_way("tcp", 16, calls) for calls in ("many", "batch", "asyncio")),
    Case("lat", "tcp", 16, "asyncio", "awake"),
    one_way("ipc", 16),
    one_way("inproc", 16),
    Case("lat", "inproc", 16),
]
FULL = [
    *(
        Case("lat", transport, 16, "plain", place)
        for transport in ("tcp", "ipc")
        for place in (*APART, "together")
    ),
    *(one_way("tcp", size) for size in (16, 100, KIB, 64 * KIB, MIB)),
    *(one_way("tcp", size, calls) for calls in ("many", "batch") for size in (16, 100, KIB)),
    *(one_way("tcp", 16, calls) for calls in ("asyncio", "uvloop")),
    *(Case("lat", "tcp", 16, calls, "awake") for calls in ("asyncio", "uvloop")),
    Case("lat", "tcp", 16, "asyncio", "idle"),
    *(one_way("inproc", size) for size in (16, KIB, 64 * KIB)),
    *(Case("lat", "inproc", size) for size in (16, KIB)),
    *(one_way("ipc", size) for size in (16, KIB, 64 * KIB, MIB)),
    *(Case("lat", "tcp", size, "plain", "awake") for size in (KIB, 64 * KIB, MIB)),
    *(Case("lat", "ipc", size, "plain", "awake") for size in (KIB, 64 * KIB, MIB)),
    one_way("tcp", KIB, "asyncio"),
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
    options.minutes = options.minutes or (4 if options.quick else 36)
    return options


def main() -> None:
    options = read_arguments()
    about = {**machine(), **quiet_or_exit(options.even_if_busy), "rounds": options.rounds}
    cases = QUICK if options.quick else FULL
    if len(cores()) < 2:
        cases = list(dict.fromkeys(case._replace(place="together") for case in cases))
    start, results = time.monotonic(), {}
    # the pairs leave a quarter of it to the rest
    until = start + options.minutes * (60 if options.only else 45)
    if options.only != "crowds":
        results["pairs"] = versus.run_cases(cases, options, until)
    if options.only != "pairs":
        until = start + options.minutes * 60
        what = QUICK_CROWDS if options.quick else None
        results["crowds"] = many.run_scenarios(options, options.quick, what, until)
    about["took"] = time.monotonic() - start
    name = time.strftime("%Y-%m-%d") + ("-quick" if options.quick else "")
    print(report.write(options.folder, name, about, results))
    plots.draw(options.folder / f"{name}.json")


if __name__ == "__main__":
    sys.exit(main())
