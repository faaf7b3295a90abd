"""The command `mq`: try, connect, measure and diagnose without writing a program.

click and rich are imported here and below, nowhere else. Each command is a file. `main` is where
every error ends: an error of ours becomes one sentence on stderr and an exit status.

    0  done                         3    a time-out (--timeout)
    1  it failed                    130  Ctrl-C
    2  wrong arguments              143  SIGTERM
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

import click

from mqcore.cli.cat import cat
from mqcore.cli.common import FAILED, INTERRUPTED, TERMINATED, TIMED_OUT, WRONG
from mqcore.cli.device import device
from mqcore.cli.doctor import doctor
from mqcore.cli.info import info
from mqcore.cli.journal import journal
from mqcore.cli.keygen import keygen
from mqcore.cli.perf import perf
from mqcore.cli.plugin import plugin
from mqcore.errors import AddressError, Error, OptionError, Timeout


class ReaderLeft(click.ClickException):
    """Who read our output has gone (`mq cat ... | head`): nothing more to do, and no complaint."""

    exit_code = 0

    def show(self, file: object = None) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Commands(click.Group):
    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # click would end with 1
            raise ReaderLeft("") from None


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="mqcore", prog_name="mq")
def cli() -> None:
    """Messages between programs, from the command line.

    \b
    A first message, in two terminals:
      mq cat pull --bind tcp://127.0.0.1:5555
      echo hello | mq cat push tcp://127.0.0.1:5555

    `mq COMMAND --help` explains one command. Exit status: 0 done, 1 failed, 2 wrong
    arguments, 3 timed out, 130 Ctrl-C.
    """


for _command in (cat, device, journal, perf, info, doctor, keygen, plugin):
    cli.add_command(_command)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    """SIGTERM unwinds like Ctrl-C, so that sockets close and deliver."""
    raise SystemExit(TERMINATED)


def run(args: Sequence[str] | None = None) -> int:
    """The exit status of one command line."""
    try:
        status = cli.main(args=args, prog_name="mq", standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except click.exceptions.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except Error as error:
        click.echo(f"mq: {error}", err=True)
        if isinstance(error, (AddressError, OptionError)):
            return WRONG
        return TIMED_OUT if isinstance(error, Timeout) else FAILED
    except OSError as error:
        click.echo(f"mq: {error}", err=True)
        return FAILED


def main() -> NoReturn:
    signal.signal(signal.SIGTERM, _terminate)
    try:
        status = run()
    except KeyboardInterrupt:  # a second one, while the first was being cleaned up
        status = INTERRUPTED
    sys.exit(status)
