"""`mq journal record`, `serve` and `replay`: journals and sockets."""

from __future__ import annotations

import sys
from typing import Any

import click

import mqcore as mq
from mqcore.cli.common import OPTION, finish, note, on_terminal, progress
from mqcore.cli.device import EVERY, counters, say, watch
from mqcore.cli.keys import for_sockets

RECEIVERS = ("pull", "rep", "sub", "dish", "bus", "pair", "respondent")
SENDERS = ("push", "pub", "pair", "bus", "dealer")
BIND = click.option("--bind", multiple=True, metavar="URL", help="Listen here.")
CONNECT = click.option("--connect", multiple=True, metavar="URL", help="Connect there.")
EVERY_OPTION = click.option(
    "--every", type=click.FloatRange(0), default=EVERY, show_default=True, metavar="S",
    help="Seconds between two lines of counters on stderr; 0 for none.")


def opened(pattern: str, bind: tuple[str, ...], connect: tuple[str, ...],
           options: dict[str, Any]) -> Any:
    """The socket; its real addresses go to standard output, a line each."""
    if not bind and not connect:
        raise click.UsageError(f"the {pattern} socket has no address; give --bind or --connect")
    socket = mq.socket(pattern, **options)
    try:
        for url in bind:
            click.echo(socket.bind(url).url)
        for url in connect:
            click.echo(socket.connect(url).url)
    except BaseException:
        socket.close(linger=0)
        raise
    sys.stdout.flush()
    return socket


@click.command()
@click.argument("where", type=click.Path(file_okay=False))
@click.argument("pattern", type=click.Choice(RECEIVERS))
@BIND
@CONNECT
@click.option("-s", "--topic", help="Into which topic.  [default: default]")
@click.option("--topic-from", type=click.Choice(["first-part"]),
              help="Each message's first part (a dish's group) is its topic.")
@click.option("--partitions", type=click.IntRange(1), default=1, show_default=True,
              help="Spread over so many, by key, producer or connection.")
@click.option("--fsync", type=click.Choice(["always", "interval", "never"]), default="interval",
              show_default=True, help="When messages become durable; a rep's always are before it "
              "answers.")
@click.option("--stamps", is_flag=True, help="Take producers' stamps off and store them.")
@click.option("--deduplicate", is_flag=True, help="With --stamps: what producers send again is "
              "stored once.")
@click.option("--subscribe", multiple=True, metavar="TEXT",
              help="sub: topics (default all); dish: groups.")
@EVERY_OPTION
@OPTION
@for_sockets
def record(where: str, pattern: str, bind: tuple[str, ...], connect: tuple[str, ...],
           topic: str | None, topic_from: str | None, partitions: int, fsync: Any, stamps: bool,
           deduplicate: bool, subscribe: tuple[str, ...], every: float,
           options: dict[str, Any]) -> None:
    """Store what a socket receives, until Ctrl-C or an error (disk full, say).

    A rep or respondent answers each message when it is durable; with the other patterns senders
    learn nothing. The real addresses are printed on standard output.

    \b
      mq journal record data pull --bind tcp://*:5555 --topic flights
      mq journal record data rep --bind tcp://*:5556 --topic orders
      mq journal record data sub --connect tcp://host:5557 --topic-from first-part
    """
    from mqcore import journal as library

    if subscribe and pattern not in ("sub", "dish"):
        raise click.UsageError(f"--subscribe is for sub and dish, not for {pattern}")
    if pattern == "dish" and not subscribe:
        raise click.UsageError("a dish receives only the groups that --subscribe names")
    kind: dict[str, Any] = {"topics": subscribe or ("",)} if pattern == "sub" else {}
    kind = {"groups": subscribe} if pattern == "dish" else kind
    many: dict[str, Any] = {"topic_from": topic_from} if topic_from else {}
    if topic_from or partitions > 1:
        many["partitions"] = partitions
    with library.open(where, "a", topic=topic if topic_from else topic or "default", fsync=fsync,
                      stamps=stamps, deduplicate=deduplicate, **many) as writer:
        for dropped in writer.recovered:
            note(str(dropped))
        front = opened(pattern, bind, connect, {**options, **kind})
        try:
            with mq.device(front, writer) as running:
                watch(running, every)
        finally:
            front.close(linger=0)
        if every:
            note(("\n" if on_terminal() else "") + say(counters(running.stats())))


@click.command()
@click.argument("where", type=click.Path(exists=True, file_okay=False))
@click.option("--bind", multiple=True, required=True, metavar="URL", help="Listen here.")
@click.option("--no-groups", is_flag=True, help="Let readers commit no consumer groups.")
@EVERY_OPTION
@OPTION
def serve(where: str, bind: tuple[str, ...], no_groups: bool, every: float,
          options: dict[str, Any]) -> None:
    """Let other machines read the journals of a folder, until Ctrl-C.

    They say mqcore.journal.open("tcp://HOST:PORT/TOPIC"). Whoever can connect may read all of it:
    bind to an address that only they reach, or use tls+tcp:// with -o tls_ca=... -o
    tls_mutual=True.

    \b
      mq journal serve data --bind tcp://*:5558
    """
    from mqcore import journal as library

    with library.serve(where, list(bind), groups=not no_groups, **options) as server:
        for url in server.urls:
            click.echo(url)
        sys.stdout.flush()
        watch(server, every)


@click.command()
@click.argument("where")
@click.argument("pattern", type=click.Choice(SENDERS))
@BIND
@CONNECT
@click.option("-s", "--topic", help="Which topic.  [default: default]")
@click.option("-p", "--partition", default=0, show_default=True, help="Which partition.")
@click.option("--from", "start", type=click.IntRange(0), metavar="OFFSET", help="From here on.")
@click.option("--to", "stop", type=click.IntRange(0), metavar="OFFSET", help="To before this one.")
@click.option("--speed", type=click.FloatRange(0), default=1.0, show_default=True,
              help="1: as it came; 10: ten times as fast; 0: as fast as it goes.")
@click.option("--topic-part", is_flag=True, help="Send the topic as first part.")
@click.option("--stamps", is_flag=True, help="Put stamps and keys in front again.")
@click.option("--wait", "peers", type=click.IntRange(0), default=1, show_default=True,
              help="Begin when so many peers are there (pub: subscribers).")
@OPTION
@for_sockets
def replay(where: str, pattern: str, bind: tuple[str, ...], connect: tuple[str, ...],
           topic: str | None, partition: int, start: int | None, stop: int | None, speed: float,
           topic_part: bool, stamps: bool, peers: int, options: dict[str, Any]) -> None:
    """Send a journal's messages again: at their own pace, or scaled.

    WHERE is a folder, or the address of a `mq journal serve`.

    \b
      mq journal replay data push --connect tcp://host:5555 --topic flights --speed 60
    """
    from mqcore import journal as library
    from mqcore.journal.replay import replay as send

    with library.open(where, topic=topic, partition=partition) as reader:
        socket = opened(pattern, bind, connect, options)
        try:
            if pattern == "pub" and peers:
                socket.wait_subscribers(b"", n=peers)
            elif peers:
                socket.wait_peers(peers)
            first = reader.first if start is None else start
            end = reader.end if stop is None else min(stop, reader.end)
            with progress() as bar:
                task = bar.add_task("replaying", total=max(0, end - first))
                sent = send(reader, socket, start=first, stop=end, speed=speed, topic=topic_part,
                            stamps=stamps, progress=lambda n: bar.advance(task, n))
            finish(socket)
        finally:
            socket.close(linger=0)
    note(f"{sent} messages")
