"""The journal of a command: a folder, or the address of a journal server."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import click

from mqcore.cli.common import note
from mqcore.errors import Error


class Where(click.Path):
    """An address, or a folder that must exist."""

    name = "folder or address"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        return value if "://" in str(value) else super().convert(value, param, ctx)


WHERE = click.argument("where", type=Where(exists=True, file_okay=False))
FOLDER = click.argument("where", type=click.Path(exists=True, file_okay=False))
TOPIC = click.option("-s", "--topic", help="The topic; an address may name it after the "
                     "port.  [default: default]")
PARTITION = click.option("-p", "--partition", type=click.IntRange(0), default=0, show_default=True,
                         help="The partition.")
GAPS = click.option("--gaps", type=click.Choice(["skip", "raise", "salvage"]), default="skip",
                    show_default=True, help="At messages that are gone: go on behind them and say "
                    "so, or end with an error. salvage: also go on behind damage.")


def remote(where: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a reader for this journal."""
    if options and "://" not in where:
        raise click.UsageError(f"{where} is a folder; keys and socket options are for the address "
                               "of a journal server")
    return options


def opened(where: str, topic: str | None, partition: int, options: dict[str, Any], *,
           durable: bool = True, gaps: str = "skip") -> Any:
    """Open a reader. gaps: "salvage" of a damaged partition, which then has gaps to be skipped."""
    from mqcore import journal as library

    more: Any = {"salvage": True} if gaps == "salvage" else {"durable": durable}
    return library.open(where, topic=topic, partition=partition, **more, **remote(where, options))


def way_past(gaps: str) -> str:
    """--gaps as Reader.batches() takes it."""
    return "skip" if gaps == "salvage" else gaps


def newest(reader: Any, count: int, end: int) -> int:
    """Where the last `count` messages in front of `end` begin. Compaction may have left fewer than
    there are offsets. So may damage, which reading them tells."""
    first: int = reader.first
    span = count
    while span < end - first:
        found: deque[int] = deque(maxlen=count)
        try:
            for records in reader.batches(end - span, end, gaps="skip"):
                rows = range(max(0, len(records) - count), len(records))
                found.extend(map(records.offset, rows))
        except Error:
            return end - span
        if len(found) == count:
            return found[0] if found else end
        span *= 8
    return first


def told(walk: Iterator[Any], at: int) -> Iterator[Any]:
    """The same records; of messages that are gone in between, a note."""
    for records in walk:
        if records.since > at:
            note(f"messages {at} to {records.since - 1} are gone")
        at = records.next
        yield records
