"""A results file as SVG: curves of what grows with a load (curves.py), then a panel a row of the
table, a bar a candidate, the spread as a thin line.

plots.py perf/results/DATE.json [...]        writes DATE.svg beside each
"""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from xml.sax.saxutils import escape

import curves
import report
from candidates import label, parse

WIDTH, LEFT, BAR, GAP, TITLE, RIGHT = 460, 108, 14, 4, 22, 96
COLUMNS = 2
IN_CURVES = {curve.what for curve in curves.ALL if "," in curve.what}     # and no bars of them
OURS, THEIRS, LIMIT = "#2a6fb0", "#b8c4ce", "#e2c27a"


def colour(name: str) -> str:
    library = parse(name).library
    return OURS if library.startswith("mqcore") else LIMIT if library == "raw" else THEIRS


def figure(result: dict, value: float) -> str:
    if "kind" in result:
        return report.shown(result["kind"], value)
    return f"{report.amount(value)} {result['unit'].removesuffix(' a connection')}"


def panel(result: dict, x: int, y: int) -> tuple[str, int]:
    """Its SVG and its height. A raw that would flatten all the others is cut, and said to be."""
    good = {name: s for name, s in result["summary"].items() if "median" in s}
    most = max([s["high"] for name, s in good.items() if name != "raw"] or [1]) or 1
    room = WIDTH - LEFT - RIGHT
    parts = [f'<text x="{x}" y="{y + 14}" font-weight="bold">{escape(result["name"])}</text>']
    at = y + TITLE
    for name, s in good.items():
        left = f'<text x="{x + LEFT - 6}" y="{at + 11}" text-anchor="end">'
        wide, cut = min(1, s["median"] / most) * room, " (cut)" if s["median"] > most else ""
        low, high = (x + LEFT + min(1, s[key] / most) * room for key in ("low", "high"))
        middle = at + BAR / 2
        parts += [
            f"{left}{escape(label(name))}</text>",
            f'<rect x="{x + LEFT}" y="{at}" width="{wide:.1f}" height="{BAR}" '
            f'fill="{colour(name)}"/>',
            f'<path d="M{low:.1f} {middle}H{high:.1f}" stroke="#333"/>',
            f'<text x="{high + 5:.1f}" y="{at + 11}">{figure(result, s["median"])}{cut}</text>',
        ]
        at += BAR + GAP
    return "\n".join(parts), at - y + 12


def svg(results: list[dict], title: str) -> str:
    parts, heights = [], [44] * COLUMNS
    bars = [functools.partial(panel, result) for result in results
            if result.get("what") not in IN_CURVES]
    for draw_at in (*curves.panels(results), *bars):
        column = heights.index(min(heights))
        drawn, height = draw_at(12 + column * (WIDTH + 16), heights[column])
        parts.append(drawn)
        heights[column] += height
    wide, high = COLUMNS * (WIDTH + 16) + 12, max(heights) + 8
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" '
        f'viewBox="0 0 {wide} {high}" font-family="sans-serif" font-size="12">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n<text x="12" y="22" fill="#555">'
        f"{escape(title)}</text>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def draw(path: Path) -> Path:
    found = json.loads(path.read_text())
    about = found["about"]
    title = (
        f"{path.stem}: {about['cpu']}, {about['cores']} cores; medians of {about['rounds']} rounds"
    )
    every = [result for name, some in found.items() if name != "about" for result in some]
    out = path.with_suffix(".svg")
    out.write_text(svg(every, title))
    return out


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(draw(Path(name)))
