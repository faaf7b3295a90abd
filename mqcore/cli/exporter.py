"""`mq metrics`: exports the metrics of all monitored programs to Prometheus."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from typing import Any

import click

from mqcore.cli.common import monitors, note, on_terminal, printable
from mqcore.errors import BindError

PORT = 9464     # the default of OpenTelemetry's exporters for Prometheus
IDLE = 10       # seconds until a connection is closed that sends no request, or reads no answer


def host_and_port(_ctx: click.Context, _param: click.Parameter, given: str) -> tuple[str, int]:
    """HOST:PORT, [HOST]:PORT or PORT."""
    host, _, port = given.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise click.BadParameter(f"{given!r} is not of the form HOST:PORT")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


@click.command()
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option("-b", "--bind", "where", default=f"127.0.0.1:{PORT}", show_default=True,
              metavar="HOST:PORT", callback=host_and_port,
              help="Serve http://HOST:PORT/metrics. Port 0 is a free one.")
@click.option("--once", is_flag=True, help="Print the metrics once, and end.")
def metrics(urls: tuple[str, ...], where: tuple[str, int], once: bool) -> None:
    """Export the metrics of all monitored programs to Prometheus, until Ctrl-C.

    A program is monitored if MQCORE_MONITOR=1 is in its environment, or if it says
    Context(monitor=True). Without URL, the command exports all monitored programs of this user. The
    page has no access control: bind an address that only your Prometheus reaches.

    \b
      mq metrics --bind 127.0.0.1:9464
      mq metrics --once
    """
    with monitors(urls) as client:
        from mqcore.monitor.prometheus import Collector, CollectorRegistry, generate_latest

        registry = CollectorRegistry()
        registry.register(Collector(client))
        if once:
            show(generate_latest(registry))
        else:
            serve(registry, *where)


def show(text: bytes) -> None:
    """As it is, for a parser. On a terminal without control characters, which labels may have:
    programs choose them, and the format has no escapes for them."""
    if not on_terminal(sys.stdout):
        click.echo(text, nl=False)
        return
    for line in text.decode().split("\n")[:-1]:
        click.echo(printable(line))


def serve(registry: Any, host: str, port: int) -> None:
    """Until Ctrl-C or SIGTERM."""
    from mqcore.monitor.prometheus import start_http_server

    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise BindError(f"cannot serve metrics at {host}:{port}: {error.strerror or error}",
                        hint="choose another address with --bind, or port 0") from None
    limit(server)
    shown = f"[{host}]" if ":" in host else host
    note(f"metrics at http://{shown}:{server.server_port}/metrics")
    try:
        while True:
            signal.pause()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def limit(server: Any) -> None:
    """Close connections that are idle for IDLE seconds. prometheus_client's server gives each one a
    thread without a time-out."""
    class Limited(server.RequestHandlerClass):  # type: ignore[misc]
        timeout = IDLE

        def handle(self) -> None:
            with suppress(TimeoutError):
                super().handle()

    server.RequestHandlerClass = Limited
