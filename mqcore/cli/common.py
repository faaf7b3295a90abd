"""Shared by the commands: options for addresses and sockets, notes on stderr, tables."""

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
    """Print a note on stderr; standard output is for data."""
    click.echo(text, err=True)


class _TimedOut(click.ClickException):
    exit_code = TIMED_OUT


def finish(socket: Any, timeout: float | None = None) -> None:
    """Close the socket and raise if messages could not be delivered. With a timeout, close within
    it; messages that no peer took by then count as timed out."""
    if timeout is None:
        report = socket.close()
    else:
        report = socket.close(timeout if socket.linger is None else min(timeout, socket.linger))
    if report.undelivered:
        kind = click.ClickException if timeout is None else _TimedOut
        raise kind(
            f"{report.undelivered} of the messages could not be delivered; "
            "is a peer connected? `mq doctor URL` checks"
        )


def on_terminal(stream: Any = None) -> bool:
    stream = sys.stderr if stream is None else stream
    try:
        return bool(stream.isatty())
    except ValueError:  # stdout is closed
        return False


def socket_options(_: click.Context, __: click.Parameter, given: Sequence[str]) -> dict[str, Any]:
    """Parse --option name=value. The value is a Python literal if it is valid as one, else text."""
    options: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"{text!r} is not of the form name=value")
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
    help="Set a socket option, like -o linger=5 or -o send_hwm=100. Repeatable.",
)


def printable(text: str) -> str:
    """Text that a peer has chosen, on one line and without control characters."""
    return text if text.isprintable() else "".join(
        char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


def monitors(urls: Sequence[str]) -> Any:
    """A client of the monitors at these addresses, or of all monitored programs of this user."""
    try:
        from mqcore.monitor import Client
    except ImportError as error:
        raise click.ClickException(f'this command needs {error.name}: '
                                   f'pip install "mqcore[cli,monitor]"') from None
    return Client(urls or None)


def columns(header: Sequence[str], lines: Iterable[Sequence[object]]) -> None:
    """Print a table on standard output: rich on a terminal, else aligned text, never truncated."""
    cells = [[str(cell) for cell in line] for line in lines]
    if on_terminal(sys.stdout):
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(*header, box=box.SIMPLE_HEAD)
        for cell in cells:
            table.add_row(*map(Text, cell))
        Console().print(table)
        return
    rows: list[Sequence[str]] = [header, *cells]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(map(str.ljust, row, widths)).rstrip())


def progress() -> Progress:
    """A progress bar on stderr if that is a terminal, else an object without output."""
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
