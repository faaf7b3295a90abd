"""What `make perf` and `make perf-quick` run: everything side by side, into one dated file.

    run.py [--quick] [--even-if-busy] [--minutes N] [--only GROUP ...] [--row TEXT ...] [--list]
           [--lib NAME[@BUILD] ...] [--rounds N] [--seconds X] [--name NAME] [--folder PATH]

Writes perf/results/DATE.json, DATE.md and DATE.svg (DATE-quick with --quick). Each group has its
minutes, and the next group gets what is left of them. Rows without time left are skipped and
reported. `--row` selects rows whose names contain the text, `--list` prints the names. What misses
its goal (budgets.py) is listed; the status is 1 if a budget is broken, unless --quick or
--even-if-busy.
"""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import budgets
import native
import plots
import report
import versus
from candidates import kind, parse, varied
from pairs import Case, cores, machine, quiet_or_exit
from rows import Row, run_rows

KIB, MIB = 1 << 10, 1 << 20
APART = ("awake", "idle")
STARTING = 0.5  # seconds that a run costs besides: two processes, and their warming up


def one_way(transport: str, size: int, calls: str = "plain", beside: str = "") -> Case:
    return Case("thr", transport, size, calls, versus.USUAL_PLACE["thr"], beside)


# the rows of most weight first: if time runs out, it is the last ones that are missing
QUICK = [
    *(Case("lat", "tcp", 16, "plain", place) for place in (*APART, "together")),
    Case("lat", "ipc", 16, "plain", "awake"),
    *(one_way("tcp", size) for size in (16, KIB)),
    *(one_way("tcp", 16, calls) for calls in ("many", "batch", "asyncio")),
    one_way("ipc", 16),
    one_way("inproc", 16),
]
FULL = [
    *(
        Case("lat", transport, 16, "plain", place)
        for transport in ("tcp", "ipc")
        for place in (*APART, "together")
    ),
    *(one_way("tcp", size) for size in (16, 100, KIB, 64 * KIB, MIB, 16 * MIB)),
    *(one_way("tcp", size, calls) for calls in ("many", "batch") for size in (16, 100, KIB)),
    *(one_way("tcp", 16, calls) for calls in ("asyncio", "uvloop")),
    *(Case("lat", "tcp", 16, calls, "awake") for calls in ("asyncio", "uvloop")),
    *(one_way("inproc", size) for size in (16, KIB)),
    Case("lat", "inproc", 16),
    *(one_way("ipc", size) for size in (16, KIB, 64 * KIB, MIB, 16 * MIB)),
    *(Case("lat", "tcp", size, "plain", "awake") for size in (KIB, 64 * KIB, MIB, 16 * MIB)),
    *(Case("lat", "ipc", size, "plain", "awake") for size in (64 * KIB, 16 * MIB)),
    *(one_way(over, size) for over in ("tls", "wss", "ws") for size in (KIB, 64 * KIB)),
    Case("lat", "tcp", 16, "asyncio", "idle"),
    one_way("tcp", KIB, "asyncio"),
]
QUICK_BUSY = [Case("lat", "tcp", 16, beside="busy"), one_way("tcp", 16, beside="busy")]
BUSY = [*QUICK_BUSY, one_way("tcp", 16, "many", "busy"), one_way("tcp", 64 * KIB, beside="busy")]
TUNED = [
    *(one_way("tcp", size) for size in (16, KIB, 64 * KIB)),
    Case("lat", "tcp", 16, "plain", "awake"),
]
WIRES = [
    *(one_way(over, size) for over in ("tcp", "ipc") for size in (16, KIB, 64 * KIB)),
    one_way("ws", KIB),
    Case("lat", "tcp", 16, "plain", "awake"),
]
WIRED = ("mqcore", "mqcore+sp", "pynng")
# name: minutes of `make perf`, of `make perf-quick`
PAIRS = {"pairs": (13, 2.2), "busy": (2, 0.4), "tuned": (3, 0), "wires": (2, 0)}
# modules with a function rows(quick), as rows.py says
MODULES = {"unpinned": (6, 0.7), "loads": (3.5, 0.5), "many": (4, 0.4), "ticks": (1, 0.2),
           "shared": (2, 0.2)}
NATIVE = (3, 0.3)


class Group(NamedTuple):
    name: str
    minutes: float
    entries: list  # of Case or Row
    run: Callable[[list, argparse.Namespace, float], list]
    table: Callable[[list[dict]], str] | None = None  # None: one of the usual


def with_tuned(cases: list[Case], options: argparse.Namespace, until: float) -> list:
    """Each candidate that has something to tune, by its default options and by those."""
    able = [name for name in options.lib if "tuned" in kind(name).variants]
    libraries = [also for name in able for also in (name, varied(name, "tuned"))]
    with_both = argparse.Namespace(**{**vars(options), "lib": libraries})
    return versus.run_cases(cases, with_both, until)


