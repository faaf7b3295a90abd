"""Curves for plots.py: what a figure becomes as the load, or a backlog, grows. Both axes are
logarithmic; a load that was not carried has no point."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple
from xml.sax.saxutils import escape

import report
from candidates import label, parse

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 460, 250, 64, 110, 24, 34
COLOURS = {"mqcore": "#2a6fb0", "pyzmq": "#c0504d", "pyomq": "#5b8c5a", "pynng": "#8064a2",
           "zenoh": "#d08a2e", "raw": "#777777",
          "mqcore-many": "#7fb2e5", "mqcore-journal": "#2a6fb0", "mqcore-queue": "#7fb2e5",
          "nats": "#5b8c5a", "nats-jetstream": "#5b8c5a", "redis-pubsub": "#c0504d",
          "redis-streams": "#c0504d", "mosquitto-qos0": "#d08a2e", "mosquitto-qos1": "#e6bb7c",
          "rabbitmq": "#8064a2", "rabbitmq-durable": "#8064a2", "activemq": "#4bacc6",
          "activemq-durable": "#4bacc6", "beanstalkd": "#777777", "beanstalkd-log": "#777777",
          "beanstalkd-piped": "#aaaaaa"}  # fmt: skip
GROUPS = ("no broker", "broker", "stored")     # of brokers.py
OTHER = "#b8c4ce"


class Curves(NamedTuple):
    title: str
    what: str  # of the rows
    across: str
    value: Callable[[dict], float | None]  # from a summary


def more(key: str) -> Callable[[dict], float | None]:
    return lambda s: s["more"].get(key)


ALL = (
    Curves("delay at a load, median, us", "load", "messages/s", more("p50 us")),
    Curves("delay at a load, 99 %, us", "load", "messages/s", lambda s: s["median"]),
    Curves("delay at a load, 99.9 %, us", "load", "messages/s", more("p99.9 us")),
    Curves("delay behind a backlog, ms", "backlog", "messages waiting", lambda s: s["median"]),
    *(one for group in GROUPS for one in (
        Curves(f"{group}: delay at a load, median, us", f"load, {group}", "messages/s",
               more("p50 us")),
        Curves(f"{group}: delay at a load, 99 %, us", f"load, {group}", "messages/s",
               lambda s: s["median"]),
        Curves(f"{group}: the last of a burst, ms", f"burst, {group}", "messages at once",
               lambda s: s["median"]),
    )),
)


def points(results: list[dict], curves: Curves) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {}
    for result in results:
        for name, s in result["summary"].items():
            if result.get("what") == curves.what and "median" in s and not s["mark"]:
                value = curves.value(s)
                if value and value > 0:
                    found.setdefault(name, []).append((result["at"], value))
    return found


class Axis(NamedTuple):
    low: float
    high: float
    start: float  # where `low` is in the picture
    end: float

    def __call__(self, value: float) -> float:
        part = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + part * (self.end - self.start)

    def marks(self) -> list[float]:
        first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
        return [10.0**power for power in range(first, last + 1)]


def axis(values: list[float], start: float, end: float) -> Axis:
    low, high = min(values), max(values)
    return Axis(low, high if high > low else low * 10, start, end)


def grid(x: Axis, y: Axis) -> list[str]:
    """Lines at the powers of ten, with their numbers."""
    parts = []
    for value in y.marks():
        at = f"{y(value):.1f}"
        parts.append(f'<path d="M{x.start} {at}H{x.end}" stroke="#ddd"/>')
        parts.append(f'<text x="{x.start - 6}" y="{at}" text-anchor="end">{value:g}</text>')
    for value in x.marks():
        at = f"{x(value):.1f}"
        parts.append(f'<path d="M{at} {y.start}V{y.end}" stroke="#ddd"/>')
        parts.append(
            f'<text x="{at}" y="{y.start + 14}" text-anchor="middle">{report.amount(value)}</text>'
        )
    return parts


def panel(curves: Curves, lines: dict, x: int, y: int) -> tuple[str, int]:
    """Its SVG and its height."""
    every = [point for line in lines.values() for point in line]
    across = axis([a for a, _ in every], x + LEFT, x + WIDTH - RIGHT)
    up = axis([b for _, b in every], y + HEIGHT - BOTTOM, y + TOP)
    parts = [
        f'<text x="{x}" y="{y + 14}" font-weight="bold">{escape(curves.title)}</text>',
        *grid(across, up),
        f'<text x="{across.end}" y="{up.start + 28}" text-anchor="end">{curves.across}</text>',
    ]
    ends = []
    for name, line in lines.items():
        colour = COLOURS.get(parse(name).library, OTHER)
        places = [(across(a), up(b)) for a, b in sorted(line)]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        ends.append((places[-1], colour, escape(label(name))))
    parts += names(ends)
    return "\n".join(parts), HEIGHT + 12


def names(ends: list[tuple[tuple[float, float], str, str]]) -> list[str]:
    """Each beside the end of its line, or below one that would cover it."""
    parts, taken = [], []
    for (a, b), colour, text in sorted(ends, key=lambda end: end[0][1]):
        while any(abs(b - other) < 12 and abs(a - there) < RIGHT for there, other in taken):
            b += 1
        taken.append((a, b))
        parts.append(f'<text x="{a + 5:.1f}" y="{b + 4:.1f}" fill="{colour}">{text}</text>')
    return parts


def panels(results: list[dict]) -> list[Callable[[int, int], tuple[str, int]]]:
    """What there is to draw: functions of the place."""
    found = [(curves, points(results, curves)) for curves in ALL]
    return [
        lambda x, y, c=curves, some=lines: panel(c, some, x, y) for curves, lines in found if lines
    ]
