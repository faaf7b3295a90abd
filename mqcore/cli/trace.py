"""`mq trace`: the way of one message through processes."""

from __future__ import annotations

import json

import click

from mqcore.cli.common import FAILED, columns, monitors, note, printable
from mqcore.trace import TraceContext, TraceMalformed


def _trace_id(_: click.Context, __: click.Parameter, text: str) -> str:
    given = text.strip().lower()
    try:
        if "-" in given:
            return TraceContext.parse(given).trace_id
        return TraceContext(given, "0" * 15 + "1").trace_id
    except TraceMalformed:
        raise click.BadParameter(f"{text[:80]!r} is neither a trace id (32 hexadecimal digits) nor "
                                 "a traceparent") from None


@click.command()
@click.argument("trace_id", metavar="TRACE_ID", callback=_trace_id)
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option("-f", "--format", "shown", type=click.Choice(["text", "json"]), default="text",
              show_default=True, help="text for people, json for programs.")
@click.option("-w", "--wait", type=click.FloatRange(0, min_open=True), default=2.0,
              show_default=True, metavar="S", help="Seconds to wait for answers.")
def trace(trace_id: str, urls: tuple[str, ...], shown: str, wait: float) -> int | None:
    """Follow one message through the monitored programs.

    TRACE_ID is the id of the trace, or the whole header `traceparent`. A program is monitored if
    MQCORE_MONITOR=1 is in its environment; it keeps its latest 4096 spans. A span is shown once it
    has ended. Times are milliseconds; each start is by the clock of its machine.

    Without URL, the command asks all monitored programs of this user. The exit status is 1 if none
    of them knows the trace.

    \b
      mq trace 4bf92f3577b34da6a3ce929d0e0e4736
      mq trace --format json 4bf92f3577b34da6a3ce929d0e0e4736
    """
    with monitors(urls) as client:
        answers = client.spans(trace_id, timeout=wait)
        failure = client.failure
    from mqcore.monitor import traces

    roots = traces.tree(answers)
    if failure:
        note(f"an answer was a refusal: {printable(failure)}")
    if shown == "json":
        click.echo(json.dumps({"trace": trace_id, "spans": traces.as_objects(roots)}, indent=2))
    elif roots:
        columns(("START ms", "TOOK ms", "PROCESS", "SPAN"),
                [tuple(map(printable, row)) for row in traces.as_rows(roots)])
    if roots:
        return None
    overwritten = sum(answer.overwritten for answer in answers)
    note(f"none of {len(answers)} monitored processes knows the trace {trace_id}"
         + (f"; {overwritten} older spans gave way to later ones" if overwritten else "")
         + ("" if answers else "; start one with MQCORE_MONITOR=1 in its environment"))
    return FAILED
