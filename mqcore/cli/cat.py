"""`mq cat`: send the given messages and print the received ones, on any pattern.

This module turns the arguments into a `Job`. `exchange` runs it as the pattern requires. `nanocat`
is the same command with nanocat's options.
"""

from __future__ import annotations

import io
import itertools
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import click

import mqcore as mq
from mqcore.cli.common import OPTION, finish, note
from mqcore.cli.exchange import RECEIVES, Job, way_of
from mqcore.cli.format import FORMATS, Format, Outgoing
from mqcore.cli.keys import for_sockets
from mqcore.cli.nanocat import COMMAND, speaks_nanocat
from mqcore.errors import UsageError

PUBLISHES = {"pub", "xpub"}
TO_ALL = {"radio", "surveyor", "bus"}  # messages without a receiver are lost
ANSWERS = {"rep", "respondent"}
GROUPED = {"radio", "dish"}
SLOW = 1.0  # seconds of waiting for peers before the command reports it


def read_input(
    data: tuple[str, ...], files: tuple[str, ...], multipart: bool, reads: Format, again: bool
) -> Iterator[Outgoing]:
    """--data and --file as messages, repeated if `again`; without either, standard input."""
    if data or files:
        given = [part for text in data for part in _read_text(text, reads)]
        given += [part for path in files for part in _read_file(path)]
        if multipart:
            given = [Outgoing([part for message in given for part in message.parts])]
        yield from itertools.cycle(given) if again else given
        return
    # its own reader: a thread blocked in sys.stdin would disturb the interpreter's exit
    with open(sys.stdin.fileno(), "rb", closefd=False) as stream:
        yield from reads.read(stream)


def _read_text(text: str, reads: Format) -> list[Outgoing]:
    if not text:
        return [Outgoing([b""])]
    return list(reads.read(io.BytesIO(text.encode("utf-8", "surrogateescape"))))


def _read_file(path: str) -> list[Outgoing]:
    with nullcontext(sys.stdin.buffer) if path == "-" else open(path, "rb") as stream:
        return [Outgoing([stream.read()])]


def open_socket(
    pattern: str,
    bind: tuple[str, ...],
    connect: tuple[str, ...],
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    options: dict[str, Any],
    quiet: bool,
) -> tuple[Any, Any]:
    """The socket and, for a publisher, its events."""
    if groups and pattern not in GROUPED:
        raise click.UsageError(f"--group is for radio and dish, not for {pattern}")
    if pattern == "radio" and len(groups) > 1:
        raise click.UsageError("a radio sends to one --group")
    if pattern == "dish":
        options = {**options, "groups": groups or ("",)}
    elif pattern == "sub":
        options = {**options, "topics": topics or (b"",)}
    elif topics and pattern != "xsub":
        raise click.UsageError(f"--topic is for sub and xsub, not for {pattern}")
    socket: Any = mq.socket(pattern, **options)
    # must start before the first peer connects
    stream = socket.events() if pattern in PUBLISHES else None
    try:
        for url in bind:
            endpoint = socket.bind(url)
            if not quiet:
                note(f"listening on {endpoint.url}")
        for url in connect:
            socket.connect(url)
        if pattern == "xsub":
            for topic in topics or ("",):
                socket.send(b"\x01" + topic.encode())
    except BaseException:
        socket.close(linger=0)
        raise
    return socket, stream


def subscribed(stream: Any, wanted: int, timeout: float | None) -> None:
    """Wait until `wanted` peers have subscribed to anything; WaitTimeout."""
    end = None if timeout is None else time.monotonic() + timeout
    peers: set[Any] = set()
    while len(peers) < wanted:
        event = stream.get(None if end is None else max(0.0, end - time.monotonic()))
        if event.kind == "Subscribed":
            peers.add(event.peer)
    stream.close()


def wait_for_peers(job: Job, wanted: int, stream: Any) -> None:
    """Wait for `wanted` peers; report it if that takes a while."""
    what = "peer" if stream is None and job.group is None else "subscriber"
    hint = threading.Timer(
        SLOW,
        note,
        [
            f"waiting for {wanted} {what}{'s' * (wanted > 1)} "
            "(Ctrl-C ends this; --wait 0 does not wait)"
        ],
    )
    hint.daemon = True
    hint.start()
    try:
        if job.group is not None:
            job.socket.wait_subscribers(job.group, wanted, timeout=job.timeout)
        elif stream is None:
            job.socket.wait_peers(wanted, timeout=job.timeout)
        else:
            subscribed(stream, wanted, job.timeout)
    finally:
        hint.cancel()


HELP = """Send and receive messages on any pattern, like netcat for messages.

PATTERN is push, pull, pub, sub, req, rep, pair, dealer, router, xpub, xsub, radio, dish,
surveyor, respondent, bus, pair1, stream or a pattern of a plug-in. The command connects to each
URL; use --bind to listen instead. It sends --data, --file or the lines of standard input.

\b
Print the messages of two topics:
  mq cat sub tcp://127.0.0.1:5556 -s forex. -s metal.
Send a request and print the reply:
  mq cat req tcp://127.0.0.1:5555 -d "1 2"
Reply to every request with the same text:
  mq cat rep --bind tcp://127.0.0.1:5555 -d "fine, thanks"
Publish a line every second:
  mq cat pub --bind tcp://*:5556 -d tick -i 1
Copy a file from one process to another:
  mq cat pull -b ipc:///tmp/copy -f raw -n 1 > copy &
  mq cat push ipc:///tmp/copy -F original

If you give the pattern as an option (--push, --req0 and so on), all options are nanocat's and
nngcat's: -d is a delay, -D a text, -l a port, -A ASCII output. A connecting socket then speaks
SP. `mq cat --req --help` lists these options.

Exit status: 0 done, 1 failed (or messages could not be delivered), 2 wrong arguments, 3 --timeout
expired: no message arrived, or no peer took the message.
"""


