"""What is to be read: which partitions there are, from where to where, in how many ranges.

All of it happens on the driver; executors get Ranges. A partition is named `id|topic|partition` in
what Spark stores, where id is the one in its segments' headers: a journal that was deleted and
made anew is another one, and its offsets are not compared.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition

from mqcore import journal
from mqcore.errors import OptionError
from mqcore.journal.place import partitions, segment_name, segments
from mqcore.journal.scan import HEADER_SIZE, parse_segment
from mqcore.spark.options import EARLIEST, LATEST, Options


class Part(NamedTuple):
    """A partition of a journal."""

    path: str
    id: str
    topic: str
    partition: int

    @property
    def key(self) -> str:
        return f"{self.id}|{self.topic}|{self.partition}"

    @property
    def name(self) -> str:
        return f"{self.topic}|{self.partition}"

    def open(self) -> journal.Reader:
        return journal.open(self.path, topic=self.topic, partition=self.partition)


@dataclass
class Range(InputPartition):
    """Messages start to stop - 1 of a partition: what one Spark task reads."""

    part: Part
    start: int
    stop: int


def journal_id(folder: Path) -> str | None:
    """None: no segment yet."""
    for first in segments(folder):
        try:
            with open(folder / segment_name(first), "rb") as file:
                header = parse_segment(file.read(HEADER_SIZE))
        except FileNotFoundError:       # retention was faster
            continue
        if not isinstance(header, str):
            return header.journal.hex()
    return None


def find(options: Options, must_exist: bool) -> list[Part]:
    """The partitions that the options choose. must_exist: those named must be there."""
    path = options.path
    if "://" in path and not path.startswith("file://"):
        raise OptionError(f"path {path!r} is not a folder",
                          hint="journals are read from a file system that driver and executors "
                               "share, by its path")
    path = path.removeprefix("file://")
    if not os.path.isdir(path):
        raise journal.JournalNotFound(f"there is no journal at {path}")
    there = {(topic, number): folder for topic, number, folder in partitions(path)}
    chosen = [name for name in there if _chosen(options, *name)]
    if must_exist:
        missing = {f"topic {topic}" for topic in options.subscribe or ()} \
            - {f"topic {topic}" for topic, _ in there}
        missing |= {f"partition {topic}|{n}" for topic, n in options.assign or ()
                    if (topic, n) not in there}
        if missing:
            topics = ", ".join(sorted({topic for topic, _ in there})) or "nothing"
            raise journal.JournalNotFound(f"{path} has no {', no '.join(sorted(missing))}",
                                          hint=f"it has {topics}")
    found = []
    for topic, number in chosen:
        ident = journal_id(there[topic, number])
        if ident is not None:
            found.append(Part(path, ident, topic, number))
    return found


def _chosen(options: Options, topic: str, partition: int) -> bool:
    if options.subscribe is not None:
        return topic in options.subscribe
    if options.assign is not None:
        return (topic, partition) in options.assign
    return options.subscribePattern.fullmatch(topic) is not None


def resolve(parts: Iterable[Part], wanted: str | dict[str, int] | None, default: str,
            time: float | None = None) -> dict[Part, int]:
    """Where each partition begins or ends: by name, by JSON, by time."""
    parts = list(parts)
    named = wanted if isinstance(wanted, dict) else {}
    known = {part.name for part in parts} | {part.key for part in parts}
    unknown = sorted(set(named) - known)
    if unknown:
        raise OptionError(f"offsets for {', '.join(unknown)}, which are not read",
                          hint=f"read are {', '.join(part.name for part in parts) or 'none'}")
    found = {}
    for part in parts:
        with part.open() as reader:
            if time is not None:
                found[part] = reader.at(time)
                continue
            word = default if wanted is None or named else str(wanted)
            at = named.get(part.key, named.get(part.name))
            if at is None:
                at = EARLIEST if word == "earliest" else LATEST
            first, end = reader.first, reader.end
            if at > end:
                raise OptionError(f"offset {at} of {part.name} does not exist yet",
                                  hint=f"it has {first} to {end - 1}")
            found[part] = first if at == EARLIEST else end if at == LATEST else at
    return found


def split(ranges: Iterable[Range], least: int | None) -> list[Range]:
    """The ranges that are not empty, cut into about `least` pieces, larger ones into more."""
    ranges = [r for r in ranges if r.start < r.stop]
    total = sum(r.stop - r.start for r in ranges)
    if least is None or least <= len(ranges):
        return ranges
    pieces = []
    for r in ranges:
        n = r.stop - r.start
        k = min(n, max(1, round(least * n / total)))
        cuts = [r.start + n * i // k for i in range(k + 1)]
        pieces += [Range(r.part, a, b) for a, b in zip(cuts, cuts[1:], strict=False)]
    return pieces
