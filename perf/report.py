"""Results as a Markdown table for people and JSON for everything else.

Ratios: below 1 is better for a round trip, above 1 for a rate. A row of calls that only mqcore has
(many messages a call) is compared with the others' plain calls.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from candidates import label, parse, varied
from libraries import NOT_PEERS

HEAD = (
    "| what | library | median | lowest to highest | sender; p99 | CPU s per million, both ends "
    "| GIL held at longest | to the fastest peer | to raw |\n|---|---|--:|--:|--:|--:|--:|--:|--:|"
)
TUNED = (
    "| what | library | default options | tuned | lowest to highest | tuned to default "
    "| tuned to the fastest tuned peer |\n|---|---|--:|--:|--:|--:|--:|"
)
TITLES = {
    "pairs": "Two ends",
    "busy": "Beside a busy thread",
    "tuned": "Default options and tuned ones",
    "wires": "Both wires",
    "unpinned": "Ends that nobody pins",
    "loads": "At given loads, and behind a backlog",
    "many": "Many peers",
    "ticks": "Event loops",
    "native": "Loops without Python",
}
BUILDS = (
    "| what | build | against | ratio, round by round | lowest to highest | CPU |\n"
    "|---|---|---|--:|--:|--:|"
)


def head(about: dict) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    busy = " ".join(f"{part:.0%}" for part in about["busy"])
    forced = ", measured all the same" if about["even_if_busy"] else ""
    return (
        f"{time.strftime('%Y-%m-%d')}: {about['cpu']}, {about['cores']} cores, "
        f"{about['memory'] / (1 << 30):.0f} GiB, kernel {about['kernel']}, "
        + (f"TCP {about['tcp']}, " if "tcp" in about else "") + "Python "
        f"{about['python']}, {versions}; medians of {about['rounds']} rounds; "
        f"cores busy with other things before the start: {busy or 'unknown'}{forced}; "
        f"floor of the GIL figures {shown('lat', about['floor'])}"
    )


def is_peer(name: str) -> bool:
    return parse(name).library not in NOT_PEERS


def amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def shown(kind: str, value: float) -> str:
    if kind == "lat":
        return f"{amount(value * 1e6)} us"
    if value < 1e3:
        return f"{amount(value)} /s"
    return f"{amount(value / 1e6)} M/s" if value >= 1e6 else f"{amount(value / 1e3)} k/s"


def pair_key(result: dict) -> tuple:
    calls = "plain" if result["calls"] in ("many", "batch") else result["calls"]
    return (
        result["kind"], result["transport"], result["size"], calls, result["place"],
        result.get("beside", ""),
    )  # fmt: skip


def bases(results: list[dict]) -> dict[tuple, dict]:
    """For each row, what it is compared with: the fastest peer, and raw."""
    found = {}
    for result in results:
        if result["calls"] in ("many", "batch"):
            continue
        good = {k: s["median"] for k, s in result["summary"].items() if "median" in s}
        peers = [value for library, value in good.items() if is_peer(library)]
        best = (min if result["kind"] == "lat" else max)(peers) if peers else None
        found[pair_key(result)] = {"peer": best, "raw": good.get("raw")}
    return found


def ratio(value: float, base: float | None) -> str:
    return f"{value / base:.2f}" if base else ""


def row(result: dict, library: str, base: dict) -> str:
    s, kind = result["summary"][library], result["kind"]
    if "error" in s:
        return f"| {result['name']} | {label(library)} | failed: {s['error']} | | | | | | |"
    also = "".join(shown(kind, s[key]) for key in ("p99", "sender") if key in s)
    held = shown("lat", s["held"]) if s.get("held") else ""
    spins = " (spins)" if s["spins"] else ""
    return (
        f"| {result['name']} | {label(library)} | {shown(kind, s['median'])} "
        f"| {shown(kind, s['low'])} to {shown(kind, s['high'])} | {also} "
        f"| {s['cpu'] * 1e6:.3g}{spins} | {held} | {ratio(s['median'], base.get('peer'))} "
        f"| {ratio(s['median'], base.get('raw'))} |"
    )


def pair_table(results: list[dict]) -> str:
    base = bases(results)
    return "\n".join(
        [HEAD]
        + [row(r, library, base.get(pair_key(r), {})) for r in results for library in r["summary"]]
    )


def builds(result: dict) -> list[list[str]]:
    """Candidates that are the same library, in the order in which they were given."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, s in result["summary"].items():
        if "median" in s:
            found.setdefault(parse(name)[:2], []).append(name)
    return [names for names in found.values() if len(names) > 1]


def build_table(results: list[dict]) -> str:
    """Builds of a library against its first one, round by round: what slowed a whole round is in
    both, so this spread is often much smaller than that of the figures themselves."""
    lines = [BUILDS]
    for result in results:
        for first, *others in builds(result):
            before = [run["value"] for run in result["runs"][first]]
            for name in others:
                after = [run["value"] for run in result["runs"][name]]
                ratios = sorted(b / a for a, b in zip(before, after, strict=True))
                used = result["summary"][name]["cpu"] / result["summary"][first]["cpu"]
                lines.append(
                    f"| {result['name']} | {label(name)} | {label(first)} "
                    f"| {statistics.median(ratios):.3f} | {ratios[0]:.3f} to {ratios[-1]:.3f} "
                    f"| {used:.3f} |"
                )
    return "\n".join(lines) if len(lines) > 1 else ""


