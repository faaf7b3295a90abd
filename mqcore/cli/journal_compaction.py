"""`mq journal compact`: keep only the newest message of each key."""

from __future__ import annotations

import click

from mqcore.cli.format import as_text
from mqcore.cli.journal_where import FOLDER


@click.command()
@FOLDER
@click.option("-s", "--topic", default="default", show_default=True, help="The topic.")
@click.option("-p", "--partition", type=click.IntRange(0), help="Only this partition.")
@click.option("--keep-tombstones", type=click.FloatRange(0), default=86400.0, show_default=True,
              metavar="SECONDS", help="How long a tombstone stays after the values that it hides.")
@click.option("--min-share", type=click.FloatRange(0, 1), default=0.0, show_default=True,
              help="Leave segments that would free a smaller share of their bytes.")
def compact(where: str, topic: str, partition: int | None, keep_tombstones: float,
            min_share: float) -> None:
    """Keep only the newest message of each key, in all segments but the last one.

    Messages without a key stay, and so do all offsets. A writer, readers and mirrors may go on
    meanwhile.
    """
    from mqcore import journal as library

    for done in library.compact(where, topic=topic, partition=partition,
                                keep_tombstones=keep_tombstones, min_share=min_share):
        left = f"; {done.left} left as they are" if done.left else ""
        click.echo(f"{as_text(topic)}/{done.partition}: {done.removed} messages removed, "
                   f"{done.freed} bytes freed, {done.rewritten} of {done.segments} segments "
                   f"written anew{left}")
