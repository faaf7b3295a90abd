"""Fill the generated parts of README.md: options, reasons for drops, figures.

    python tools/readme.py            options and drops, and the newest table of perf/results/
    python tools/readme.py --check    exit 1 if options or drops are not up to date
"""

from __future__ import annotations

import re
import sys
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


SHOWN = {"mqcore", "pyzmq", "raw"}  # the others are in the file itself
LEFT_OUT = {"lowest to highest", "p99", "sender; p99", "GIL held at longest"}


def figures(old: str) -> str:
    """The newest run's tables, with the columns and libraries for a first look; the old text if
    there is no run."""
    tables = sorted((ROOT / "perf" / "results").glob("*.md"))
    if not tables:
        return old
    first, *lines = tables[-1].read_text().strip().split("\n")
    rows, head = [], []
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) < 4:
            rows.append("")
            continue
        if cells[1] == "library":
            head = cells
        if cells[1] in SHOWN | {"library"} or set(cells[1]) == {"-"}:
            shown = [cell for name, cell in zip(head, cells, strict=False) if name not in LEFT_OUT]
            rows.append(f"| {' | '.join(shown)} |")
    source = tables[-1].relative_to(ROOT).as_posix()
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(rows).strip())
    return f"From `{source}` (all libraries and spreads are there). {first}\n\n{text}"


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
    after = fill(after, "figures", figures(between(after, "figures")))
    README.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
