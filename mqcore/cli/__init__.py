"""The `mq` command: try, connect, measure and diagnose without writing a program.

Only this package imports click and rich. Each command is a file, imported when it is asked for.
Every error ends in `main`, which prints one of ours as a sentence on stderr and sets the exit
status:

    0  done                         3    a time-out (--timeout)
    1  failed                       130  Ctrl-C
    2  wrong arguments              143  SIGTERM
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from types import FrameType
from typing import NoReturn

import click

from mqcore.cli.common import FAILED, INTERRUPTED, TERMINATED, TIMED_OUT, WRONG
from mqcore.cli.format import as_lines
from mqcore.errors import AddressError, Error, OptionError, Timeout


class ReaderLeft(click.ClickException):
    """The reader of our output has exited (`mq cat ... | head`). The command ends silently."""

    exit_code = 0

    def show(self, file: object = None) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# Each command's module, and its name there
COMMANDS = {
    "bridge": "bridges:bridge", "cat": "cat:cat", "cluster": "cluster:cluster",
    "components": "components:components", "console": "console:console", "device": "device:device",
    "doctor": "doctor:doctor", "http": "http:http", "info": "info:info",
    "journal": "journal:journal", "keygen": "keygen:keygen", "map": "map:map_command",
    "metrics": "exporter:metrics", "perf": "perf:perf", "plugin": "plugin:plugin",
    "queue": "queues:queue", "top": "top:top", "trace": "trace:trace",
}  # fmt: skip


class Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(f"mqcore.cli.{module}"), name)
        return command

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # click would exit with 1
            raise ReaderLeft("") from None


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="mqcore", prog_name="mq")
def cli() -> None:
    """Send and receive messages from the command line.

    \b
    A first message, from one terminal to another:
      mq cat pull --bind tcp://127.0.0.1:5555
      echo hello | mq cat push tcp://127.0.0.1:5555

    `mq COMMAND --help` describes a command. Exit status: 0 done, 1 failed, 2 wrong
    arguments, 3 timed out, 130 Ctrl-C.
    """


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    """SIGTERM unwinds like Ctrl-C, so that sockets close and send what is queued."""
    raise SystemExit(TERMINATED)


def run(args: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status."""
    try:
        status = cli.main(args=args, prog_name="mq", standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except click.exceptions.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        error.message = as_lines(error.message)  # type: ignore[misc]  # only its declaration
        error.show()
        return error.exit_code
    except Error as error:
        click.echo(f"mq: {as_lines(str(error))}", err=True)
        if isinstance(error, (AddressError, OptionError)):
            return WRONG
        return TIMED_OUT if isinstance(error, Timeout) else FAILED
    except OSError as error:
        click.echo(f"mq: {as_lines(str(error))}", err=True)
        return FAILED


def _streams() -> None:
    """A name that the terminal's encoding does not have is no error. Where standard output was
    closed, no file may get its number."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))       # noqa: SIM115 - to the end
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def main() -> NoReturn:
    _streams()
    signal.signal(signal.SIGTERM, _terminate)
    try:
        status = run()
    except KeyboardInterrupt:  # a second Ctrl-C, during the cleanup of the first
        status = INTERRUPTED
    sys.exit(status)
