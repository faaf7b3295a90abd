"""Rows for a page: searched, sorted and cut here, so that a page never gets more than it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mqcore.console.requests import PAGE_ROWS, Malformed, Table

Row = Mapping[str, Any]


def number(row: Row, name: str) -> Any:
    """Numbers sort downwards, texts upwards, and what is missing comes last."""
    value = row.get(name)
    if isinstance(value, (int, float)):
        return 0, -value, ""
    return (1, 0, str(value).lower()) if value not in (None, "") else (2, 0, "")


def cut(rows: Iterable[Row], asked: Table, sorts: tuple[str, ...],
        text: Callable[[Row], str]) -> dict[str, Any]:
    """One page of these rows, as fields of an answer. `sorts`: the columns, the default first."""
    sort = asked.sort or sorts[0]
    if sort not in sorts:
        raise Malformed(f"no column {sort!r} to sort by; there are {', '.join(sorts)}")
    found = list(rows)
    of = len(found)
    if words := asked.find.lower().split():
        found = [row for row in found if all(word in text(row).lower() for word in words)]
    found.sort(key=lambda row: number(row, sort), reverse=asked.reverse)
    last = max(0, len(found) - 1) // PAGE_ROWS
    page = min(asked.page, last)
    return {"rows": found[page * PAGE_ROWS:(page + 1) * PAGE_ROWS], "found": len(found), "of": of,
            "page": page, "pages": last + 1, "sort": sort, "reverse": asked.reverse}


def clean(text: str, most: int = 200) -> str:
    """A text that a peer has chosen, without control characters and of bounded length."""
    if len(text) > most:
        text = text[:most - 1] + "…"
    return text if text.isprintable() else "".join(
        char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)
