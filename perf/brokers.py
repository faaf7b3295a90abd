"""Message systems on the same work: libraries without a broker, brokers in memory, stored messages.

    brokers.py [--quick | --medium] [--system NAME ...] [--messages N] [--rounds N] [--minutes X]
               [--even-if-busy] [--name NAME] [--folder PATH] [--list]

One producer and one consumer, a process each, messages of 1 KiB. For each system:

rate    N messages as fast as they go: the rate at the receiver, the one at which the producer's
        client took them, the one at which they were confirmed; CPU and memory of broker and ends
burst   so many messages at once: when is the last one there?
load    messages by an absolute schedule; delays are taken from the moment at which a message was
        due, so a system that stalls is charged for all that it kept waiting

Systems take turns within a round. Each has a broker of its own, started anew for each round. Only
figures of one group are comparable (systems.GROUPS): what a message survives differs between them.
A system that cannot be had is left out, and named. The full run takes up to two hours, --medium ten
minutes, --quick less than five; when the time is over, what is left is not measured, and named.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import plots
import report
from pairs import machine, quiet_or_exit
from systems import ABSENT, GROUPS, SYSTEMS, tables
from systems.one_round import Figures, measured
from versus import RESULTS, rounds_of

FULL = {"messages": 1_000_000, "rounds": 3, "seconds": 3.0, "minutes": 120.0,
        "bursts": [1, 10, 100, 1_000, 10_000, 100_000],
        "loads": [100, 1_000, 5_000, 20_000, 50_000, 100_000, 200_000]}  # fmt: skip
MEDIUM = {"messages": 30_000, "rounds": 3, "seconds": 0.7, "minutes": 9.5,
          "bursts": [1, 100, 10_000], "loads": [1_000, 10_000, 50_000]}  # fmt: skip
QUICK = {"messages": 2_000, "rounds": 1, "seconds": 0.5, "minutes": 4.0,
         "bursts": [1, 1_000], "loads": [1_000]}  # fmt: skip
UNITS = {"rate": "/s", "sent": "/s", "burst": "ms", "load": "us p99"}
TITLES = {"rate": "received", "sent": "taken by the producer's client", "burst": "{:,} at once",
          "load": "at {:,}/s"}


def present(names: list[str]) -> list[str]:
    """Those that can take part; the others are named, with the reason."""
    found = []
    for name in names:
        why = SYSTEMS[name].missing()
        if why:
            print(f"{name} is left out: {why}", file=sys.stderr, flush=True)
        else:
            found.append(name)
    return found


def rounds(names: list[str], o: argparse.Namespace) -> dict[str, list[Figures]]:
    """What each round found, by system."""
    found: dict[str, list[Figures]] = {name: [] for name in names}
    took: dict[str, float] = {}
    end = time.monotonic() + o.minutes * 60
    for name in rounds_of(names, o.rounds):
        left = end - time.monotonic()
        if left < took.get(name, 1.0):
            print(f"{name}: no time left for another round", file=sys.stderr, flush=True)
            continue
        began = time.monotonic()
        one = measured(name, o, left)
        took[name] = time.monotonic() - began
        print(f"{name}: {took[name]:.1f} s, {said(one)}", file=sys.stderr, flush=True)
        if "error" not in one or time.monotonic() < end:    # else nothing but our time was over
            found[name].append(one)
    return found


def said(found: Figures) -> str:
    if "error" in found:
        return str(found["error"])
    return f"{report.amount(found['rate', 0]['value'])} messages/s"


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Of the rounds in which it worked; how many did not is a mark."""
    good = [run for run in runs if "value" in run]
    if not good:
        return {"error": runs[0].get("error", "nothing arrived")}
    values = [run["value"] for run in good]
    keys = dict.fromkeys(key for run in good for key in run if key not in ("value", "mark"))
    marks = [run["mark"] for run in good if run.get("mark")]
    failed = [f"failed in {len(runs) - len(good)} of {len(runs)} rounds"] if runs != good else []
    return {
        "median": statistics.median(values), "low": min(values), "high": max(values),
        "more": {key: statistics.median(r[key] for r in good if key in r) for key in keys},
        "mark": ", ".join((marks[:1] if 2 * len(marks) >= len(good) else []) + failed),
    }  # fmt: skip


