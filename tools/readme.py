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


def figures(old: str) -> str:
    """The newest run's table; the old one if there is none."""
    tables = sorted((ROOT / "perf" / "results").glob("*quick*.md"), key=lambda p: p.stat().st_mtime)
    return tables[-1].read_text().strip() if tables else old


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
