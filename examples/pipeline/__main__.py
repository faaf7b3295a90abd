"""`python -m examples.pipeline`: the whole pipeline, once.

Exit status: 0 all sums agree, 1 they differ or something failed, 2 wrong arguments, 130 Ctrl-C, 143
SIGTERM. No process is left in any case.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from examples.pipeline.feed import DAYS, Days
from examples.pipeline.pace import SPEED
from mqcore.errors import Error, OptionError

if TYPE_CHECKING:
    from examples.pipeline.run import Outcome

INTERRUPTED, TERMINATED = 130, 143


def days_of(_: click.Context, __: click.Parameter, text: str) -> Days:
    try:
        return Days.parse(text)
    except OptionError as error:
        raise click.BadParameter(str(error)) from None


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--days", default=str(DAYS), show_default=True, metavar="N|A-B", callback=days_of,
              help="The first N days of the year, or days A to B.")
@click.option("--speed", type=click.FloatRange(0), default=SPEED, show_default=True,
              help="Days of the feed in a second, at full pace; a quarter and half of it come "
              "first. 0: without a clock, as fast as it goes.")
@click.option("--master", default="local[*]", show_default=True,
              help="Where Spark runs: local[N], or spark://HOST:PORT of a standalone cluster.")
@click.option("--cluster", type=click.IntRange(0), default=0, metavar="N",
              help="Start a cluster of a master and N workers on this machine, instead of "
              "--master.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("pipeline"),
              show_default=True, metavar="DIR",
              help="Results, counts and the report page. What an earlier run left is deleted.")
@click.option("--through", type=click.Choice(["path", "servers"]), default="path",
              show_default=True, help="Spark reads the journals' folders, or asks the collectors' "
              "journal servers.")
@click.option("--keep", is_flag=True, help="Keep journals and checkpoints, which else are deleted "
              "when all is well.")
def pipeline(days: Days, speed: float, master: str, cluster: int, out: Path, through: str,
             keep: bool) -> None:
    """Replay a year of flights and weather through sockets, journals and Spark.

    Four producers push to two collectors, which journal; Spark reads the journals while they grow
    and joins flights with weather; a subscriber shows the hours as they are done. At the end every
    sum is compared, the joined hours with what pandas computes from the files, and DIR/report.html
    is written.

    \b
      python -m examples.pipeline
      python -m examples.pipeline --days 30 --speed 3 --through servers
      python -m examples.pipeline --cluster 2
    """
    from examples.pipeline.run import Settings, run

    live = sys.stderr.isatty()
    try:
        outcome = run(Settings(out, days, speed, master, cluster, through, keep, live),
                      note=lambda text: click.echo(text, err=True))
    except OptionError as error:
        raise click.UsageError(str(error)) from error
    except (Error, OSError) as error:
        raise click.ClickException(str(error)) from error
    show(outcome)
    if not outcome.ok:
        raise click.exceptions.Exit(1)


def show(outcome: Outcome) -> None:
    """The sums as a table, then what is wrong, and where the report is."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table("messages", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("found", justify="right")
    table.add_column("expected", justify="right")
    for what, found, expected in outcome.sums:
        table.add_row(what, f"{found:,}", f"{expected:,}",
                      style=None if found == expected else "bold red")
    console = Console()
    console.print(table)
    for problem in outcome.problems:
        console.print(f"WRONG: {problem}", style="bold red", markup=False, highlight=False)
    if outcome.ok:
        console.print(f"{outcome.comparison}; nothing is missing, nothing is there twice.",
                      markup=False, highlight=False)
    console.print(f"{outcome.seconds:.0f} s; the report is {outcome.report}", markup=False,
                  highlight=False, soft_wrap=True)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        sys.exit(pipeline.main(prog_name="python -m examples.pipeline", standalone_mode=False))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
