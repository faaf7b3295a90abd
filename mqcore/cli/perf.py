"""`mq perf`: latency and throughput between two processes.

Arguments and output match libzmq's local_lat, remote_lat, local_thr and remote_thr, so either side
may be one of those.

The hot loops run in pieces of a hundredth of the count, and the progress bar moves between the
pieces.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

import mqcore as mq
from mqcore.cli.common import OPTION, progress
from mqcore.cli.keys import for_sockets

PIECES = 100


@contextmanager
def bar(label: str, total: int) -> Iterator[Callable[[int], None]]:
    with progress() as shown:
        task = shown.add_task(label, total=total)
        yield lambda n: shown.advance(task, n)


def pieces(count: int) -> Iterator[int]:
    size = max(1, count // PIECES)
    for start in range(0, count, size):
        yield min(size, count - start)


def wrong_size(got: int, want: int) -> click.ClickException:
    return click.ClickException(
        f"a message of {got} bytes arrived, {want} expected: use the same size on both sides"
    )


# -- latency: REQ and REP ------------------------------------------------------------------------


def local_lat(url: str, size: int, count: int, options: dict[str, Any]) -> None:
    with mq.Rep(bind=url, **options) as socket, bar("round trips", count) as done:
        recv, send = socket.recv, socket.send
        for n in pieces(count):
            for _ in range(n):
                message = recv()
                if len(message) != size:
                    raise wrong_size(len(message), size)
                send(message)
            done(n)


def remote_lat(url: str, size: int, count: int, options: dict[str, Any]) -> None:
    body = bytes(size)
    with mq.Req(connect=url, **options) as socket, bar("round trips", count) as done:
        socket.wait_peers()
        request = socket.request
        start = time.perf_counter()
        for n in pieces(count):
            for _ in range(n):
                answer = request(body)
                if len(answer) != size:
                    raise wrong_size(len(answer), size)
            done(n)
        elapsed = time.perf_counter() - start
    click.echo(f"message size: {size} [B]")
    click.echo(f"roundtrip count: {count}")
    click.echo(f"average latency: {elapsed / (2 * count) * 1e6:.3f} [us]")


# -- throughput: PUSH and PULL -------------------------------------------------------------------


def local_thr(url: str, size: int, count: int, options: dict[str, Any], many: int) -> None:
    """Receive. The clock starts with the first message, so it times count - 1, as libzmq does."""
    with mq.Pull(bind=url, **options) as socket, bar("messages", count) as done:
        first = socket.recv()
        start = time.perf_counter()
        if len(first) != size:
            raise wrong_size(len(first), size)
        (receive_many if many else receive_one)(socket, size, count - 1, many, done)
        elapsed = time.perf_counter() - start
    rate = count / elapsed if elapsed else 0.0
    click.echo(f"message size: {size} [B]")
    click.echo(f"message count: {count}")
    click.echo(f"mean throughput: {int(rate)} [msg/s]")
    click.echo(f"mean throughput: {rate * size * 8 / 1e6:.3f} [Mb/s]")


def receive_one(socket: Any, size: int, count: int, _: int, done: Callable[[int], None]) -> None:
    recv = socket.recv
    for n in pieces(count):
        for _ in range(n):
            message = recv()
            if len(message) != size:
                raise wrong_size(len(message), size)
        done(n)


def receive_many(
    socket: Any, size: int, count: int, many: int, done: Callable[[int], None]
) -> None:
    left = count
    while left:
        messages = socket.recv_many(min(many, left))
        if len(messages[-1]) != size:
            raise wrong_size(len(messages[-1]), size)
        left -= len(messages)
        done(len(messages))


def remote_thr(url: str, size: int, count: int, options: dict[str, Any], many: int) -> None:
    body = bytes(size)
    with (
        mq.Push(connect=url, **{"linger": None, **options}) as socket,
        bar("messages", count) as done,
    ):
        socket.wait_peers()
        send = socket.send
        for n in pieces(count):
            if many:
                for part in [many] * (n // many) + [n % many] * bool(n % many):
                    socket.send_many([body] * part)
            else:
                for _ in range(n):
                    send(body)
            done(n)


# -- the command ---------------------------------------------------------------------------------

ARGUMENTS = (
    click.argument("role", type=click.Choice(["local", "remote"])),
    click.argument("url"),
    click.argument("size", metavar="MESSAGE-SIZE", type=click.IntRange(0)),
    click.argument("count", metavar="COUNT", type=click.IntRange(1)),
    OPTION,
    for_sockets,
)


def takes_the_same(function: Any) -> Any:
    for argument in reversed(ARGUMENTS):
        function = argument(function)
    return function


@click.group()
def perf() -> None:
    """Measure latency (lat) or throughput (thr) between two processes.

    Start `local` first, which listens. Then start `remote`, which connects. Arguments and output
    match libzmq's tools, so one side may be local_lat, remote_lat, local_thr or remote_thr.

    \b
    Throughput of a million messages of 100 bytes, in two terminals:
      mq perf thr local tcp://127.0.0.1:5555 100 1000000
      mq perf thr remote tcp://127.0.0.1:5555 100 1000000
    """


@perf.command()
@takes_the_same
def lat(role: str, url: str, size: int, count: int, options: dict[str, Any]) -> None:
    """Measure latency: half a round trip, as seen by `remote`.

    \b
    In two terminals:
      mq perf lat local tcp://127.0.0.1:5555 1 100000
      mq perf lat remote tcp://127.0.0.1:5555 1 100000
    """
    (local_lat if role == "local" else remote_lat)(url, size, count, options)


@perf.command()
@takes_the_same
@click.option(
    "--many",
    type=click.IntRange(1),
    metavar="N",
    help="Use send_many and recv_many with N messages per call.",
)
def thr(
    role: str, url: str, size: int, count: int, options: dict[str, Any], many: int | None
) -> None:
    """Measure throughput: messages per second, as seen by `local`.

    \b
    In two terminals:
      mq perf thr local tcp://127.0.0.1:5555 100 1000000
      mq perf thr remote tcp://127.0.0.1:5555 100 1000000
    """
    if role == "local" and count < 2:
        raise click.UsageError("a rate needs at least 2 messages")
    (local_thr if role == "local" else remote_thr)(url, size, count, options, many or 0)
