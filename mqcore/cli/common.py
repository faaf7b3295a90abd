"""What the commands share: how addresses and options are given, lines on stderr, tables."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.progress import Progress

FAILED, WRONG, TIMED_OUT, INTERRUPTED, TERMINATED = 1, 2, 3, 130, 143  # exit statuses


def note(text: str) -> None:
    """For the person at the terminal; standard output is for data."""
    click.echo(text, err=True)


def finish(socket: Any, timeout: float | None = None) -> None:
    """Close, and make what could not be delivered an error. With a timeout: within it, and what is
    left then was given up for lack of somebody to take it."""
    if timeout is None:
        report = socket.close()
    else:
        report = socket.close(timeout if socket.linger is None else min(timeout, socket.linger))
    if report.undelivered:
        error = click.ClickException(
            f"{report.undelivered} of the messages could not be delivered; "
            "is anybody there? `mq doctor URL` looks"
        )
        error.exit_code = FAILED if timeout is None else TIMED_OUT
        raise error


def on_terminal(stream: Any = None) -> bool:
    stream = sys.stderr if stream is None else stream
    try:
        return bool(stream.isatty())
    except ValueError:  # closed
        return False


def socket_options(_: click.Context, __: click.Parameter, given: Sequence[str]) -> dict[str, Any]:
    """--option name=value, the value read as a Python literal if it is one, else as text."""
    options: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"{text!r} is not name=value")
        try:
            options[name] = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            options[name] = value
        if name == "routing_id" and isinstance(options[name], (str, int)):
            options[name] = value.encode()
    return options


OPTION: Callable[[Any], Any] = click.option(
    "-o",
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    callback=socket_options,
    help="A socket option, like -o linger=5 or -o send_hwm=100. May be given again.",
)


def columns(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on standard output: rich at a terminal, aligned text in a pipe (nothing is cut)."""
    cells = [[str(cell) for cell in row] for row in rows]
    if on_terminal(sys.stdout):
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(*header, box=box.SIMPLE_HEAD)
        for row in cells:
            table.add_row(*map(Text, row))
        Console().print(table)
        return
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
    for row in (header, *cells):
        click.echo("  ".join(map(str.ljust, row, widths)).rstrip())


def progress() -> Progress:
    """A bar on stderr if that is a terminal; the same object without a bar otherwise."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not on_terminal(),
    )
