"""`mq cluster`: keys, nodes and calls of a cluster. See mqcore.cluster."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import click

from mqcore.cli.cluster_key import key
from mqcore.cli.common import FAILED, columns, note

LISTEN = "tcp://127.0.0.1:0"
SEEDED = 2.0        # seconds to look for the members of a service
CHUNK = 64 << 10    # bytes of standard input in one message


@click.group()
def cluster() -> None:
    """Call services by name: run nodes, send requests, publish, inspect members.

    \b
    A cluster of two terminals:
      mq cluster key new prod.key
      mq cluster up --key prod.key --listen tcp://127.0.0.1:7400 --echo test
      mq cluster request test hello --key prod.key --seed tcp://127.0.0.1:7400

    Every command but key joins the cluster for as long as it runs.
    """


cluster.add_command(key)


def joining(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a command that joins. They become one argument, `how`."""
    def command(key_file: str, seeds: tuple[str, ...], listen: tuple[str, ...], zone: str,
                **others: Any) -> Any:
        return function({"key": key_file, "seeds": seeds, "listen": listen, "zone": zone},
                        **others)

    command.__doc__ = function.__doc__
    command.__name__ = function.__name__
    vars(command)["__click_params__"] = getattr(function, "__click_params__", [])
    for option in (
        click.option("--zone", default="", help="Prefer members of this zone."),
        click.option("--listen", multiple=True, metavar="URL", default=(LISTEN,),
                     show_default=True, help="Accept links here. Repeatable."),
        click.option("--seed", "seeds", multiple=True, metavar="URL", envvar="MQCORE_CLUSTER_SEEDS",
                     help="A node of the cluster, dns://NAME:PORT, srv://_SERVICE._PROTO.NAME, "
                          "file:///PATH or lan. Repeatable. Also from MQCORE_CLUSTER_SEEDS."),
        click.option("--key", "key_file", required=True, envvar="MQCORE_CLUSTER_KEY",
                     metavar="FILE", help="The cluster's key. Also from MQCORE_CLUSTER_KEY."),
    ):
        command = option(command)
    return command


def joined(how: dict[str, Any], identity: str | None = None) -> Any:
    """A context manager whose value is the node."""
    from mqcore import cluster as clusters

    return clusters.join(clusters.Key.load(how["key"]), listen=how["listen"], seeds=how["seeds"],
                         zone=how["zone"], identity=identity)


def given(body: str | None) -> bytes:
    return sys.stdin.buffer.read() if body is None else body.encode()


def out(data: bytes) -> None:
    sys.stdout.buffer.write(data + b"\n")
    sys.stdout.buffer.flush()


class Echo:
    """What `--echo` serves."""

    async def request(self, req: Any) -> bytes:
        return bytes(req.body)

    async def broadcast(self, msg: Any) -> bytes:
        return b"%d" % os.getpid()

    async def tunnel(self, tun: Any) -> None:
        async for message in tun:
            await tun.asend(message)


def handler_of(text: str) -> tuple[str, Any]:
    """NAME=MODULE:OBJECT. A class is called for its object."""
    name, equals, where = text.partition("=")
    module, colon, attribute = where.partition(":")
    if not (equals and colon and name):
        raise click.BadParameter(f"{text!r} is not of the form NAME=MODULE:OBJECT")
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise click.BadParameter(f"cannot import {where}: {error}") from None
    return name, found() if isinstance(found, type) else found


def address_of(text: str) -> tuple[str, str]:
    """NAME=URL."""
    name, _, url = text.partition("=")
    if not (name and url):
        raise click.BadParameter(f"{text!r} is not of the form NAME=URL")
    return name, url


@cluster.command()
@click.option("--serve", "serves", multiple=True, metavar="NAME=MODULE:OBJECT",
              help="Serve this object, or an object of this class. Repeatable.")
@click.option("--echo", "echoes", multiple=True, metavar="NAME",
              help="Serve a name that answers with what it gets, for trials. Repeatable.")
@click.option("--adopt", "adopts", multiple=True, metavar="NAME=URL",
              help="Offer the REP socket at URL as a service. Repeatable.")
@click.option("--weight", type=click.FloatRange(min=0), default=1.0, show_default=True,
              help="This member's share of requests.")
@click.option("--drain", type=click.FloatRange(min=0), default=5.0, show_default=True,
              metavar="S", help="Seconds to finish running requests on Ctrl-C.")
@click.option("--identity", metavar="FILE", help="Keep this node's id in FILE over restarts. It is "
              "made if there is none.")
