"""Side by side: alternating rounds of candidates, each end in a process of its own, pinned.

    versus.py [--lib mqcore --lib pyzmq --lib raw] [--kind lat|thr] [--transport tcp|ipc]
              [--size N] [--rounds N] [--scale X] [--place apart|together|free]
              [--regime awake|idle] [--name NAME] [--folder PATH]

Prints a table and writes it to perf/results/NAME.md, every single figure to NAME.json. The method
and its pitfalls are in perf/README.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import time
from pathlib import Path

from pairs import Case, awake, cores, machine, run_pair

RESULTS = Path(__file__).with_name("results")
LIBRARIES = ("mqcore", "pyzmq", "raw")
SIZES = (16, 1024)
LAT_COUNT = 10_000
THR_BYTES = 2 << 30  # at most so many a run
THR_COUNT = 5_000_000
MANY = 256


def cases(options: argparse.Namespace) -> list[Case]:
    found = []
    for kind in options.kind:
        for transport in options.transport:
            for size in options.size:
                count = LAT_COUNT if kind == "lat" else min(THR_COUNT, THR_BYTES // max(size, 1))
                found.append(Case(kind, transport, size, max(100, int(count * options.scale))))
    if "thr" in options.kind and "mqcore" in options.lib:
        found += [
            case._replace(many=MANY, count=case.count * 2)
            for case in found
            if case.kind == "thr" and case.size < 1024
        ]
    return found


def takes_part(library: str, case: Case) -> bool:
    """What has no calls for many messages is measured by its plain ones, in the row above."""
    return not case.many or library == "mqcore"


def placement(name: str) -> tuple[int | None, int | None]:
    have = cores()
    if name == "free":
        return None, None
    return (have[0], have[0]) if name == "together" else (have[0], have[-1])


def measure(case: Case, libraries: list[str], rounds: int, place: str) -> dict[str, list[dict]]:
    """Each round runs every candidate once, and begins with another one."""
    taking = [library for library in libraries if takes_part(library, case)]
    runs: dict[str, list[dict]] = {library: [] for library in taking}
    for i in range(rounds):
        for library in taking[i % len(taking) :] + taking[: i % len(taking)]:
            runs[library].append(run_pair(library, case, placement(place)))
    return runs


def summary(runs: list[dict]) -> dict:
    values = [run["value"] for run in runs]
    return {
        "median": statistics.median(values),
        "low": min(values),
        "high": max(values),
        "cpu": statistics.median(run["cpu"] for run in runs),
        **({"p99": statistics.median(run["p99"] for run in runs)} if "p99" in runs[0] else {}),
    }


def shown(case: Case, value: float) -> str:
    return f"{value * 1e6:.1f} us" if case.kind == "lat" else f"{value / 1e3:,.0f} k/s"


def table(results: list[tuple[Case, dict[str, dict]]]) -> str:
    """Ratios are to pyzmq: below 1 is better for a round trip, above 1 for a rate."""
    lines = [
        "| what | library | median | lowest to highest | p99 | CPU per message, both ends "
        "| ratio to pyzmq |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    plain = {}
    for case, found in results:
        base = found.get("pyzmq") or plain.get(case._replace(many=0, count=0))
        if not case.many and base:
            plain[case._replace(count=0)] = base
        for library, s in found.items():
            ratio = f"{s['median'] / base['median']:.2f}" if base else ""
            p99 = shown(case, s["p99"]) if "p99" in s else ""
            lines.append(
                f"| {case.name} | {library} | {shown(case, s['median'])} | {shown(case, s['low'])} "
                f"to {shown(case, s['high'])} | {p99} | {s['cpu'] * 1e6:.2f} us | {ratio} |"
            )
    return "\n".join(lines)


def read_arguments(args: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lib", action="append", choices=LIBRARIES)
    parser.add_argument("--kind", action="append", choices=("lat", "thr"))
    parser.add_argument("--transport", action="append", choices=("tcp", "ipc"))
    parser.add_argument("--size", action="append", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of messages")
    parser.add_argument("--place", choices=("apart", "together", "free"), default="apart")
    parser.add_argument("--regime", choices=("awake", "idle"), default="idle")
    parser.add_argument("--name", default="versus", help="of the files")
    parser.add_argument("--folder", type=Path, default=RESULTS, help="where the files go")
    options = parser.parse_args(args)
    options.lib = options.lib or list(LIBRARIES)
    options.kind = options.kind or ["lat", "thr"]
    options.transport = options.transport or ["tcp"]
    options.size = options.size or list(SIZES)
    return options


def main(args: list[str] | None = None) -> int:
    options = read_arguments(args)
    if options.place == "apart" and len(cores()) < 2:
        sys.exit("one core only: use --place together")
    about = {
        **machine(),
        "place": options.place,
        "regime": options.regime,
        "rounds": options.rounds,
    }
    results, raw = [], []
    with awake(cores()) if options.regime == "awake" else contextlib.nullcontext():
        for case in cases(options):
            print(f"{case.name} ...", file=sys.stderr, flush=True)
            runs = measure(case, options.lib, options.rounds, options.place)
            results.append((case, {library: summary(found) for library, found in runs.items()}))
            raw.append({"case": case._asdict(), "runs": runs})
    text = table(results)
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    head = (
        f"{about['cpu']}, {about['cores']} cores, kernel {about['kernel']}, "
        f"Python {about['python']}, {versions}; "
        f"ends {options.place}, cores {options.regime}, {options.rounds} rounds, "
        f"load at the start {about['load']:.1f}, {time.strftime('%Y-%m-%d')}"
    )
    options.folder.mkdir(exist_ok=True)
    (options.folder / f"{options.name}.md").write_text(f"{head}\n\n{text}\n")
    (options.folder / f"{options.name}.json").write_text(
        json.dumps({"about": about, "results": raw}, indent=1)
    )
    print(f"{head}\n\n{text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
