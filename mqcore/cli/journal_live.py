"""`mq journal record`, `serve`, `replay` and `mirror`: move messages between journals and
sockets."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

import mqcore as mq
from mqcore.cli.common import OPTION, finish, note, on_terminal, progress
from mqcore.cli.device import EVERY, counters, say, watch
from mqcore.cli.journal_where import GAPS, PARTITION, TOPIC, Where, way_past
from mqcore.cli.journal_where import opened as opened_journal
from mqcore.cli.keys import FILE, for_client_sockets, for_sockets, security_of
from mqcore.cli.values import Size, Span
from mqcore.errors import UsageError

RECEIVERS = ("pull", "rep", "sub", "dish", "bus", "pair", "respondent")
SENDERS = ("push", "pub", "pair", "bus", "dealer")
BIND = click.option("--bind", multiple=True, metavar="URL", help="Listen at this address.")
CONNECT = click.option("--connect", multiple=True, metavar="URL", help="Connect to this address.")
EVERY_OPTION = click.option(
    "--every", type=click.FloatRange(0), default=EVERY, show_default=True, metavar="S",
    help="Seconds between two lines of counters on stderr; 0 disables them.")


COMPRESSION = click.option(
    "--compression", type=click.Choice(["zstd", "lz4"]),
    help="Compress blocks of messages that this makes smaller. Needs pyarrow.  [default: none]")


def opened(pattern: str, bind: tuple[str, ...], connect: tuple[str, ...],
           options: dict[str, Any]) -> Any:
    """The socket. Prints its actual addresses on standard output, a line each."""
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
@click.option("-s", "--topic", help="The topic to store into.  [default: default]")
@click.option("--topic-from", type=click.Choice(["first-part"]),
              help="Use each message's first part (a dish's group) as its topic.")
@click.option("--max-topics", type=click.IntRange(1, 1 << 20), default=100, show_default=True,
              help="With --topic-from: refuse messages of further topics.")
@click.option("--partitions", type=click.IntRange(1), default=1, show_default=True,
              help="Number of partitions; messages spread by key, producer or connection.")
@click.option("--fsync", type=click.Choice(["always", "interval", "never"]), default="interval",
              show_default=True, help="When messages become durable; a rep's always are before it "
              "answers.")
@click.option("--stamps", is_flag=True,
              help="Remove producers' stamps from messages and store them.")
@click.option("--deduplicate", is_flag=True, help="With --stamps: store messages that a producer "
              "sends again only once.")
@COMPRESSION
@click.option("--segment-bytes", type=Size(), metavar="SIZE",
              help="Start a new file at this size, like 64MiB.  [default: 256MiB]")
@click.option("--segment-age", type=Span(), metavar="TIME",
              help="Start a new file when the current one is older, like 1h.")
@click.option("--retain-bytes", type=Size(), metavar="SIZE",
              help="Delete the oldest files beyond this total size.")
@click.option("--retain-age", type=Span(), metavar="TIME",
              help="Delete files whose messages are all older, like 7d.")
@click.option("--replica", "replicas", multiple=True, metavar="URL",
              help="A journal server of a mirror: do not write if that mirror was promoted. "
              "Repeatable.")
@click.option("--replica-server-key", metavar="KEY|FILE",
              help="CURVE: the public key of those servers, or their certificate.")
@click.option("--replica-key", type=FILE, metavar="FILE",
              help="CURVE: our own secret certificate to read from them.")
@click.option("--retain-for", multiple=True, metavar="GROUP",
              help="Keep messages that this consumer group has not read. Repeatable.")
@click.option("--insecure", is_flag=True,
              help="Allow network addresses without keys or TLS: any machine that reaches "
              "them can store messages.")
@click.option("--subscribe", multiple=True, metavar="TEXT",
              help="sub: topics (default all); dish: groups.")
@click.option("--rights", type=FILE, metavar="FILE",
              help="TOML: which topics each user may write. A user is named as its file in "
              "--allow FOLDER.")
@EVERY_OPTION
@OPTION
@for_sockets
def record(where: str, pattern: str, bind: tuple[str, ...], connect: tuple[str, ...],
           topic: str | None, topic_from: str | None, max_topics: int, partitions: int, fsync: Any,
           stamps: bool, deduplicate: bool, compression: str | None,
           segment_bytes: int | None, segment_age: float | None,
           retain_bytes: int | None, retain_age: float | None, retain_for: tuple[str, ...],
           replicas: tuple[str, ...], replica_server_key: str | None, replica_key: Path | None,
           insecure: bool, subscribe: tuple[str, ...], rights: str | None, every: float,
           options: dict[str, Any]) -> None:
    """Store the messages that a socket receives, until Ctrl-C or an error (such as a full disk).

    A rep or respondent acknowledges each message when it is durable. With other patterns senders
    receive no acknowledgement. The command prints its actual addresses on standard output. An
    address that other machines can reach needs keys (--key, and --allow for the senders) or TLS.

    \b
      mq journal record data pull --bind tcp://127.0.0.1:5555 --topic flights
      mq journal record data rep --bind tcp://*:5556 --key server.key_secret --allow senders/
      mq journal record data sub --connect tcp://host:5557 --topic-from first-part

    The file of --rights is that of `mq journal serve`. It names the topics with write = ["orders"].
    """
    from mqcore import journal as library
    from mqcore.journal.rights import load

    granted = None if rights is None else load(rights)
    _check_exposed(bind, insecure, options)
    kind = _subscriptions(pattern, subscribe)
    many: dict[str, Any] = {"topic_from": topic_from, "max_topics": max_topics} \
        if topic_from else {}
    if topic_from or partitions > 1:
        many["partitions"] = partitions
    files = {"segment_bytes": segment_bytes, "segment_age": segment_age,
             "retain_bytes": retain_bytes, "retain_age": retain_age, "retain_for": retain_for,
             "replicas": replicas, "compression": compression}
    security = security_of(replica_server_key, replica_key) if replica_server_key else None
    if security is not None:
        many["replica_options"] = {"security": security}
    many.update({name: value for name, value in files.items() if value})
    with library.open(where, "a", topic=topic if topic_from else topic or "default", fsync=fsync,
                      stamps=stamps, deduplicate=deduplicate, **many) as writer:
        for dropped in writer.recovered:
            note(str(dropped))
        front = opened(pattern, bind, connect, {**options, **kind})
        try:
            with mq.device(front, writer, rights=granted) as running:
                watch(running, every)
        finally:
            front.close(linger=0)
        if every:
            note(("\n" if on_terminal() else "") + say(counters(running.stats())))


def _subscriptions(pattern: str, chosen: tuple[str, ...]) -> dict[str, Any]:
    if chosen and pattern not in ("sub", "dish"):
        raise click.UsageError(f"--subscribe is for sub and dish, not for {pattern}")
    if pattern == "dish" and not chosen:
        raise click.UsageError("a dish receives only joined groups: name them with --subscribe")
    if pattern == "sub":
        return {"topics": chosen or ("",)}
    return {"groups": chosen} if pattern == "dish" else {}


def _check_exposed(bind: tuple[str, ...], insecure: bool, options: dict[str, Any]) -> None:
    from mqcore.journal.server import exposure

    if not insecure:
        exposure.check(bind, options.get("security"), "fill this disk and forge messages")


@click.command()
@click.argument("where", type=click.Path(exists=True, file_okay=False))
@click.option("--bind", multiple=True, required=True, metavar="URL", help="Listen at this address.")
@click.option("--groups", is_flag=True,
              help="Let readers commit offsets of consumer groups, which retention honors.")
@click.option("--insecure", is_flag=True,
              help="Allow network addresses without keys or TLS: any machine that reaches "
              "them can read everything.")
@click.option("--rights", type=FILE, metavar="FILE",
              help="TOML: which topics each user may read, and which groups it may commit. A "
              "user is named as its file in --allow FOLDER.")
@EVERY_OPTION
@OPTION
@for_sockets
def serve(where: str, bind: tuple[str, ...], groups: bool, insecure: bool, rights: str | None,
          every: float, options: dict[str, Any]) -> None:
    """Serve the journals of a folder to other processes and machines, until Ctrl-C.

    Readers use mqcore.journal.open("tcp://HOST:PORT/TOPIC"). An address that other machines can
    reach needs keys (--key, and --allow for the readers) or TLS (tls+tcp:// with -o tls_cert=...,
    and -o tls_ca=... for the readers).

    \b
      mq journal serve data --bind tcp://127.0.0.1:5558
      mq journal serve data --bind tcp://*:5558 --key server.key_secret --allow readers/

    With --rights, users see only what the file grants them. ["*"] is everybody else:

    
      [alice]
      read = ["orders", "flights-*"]
      commit = ["dashboard"]
    """
    from mqcore import journal as library
    from mqcore.journal.rights import load

    granted = None if rights is None else load(rights)
    with library.serve(where, list(bind), groups=groups, insecure=insecure, rights=granted,
                       **options) as server:
        for url in server.urls:
            click.echo(url)
        sys.stdout.flush()
        watch(server, every)


@click.command()
@click.argument("source", type=Where(exists=True, file_okay=False))
@click.argument("into", type=click.Path(file_okay=False))
@TOPIC
@PARTITION
@click.option("--once", is_flag=True,
              help="Stop after copying the messages that existed at the start.")
@click.option("--fsync", type=click.Choice(["always", "interval", "never"]), default="interval",
              show_default=True, help="When copied messages become durable.")
@COMPRESSION
@EVERY_OPTION
@OPTION
@for_client_sockets
def mirror(source: str, into: str, topic: str | None, partition: int, once: bool, fsync: Any,
           compression: Any, every: float, options: dict[str, Any]) -> None:
    """Copy a partition into the folder INTO and keep the copy up to date, until Ctrl-C.

    SOURCE is a folder, or the address of a `mq journal serve`. Messages keep their offsets, times,
    keys, headers and stamps. An interrupted mirror continues where it stopped.

    \b
      mq journal mirror tcp://host:5558/flights backup
    """
    from mqcore import journal as library
    from mqcore.journal.store.place import partition_folder

    with opened_journal(source, topic, partition, options) as reader:
        folder = partition_folder(into, reader.topic, partition)
        end = reader.end
        new = not (folder.is_dir() and any(folder.glob("*.mqj")))
        begin = {"begin": reader.first} if new else {}
        with library.open(into, "a", topic=reader.topic, partition=partition, fsync=fsync,
                          mirror=True, compression=compression, **begin) as writer:
            with mq.device(reader, writer) as running:
                if once:
                    copied(running, writer, end)
                else:
                    watch(running, every)
            note(f"{running.stats().messages} messages copied; the next one is {writer.next}")


def copied(running: Any, writer: Any, end: int) -> None:
    """Wait until the mirror has reached `end`."""
    while writer.next < end:
        try:
            running.wait_stopped(timeout=0.05)
        except mq.Timeout:
            continue
        return


@click.command()
@click.argument("where")
@click.argument("pattern", type=click.Choice(SENDERS))
@BIND
@CONNECT
@TOPIC
@PARTITION
@click.option("--from", "start", type=click.IntRange(0), metavar="OFFSET",
              help="Start at this offset.")
@click.option("--to", "stop", type=click.IntRange(0), metavar="OFFSET",
              help="Stop before this offset.")
@click.option("--speed", type=click.FloatRange(0), default=1.0, show_default=True,
              help="Speed: 1 original; 10 ten times as fast; 0 without pauses.")
@click.option("--topic-part", is_flag=True, help="Send the topic as the first part.")
@click.option("--stamps", is_flag=True, help="Restore the messages' stamps and keys.")
@click.option("--wait", "peers", type=click.IntRange(0), default=1, show_default=True,
              help="Start when this many peers are connected (pub: subscribers).")
@GAPS
@OPTION
@for_sockets
def replay(where: str, pattern: str, bind: tuple[str, ...], connect: tuple[str, ...],
           topic: str | None, partition: int, start: int | None, stop: int | None, speed: float,
           topic_part: bool, stamps: bool, peers: int, gaps: str, options: dict[str, Any]) -> None:
    """Send a journal's messages again, at their original pace or scaled.

    WHERE is a folder, or the address of a `mq journal serve`.

    \b
      mq journal replay data push --connect tcp://host:5555 --topic flights --speed 60
    """
    from mqcore.journal.replay import replay as send

    with opened_journal(where, topic, partition, {}, gaps=gaps) as reader:
        socket = opened(pattern, bind, connect, options)
        try:
            if pattern == "pub" and peers:
                socket.wait_subscribers(b"", n=peers)
            elif peers:
                socket.wait_peers(peers)
            first = reader.first if start is None else start
            end = reader.end
            if first > end:
                raise UsageError(f"message {first} is beyond the end of the journal, {end}")
            end = end if stop is None else min(stop, end)
            with progress() as bar:
                task = bar.add_task("replaying", total=max(0, end - first))
                sent = send(reader, socket, start=first, stop=end, speed=speed, topic=topic_part,
                            stamps=stamps, progress=lambda n: bar.advance(task, n),
                            gaps=way_past(gaps))
            finish(socket)
        finally:
            socket.close(linger=0)
    gone = f", {end - first - sent} are gone" if sent < end - first else ""
    note(f"{sent} messages{gone}")