@joining
def up(how: dict[str, Any], serves: tuple[str, ...], echoes: tuple[str, ...],
       adopts: tuple[str, ...], weight: float, drain: float, identity: str | None) -> None:
    """Run a node until Ctrl-C. Prints its address, then what changes in the cluster."""
    handlers = [handler_of(text) for text in serves] + [(name, Echo()) for name in echoes]
    plain = [address_of(text) for text in adopts]
    with joined(how, identity) as net:
        for name, handler in handlers:
            net.serve(name, handler, weight=weight).start()
        for name, url in plain:
            net.adopt(name, url)
        click.echo(net.url)
        sys.stdout.flush()
        try:
            for event in net.events():
                note(str(event))
        finally:
            if not net.drain(drain):
                note("some requests still ran, or their answers may not have arrived")


@cluster.command()
@click.argument("service", required=False)
@click.option("--wait", type=click.FloatRange(min=0), default=SEEDED, show_default=True,
              metavar="S", help="Seconds to wait for the first member.")
@joining
def members(how: dict[str, Any], service: str | None, wait: float) -> None:
    """List the members, or those that offer SERVICE."""
    from mqcore.errors import WaitTimeout

    with joined(how) as net:
        try:
            net.wait_members(service, n=1 if service else 2, timeout=wait)
        except WaitTimeout:
            note(net.explain())
        columns(("id", "url", "zone", "state", "services"),
                [(member.id[:8], member.url, member.zone or "-", member.state,
                  ", ".join(f"{name} ({offer.weight:g})" for name, offer
                            in sorted(member.services.items())) or "-")
                 for member in net.members(service) if not member.me])


@cluster.command()
@click.argument("service")
@click.argument("body", required=False)
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=5.0,
              show_default=True, metavar="S", help="Seconds to wait for the answer.")
@click.option("--idempotent", is_flag=True, help="It may run twice: repeat it if a member dies.")
@joining
def request(how: dict[str, Any], service: str, body: str | None, timeout: float,
            idempotent: bool) -> None:
    """Send BODY (or standard input) to one member of SERVICE and print the answer."""
    data = given(body)
    with joined(how) as net:
        net.wait_members(service, timeout=timeout)
        out(net.request(service, data, timeout=timeout, idempotent=idempotent))


@cluster.command()
@click.argument("service")
@click.argument("body", required=False)
@click.option("--survey", is_flag=True, help="Print what the members answer.")
@click.option("--deadline", type=click.FloatRange(min=0, min_open=True), default=1.0,
              show_default=True, metavar="S", help="Seconds to collect answers.")
@joining
def broadcast(how: dict[str, Any], service: str, body: str | None, survey: bool,
              deadline: float) -> None:
    """Send BODY (or standard input) to all members of SERVICE. Reports how many there are."""
    data = given(body)
    with joined(how) as net:
        net.wait_members(service, timeout=SEEDED)
        if survey:
            for answer in net.survey(service, data, deadline=deadline):
                out(answer.peer.id[:8].encode() + b" " + answer.body)
        else:
            note(f"{net.broadcast(service, data)} member(s)")


@cluster.command()
@click.argument("topic")
@click.argument("body", required=False)
@joining
def publish(how: dict[str, Any], topic: str, body: str | None) -> None:
    """Publish BODY (or standard input) to all who subscribe to TOPIC."""
    data = given(body)
    with joined(how) as net:
        note(f"{net.publish(topic, data)} node(s) want it")


@cluster.command()
@click.argument("patterns", nargs=-1, required=True, metavar="PATTERN...")
@click.option("--queue", default="", metavar="NAME",
              help="Share the messages with others of this name.")
@click.option("--count", "-n", type=click.IntRange(min=1), help="Stop after so many messages.")
@joining
def subscribe(how: dict[str, Any], patterns: tuple[str, ...], queue: str,
              count: int | None) -> None:
    """Print publications, a line each: the topic, a space, the body. In a PATTERN, * stands for one
    token and a last > for one or more."""
    with joined(how) as net, net.subscribe(*patterns, queue=queue) as feed:
        note(f"subscribed at {net.url}")
        for number, message in enumerate(feed, 1):
            out(message.topic.encode() + b" " + message.body)
            if number == count:
                return


@cluster.command()
@click.argument("service")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=5.0,
              show_default=True, metavar="S", help="Seconds to wait for a member.")
