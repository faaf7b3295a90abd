"""The journal of a command: a folder, or the address of a journal server."""

from __future__ import annotations

from typing import Any

import click


class Where(click.Path):
    """An address, or a folder that must exist."""

    name = "folder or address"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        return value if "://" in str(value) else super().convert(value, param, ctx)


WHERE = click.argument("where", type=Where(exists=True, file_okay=False))
TOPIC = click.option("-s", "--topic", help="The topic; an address may name it after the "
                     "port.  [default: default]")
PARTITION = click.option("-p", "--partition", type=click.IntRange(0), default=0, show_default=True,
                         help="The partition.")


def remote(where: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a reader for this journal."""
    if options and "://" not in where:
        raise click.UsageError(f"{where} is a folder; keys and socket options are for the address "
                               "of a journal server")
    return options


def opened(where: str, topic: str | None, partition: int, options: dict[str, Any]) -> Any:
    """Open a reader."""
    from mqcore import journal as library

    return library.open(where, topic=topic, partition=partition, **remote(where, options))
