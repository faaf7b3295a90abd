"""`mq journal groups`: how far consumer groups have come, and setting that."""

from __future__ import annotations

import json
from typing import Any

import click

from mqcore.cli.common import OPTION, columns
from mqcore.cli.format import as_text
from mqcore.cli.journal_where import PARTITION, TOPIC, WHERE, opened
from mqcore.cli.keys import for_client_sockets


@click.command()
@WHERE
@TOPIC
@PARTITION
@click.option("--set", "given", nargs=2, multiple=True, metavar="NAME OFFSET",
              help="Move a group to an offset, a number, first or end. May be given again.")
@click.option("--json", "as_json", is_flag=True, help="Print an object a line, for programs.")
@OPTION
@for_client_sockets
def groups(where: str, topic: str | None, partition: int, given: tuple[tuple[str, str], ...],
           as_json: bool, options: dict[str, Any]) -> None:
    """Show the consumer groups of a partition, or set them.

    A group's offset is that of the next message it will read; `behind` counts the messages from
    there to the end. Retention may wait for a group, so one that is set forward may release
    segments for good.

    \b
      mq journal groups data --topic flights
      mq journal groups data --topic flights --set dashboard first
    """
    with opened(where, topic, partition, options) as reader:
        for name, offset in given:
            reader.commit(name, place(reader, offset))
        first, end = reader.first, reader.end
        rows = [{"group": name, "offset": offset, "behind": end - max(first, offset)}
                for name, offset in reader.groups().items()]
    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
    else:
        columns(("group", "offset", "behind"),
                [[as_text(str(cell)) for cell in row.values()] for row in rows])


def place(reader: Any, text: str) -> int:
    if text in ("first", "end"):
        return int(getattr(reader, text))
    if not (text.isascii() and text.isdecimal()):
        raise click.UsageError(f"{text!r} is not an offset; write a number, first or end")
    return int(text)
