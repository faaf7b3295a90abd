"""Fill what the newest runs in perf/results/ have measured into the pages that show it.

    python tools/readme.py            docs/inside/figures.md and brokers.md, README.md's picture
    python tools/readme.py --check    exit 1 if README.md is too long, or a place to fill is gone
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Callable
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
FIGURES_PAGE = ROOT / "docs" / "inside" / "figures.md"
BROKERS_PAGE = ROOT / "docs" / "inside" / "brokers.md"
BROKERS_CHART = ROOT / "docs" / "assets" / "brokers.svg"
CHART = ROOT / "docs" / "assets" / "speed.svg"
README_MAX = 8000  # bytes: a reader should get to its end

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


TRANSPORTS = [  # from runs of their own, DATE-transports
    *(f"one way, {over}, {size}" for over in ("tls", "wss", "ws") for size in ("1 KiB", "64 KiB")),
    *(f"one way, shared memory, {size}" for size in ("16 B", "1 KiB", "64 KiB", "1 MiB")),
    *(f"round trip, shared memory, 16 B, {place}" for place in ("awake", "idle", "together")),
]


def rows_of(headlines: list[str]) -> Callable[[dict[str, Any]], str]:
    def shown(results: dict[str, Any]) -> str:
        report = import_module("report")

        return str(report.headlines(results, headlines))
    return shown


def wires(results: dict[str, Any]) -> str:
    report = import_module("report")

    return str(report.wires_table(results["wires"]))


def alias(results: dict[str, Any]) -> str:
    zmq_alias = import_module("zmq_alias")

    return str(zmq_alias.table(results["pairs"]))


def free(results: dict[str, Any]) -> str:
    """Placed by the scheduler: the medians of p50 and p99 beside those of each peer."""
    from statistics import median

    entries = results["unpinned"]
    peers = [name for name in ("pyzmq", "pyomq") if any(name in e["runs"] for e in entries)]

    def shown(runs: list[dict[str, Any]]) -> list[float]:
        return [median(run[key] for run in runs) for key in ("value", "p99 us")]

    lines = ["| p50 / p99, us | mqcore | " + " | ".join(f"{peer} | ratio" for peer in peers) + " |",
             "|---|--:|" + "--:|--:|" * len(peers)]
    for entry in entries:
        ours = shown(entry["runs"]["mqcore"])
        cells = [entry["name"].removesuffix(", tcp, 64 B, free"),
                 " / ".join(f"{one:,.0f}" for one in ours)]
        for peer in peers:
            runs = [run for run in entry["runs"].get(peer, []) if "value" in run]   # others failed
            cells += [""] * 2 if not runs else [
                " / ".join(f"{one:,.0f}" for one in shown(runs)),
                " / ".join(f"{a / b:.2f}" for a, b in zip(ours, shown(runs), strict=True))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def beside_brokers(table: str) -> Callable[[dict[str, Any]], str]:
    def shown(results: dict[str, Any]) -> str:
        tables = import_module("systems.tables")

        return str(getattr(tables, table)(results["about"], results))
    return shown


SHORT = [  # the picture of README.md: a bar for each way of working, also for those that lose
    "round trip, tcp, 16 B, awake", "one way, tcp, 16 B", "one way, tcp, 1 KiB",
    "one way, tcp, 1 MiB", "one way, tcp, 16 B, asyncio", "through a device, one way, 128 B",
    "fan-out to 100, 16 B",
]


def picture(results: dict[str, Any]) -> str:
    return "![mqcore and the fastest peer, side by side](docs/assets/speed.svg)"


def goals(results: dict[str, Any]) -> str:
    budgets = import_module("budgets")

    return str(budgets.table(budgets.judged(results)))


FIGURES = (("free", "*-free.json", free), ("free goals", "*-free.json", goals),
           ("figures", "????-??-??.json", rows_of(HEADLINES)),
           ("goals", "????-??-??.json", goals),
           ("transports", "*-transports.json", rows_of(TRANSPORTS)),
           ("wires", "*-wires.json", wires),
           ("alias", "*-zmq-alias.json", alias))
BROKERS = tuple((name, "*-brokers.json", beside_brokers(name))
                for name in ("systems", "rates", "costs", "loads", "bursts"))
IN_README = (("short", "????-??-??.json", picture),)
PAGES = ((FIGURES_PAGE, FIGURES), (BROKERS_PAGE, BROKERS), (README, IN_README))


def load(path: Path) -> dict[str, Any]:
    sys.path.insert(0, str(ROOT / "perf"))
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def figures(old: str, pattern: str, shown: Callable[[dict[str, Any]], str]) -> str:
    """What is shown of the newest run; the old text if there is no run."""
    runs = sorted((ROOT / "perf" / "results").glob(pattern))
    if not runs:
        return old
    results = load(runs[-1])
    source = runs[-1].with_suffix(".md").relative_to(ROOT).as_posix()
    first = runs[-1].with_suffix(".md").read_text().partition("\n")[0]
    if shown in [one for _, _, one in BROKERS[1:]]:
        return shown(results)       # the page's first table says where they are from
    if shown is picture:
        day, _, machine = first.partition(", mqcore")[0].partition(": ")
        about = textwrap.fill(f"{day}, [all rows]({source}). {machine}.", 100)
        return f"{shown(results)}\n\n{about}\n"
    about = ". ".join(one[:1].upper() + one[1:] for one in first.split("; "))
    head = f"From `{source}`, which has all rows, libraries and spreads. {about}."
    return f"{head}\n\n{shown(results)}"


def ratios(table: str) -> list[tuple[str, str, float]]:
    """(what, the best peer, how many times as fast as it) of the rows that have a peer."""
    found = []
    for line in table.splitlines():
        what, ours, peer, ratio, *_ = [*map(str.strip, line.strip("|").split("|")), "", "", ""]
        if not re.fullmatch(r"[\d.]+", ratio) or peer.startswith("plain"):
            continue
        is_time = re.search(r" [num]?s$", ours) is not None
        found.append((what, peer.split()[0], 1 / float(ratio) if is_time else float(ratio)))
    return found


def chart(readme: str) -> str:
    """Bars of ratios as SVG, for light and dark pages, from the run that README.md names."""
    source = re.search(r"perf/results/[\w-]+", between(readme, "short"))
    assert source, "README.md does not say where its picture comes from"
    run = ROOT / source[0]
    rows = ratios(rows_of(SHORT)(load(run.with_suffix(".json"))))
    left, scale, step = 250, 330 / max(ratio for *_, ratio in rows), 30
    height = step * len(rows) + 52
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="720" height="{height}" '
             f'viewBox="0 0 720 {height}" role="img" font-family="sans-serif" font-size="13">',
             "<title>Speed of mqcore relative to the fastest peer</title>",
             "<style>text{fill:#24292f}.peer{fill:#8c959f}.ours{fill:#4051b5}line{stroke:#8c959f}"
             "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.peer{fill:#6e7681}"
             ".ours{fill:#8b9cf5}}</style>",
             '<text x="10" y="20" font-weight="600">times as fast as the fastest peer '
             "(the line: the peer, 1.0)</text>"]
    for index, (what, peer, ratio) in enumerate(rows):
        y = 36 + step * index
        lines.append(f'<text x="{left - 8}" y="{y + 15}" text-anchor="end">{escape(what)}</text>'
                     f'<rect class="ours" x="{left}" y="{y}" width="{ratio * scale:.0f}" '
                     f'height="20" rx="2"/><text x="{left + ratio * scale + 8:.0f}" '
                     f'y="{y + 15}">{ratio:.1f} × {escape(peer)}</text>')
    x = left + scale
    lines.append(f'<line x1="{x:.0f}" y1="30" x2="{x:.0f}" y2="{height - 16}" '
                 'stroke-dasharray="4 3"/></svg>')
    return "\n".join(lines) + "\n"


def fill(text: str, name: str, body: str) -> str:
    pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
    return re.sub(pattern, lambda m: f"{m[1]}{body.strip()}\n{m[2]}", text, flags=re.S)


def between(text: str, name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", text, re.S)
    assert found, f"<!-- {name} --> is missing"
    return found[1]


def wrong() -> list[str]:
    found = [f"{page.relative_to(ROOT)}: <!-- {name} --> is missing"
             for page, figures in PAGES for name, *_ in figures
             if f"<!-- {name} -->" not in page.read_text()]
    size = len(README.read_bytes())
    if size > README_MAX:
        found.append(f"README.md has {size} bytes, {README_MAX} is the limit: move some to docs/")
    return found


def stale() -> list[str]:
    return [] if CHART.exists() and CHART.read_text() == chart(README.read_text()) else [
        f"{CHART.relative_to(ROOT)} does not show what README.md says: run python tools/readme.py"]


def main() -> int:
    found = wrong()
    if "--check" in sys.argv and not found:
        found = stale()
    if "--check" in sys.argv or found:
        print("\n".join(found), end="\n" if found else "")
        return bool(found)
    for page, shown_there in PAGES:
        text = page.read_text()
        for name, pattern, shown in shown_there:
            text = fill(text, name, figures(between(text, name), pattern, shown))
        page.write_text(text)
    CHART.write_text(chart(README.read_text()))
    drawn = sorted((ROOT / "perf" / "results").glob("*-brokers.svg"))
    if drawn:
        BROKERS_CHART.write_text(drawn[-1].read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
