"""A subscriber: prints live what the job publishes, and counts it.

It is the SUB that binds (Spark's tasks connect to it). On a terminal the latest rows stand in a
table; otherwise each is a line of a file. As a process it is started by run.py.
"""

from __future__ import annotations

import collections
import contextlib
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mqcore as mq
from examples.pipeline.processes import begin, say

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

TOPIC = "hourly"
COLUMNS = ("origin", "hour", "flights", "cancelled", "dep_delay", "arr_delay", "temp", "wind_speed",
           "precip", "visib")       # a row lacks those that are null
LATEST = 12         # rows on a terminal
WAIT = 0.1          # seconds for a message, then a look at orders
PATIENCE = 20.0     # seconds at the end for what is expected


class Board:
    """The latest rows and their number, as a table that changes in place on standard error."""

    def __init__(self) -> None:
        self._rows: collections.deque[dict[str, Any]] = collections.deque(maxlen=LATEST)
        self._count = 0
        self.status = ""
        self._live: Live | None = None

    def __enter__(self) -> Board:
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=Console(stderr=True), transient=True, refresh_per_second=8,
                          get_renderable=self._table)
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, row: dict[str, Any]) -> None:
        self._rows.append(row)
        self._count += 1

    def _table(self) -> Table:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        table = Table(*COLUMNS, box=SIMPLE_HEAD, title=f"{TOPIC}: {self._count:,} rows",
                      caption=self.status)
        for row in self._rows:
            table.add_row(*(cell(row.get(name)) for name in COLUMNS))
        return table


class Lines:
    """A line a row, in a file."""

    def __init__(self, path: Path) -> None:
        self.status = ""
        self._file = open(path, "w")

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def show(self, row: dict[str, Any]) -> None:
        self._file.write("  ".join(cell(row.get(name)) for name in COLUMNS) + "\n")


def cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.1f}"
    return "-" if value is None else str(value).removesuffix(":00.000Z")     # of the hour


class Subscriber:
    """A SUB at an address. rows: the latest of each (origin, hour); messages: all that came, also
    those that a repeated Spark task sent again."""

    def __init__(self, bind: str) -> None:
        self.socket = mq.Sub(bind=bind, topics=[TOPIC.encode()], recv_hwm=None)
        self.messages = 0
        self.rows: dict[tuple[str, str], dict[str, Any]] = {}

    @property
    def url(self) -> str:
        return str(self.socket.endpoints[0].url)

    def receive(self, timeout: float) -> Iterator[dict[str, Any]]:
        """Rows that come within so many seconds, and those behind them that are there already."""
        with contextlib.suppress(mq.RecvTimeout):
            _, value = self.socket.recv_parts(timeout=timeout)
            while True:
                row = json.loads(value)
                self.messages += 1
                self.rows[row["origin"], row["hour"]] = row
                yield row
                _, value = self.socket.recv_parts(timeout=0)

    def close(self) -> None:
        self.socket.close(linger=0)


def main(arguments: Sequence[str]) -> None:
    setup, orders = begin(arguments)
    subscriber = Subscriber(setup["bind"])
    say(url=subscriber.url)
    screen: Any = Board() if setup["live"] else Lines(Path(setup["lines"]))
    expected, end = None, math.inf
    with screen:
        while time.monotonic() < end and (expected is None or len(subscriber.rows) < expected):
            for row in subscriber.receive(WAIT):
                screen.show(row)
            order = orders.next(0) or {}
            screen.status = order.get("status", screen.status)
            if "expect" in order:
                expected, end = order["expect"], time.monotonic() + PATIENCE
    subscriber.close()
    Path(setup["rows"]).write_text(json.dumps(list(subscriber.rows.values())))
    say(messages=subscriber.messages, rows=len(subscriber.rows))


if __name__ == "__main__":
    main(sys.argv[1:])
