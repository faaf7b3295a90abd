"""`mq device`: a queue, forwarder or streamer that runs until it is told to end."""

from __future__ import annotations

import dataclasses
import sys
import time
from typing import Any

import click

import mqcore as mq
from mqcore.cli.common import OPTION, note, on_terminal
from mqcore.cli.keys import for_sockets

KINDS = {
    "queue": ("router", "dealer"),
    "forwarder": ("xsub", "xpub"),
    "streamer": ("pull", "push"),
    "survey": ("respondent", "surveyor"),
    "pair": ("pair", "pair"),
    "pair1": ("pair1", "pair1"),
    "bus": ("bus", "bus"),
}
EVERY = 1.0


def open_side(
    name: str,
    pattern: str,
    bind: tuple[str, ...],
    connect: tuple[str, ...],
    options: dict[str, Any],
) -> Any:
    """The socket of one side; the real addresses go to standard output, a line each."""
    if not bind and not connect:
        raise click.UsageError(f"the {name} has no address; give --{name} URL")
    socket = mq.socket(pattern, **options)
    try:
        for url in bind:
            click.echo(f"{name} {socket.bind(url).url}")
        for url in connect:
            click.echo(f"{name} {socket.connect(url).url}")
    except BaseException:
        socket.close(linger=0)
        raise
    return socket


def counters(stats: Any) -> dict[str, Any]:
    """The counts of a device's stats, those of records within them by a dotted name."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(stats):
        value = getattr(stats, field.name)
        if isinstance(value, int):
            found[field.name] = value
        elif isinstance(value, dict) and value and all(isinstance(n, int) for n in value.values()):
            found.update({f"{field.name}.{name}": n for name, n in value.items()})
    return found


def say(counts: dict[str, Any]) -> str:
    return "  ".join(
        f"{name} {n:,}" if isinstance(n, int) else f"{name} {n}" for name, n in counts.items()
    )


def watch(device: Any, every: float) -> None:
    """A line of counters each `every` seconds: in place at a terminal, anew in a file; until
    the device ends, which takes an error or Ctrl-C."""
    live = on_terminal()
    last = ""
    while True:
        try:
            device.wait(timeout=every or None)
            return
        except mq.Timeout:
            text = say(counters(device.stats()))
        if live:
            sys.stderr.write(f"\r\x1b[K{time.strftime('%H:%M:%S')}  {text}")
            sys.stderr.flush()
        elif text != last:
            note(text)
        last = text


@click.command()
@click.argument("kind", type=click.Choice([*KINDS]))
@click.option(
    "--front",
    multiple=True,
    metavar="URL",
    help="Listen here for those who ask or send (queue: clients; forwarder: publishers; "
    "streamer: sources).",
)
@click.option(
    "--back",
    multiple=True,
    metavar="URL",
    help="Listen here for those who answer or receive (workers; subscribers; sinks).",
)
@click.option(
    "--front-connect", multiple=True, metavar="URL", help="Connect the front there instead."
)
@click.option(
    "--back-connect", multiple=True, metavar="URL", help="Connect the back there instead."
)
@click.option("--capture", metavar="URL", help="Publish a copy of every message here.")
@click.option("--allow-bus", is_flag=True, help="bus: there is no second way round, I am sure.")
@click.option(
    "--every",
    type=click.FloatRange(0),
    default=EVERY,
    show_default=True,
    metavar="S",
    help="Seconds between two lines of counters on stderr; 0 for none.",
)
@OPTION
@for_sockets
def device(
    kind: str,
    front: tuple[str, ...],
    back: tuple[str, ...],
    front_connect: tuple[str, ...],
    back_connect: tuple[str, ...],
    capture: str | None,
    allow_bus: bool,
    every: float,
    options: dict[str, Any],
) -> None:
    """Stand between two sides and pass messages on, until Ctrl-C.

    \b
    queue      requests to whichever worker is free, answers back to who asked
    forwarder  what publishers send, to all subscribers; subscriptions the other way
    streamer   work from many sources, dealt out to many sinks
    survey     surveys to all respondents, answers back to who asked
    pair       one peer at each end
    pair1      the same, and messages count the devices that they pass
    bus        what each member says, to all of the other side; only with --allow-bus

    Both sides may then come and go without knowing each other. The real addresses (a port 0 or *
    is replaced by a free one) are printed on standard output, counters on standard error.

    \b
    Clients connect to 5555, workers (REP sockets) to 5556:
      mq device queue --front tcp://*:5555 --back tcp://*:5556
    The same, with a worker of nanomsg or nng that listens itself:
      mq device queue --front tcp://*:5555 --back-connect "tcp://127.0.0.1:1234?wire=sp"

    Both families may connect to either side: who listens tells them apart. Where devices stand in
    a circle by mistake, requests and surveys end when they have passed `max_hops` of them (8; -o
    max_hops=N) and are counted as hop_limit. A BUS message does not tell where it has been: with a
    second way round it comes back for ever, each time to everybody. So buses are joined with
    --allow-bus only, and one device between them is the most that works.
    """
    if kind == "bus" and not allow_bus:
        raise click.UsageError(
            "a device does not join buses: with a second way round every message goes in a circle "
            "for ever and multiplies; --allow-bus if there is none"
        )
    first, second = KINDS[kind]
    sockets: list[Any] = []
    try:
        sockets.append(open_side("front", first, front, front_connect, options))
        sockets.append(open_side("back", second, back, back_connect, options))
        if capture:
            sockets.append(open_side("capture", "pub", (capture,), (), {}))
        with mq.device(
            *sockets[:2], capture=sockets[2] if capture else None, allow_bus=allow_bus
        ) as running:
            sys.stdout.flush()
            try:
                watch(running, every)
            finally:
                if every:
                    note(("\n" if on_terminal() else "") + say(counters(running.stats())))
    finally:
        for socket in sockets:
            socket.close(linger=0)
