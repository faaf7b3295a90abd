"""Rows: one thing measured for several candidates, in alternating rounds.

A row's `run(candidate, seconds)` makes one measurement and returns its results: `value`, which the
table shows with its spread, and any other figures, of which it shows the median. `mark` may be a
remark about the run ("not carried"). A module with its own rows has a function `rows(quick)`;
run.py names the modules.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterable
from typing import NamedTuple

import report
import versus
from pairs import machine, quiet_or_exit


class Row(NamedTuple):
    name: str
    unit: str
    less_is_better: bool
    run: Callable[[str, float], dict]
    takes: Callable[[str], bool]  # does this candidate take part?
    rounds: int = 5  # at most
    what: str = ""  # the kind of row, to choose some
    at: float = 0.0  # where it stands in a plot of its kind
    others: tuple[str, ...] = ()  # candidates that only this row knows

    def facts(self) -> dict:
        return {key: getattr(self, key) for key in ("name", "unit", "less_is_better", "what", "at")}


class Unfit(Exception):
    """A measurement that says itself that it does not count."""


FAULTS = (RuntimeError, ValueError, OSError, Unfit)


def measure(row: Row, options: argparse.Namespace) -> dict[str, list[dict]]:
    taking = [name for name in options.lib if row.takes(name)] + list(row.others)
    runs: dict[str, list[dict]] = {library: [] for library in taking}
    for library in versus.rounds_of(taking, min(options.rounds, row.rounds)):
        if "error" in (runs[library] or [{}])[0]:
            continue
        try:
            runs[library].append(row.run(library, options.seconds))
        except FAULTS as error:
            print(f"  {library}: {error}", file=sys.stderr, flush=True)
            runs[library] = [{"error": str(error)}]
    return runs


def summary(runs: list[dict]) -> dict:
    if "error" in runs[0]:
        return {"error": runs[0]["error"]}
    values = [run["value"] for run in runs]
    keys = dict.fromkeys(key for run in runs for key in run if key not in ("value", "mark"))
    marks = [run["mark"] for run in runs if run.get("mark")]
    return {
        "median": statistics.median(values),
        "low": min(values),
        "high": max(values),
        "more": {key: statistics.median(r[key] for r in runs if key in r) for key in keys},
        "mark": marks[0] if 2 * len(marks) >= len(runs) else "",
    }


def run_rows(rows: Iterable[Row], options: argparse.Namespace, until: float = float("inf")) -> list:
    """One entry per row. Reports the rows for which there is no time."""
    results = []
    for row in rows:
        if not any(map(row.takes, options.lib)):
            continue
        if not versus.in_time(row.name, until):
            continue
        print(f"{row.name} ...", file=sys.stderr, flush=True)
        runs = measure(row, options)
        found = {library: summary(some) for library, some in runs.items()}
        results.append({**row.facts(), "runs": runs, "summary": found})
    return results


def main_of(doc: str, name: str, rows: Callable[[bool], list[Row]]) -> int:
    """The program of a module with rows."""
    parser = argparse.ArgumentParser(description=doc.partition("\n")[0])
    versus.add_arguments(parser)
    parser.add_argument(
        "--what", action="append", choices=dict.fromkeys(r.what for r in rows(False))
    )
    parser.add_argument("--row", action="append", metavar="TEXT", help="rows with it in their name")
    parser.add_argument("--quick", action="store_true", help="fewer rows, the smaller ones")
    parser.add_argument("--name", default=name, help="of the files")
    options = versus.complete(parser.parse_args())
    about = {**machine(), **quiet_or_exit(options.even_if_busy), "rounds": options.rounds}
    some = [
        row
        for row in rows(options.quick)
        if not (options.what and row.what not in options.what)
        and not (options.row and not any(text in row.name for text in options.row))
    ]
    print(report.write(options.folder, options.name, about, {name: run_rows(some, options)}))
    return 0
