"""`mq journal groups` and `members`: offsets of consumer groups, and who reads which partition."""

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
              help="Move a group to an offset: a number, first or end. Repeatable.")
@click.option("--expected", metavar="OFFSET",
              help="Set the groups only if they are there: a number, first, end or never.")
@click.option("--json", "as_json", is_flag=True, help="Print an object per line, for programs.")
@OPTION
@for_client_sockets
def groups(where: str, topic: str | None, partition: int, given: tuple[tuple[str, str], ...],
           expected: str | None, as_json: bool, options: dict[str, Any]) -> None:
    """Show or set the consumer groups of a partition.

    The offset of a group is the next message that it reads. `behind` is the number of messages from
    there to the end. Retention may keep segments for a group, so moving a group forward may delete
    segments permanently.

    \b
      mq journal groups data --topic flights
      mq journal groups data --topic flights --set dashboard first
    """
    with opened(where, topic, partition, options) as reader:
        for name, offset in given:
            reader.commit_offset(name, place(reader, offset), expected=(
                "any" if expected is None else
                None if expected == "never" else place(reader, expected)))
        first, end = reader.first, reader.end
        rows = [{"group": name, "offset": offset, "behind": end - max(first, offset)}
                for name, offset in reader.groups().items()]
    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
    else:
        columns(("group", "offset", "behind"),
                [[as_text(str(cell)) for cell in row.values()] for row in rows])


@click.command()
@click.argument("where", metavar="ADDRESS")
@click.argument("group")
@TOPIC
@click.option("--json", "as_json", is_flag=True, help="Print an object per line, for programs.")
@OPTION
@for_client_sockets
def members(where: str, group: str, topic: str | None, as_json: bool,
            options: dict[str, Any]) -> None:
    """Show the members of a consumer group at a journal server, and the partitions of each.

    \b
      mq journal members tcp://host:5558/flights dashboard
    """
    if "://" not in where:
        raise click.UsageError(f"{where} is a folder; members meet at a journal server")
    with opened(where, topic, 0, options) as reader:
        rows = [{"member": name, "partitions": found}
                for name, found in reader.group_members(group).items()]
    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
    else:
        columns(("member", "partitions"),
                [[as_text(row["member"]), " ".join(map(str, row["partitions"])) or "-"]
                 for row in rows])


def place(reader: Any, text: str) -> int:
    if text in ("first", "end"):
        return int(getattr(reader, text))
    if not (text.isascii() and text.isdecimal()):
        raise click.UsageError(f"{text!r} is not an offset; write a number, first or end")
    return int(text)