class Cat(click.Command):
    """Two commands with one name: with the pattern as an option, it takes nanocat's options."""

    def make_context(self, info_name: str | None, args: list[str],
                     parent: click.Context | None = None, **extra: Any) -> click.Context:
        if speaks_nanocat(args):
            return COMMAND.make_context(info_name, args, parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command(cls=Cat, help=HELP)
@click.argument("pattern")
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option(
    "-b", "--bind", multiple=True, metavar="URL", help="Listen at this address."
)
@click.option(
    "-c",
    "--connect",
    multiple=True,
    metavar="URL",
    help="Connect to this address, like the argument URL.",
)
@click.option(
    "-d", "--data", multiple=True, metavar="TEXT", help="Send this text, instead of standard input."
)
@click.option(
    "-F",
    "--file",
    "files",
    multiple=True,
    metavar="PATH",
    help="Send this file as one message; - is standard input.",
)
@click.option(
    "-m", "--multipart", is_flag=True, help="Send all --data and --file as parts of one message."
)
@click.option(
    "-f",
    "--format",
    "shown",
    type=click.Choice([*FORMATS]),
    default="ascii",
    show_default=True,
    help="The form of messages. ascii: a line each, other bytes as \\x00, parts separated by tabs. "
    "raw: only the bytes. hex: a line each, parts separated by commas. json: an object per "
    "line.",
)
@click.option("--input-format", type=click.Choice([*FORMATS]),
              help="The form of the input, if it differs.")
@click.option(
    "-s",
    "--topic",
    "topics",
    multiple=True,
    metavar="PREFIX",
    help="sub: a topic to subscribe to.  [default: everything]",
)
@click.option(
    "-g",
    "--group",
    "groups",
    multiple=True,
    metavar="GROUP",
    help="dish: a group to join. radio: the group to send to.  [default: the empty group]",
)
@click.option(
    "-n",
    "--count",
    type=click.IntRange(1),
    metavar="N",
    help="Stop after N messages (received, if the pattern receives). Sends --data N times.",
)
@click.option(
    "-i",
    "--interval",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="Seconds between two messages. Repeats --data.",
)
@click.option(
    "-r",
    "--rate",
    type=click.FloatRange(0, min_open=True),
    metavar="N",
    help="Messages per second; the same as --interval 1/N.",
)
@click.option(
    "-t",
    "--timeout",
    type=click.FloatRange(0),
    metavar="S",
    help="Stop with status 3 after S seconds without a message, or without a peer to send to. "
    "surveyor: how long to collect answers.",
)
@click.option(
    "-w",
    "--wait",
    "wanted",
    type=click.IntRange(0),
    metavar="N",
    help="Start with N peers.  [default: 1 for surveyor and bus, 1 subscriber for pub, "
    "xpub and radio, else 0]",
)
@click.option("-q", "--quiet", is_flag=True,
              help="Do not print received messages, only the totals.")
@click.option("-v", "--verbose", is_flag=True, help="Print the totals on stderr at the end.")
@OPTION
@for_sockets
def cat(
    pattern: str,
    urls: tuple[str, ...],
    bind: tuple[str, ...],
    connect: tuple[str, ...],
    data: tuple[str, ...],
    files: tuple[str, ...],
    multipart: bool,
    shown: str,
    input_format: str | None,
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    count: int | None,
    interval: float | None,
    rate: float | None,
    timeout: float | None,
    wanted: int | None,
    quiet: bool,
    verbose: bool,
    options: dict[str, Any],
) -> None:
    """Build the Job from the arguments and run it."""
    pattern = pattern.lower()
    if not (urls or bind or connect):
        raise click.UsageError("no address: give a URL to connect to, or --bind URL")
    if interval and rate:
        raise click.UsageError("--interval and --rate conflict: give one of them")
    pause = interval or (1 / rate if rate else 0.0)
    if pattern in RECEIVES and (data or files):
        raise click.UsageError(f"a {pattern} socket only receives: remove --data and --file")
    reads = FORMATS[input_format or shown]
    again = bool((count or pause) and (data or files))
    messages = read_input(data, files, multipart, reads, again)
    fixed = pattern in ANSWERS and (data or files)
    answer = next(read_input(data, files, True, reads, False)).parts if fixed else None
    wanted = wanted if wanted is not None else int(pattern in PUBLISHES | TO_ALL)
    socket, stream = open_socket(
        pattern, bind, connect + urls, topics, groups, options, quiet=not verbose and not bind
    )
    try:
        job = Job(
            socket,
            messages,
            answer=answer,
            shows=FORMATS[shown],
            most=count,
            pause=pause,
            timeout=timeout,
            quiet=quiet,
            given=bool(data or files),
            group="".join(groups) if pattern == "radio" else None,
        )
        if wanted:
            wait_for_peers(job, wanted, stream)
        sums = way_of(pattern)(job)
        finish(socket, timeout)
        if verbose or quiet:
            note(sums)
    except UsageError as error:
        raise click.ClickException(str(error)) from None
    finally:
        socket.close()
