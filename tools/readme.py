"""Fill the generated parts of README.md: options, reasons for drops, figures.

    python tools/readme.py            options and drops, and headlines of the newest perf/results/
    python tools/readme.py --check    exit 1 if options or drops are not up to date
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"


def options() -> str:
    from mqcore.options import render_table
    from mqcore.spi.registry import all_options

    return render_table(all_options())


def drops() -> str:
    from mqcore.spi.drop import DROP_REASONS

    rows = [f"| `{name}` | {why} |" for name, why in DROP_REASONS]
    return "\n".join(["| reason | meaning |", "|---|---|", *rows])


HEADLINES = [
    *(f"round trip, tcp, 16 B, {place}" for place in ("awake", "idle", "together")),
    *(f"round trip, ipc, 16 B, {place}" for place in ("awake", "idle", "together")),
    "round trip, tcp, 1 MiB, awake", "round trip, tcp, 16 B, asyncio, awake",
    *(f"one way, tcp, {size}" for size in ("16 B", "100 B", "1 KiB", "64 KiB", "1 MiB", "16 MiB")),
    *(f"one way, tcp, 16 B, {calls}" for calls in ("many a call", "batches", "asyncio", "uvloop")),
    "one way, ipc, 16 B", "one way, inproc, 16 B", "round trip, inproc, 16 B, idle",
    *(f"one way, tcp, {size}, native" for size in ("16 B", "100 B", "1 KiB")),
    *(f"one way at {load} k/s, tcp, 16 B" for load in (10, 100, 200, 400)),
    "one message behind 100,000 that wait, tcp, 16 B",
    "through a device, one way, 128 B", "through a device, round trip, 128 B",
    "fan-out to 100, 16 B", "fan-out to 100, 1024 B", "fan-in from 100, 16 B",
    "10,000 idle connections, memory", "1,000,000 subscriptions, no match",
]


DOORS = [  # from runs of their own, DATE-doors
    *(f"one way, {over}, {size}" for over in ("tls", "wss", "ws") for size in ("1 KiB", "64 KiB")),
    *(f"one way, shared memory, {size}" for size in ("16 B", "1 KiB", "64 KiB", "1 MiB")),
    *(f"round trip, shared memory, 16 B, {place}" for place in ("awake", "idle", "together")),
]


def rows_of(headlines: list[str]) -> Callable[[dict], str]:
    def shown(results: dict) -> str:
        import report

        return report.headlines(results, headlines)
    return shown


def wires(results: dict) -> str:
    import report

    return report.wires_table(results["wires"])


def alias(results: dict) -> str:
    import zmq_alias

    return zmq_alias.table(results["pairs"])


FIGURES = (("figures", "????-??-??.json", rows_of(HEADLINES)),
           ("doors", "*-doors.json", rows_of(DOORS)), ("wires", "*-wires.json", wires),
           ("alias", "*-zmq-alias.json", alias))


def figures(old: str, pattern: str, shown: Callable[[dict], str]) -> str:
    """What is shown of the newest run; the old text if there is no run."""
    runs = sorted((ROOT / "perf" / "results").glob(pattern))
    if not runs:
        return old
    sys.path.insert(0, str(ROOT / "perf"))
    results = json.loads(runs[-1].read_text())
    source = runs[-1].with_suffix(".md").relative_to(ROOT).as_posix()
    first = runs[-1].with_suffix(".md").read_text().partition("\n")[0]
    return (f"From `{source}` (all rows, libraries and spreads are there). {first}\n\n"
            + shown(results))


def fill(text: str, name: str, body: str) -> str:
    pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
    return re.sub(pattern, lambda m: f"{m[1]}{body.strip()}\n{m[2]}", text, flags=re.S)


def between(text: str, name: str) -> str:
    return re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", text, re.S)[1]


def main() -> int:
    before = README.read_text()
    after = fill(fill(before, "options", options()), "drops", drops())
    if "--check" in sys.argv:
        if after != before:
            print("README.md: options or drops are out of date; run tools/readme.py")
        return after != before
    for name, pattern, shown in FIGURES:
        after = fill(after, name, figures(between(after, name), pattern, shown))
    README.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
