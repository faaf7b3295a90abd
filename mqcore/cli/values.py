"""Sizes, durations and times as people write them on a command line."""

from __future__ import annotations

import datetime
import re
import time
from typing import Any

import click

from mqcore.options import UNITS

SPANS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


def _amount(text: str, units: dict[str, int]) -> float | None:
    match = AMOUNT.fullmatch(text.strip())
    factor = units.get(match[2].lower()) if match else None
    return None if match is None or factor is None else float(match[1]) * factor


class Size(click.ParamType[int]):
    """A number of bytes: 65536, 64KiB, 1.5GB."""

    name = "size"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        if isinstance(value, int):
            return value
        found = _amount(value, {"": 1, "b": 1, **UNITS})
        if found is None or not found >= 1:
            self.fail(f"{value!r} is not a size; write bytes, or 64KiB, 100MB, 2GiB", param, ctx)
        return int(found)


class Span(click.ParamType[float]):
    """A number of seconds: 30, 90s, 10m, 12h, 7d."""

    name = "duration"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        if isinstance(value, (int, float)):
            return float(value)
        found = _amount(value, SPANS)
        if found is None or not found > 0:
            self.fail(f"{value!r} is not a duration; write seconds, or 10m, 12h, 7d", param, ctx)
        return found


class Since(click.ParamType[float]):
    """A time in seconds since the epoch, from a date, a date and time, or a duration ago."""

    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        if isinstance(value, (int, float)):
            return float(value)
        ago = _amount(value, SPANS)
        if ago is not None:
            return time.time() - ago
        try:
            return datetime.datetime.fromisoformat(value).timestamp()
        except (ValueError, OverflowError, OSError):
            self.fail(f"{value!r} is not a time; write 10m (ago), 2026-11-22, "
                      f"2026-11-22T10:00:00 or 2026-11-22T10:00:00+01:00", param, ctx)
