"""What is to be read: from where to where in each partition, in how many ranges. All of it happens
on the driver; executors get Ranges."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pyspark.sql.datasource import InputPartition

from mqcore.errors import OptionError
from mqcore.spark.nodes import Nodes, Part
from mqcore.spark.options import EARLIEST, LATEST, Options

TASKS = 1024            # of Spark, if no number is asked for: each costs some 20 ms
OPENING = 1000          # messages that could be read while a partition is opened


@dataclass
class Range(InputPartition):
    """Messages start to stop - 1 of a partition. origin: see Part.open()."""

    part: Part
    start: int
    stop: int
    origin: str | None = None


@dataclass
class Ranges(InputPartition):
    """What one Spark task reads, one after the other."""

    ranges: Sequence[Range]


def resolve(nodes: Nodes, parts: list[Part], wanted: str | dict[str, int] | None, default: str,
            time: float | None = None) -> dict[Part, int]:
    """Where each partition begins or ends: by name, by JSON, by time."""
    named = wanted if isinstance(wanted, dict) else {}
    _check_names(named, parts)
    found = {}
    for part in parts:
        reader = nodes.reader(part)
        if time is not None:
            found[part] = min(reader.at(time), nodes.end(part))
            continue
        word = default if wanted is None or named else str(wanted)
        at = named.get(part.key, named.get(part.name))
        if at is None:
            at = EARLIEST if word == "earliest" else LATEST
        first, end = reader.first, nodes.end(part)
        if at > end:
            raise OptionError(f"offset {at} of {part} does not exist yet",
                              hint=f"it has {first} to {end - 1}")
        found[part] = first if at == EARLIEST else end if at == LATEST else at
    return found


def _check_names(named: dict[str, int], parts: list[Part]) -> None:
    """Those with an offset must be read; the offset of one place is nothing in another."""
    unknown = sorted(set(named) - {part.name for part in parts} - {part.key for part in parts})
    if unknown:
        raise OptionError(f"offsets for {', '.join(unknown)}, which are not read",
                          hint=f"read are {', '.join(part.name for part in parts) or 'none'}")
    for name, offset in named.items():
        same = [part for part in parts if part.name == name and part.key not in named]
        if offset >= 0 and len(same) > 1:
            raise OptionError(
                f"{offset} for {name}, which is at {', '.join(part.where for part in same)}",
                hint="say which, by the journals' ids: "
                     + ", ".join(f'"{part.key}" at {part.where}' for part in same))


def tasks(ranges: Iterable[Range], options: Options) -> list[Ranges]:
    """One task for each range that is not empty; more with minPartitions, fewer with
    maxPartitions."""
    least = options.minPartitions
    most = options.maxPartitions or max(TASKS, least or 0)
    return _packed(split(ranges, least), most)


def _packed(ranges: list[Range], most: int) -> list[Ranges]:
    """In at most so many tasks, about as long as each other."""
    if len(ranges) <= most:
        return [Ranges([r]) for r in ranges]
    packed: list[list[int]] = [[] for _ in range(most)]
    shortest = [(0, i) for i in range(most)]
    for at in sorted(range(len(ranges)), key=lambda i: ranges[i].start - ranges[i].stop):
        work, i = shortest[0]
        packed[i].append(at)
        work += OPENING + ranges[at].stop - ranges[at].start
        heapq.heapreplace(shortest, (work, i))
    return [Ranges([ranges[at] for at in sorted(each)]) for each in packed]


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
        pieces += [replace(r, start=a, stop=b) for a, b in zip(cuts, cuts[1:], strict=False)]
    return pieces
