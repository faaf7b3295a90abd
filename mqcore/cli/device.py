"""`mq device`: runs a queue, forwarder or streamer until it is stopped."""

from __future__ import annotations

import dataclasses
import sys
import time
from typing import Any

import click

import mqcore as mq
from mqcore.cli.common import OPTION, note, on_terminal
from mqcore.cli.device_hooks import hook_options, hooks_of
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
    """The socket of one side. Prints its actual addresses on standard output, a line each."""
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
    """The counters of a device's stats. Nested records get dotted names."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(stats):
        value = getattr(stats, field.name)
        if isinstance(value, int):
            found[field.name] = value
        elif isinstance(value, tuple):
            for i, hook in enumerate(value, 1):  # what each hook did, without what it never does
                found.update(
                    {
                        f"{hook.name}#{i}.{name}": n
                        for name, n in dataclasses.asdict(hook).items()
                        if isinstance(n, int) and (n or name == "passed")
                    }
                )
        elif isinstance(value, dict) and value and all(isinstance(n, int) for n in value.values()):
            found.update({f"{field.name}.{name}": n for name, n in value.items()})
    return found


def say(counts: dict[str, Any]) -> str:
    return "  ".join(
        f"{name} {n:,}" if isinstance(n, int) else f"{name} {n}" for name, n in counts.items()
    )


def watch(device: Any, every: float) -> None:
    """Print a line of counters every `every` seconds, in place on a terminal, until the device ends
    (by an error or Ctrl-C)."""
    live = on_terminal()
    last = ""
    while True:
        try:
            device.wait_stopped(timeout=every or None)
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
    help="Listen here for requesters or senders (queue: clients; forwarder: publishers; "
    "streamer: sources).",
)
@click.option(
    "--back",
    multiple=True,
    metavar="URL",
    help="Listen here for repliers or receivers (workers; subscribers; sinks).",
)
@click.option(
    "--front-connect", multiple=True, metavar="URL", help="Connect the front to this address."
)
@click.option(
    "--back-connect", multiple=True, metavar="URL", help="Connect the back to this address."
)
@click.option("--capture", metavar="URL", help="Publish a copy of every message here.")
@hook_options
@click.option("--allow-bus", is_flag=True, help="Confirm that no second path joins the two buses.")
@click.option(
    "--every",
    type=click.FloatRange(0),
    default=EVERY,
    show_default=True,
    metavar="S",
    help="Seconds between two lines of counters on stderr; 0 disables them.",
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
    **hooks: Any,
) -> None:
    """Forward messages between two sides until Ctrl-C.

    \b
    queue      requests to any free worker, replies back to the requester
    forwarder  messages of publishers to all subscribers; subscriptions the other way
    streamer   work from many sources, distributed to many sinks
    survey     surveys to all respondents, answers back to the surveyor
    pair       one peer at each end
    pair1      the same, and messages count the devices that they pass
    bus        messages of each member to all members of the other side; needs --allow-bus

    Peers of both sides can come and go independently. The command prints its actual addresses (with
    a free port for 0 or *) on standard output and counters on standard error.

    \b
    Clients connect to 5555, workers (REP sockets) to 5556:
      mq device queue --front tcp://*:5555 --back tcp://*:5556
    The same, with a nanomsg or nng worker that listens:
      mq device queue --front tcp://*:5555 --back-connect "tcp://127.0.0.1:1234?wire=sp"

    Hooks see the messages from front to back: first the tap, then filters, transforms, compiled
    hooks, and sampling. What they do is counted on standard error. Replies are not affected, but a
    request that a hook drops gets none.

    \b
    A tenth of what passes `wanted` in rules.py:
      mq device streamer --front tcp://*:5559 --back tcp://*:5560 --filter rules:wanted --sample 0.1

    ZMTP and SP peers can connect to either side: a listener detects the protocol. If devices form
    a loop by mistake, requests and surveys are dropped after `max_hops` devices (8; set it with
    -o max_hops=N) and counted as hop_limit. BUS messages carry no route: over a second path they
    return for ever and multiply. So joining buses needs --allow-bus, and at most one device may
    join them.
    """
    if kind == "bus" and not allow_bus:
        raise click.UsageError(
            "a device refuses to join buses: over a second path every message circulates for ever "
            "and multiplies; pass --allow-bus if no second path joins them"
        )
    first, second = KINDS[kind]
    sockets: list[Any] = []
    try:
        sockets.append(open_side("front", first, front, front_connect, options))
        sockets.append(open_side("back", second, back, back_connect, options))
        if capture:
            sockets.append(open_side("capture", "pub", (capture,), (), {}))
        if hooks["tap"]:
            sockets.append(open_side("tap", "pub", (hooks["tap"],), (), {}))
        with mq.device(
            *sockets[:2],
            capture=sockets[2] if capture else None,
            allow_bus=allow_bus,
            hooks=hooks_of(sockets[-1], **hooks),
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