@joining
def tunnel(how: dict[str, Any], service: str, timeout: float) -> None:
    """Open a tunnel to SERVICE: standard input goes in, what comes back is printed. Messages have
    up to 64 KiB, and no boundaries are kept."""
    with joined(how) as net:
        net.wait_members(service, timeout=timeout)
        with net.tunnel(service, timeout=timeout) as stream:
            sender = threading.Thread(target=_feed, args=(stream,), daemon=True)
            sender.start()
            for message in stream:
                sys.stdout.buffer.write(message)
                sys.stdout.buffer.flush()


def _feed(stream: Any) -> None:
    from mqcore.errors import Error

    source: Any = sys.stdin.buffer
    try:
        while data := source.read1(CHUNK):
            stream.send(data)
        stream.send_eof()
    except Error:
        pass        # the main thread reports it, or has closed the tunnel


@cluster.command()
@click.option("--name", required=True, help="Of this cluster, for the others.")
@click.option("--federation-key", required=True, metavar="FILE", help="The gateways' own key.")
@click.option("--federation-listen", multiple=True, metavar="URL", default=(LISTEN,),
              show_default=True, help="Accept gateways here. Repeatable.")
@click.option("--federation-seed", multiple=True, metavar="URL",
              help="Another gateway. Repeatable.")
@click.option("--export", "exports", multiple=True, metavar="SERVICE",
              help="Let other clusters use it; * stands for any text. Repeatable.")
@click.option("--import", "imports", multiple=True, metavar="SERVICE",
              help="Use it from any cluster, or SERVICE@CLUSTER from that one. Repeatable.")
@click.option("--requests", type=click.FloatRange(min=0, min_open=True), metavar="N",
              help="Requests a second of each other cluster; without it there is no limit.")
@click.option("--bytes", "bytes_", type=click.FloatRange(min=0, min_open=True), metavar="N",
              help="Bytes a second of each other cluster; without it there is no limit.")
@click.option("--in-flight", type=click.IntRange(1, 65536), default=1024, show_default=True,
              metavar="N", help="Requests and tunnels at once of each other cluster.")
@joining
def gateway(how: dict[str, Any], name: str, federation_key: str, federation_listen: tuple[str, ...],
            federation_seed: tuple[str, ...], exports: tuple[str, ...], imports: tuple[str, ...],
            requests: float | None, bytes_: float | None, in_flight: int) -> None:
    """Pass requests between this cluster and others until Ctrl-C. Prints the address for other
    gateways, then what changes among them."""
    from mqcore import cluster as clusters

    quota = clusters.Quota(requests, bytes_, in_flight)
    with joined(how) as net, net.federate(
            name, clusters.Key.load(federation_key), exports=exports, imports=imports, quota=quota,
            listen=federation_listen, seeds=federation_seed) as door:
        click.echo(door.fed.url)
        sys.stdout.flush()
        for event in door.fed.events():
            note(str(event))


@cluster.command()
@click.option("--port", type=click.IntRange(0, 65535), default=55555, show_default=True,
              help="The port on loopback; 0 is a free one.")
@joining
def relay(how: dict[str, Any], port: int) -> None:
    """Serve old bindings of Iris on loopback until Ctrl-C. Prints the port.

    Every program of this machine can use the port: the bindings' protocol has no password.
    """
    import asyncio

    from mqcore import cluster as clusters
    from mqcore.cluster.relay import Relay

    async def serve() -> None:
        async with clusters.ajoin(clusters.Key.load(how["key"]), listen=how["listen"],
                                  seeds=how["seeds"], zone=how["zone"]) as net:
            async with Relay(net, port=port) as running:
                click.echo(running.port)
                sys.stdout.flush()
                await running.serve()

    asyncio.run(serve())


@cluster.command()
@click.argument("file", type=click.Path(dir_okay=False))
def identity(file: str) -> None:
    """Print the id of the node whose identity is in FILE, for `mq cluster key ban`. A node may be
    using it."""
    from mqcore.cluster.identity import Identity

    click.echo(Identity.id_in(file))


@cluster.command()
@joining
def doctor(how: dict[str, Any]) -> int:
    """Join, and report what works: the key, each seed, the members, their services.

    Exit status 1 if the node stays alone although it has seeds.
    """
    from mqcore import cluster as clusters

    loaded = clusters.Key.load(how["key"])
    click.echo(f"key {loaded.id} of {how['key']}, {len(loaded.secrets)} secret(s), "
               f"{len(loaded.banned)} banned")
    try:
        with joined(how) as net:
            click.echo(net.explain())
            alone = len(net.members()) == 1
    except clusters.KeyRejected as error:
        click.echo(f"the key is wrong: {error}")
        return FAILED
    if alone and how["seeds"]:
        click.echo("no seed let this node in: check addresses, and that a node runs there")
        return FAILED
    return 0