def rows(found: dict[str, list[Figures]], size: int) -> dict[str, list[dict[str, Any]]]:
    """A row for each figure of each group of systems, as plots.py and report.py want them."""
    made: dict[str, list[dict[str, Any]]] = {"rates": [], "bursts": [], "loads": []}
    for group in GROUPS:
        some = {name: runs for name, runs in found.items()
                if runs and SYSTEMS[name].group == group}
        keys = dict.fromkeys(key for runs in some.values() for run in runs for key in run
                             if key != "error")
        for what, at in sorted(keys, key=lambda key: (list(UNITS).index(key[0]), key[1])):
            runs = {name: [one.get((what, at)) or {"error": one.get("error", "not carried before")}
                           for one in several] for name, several in some.items()}
            runs = {name: several for name, several in runs.items()
                    if what != "load" or SYSTEMS[name].loads}
            made["rates" if what in ("rate", "sent") else f"{what}s"].append({
                "name": f"{group}: {TITLES[what].format(at)}, {size} B", "unit": UNITS[what],
                "less_is_better": what not in ("rate", "sent"), "what": f"{what}, {group}",
                "at": at, "runs": runs,
                "summary": {name: summary(several) for name, several in runs.items()},
            })  # fmt: skip
    return made


def facts(names: list[str]) -> dict[str, dict[str, str]]:
    return {name: {"group": kind.group, "durability": kind.durability, "path": kind.path,
                   "versions": kind.versions()}
            for name in names for kind in [SYSTEMS[name]]}


def arguments(args: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--system", action="append", choices=SYSTEMS)
    parser.add_argument("--group", action="append", choices=GROUPS)
    parser.add_argument("--size", type=int, default=1024, help="bytes of a message")
    for name, what in (("messages", int), ("rounds", int), ("seconds", float), ("minutes", float)):
        parser.add_argument(f"--{name}", type=what)
    parser.add_argument("--loads", type=int, nargs="*", help="messages a second")
    parser.add_argument("--bursts", type=int, nargs="*")
    parser.add_argument("--quick", dest="usual", action="store_const", const=QUICK, default=FULL)
    parser.add_argument("--medium", dest="usual", action="store_const", const=MEDIUM)
    parser.add_argument("--even-if-busy", action="store_true", help="measure beside other work")
    parser.add_argument("--folder", type=Path, default=RESULTS, help="where the files go")
    parser.add_argument("--name", default=f"{time.strftime('%Y-%m-%d')}-brokers")
    parser.add_argument("--list", action="store_true", help="the systems, and do nothing")
    options = parser.parse_args(args)
    for name, value in options.usual.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    options.system = options.system or [
        name for name, kind in SYSTEMS.items() if kind.group in (options.group or GROUPS)]
    return options


def main() -> int:
    o = arguments()
    for name, why in ABSENT.items():
        print(f"{name} is left out: {why}", file=sys.stderr)
    names = present(o.system)
    if o.list:
        print("\n".join(f"{name:18} {SYSTEMS[name].group}" for name in names))
        return 0
    if not names:
        sys.exit("none of these systems can be had")
    about = {**machine(), **quiet_or_exit(o.even_if_busy), "rounds": o.rounds, "size": o.size,
             "messages": o.messages, "systems": facts(names), "absent": ABSENT}
    results = rows(rounds(names, o), o.size)
    o.folder.mkdir(parents=True, exist_ok=True)
    text = f"{report.head(about)}\n\n{tables.every(about, results)}\n"
    (o.folder / f"{o.name}.md").write_text(text)
    kept = json.dumps({"about": about, **results}, indent=1)
    (o.folder / f"{o.name}.json").write_text(f"{kept}\n")
    print(text)
    print(plots.draw(o.folder / f"{o.name}.json"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