def tuned_table(results: list[dict]) -> str:
    """A row a library: its default options and the tuned ones, from the same rounds."""
    lines = [TUNED]
    for result in results:
        found, kind = result["summary"], result["kind"]
        tuned = {name: s for name, s in found.items() if parse(name).variant == "tuned"}
        peers = [s["median"] for name, s in tuned.items() if "median" in s and is_peer(name)]
        best = (min if kind == "lat" else max)(peers) if peers else None
        for name, s in tuned.items():
            before = found[varied(name, "")]
            start = f"| {result['name']} | {label(varied(name, ''))} | {told(kind, before)} |"
            if "error" in s:
                lines.append(f"{start} failed: {s['error']} | | | |")
                continue
            lines.append(
                f"{start} {told(kind, s)} | {shown(kind, s['low'])} to {shown(kind, s['high'])} "
                f"| {ratio(s['median'], before.get('median'))} | {ratio(s['median'], best)} |"
            )
    return "\n".join(lines)


def told(kind: str, s: dict) -> str:
    return shown(kind, s["median"]) if "median" in s else f"failed: {s['error']}"


def row_table(results: list[dict]) -> str:
    """Whatever a scenario found: one row a candidate, the ratio to the best peer."""
    lines = [
        "| what | library | median | lowest to highest | more | to the best peer |",
        "|---|---|--:|--:|---|--:|",
    ]
    for result in results:
        found, unit = result["summary"], result["unit"]
        peers = [s["median"] for k, s in found.items() if "median" in s and is_peer(k)]
        best = (min if result["less_is_better"] else max)(peers) if peers else None
        for library, s in found.items():
            if "error" in s:
                lines.append(
                    f"| {result['name']} | {label(library)} | failed: {s['error']} | | | |"
                )
                continue
            mark = f" ({s['mark']})" if s["mark"] else ""
            more = ", ".join(f"{key} {amount(value)}" for key, value in s["more"].items())
            lines.append(
                f"| {result['name']} | {label(library)} | {amount(s['median'])} {unit}{mark} | "
                f"{amount(s['low'])} to {amount(s['high'])} | {more} | {ratio(s['median'], best)} |"
            )
    return "\n".join(lines)


def headline(entry: dict, base: dict) -> str:
    """A row in one line: our value, the best peer and its name, and the ratios."""
    found = {name: s for name, s in entry["summary"].items() if "median" in s}
    if "mqcore" not in found:
        return ""
    ours, kind = found["mqcore"]["median"], entry.get("kind")
    less = entry["less_is_better"] if kind is None else kind == "lat"
    peers = {k: s["median"] for k, s in found.items() if is_peer(k) and not k.startswith("mqcore")}
    name = (min if less else max)(peers, key=lambda k: peers[k]) if peers else ""
    best = peers[name] if name else base.get("peer")

    def told(value: float) -> str:
        return shown(kind, value) if kind else f"{amount(value)} {entry['unit']}"

    beside = f"{label(name)} {told(best)}" if name else "plain calls" if best else ""
    return (
        f"| {entry['name']} | {told(ours)} | {beside} | {ratio(ours, best)} "
        f"| {ratio(ours, base.get('raw'))} |"
    )


def wires_table(results: list[dict]) -> str:
    """A line a row: ours on ZMTP, ours on SP, and the library whose wire SP is."""
    lines = [
        "| what | mqcore, ZMTP | mqcore, SP | to ZMTP | pynng | SP to pynng |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for result in results:
        found, kind = result["summary"], result["kind"]
        zmtp, sp, nng = (
            found.get(name, {}).get("median") for name in ("mqcore", "mqcore+sp", "pynng")
        )
        cells = ["" if value is None else shown(kind, value) for value in (zmtp, sp, nng)]
        lines.append(
            f"| {result['name']} | {cells[0]} | {cells[1]} | {ratio(sp or 0, zmtp)} | {cells[2]} "
            f"| {ratio(sp or 0, nng)} |"
        )
    return "\n".join(lines)


def headlines(results: dict, wanted: list[str]) -> str:
    """The named rows for a first look; a ratio below 1 is better for a time, above 1 for a rate."""
    lines = [
        "| what | mqcore | best peer | to it | to raw |",
        "|---|--:|--:|--:|--:|",
    ]
    for group in ("pairs", "native", "loads", "many", "shared"):
        some = results.get(group, [])
        base = bases(some) if group == "pairs" else {}
        for entry in some:
            if entry["name"] in wanted:
                key = pair_key(entry) if group == "pairs" else ()
                lines.append(headline(entry, base.get(key, {})))
    return "\n".join(filter(None, lines))


Tables = dict[str, Callable[[list[dict]], str]]


def text(about: dict, results: dict, tables: Tables, last: str = "") -> str:
    """`tables`: how the results of a group are shown, where neither usual way fits. `last`: a
    section of its own, behind all groups."""
    parts = [head(about)]
    for group, some in results.items():
        if not some:
            continue
        if len(results) > 1:
            parts.append(f"## {TITLES.get(group, group)}")
        usual = pair_table if "kind" in some[0] else row_table
        parts.append(tables.get(group, usual)(some))
        if usual is pair_table:
            parts += filter(None, [build_table(some)])
    return "\n\n".join([*parts, *filter(None, [last])])


def write(folder: Path, name: str, about: dict, results: dict, tables: Tables | None = None,
          last: str = "") -> str:  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    made = text(about, results, tables or {}, last)
    (folder / f"{name}.md").write_text(f"{made}\n")
    (folder / f"{name}.json").write_text(json.dumps({"about": about, **results}, indent=1) + "\n")
    return made
