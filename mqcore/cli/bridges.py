"""`mq bridge`: moves messages from one system into another until it is stopped."""

from __future__ import annotations

import click

from mqcore.cli.common import columns, note, on_terminal
from mqcore.cli.device import EVERY, counters, say, watch
from mqcore.cli.values import Size


def show_list(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    """--list: the installed bridges and their settings."""
    if not wanted or ctx.resilient_parsing:
        return
    from mqcore.bridge import names, plugin

    rows: list[tuple[object, ...]] = []
    for name in names():
        found = plugin(name)
        rows.append((name, "", "", f"{found.doc}: {found.form}"))
        rows += [("", row.name, repr(row.default), row.doc) for row in found.settings]
    columns(("bridge", "setting", "default", ""), rows)
    ctx.exit()


@click.command()
@click.argument("source")
@click.argument("target")
@click.option("--list", is_flag=True, is_eager=True, expose_value=False, callback=show_list,
              help="List the installed bridges and their settings.")
@click.option("--dead", metavar="ADDRESS",
              help="Send messages that the target refuses for good here, or `discard` them.  "
              "[default: such a message ends the bridge]")
@click.option("--window", type=click.IntRange(1), default=1000, show_default=True, metavar="N",
              help="Hold at most so many unacknowledged messages.")
@click.option("--window-bytes", type=Size(), default=64 << 20, metavar="SIZE",
              help="Hold at most about so many bytes.  [default: 64MiB]")
@click.option("--batch", type=click.IntRange(1), default=200, show_default=True, metavar="N",
              help="Send at most so many messages together.")
@click.option("--linger", type=click.FloatRange(0), default=5.0, show_default=True, metavar="S",
              help="At the end, give messages under way so many seconds.")
@click.option("--every", type=click.FloatRange(0), default=EVERY, show_default=True, metavar="S",
              help="Seconds between two lines of counters on stderr; 0 disables them.")
def bridge(source: str, target: str, dead: str | None, window: int, window_bytes: int, batch: int,
           linger: float, every: float) -> None:
    """Move messages from SOURCE to TARGET, at least once, until Ctrl-C or SIGTERM.

    A message is acknowledged at the source when the target has confirmed it. At the end, the
    command settles what is under way; the rest stays in the source.

    \b
      mq bridge pull+bind:tcp://127.0.0.1:5555 "journal:data?topic=orders"
      mq bridge "redis://127.0.0.1?stream=orders" "queue:tcp://127.0.0.1:5559?queue=orders"
    """
    from mqcore.bridge import Bridge

    with Bridge(source, target, dead=dead, window=window, window_bytes=window_bytes, batch=batch,
                linger=linger) as running:
        try:
            watch(running, every)
        finally:
            running.stop()
            if every:
                note(("\n" if on_terminal() else "") + say(counters(running.stats())))