def with_wires(cases: list[Case], options: argparse.Namespace, until: float) -> list:
    """SP beside ZMTP, and the library whose wire it is."""
    libraries = [name for name in WIRED if parse(name).library in map(bare, options.lib)]
    some = argparse.Namespace(**{**vars(options), "lib": libraries})
    return versus.run_cases(cases, some, until)


def bare(name: str) -> str:
    return parse(name).library


def groups(quick: bool) -> list[Group]:
    cases = {
        "pairs": QUICK if quick else FULL,
        "busy": QUICK_BUSY if quick else BUSY,
        "tuned": [] if quick else TUNED,
        "wires": [] if quick else WIRES,
    }
    found = []
    for name, minutes in PAIRS.items():
        some = cases[name]
        if len(cores()) < 2:
            apart = {"awake": "together", "idle": "together"}
            some = list(dict.fromkeys(c._replace(place=apart.get(c.place, c.place)) for c in some))
        group = Group(name, minutes[quick], some, versus.run_cases)
        if name == "tuned":
            group = group._replace(run=with_tuned, table=report.tuned_table)
        elif name == "wires":
            group = group._replace(run=with_wires, table=report.wires_table)
        found.append(group)
    for name, minutes in MODULES.items():
        rows = importlib.import_module(name).rows(quick)
        found.append(Group(name, minutes[quick], rows, run_rows))
    return [*found, native_group(quick)]


def native_group(quick: bool) -> Group:
    """Loops without Python: native.py has candidates of its own, and a table."""
    sizes = native.SIZES[:1] if quick else native.SIZES
    cases = [Case("thr", "tcp", size, "native", "free") for size in sizes]
    cases += [Case("lat", "tcp", 16, "native", place) for place in APART[: 1 if quick else 2]]

    def run(some: list[Case], options: argparse.Namespace, until: float) -> list:
        return [
            result
            for case in some
            if versus.in_time(case.name, until)
            for result in native.run_cases([case], options)
        ]

    return Group("native", NATIVE[quick], cases, run, native.table)


def chosen(options: argparse.Namespace) -> list[Group]:
    found = []
    for group in groups(options.quick):
        some = [
            entry
            for entry in group.entries
            if not options.row or any(text in entry.name for text in options.row)
        ]
        if some and (not options.only or group.name in options.only):
            found.append(group._replace(entries=some))
    return found


def show(some: list[Group], options: argparse.Namespace) -> None:
    """The rows, and about how long they take."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head`
    for group in some:
        minutes = sum(about_seconds(entry, options) for entry in group.entries) / 60
        print(f"{group.name}: about {minutes:.1f} minutes; {group.minutes} are its own")
        for entry in group.entries:
            print(f"    {entry.name}")


def about_seconds(entry: Case | Row, options: argparse.Namespace) -> float:
    one = options.seconds + STARTING
    if isinstance(entry, Row):
        return sum(map(entry.takes, options.lib)) * min(entry.rounds, options.rounds) * one
    return len(versus.taking_part(options.lib, entry)) * ((options.rounds + 1) * one + STARTING)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    versus.add_arguments(parser)
    parser.add_argument("--quick", action="store_true", help="under five minutes, not forty")
    parser.add_argument("--minutes", type=float, help="all groups together")
    parser.add_argument(
        "--only", action="append", choices=(*PAIRS, *MODULES, "native"), metavar="GROUP"
    )
    parser.add_argument("--row", action="append", metavar="TEXT", help="rows with it in their name")
    parser.add_argument("--list", action="store_true", help="name the rows, and measure nothing")
    parser.add_argument("--name", help="of the files, instead of the date")
    parser.set_defaults(rounds=None, seconds=None)
    options = versus.complete(parser.parse_args())
    options.rounds = options.rounds or (2 if options.quick else 3)
    if options.seconds is None:
        options.seconds = 0.25 if options.quick else 0.6
    return options


def main() -> int:
    options = read_arguments()
    some = chosen(options)
    if options.list:
        show(some, options)
        return 0
    about = {**machine(), **quiet_or_exit(options.even_if_busy), "rounds": options.rounds}
    start, results, share = time.monotonic(), {}, 0.0
    total = sum(group.minutes for group in some)
    minutes = options.minutes or total
    for group in some:
        share += group.minutes / total
        results[group.name] = group.run(group.entries, options, start + share * minutes * 60)
        print(f"{group.name}: {time.monotonic() - start:.0f} s so far", file=sys.stderr, flush=True)
    about["took"] = time.monotonic() - start
    name = options.name or time.strftime("%Y-%m-%d") + ("-quick" if options.quick else "")
    tables = {group.name: group.table for group in some if group.table}
    judged = budgets.judged(results)
    last = f"## Budgets and goals\n\n{budgets.table(judged)}" if judged else ""
    print(report.write(options.folder, name, about, results, tables, last))
    plots.draw(options.folder / f"{name}.json")
    if judged:
        print(budgets.summary(judged), file=sys.stderr)
    return int(budgets.broken(judged) and not options.even_if_busy and not options.quick)


if __name__ == "__main__":
    sys.exit(main())
