"""`mq top`: the sockets of all monitored programs, live. top_view.py draws them, keyboard.py reads
keys."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import click

from mqcore.cli.common import columns, monitors, note, on_terminal, printable

PATIENCE = 5.0      # seconds to wait for the answers, without a screen
#: units of times, their seconds, and the digits that seven characters have space for
TIMES = (("ns", 1e-9, ".0f"), ("us", 1e-6, ".3g"), ("ms", 1e-3, ".3g"), ("s", 1.0, ".3g"),
         ("min", 60.0, ".0f"), ("h", 3600.0, ".3g"), ("d", 86400.0, ".3g"))
#: sort key: what it compares; numbers sort downwards
SORTS: dict[str, Callable[[Any], Any]] = {
    "rate": lambda row: -(row.out_rate + row.in_rate),
    "out": lambda row: -row.out_rate,
    "in": lambda row: -row.in_rate,
    "bytes": lambda row: -(row.bytes_out_rate + row.bytes_in_rate),
    "queue": lambda row: -(row.queued_out + row.queued_in),
    "drops": lambda row: (-row.drop_rate, -row.drops),
    "peers": lambda row: -row.peers_connected,
    "program": lambda row: (row.program, row.pid, row.context, row.socket),
}


def place(row: Any) -> tuple[Any, ...]:
    """What a row is, whatever its numbers are. It also orders equal rows."""
    return row.program, row.pid, row.context, row.socket


def chosen(rows: list[Any], sort: str, words: str, reverse: bool = False) -> list[Any]:
    """The rows that have every one of these words in program, pid, name, pattern or endpoint."""
    wanted = words.lower().split()

    def text(row: Any) -> str:
        return " ".join((row.program, str(row.pid), row.context_name, row.pattern,
                         *row.endpoints)).lower()

    kept = [row for row in rows if all(word in text(row) for word in wanted)] if wanted else rows
    return sorted(kept, key=lambda row: (SORTS[sort](row), place(row)), reverse=reverse)


def number(value: float) -> str:
    """A count or a rate in at most five characters."""
    if value and value < 10 and value != int(value):
        return f"{value:.1f}"
    for unit in ("", "k", "M", "G", "T"):
        if value < 999.5:
            return f"{value:.0f}{unit}" if not unit or value >= 99.5 else f"{value:.1f}{unit}"
        value /= 1000
    return f"{value:.0f}P"


def reasons(dropped: dict[str, int]) -> str:
    return ", ".join(f"{printable(reason)} {number(count)}"
                     for reason, count in sorted(dropped.items(), key=lambda one: -one[1])) or "-"


def duration(seconds: float) -> str:
    """A time in at most seven characters, up to 99,999 days."""
    for unit, size, form in TIMES:
        if float(f"{seconds / size:.3g}") < 1000:       # as it is rounded, not as it is
            least = 0.0 if unit == "ns" else 1.0        # 0.9995 of a unit is one
            return f"{max(least, seconds / size):{form}} {unit}"
    return f"{seconds / 86400:.0f} d"


def slowest(latencies: dict[str, Any]) -> str:
    """The p99 of a round trip, or else the longest p99 of a wait."""
    if not latencies:
        return "-"
    found = latencies.get("round_trip") or max(latencies.values(), key=lambda one: one.p99)
    return duration(found.p99)


HEADER = ("program", "pid", "#", "pattern", "endpoint", "peers", "out/s", "in/s", "bytes/s",
          "queued", "p99", "drops")


def cells(row: Any) -> tuple[str, ...]:
    """One row of the table, as printable text."""
    more = f" +{len(row.endpoints) - 1}" if len(row.endpoints) > 1 else ""
    name = f"{row.program} ({row.context_name})" if row.context_name else row.program
    return (printable(name), str(row.pid), str(row.socket), printable(row.pattern),
            printable(row.endpoints[0]) + more if row.endpoints else "-", str(row.peers_connected),
            number(row.out_rate), number(row.in_rate),
            number(row.bytes_out_rate + row.bytes_in_rate),
            number(row.queued_out + row.queued_in), slowest(row.latencies), reasons(row.dropped))


@click.command()
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option("-i", "--interval", type=click.FloatRange(0.1), default=1.0, show_default=True,
              metavar="S", help="Seconds between two looks.")
@click.option("-s", "--sort", type=click.Choice([*SORTS]), default="rate", show_default=True,
              help="Sort by this.")
@click.option("-f", "--filter", "words", default="", metavar="TEXT",
              help="Show sockets with these words in program, pid, name, pattern or endpoint.")
@click.option("--once", is_flag=True, help="Look twice, print the table, and end.")
@click.option("--format", "shown", type=click.Choice(["text", "json"]), default="text",
              show_default=True, help="json: an object per look, with peers, for programs.")
def top(urls: tuple[str, ...], interval: float, sort: str, words: str, once: bool,
        shown: str) -> None:
    """Show the sockets of all monitored programs, live: rates, queues, drops by reason.

    A program is monitored if MQCORE_MONITOR=1 is in its environment, or if it says
    Context(monitor=True). Without URL, the command shows all monitored programs of this user.

    \b
    Keys: up and down or k and j select, Enter opens a socket, Escape goes back,
          s and S sort by the next or last column, r reverses, / filters,
          space pauses, q quits.

    \b
      mq top
      mq top --once --sort drops
      mq top --once --format json | jq '.sockets[] | select(.queued_out > 1000)'
    """
    with monitors(urls) as client:
        if shown == "json":
            print_json(client, interval, sort, words, once)
        elif once:
            rows = look_twice(client, interval, peers=False)
            columns(HEADER, [cells(row) for row in chosen(rows, sort, words)])
            missing(client, rows)
        elif not on_terminal(sys.stdout) or os.environ.get("TERM") == "dumb":
            raise click.UsageError("standard output is not a terminal to draw on: use --once or "
                                   "--format json")
        else:
            from mqcore.cli.top_view import watch

            watch(client, interval, sort, words)


def look_twice(client: Any, interval: float, peers: bool) -> list[Any]:
    """The sockets, with the rates of one interval."""
    from mqcore.monitor.rates import Rates

    rates = Rates()
    rates.update(client.snapshots(peers=peers, timeout=PATIENCE))
    time.sleep(interval)
    return rates.update(client.snapshots(peers=peers, timeout=PATIENCE))


def missing(client: Any, rows: list[Any]) -> None:
    """Say why a table may be empty."""
    if not rows:
        note("no monitored program answers; start one with MQCORE_MONITOR=1 in its environment")
    if client.failure:
        note(f"an answer was a refusal: {printable(client.failure)}")


def print_json(client: Any, interval: float, sort: str, words: str, once: bool) -> None:
    """A line for each look, with peers. The first one has the rates of one interval, too."""
    from mqcore.monitor.rates import Rates

    rates = Rates()
    rates.update(client.snapshots(timeout=PATIENCE))
    while True:
        time.sleep(interval)
        shots = client.snapshots(timeout=PATIENCE)
        rows = chosen(rates.update(shots), sort, words)
        click.echo(json.dumps({
            "at": round(time.time(), 3), "sort": sort, "contexts": len(shots),
            "left_out": sum(shot.left_out for shot in shots),
            "sockets": [dataclasses.asdict(row) | {"drops": row.drops} for row in rows]}))
        sys.stdout.flush()
        if once:
            return
