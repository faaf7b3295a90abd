"""`mq components`: what the monitored programs run beside their sockets."""

from __future__ import annotations

import json
from typing import Any

import click

from mqcore.cli.common import columns, monitors, note, printable
from mqcore.cli.top import number

SHOWN = 6       # counters in a row for people; json has all


@click.command()
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option("-k", "--kind", default="", metavar="KIND",
              help='Show only this kind, such as "queue" or "bridge".')
@click.option("-f", "--format", "shown", type=click.Choice(["text", "json"]), default="text",
              show_default=True, help="text for people, json with all counters for programs.")
@click.option("-w", "--wait", type=click.FloatRange(0, min_open=True), default=2.0,
              show_default=True, metavar="S", help="Seconds to wait for answers.")
def components(urls: tuple[str, ...], kind: str, shown: str, wait: float) -> None:
    """Show devices, journals, servers, queues, cluster nodes and bridges of monitored programs.

    A program is monitored if MQCORE_MONITOR=1 is in its environment, or if it says
    Context(monitor=True). Without URL, the command shows all monitored programs of this user.

    \b
      mq components
      mq components --kind queue --format json | jq '.components[] | {name, ready: .counts.ready}'
    """
    with monitors(urls) as client:
        answers = client.components(timeout=wait)
        failure = client.failure
    rows = [(answer.process, one) for answer in answers for one in answer.components
            if not kind or one.kind == kind]
    if shown == "json":
        click.echo(json.dumps({"components": [
            {"program": process.program, "pid": process.pid, "host": process.host,
             "kind": one.kind, "name": one.name, "state": one.state, "error": one.error,
             "counts": one.counts} for process, one in rows]}, indent=2))
    else:
        columns(("PROGRAM", "PID", "KIND", "NAME", "STATE", "COUNTS"),
                [tuple(map(printable, (process.program, str(process.pid), one.kind, one.name,
                                       state(one), counters(one.counts))))
                 for process, one in rows])
    if failure:
        note(f"an answer was a refusal: {printable(failure)}")
    if left_out := sum(answer.left_out for answer in answers):
        note(f"{left_out} more are not listed")
    if not answers:
        note("no monitored program answers; start one with MQCORE_MONITOR=1 in its environment")


def state(one: Any) -> str:
    return f"{one.state}: {one.error}" if one.error else str(one.state)


def counters(counts: dict[str, int | float]) -> str:
    text = ", ".join(f"{name} {number(count)}" for name, count in list(counts.items())[:SHOWN])
    return text + (", ..." if len(counts) > SHOWN else "") or "-"
