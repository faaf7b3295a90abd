"""`mq map`: who is connected to whom, over all monitored programs."""

from __future__ import annotations

import click

from mqcore.cli.common import monitors, note


@click.command("map")
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option("-f", "--format", "shown", type=click.Choice(["text", "dot", "svg"]), default="text",
              show_default=True, help="text for people, dot for Graphviz, svg as a picture.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, allow_dash=True), default="-",
              metavar="FILE", help="Write here.  [default: standard output]")
@click.option("-w", "--wait", type=click.FloatRange(0, min_open=True), default=2.0,
              show_default=True, metavar="S", help="Seconds to wait for answers.")
def map_command(urls: tuple[str, ...], shown: str, output: str, wait: float) -> None:
    """Show who is connected to whom, over all monitored programs.

    A program is monitored if MQCORE_MONITOR=1 is in its environment, or if it says
    Context(monitor=True). A peer whose program is not monitored is shown with its address alone.
    Without URL, the command shows all monitored programs of this user.

    \b
      mq map
      mq map --format svg --output map.svg
      mq map --format dot | dot -Tpdf > map.pdf
    """
    with monitors(urls) as client:
        shots = client.snapshots(timeout=wait)
        failure = client.failure
    from mqcore.monitor import drawing
    from mqcore.monitor.topology import topology

    if not shots:
        note("no monitored program answers; start one with MQCORE_MONITOR=1 in its environment")
    if failure:
        note(f"an answer was a refusal: {drawing.clean(failure)}")
    draw = {"text": drawing.as_text, "dot": drawing.as_dot, "svg": drawing.as_svg}[shown]
    with click.open_file(output, "w", encoding="utf-8") as file:
        file.write(draw(topology(shots)) + "\n")
