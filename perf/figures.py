"""Figures beside their references: rows of which the second candidate is what the first is held to.

A row (rows.py) has the candidate `mqcore` and at most one reference in `others`. Both are measured
in every round, in turn the first, and the ratio is taken round by round: what slows a whole round
down slows both. `REACH` says what a ratio, or a figure by itself, is to reach.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import plots
import report
from pairs import installed, machine, quiet_or_exit
from rows import Row, run_rows
from versus import RESULTS

OURS = "mqcore"
HEAD = (
    "| what | figure | lowest to highest | reference | its figure | ratio, round by round "
    "| lowest to highest | to reach | more |\n|---|--:|--:|---|--:|--:|--:|---|---|"
)
VERSIONS = ("pyarrow", "pyspark")


class Reach(NamedTuple):
    """What is to be reached; of two the one or the other."""

    ratio: float | None = None
    figure: float | None = None
    less: bool = False  # the figure is to be at most so much

    def words(self, unit: str) -> str:
        some = [f"ratio {self.ratio:g}"] if self.ratio else []
        if self.figure:
            some.append(f"{'at most ' * self.less}{report.amount(self.figure)} {unit}")
        return " or ".join(some)


def takes(library: str) -> bool:
    return library == OURS


def row(name: str, unit: str, what: str, ours: Callable[[], dict], reference: str = "",
        theirs: Callable[[], dict] | None = None, *, less: bool = False, rounds: int = 5,
        at: float = 0.0) -> Row:  # fmt: skip
    """ours, theirs: one measurement each, as a row's run()."""

    def run(candidate: str, seconds: float) -> dict:
        return ours() if candidate == OURS or theirs is None else theirs()

    return Row(name, unit, less, run, takes, rounds, what, at, (reference,) if theirs else ())


def line(result: dict, reach: Reach) -> str:
    found, unit = result["summary"], result["unit"]
    names = list(found)
    failed = [f"{name} failed: {found[name]['error']}" for name in names if "error" in found[name]]
    if failed:
        return f"| {result['name']} | {'; '.join(failed)} | | | | | | | |"
    ours = found[OURS]
    cells = [result["name"], f"{report.amount(ours['median'])} {unit}", spread(ours)]
    if len(names) > 1:
        other = next(name for name in names if name != OURS)
        ratios = sorted(ratios_of(result, other))
        cells += [other, f"{report.amount(found[other]['median'])} {unit}",
                  f"{statistics.median(ratios):.2f}",
                  f"{ratios[0]:.2f} to {ratios[-1]:.2f}"]  # fmt: skip
    else:
        cells += ["", "", "", ""]
    more = ", ".join(f"{key} {report.amount(value)}" for key, value in ours["more"].items())
    return f"| {' | '.join([*cells, reach.words(unit), more])} |"


def spread(s: dict) -> str:
    return f"{report.amount(s['low'])} to {report.amount(s['high'])}"


def ratios_of(result: dict, other: str) -> list[float]:
    runs = result["runs"]
    return [a["value"] / b["value"] for a, b in zip(runs[OURS], runs[other], strict=True)]


def table(reach: dict[str, Reach], results: list[dict]) -> str:
    return "\n".join([HEAD] + [line(r, reach.get(r["what"], Reach())) for r in results])


def main_of(doc: str, name: str, rows: Callable[[bool, Path], list[Row]],
            reach: dict[str, Reach]) -> int:  # fmt: skip
    """The program of a module with figures; rows(quick, place) with a folder on the disk."""
    parser = argparse.ArgumentParser(description=doc.partition("\n")[0])
    whats = dict.fromkeys(row.what for row in rows(False, Path()))
    parser.add_argument("--only", action="append", choices=whats, metavar="NAME",
                        help=", ".join(whats))  # fmt: skip
    parser.add_argument("--row", action="append", metavar="TEXT", help="rows with it in their name")
    parser.add_argument("--rounds", type=int, default=0, help="5; with --quick 2")
    parser.add_argument("--quick", action="store_true", help="small: to see that nothing broke")
    parser.add_argument("--even-if-busy", action="store_true", help="measure beside other work")
    parser.add_argument("--disk", type=Path, help="where the journals lie (TMPDIR)")
    parser.add_argument("--folder", type=Path, default=RESULTS, help="where the results go")
    parser.add_argument("--name", default=name, help="of the files")
    options = parser.parse_args()
    options.rounds = options.rounds or (2 if options.quick else 5)
    options.lib, options.seconds = [OURS], 0.3 if options.quick else 1.0
    about = {**machine(), **quiet_or_exit(options.even_if_busy), "rounds": options.rounds}
    about["versions"] |= {one: installed(one) for one in VERSIONS if installed(one)}
    with tempfile.TemporaryDirectory(prefix="mqperf", dir=options.disk) as place:
        some = [
            row
            for row in rows(options.quick, Path(place))
            if (not options.only or row.what in options.only)
            and (not options.row or any(text in row.name for text in options.row))
        ]
        results = run_rows(some, options)
    shown = {name: functools.partial(table, reach)}
    print(report.write(options.folder, options.name, about, {name: results}, shown))
    plots.draw(options.folder / f"{options.name}.json")
    return 1 if any("error" in s for r in results for s in r["summary"].values()) else 0


if __name__ == "__main__":
    sys.exit("journal.py and journal_spark.py have figures")
