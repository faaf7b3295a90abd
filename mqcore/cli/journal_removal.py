"""`mq journal truncate`, `delete` and `rename`: remove messages, partitions and topics, or give a
topic another name."""

from __future__ import annotations

import click

from mqcore.cli.format import as_text
from mqcore.cli.journal_where import FOLDER, PARTITION


@click.command()
@FOLDER
@click.argument("offset", type=click.IntRange(0))
@click.option("-s", "--topic", default="default", show_default=True, help="The topic.")
@PARTITION
def truncate(where: str, offset: int, topic: str, partition: int) -> None:
    """Remove the messages below OFFSET, as far as whole segment files hold them.

    OFFSET may be the end, which removes all messages; the next one still gets that offset. The
    partition must have no open writer: a running program calls Writer.truncate_before().
    """
    from mqcore import journal as library

    first = library.truncate_before(where, offset, topic=topic, partition=partition)
    click.echo(f"{as_text(topic)}/{partition}: the first message is {first}")


@click.command()
@FOLDER
@click.option("-s", "--topic", required=True, help="The topic.")
@click.option("-p", "--partition", type=click.IntRange(0), help="Only this partition.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete(where: str, topic: str, partition: int | None, yes: bool) -> None:
    """Delete a topic, or one of its partitions: messages, consumer groups, producers.

    It asks first. Nothing is deleted while a writer has one of the partitions open. Readers that
    are open get an error at their next look.
    """
    from mqcore import journal as library

    what = as_text(topic) + ("" if partition is None else f"/{partition}")
    if not yes:
        click.confirm(f"Delete {what} from {where}, with all messages?", abort=True, err=True)
    number = library.delete(where, topic=topic, partition=partition)
    click.echo(f"{what}: {number} partition{'' if number == 1 else 's'} deleted")


@click.command()
@FOLDER
@click.option("-s", "--topic", required=True, help="The topic.")
@click.option("--to", required=True, metavar="NAME", help="Its new name.")
def rename(where: str, topic: str, to: str) -> None:
    """Give a topic another name. Messages keep their offsets, and consumer groups go with them.

    Nothing is renamed while a writer has one of its partitions open. Readers that are open get an
    error at their next look.
    """
    from mqcore import journal as library

    number = library.rename(where, topic=topic, to=to)
    click.echo(f"{as_text(topic)} is {as_text(to)} now: {number} "
               f"partition{'' if number == 1 else 's'}")
