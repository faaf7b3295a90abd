"""`mq journal backup`: copy partitions while their writers go on."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from mqcore.cli.format import as_text, told_messages
from mqcore.cli.journal_where import FOLDER


@click.command()
@FOLDER
@click.argument("to", type=click.Path(file_okay=False))
@click.option("-s", "--topic", help="Only this topic.")
@click.option("-p", "--partition", type=click.IntRange(0), help="Only this partition.")
@click.option("--json", "as_json", is_flag=True, help="Print an object per line, for programs.")
def backup(where: str, to: str, topic: str | None, partition: int | None, as_json: bool) -> None:
    """Copy the journals in WHERE into the folder TO, while their writers go on.

    The copy holds what was durable, and the offsets of consumer groups. It is a journal itself:
    check it with `mq journal verify`, and open it to restore it. On one file system, complete
    segments become hard links. They take no space until retention removes the original, and damage
    on the disk hits both: keep a backup on another disk, too.

    \b
      mq journal backup data /mnt/backup/2026-11-27
      mq journal backup data copy --topic flights
    """
    from mqcore import journal as library

    for row in library.backup(where, to, topic=topic, partition=partition):
        click.echo(json.dumps(asdict(row)) if as_json else
                   f"{as_text(row.topic)}/{row.partition}: {told_messages(row.first, row.end)}, "
                   f"{row.segments} segments, {row.linked} of them links, "
                   f"{row.copied} bytes copied")
