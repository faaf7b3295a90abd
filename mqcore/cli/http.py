"""`mq http`: a gateway from HTTP to sockets and journals, until it is stopped."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from mqcore.cli.common import note

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
BIND = "http://127.0.0.1:8080"


def limits_of(_: click.Context, __: click.Parameter, given: Sequence[str]) -> dict[str, float]:
    """--limit NAME=NUMBER."""
    found: dict[str, float] = {}
    for text in given:
        name, _equals, value = text.partition("=")
        try:
            found[name] = float(value) if "." in value else int(value)
        except ValueError:
            raise click.BadParameter(f"{text!r} is not of the form NAME=NUMBER") from None
    return found


def show_limits(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    """--limits: the limits and their defaults."""
    if not wanted or ctx.resilient_parsing:
        return
    from mqcore.cli.common import columns
    from mqcore.http.bounds import Limits

    columns(("limit", "default"), [(row.name, row.default) for row in dataclasses.fields(Limits)])
    ctx.exit()


@click.command()
@click.option("-r", "--route", "routes", multiple=True, metavar="PATH=KIND:URL",
              help="Declare a route. Repeatable.")
@click.option("-b", "--bind", metavar="URL",
              help=f"Listen at http://HOST:PORT or https://HOST:PORT.  [default: {BIND}]")
@click.option("-c", "--config", type=FILE, metavar="FILE",
              help="Read the same from a TOML file; options are added to it, or replace it.")
@click.option("--tokens", type=FILE, metavar="FILE",
              help="Demand a bearer token of this file: NAME TOKEN RIGHT... in each line.")
@click.option("--origin", "origins", multiple=True, metavar="ORIGIN",
              help="Let pages of this origin use the gateway, like https://app.example.org. "
              "Repeatable.")
@click.option("--host", "hosts", multiple=True, metavar="NAME",
              help="Accept this name in the Host header, too. Repeatable.")
@click.option("--cert", type=FILE, metavar="FILE", help="TLS: the certificate chain, in PEM.")
@click.option("--key", type=FILE, metavar="FILE", help="TLS: its key, in PEM.")
@click.option("--insecure", is_flag=True,
              help="Allow a network address without TLS or without tokens.")
@click.option("--limit", "limits", multiple=True, metavar="NAME=NUMBER", callback=limits_of,
              help="Set a limit, like --limit body_bytes=65536. Repeatable.")
@click.option("--limits", "listed", is_flag=True, is_eager=True, expose_value=False,
              callback=show_limits, help="List the limits.")
def http(routes: tuple[str, ...], bind: str | None, config: Path | None, tokens: Path | None,
         origins: tuple[str, ...], hosts: tuple[str, ...], cert: Path | None, key: Path | None,
         insecure: bool, limits: dict[str, float]) -> None:
    """Serve sockets and journal topics to HTTP clients, until Ctrl-C or SIGTERM.

    A POST sends a message (push, pub, pair), a request (req) or appends (journal). A GET receives
    (sub, pull, pair, journal): one answer, or Server-Sent Events if the client accepts them. A
    WebSocket does both. Only declared routes exist, besides /-/health and /-/stats.

    \b
      mq http --route /orders=push:tcp://127.0.0.1:5555
      mq http --route /prices=sub:tcp://127.0.0.1:5556?topic=px. --route /log=journal:data
    """
    try:
        from mqcore.http import config as files
        from mqcore.http.serving import opened
    except ImportError as error:
        raise click.ClickException(
            f'this command needs {error.name}: pip install "mqcore[cli,http]"') from None
    given: dict[str, Any] = {"bind": bind, "tokens": tokens and str(tokens),
                             "cert": cert and str(cert), "key": key and str(key)}
    settings = files.Settings() if config is None else files.read(config)
    settings = files.merged(settings, routes, origins, hosts, limits,
                            {name: value for name, value in given.items() if value})
    server = opened(settings, insecure)
    click.echo(server.url)
    sys.stdout.flush()
    try:
        server.run()
    finally:
        stats = server.stats()
        note(f"{stats.requests} requests, {stats.refused} refused; {stats.sent} messages sent, "
             f"{stats.delivered} delivered, {stats.lost} lost")
