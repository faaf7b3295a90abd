"""`mq journal promote`: make mirrors the primary."""

from __future__ import annotations

import click

from mqcore.cli.common import note
from mqcore.cli.format import as_text
from mqcore.errors import Error


@click.command()
@click.argument("where", type=click.Path(exists=True, file_okay=False))
@click.option("-s", "--topic", help="The topic.  [default: default]")
@click.option("-p", "--partition", type=click.IntRange(0), help="The partition.  [default: 0]")
@click.option("--all", "everything", is_flag=True, help="All topics and partitions of the folder.")
@click.option("--old", type=click.Path(exists=True, file_okay=False), metavar="FOLDER",
              help="The former primary's folder, if you can reach it: copy what the mirror lacks, "
              "and fence it.")
def promote(where: str, topic: str | None, partition: int | None, everything: bool,
            old: str | None) -> None:
    """Make the mirror in WHERE the primary. Stop `mq journal mirror` first.

    The former primary takes no more messages: at once if you give --old, otherwise as soon as it
    asks its --replica, or becomes a mirror of this journal. Messages that it has acknowledged and
    that the mirror lacks are then reported with their offsets, and never overwritten.

    \b
      mq journal promote backup --topic flights
      mq journal promote backup --all --old /mnt/primary
    """
    from mqcore import journal as library

    if everything and not (topic is None and partition is None):
        raise click.UsageError("--all conflicts with --topic and --partition")
    rows = [(info.topic, info.partition) for info in library.list_partitions(where)] \
        if everything else [(topic or "default", partition or 0)]
    if not rows:
        raise click.UsageError(f"{where} has no journal")
    failed = 0
    for name, number in rows:
        try:
            done = library.promote(where, topic=name, partition=number, old=old)
        except Error as error:
            if not everything:
                raise
            note(f"{as_text(name)}/{number}: {error}")
            failed += 1
            continue
        copied = f", {done.copied} messages copied from the former primary" if old else ""
        click.echo(f"{as_text(name)}/{number}: epoch {done.epoch} begins at message "
                   f"{done.offset}{copied}")
    if failed:
        raise click.exceptions.Exit(1)
