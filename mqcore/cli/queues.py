"""`mq queue`: serve durable work queues, put jobs into them, get them, look at them."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

import click

from mqcore.cli.common import OPTION, columns, note
from mqcore.cli.device import EVERY, watch
from mqcore.cli.format import FORMATS, Incoming, as_text
from mqcore.cli.journal import text_of
from mqcore.cli.journal_live import COMPRESSION
from mqcore.cli.keys import for_client_sockets, for_sockets
from mqcore.cli.values import Size, Span
from mqcore.errors import RecvTimeout

URL = click.argument("url")
NAME = click.argument("name")
ANSWER = click.option("--timeout", type=click.FloatRange(0), default=10.0, show_default=True,
                      metavar="S", help="Seconds until the server must have answered.")
BATCH = 1000


@click.group()
def queue() -> None:
    """Serve durable work queues, and put and get jobs.

    URL is the address of a `mq queue serve`, NAME a queue, which the first put makes.

    \b
      mq queue serve data --bind tcp://127.0.0.1:5559
      mq queue put tcp://127.0.0.1:5559 work "resize 17.png"
      mq queue get tcp://127.0.0.1:5559 work
    """


def opened(url: str, name: str, options: dict[str, Any], **how: Any) -> Any:
    from mqcore import journal

    return journal.queue(url, name, **how, **options)


def given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


@queue.command()
@click.argument("where", type=click.Path(file_okay=False))
@click.option("--bind", multiple=True, required=True, metavar="URL", help="Listen at this address.")
@click.option("--fsync", type=click.Choice(["always", "interval", "never"]), default="interval",
              show_default=True, help="What an answer promises: that the change survives a power "
              "cut (always), or the death of the server (interval: a power cut, too, after 0.1 s).")
@COMPRESSION
@click.option("--visibility", type=Span(), metavar="TIME",
              help="New queues: how long a consumer may hold a job.  [default: 60s]")
@click.option("--max-attempts", type=click.IntRange(0), metavar="N",
              help="New queues: deliveries until a job becomes a dead letter; 0: no limit.  "
              "[default: 20]")
@click.option("--max-jobs", type=click.IntRange(1), metavar="N",
              help="New queues: jobs at most.  [default: 1000000]")
@click.option("--max-bytes", type=Size(), metavar="SIZE",
              help="New queues: bytes at most.  [default: 1GiB]")
@click.option("--on-full", type=click.Choice(["refuse", "block"]),
              help="New queues: what a put into a full queue does.  [default: refuse]")
@click.option("--memory", type=Size(), metavar="SIZE",
              help="Bodies kept in memory; the others are read from disk.  [default: 256MiB]")
@click.option("--max-total-jobs", type=click.IntRange(1), metavar="N",
              help="Jobs of all queues at most.  [default: 10000000]")
@click.option("--max-total-bytes", type=Size(), metavar="SIZE",
              help="Their bytes at most.  [default: 16GiB]")
@click.option("--configure", "users", multiple=True, metavar="USER",
              help="Let only this user purge queues and change their options. Repeatable.  "
              "[default: every client]")
@click.option("--no-configure", is_flag=True,
              help="Let no client purge queues or change their options.")
@click.option("--insecure", is_flag=True,
              help="Allow network addresses without keys or TLS: any machine that reaches them can "
              "take and put jobs.")
@click.option("--every", type=click.FloatRange(0), default=EVERY, show_default=True, metavar="S",
              help="Seconds between two lines of counters on stderr; 0 disables them.")
@OPTION
@for_sockets
def serve(where: str, bind: tuple[str, ...], fsync: Any, compression: Any, memory: int | None,
          max_total_jobs: int | None, max_total_bytes: int | None, users: tuple[str, ...],
          no_configure: bool, insecure: bool, every: float, options: dict[str, Any],
          **defaults: Any) -> None:
    """Serve the queues in the folder WHERE, until Ctrl-C. The command makes the folder, and prints
    its actual addresses on standard output.

    An address that other machines can reach needs keys (--key, and --allow for the clients) or TLS
    (tls+tcp:// with -o tls_cert=..., and -o tls_ca=... for the clients).

    \b
      mq queue serve data --bind tcp://127.0.0.1:5559
      mq queue serve data --bind tcp://*:5559 --key server.key_secret --allow clients/
    """
    from mqcore import journal

    if users and no_configure:
        raise click.UsageError("--configure and --no-configure exclude each other")
    limits = journal.QueueLimits(**given(memory=memory, jobs=max_total_jobs, bytes=max_total_bytes))
    with journal.serve_queues(where, list(bind), fsync=fsync, compression=compression,
                              insecure=insecure, limits=limits,
                              configure=users or not no_configure,
                              defaults=journal.QueueOptions(**given(**defaults)),
                              **options) as server:
        for url in server.urls:
            click.echo(url)
        sys.stdout.flush()
        watch(server, every)


@queue.command()
@URL
@NAME
@click.argument("bodies", nargs=-1, metavar="[BODY]...")
@click.option("--delay", type=Span(), default=0.0, metavar="TIME",
              help="Deliver the jobs after this time, like 10m.")
@click.option("--ttl", type=Span(), metavar="TIME", help="Discard jobs that wait longer.")
@click.option("--priority", type=click.IntRange(1, 16), default=8, show_default=True,
              help="1 is delivered first.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE",
              help="Add a header. Repeatable.")
@ANSWER
@OPTION
@for_client_sockets
def put(url: str, name: str, bodies: tuple[str, ...], delay: float, ttl: float | None,
        priority: int, headers: tuple[str, ...], timeout: float, options: dict[str, Any]) -> None:
    """Put jobs: each BODY is one. Without any, each line of standard input is one. Prints how many
    there were, on stderr, once they are stored."""
    pairs = []
    for text in headers:
        key, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"--header {text!r} is not of the form NAME=VALUE")
        pairs.append((key, value))
    count = 0
    with opened(url, name, options, timeout=timeout) as target:
        def store(batch: list[bytes]) -> int:
            return len(target.put_many(batch, delay=delay, ttl=ttl, priority=priority,
                                       headers=pairs))
        if bodies:
            count = store([body.encode() for body in bodies])
        else:
            batch: list[bytes] = []
            for line in sys.stdin.buffer:
                batch.append(line.rstrip(b"\n"))
                if len(batch) == BATCH:
                    count += store(batch)
                    batch = []
            count += store(batch)
    note(f"{count} {'job' if count == 1 else 'jobs'}")


FORM = click.option("--format", "form", type=click.Choice(list(FORMATS)), default="ascii",
                    show_default=True, help="The form of bodies; json adds id, attempts, headers.")


def show(job: Any, form: str) -> None:
    if form == "json":
        line = json.dumps({"id": job.id, "attempts": job.attempts, "body": text_of(job.body),
                           "headers": [[key, text_of(value)] for key, value in job.headers]}) + "\n"
        sys.stdout.buffer.write(line.encode())
    else:
        sys.stdout.buffer.write(FORMATS[form].show(Incoming([job.body])))
    sys.stdout.buffer.flush()


@queue.command()
@URL
@NAME
@click.option("-n", "--count", type=click.IntRange(0), default=1, show_default=True,
              help="Get so many jobs; 0: until Ctrl-C or --wait.")
@click.option("--wait", type=click.FloatRange(0), metavar="S",
              help="Give up after so many seconds without a job.  [default: never]")
@FORM
@OPTION
@for_client_sockets
def get(url: str, name: str, count: int, wait: float | None, form: str,
        options: dict[str, Any]) -> None:
    """Get jobs, print each, and then acknowledge it. A job whose printing fails goes back to the
    queue. With --wait it exits with status 3 if no job came."""
    seen = 0
    with opened(url, name, options) as source:
        while not count or seen < count:
            try:
                with source.get(timeout=wait) as job:
                    show(job, form)
            except RecvTimeout:
                if seen and not count:
                    return
                raise
            seen += 1


@queue.command()
@URL
@NAME
@click.option("-n", "--count", type=click.IntRange(1), default=10, show_default=True,
              help="Show at most so many.")
@FORM
@ANSWER
@OPTION
@for_client_sockets
def peek(url: str, name: str, count: int, form: str, timeout: float,
         options: dict[str, Any]) -> None:
    """Print the jobs that would be delivered next. They stay in the queue."""
    with opened(url, name, options, timeout=timeout) as source:
        for job in source.peek(count):
            show(job, form)


SHOWN = ("ready", "delayed", "held", "bytes", "waiting", "put", "delivered", "acknowledged", "dead")


@queue.command("list")
@URL
@click.option("--json", "as_json", is_flag=True, help="Print an object per line, for programs.")
@ANSWER
@OPTION
@for_client_sockets
def list_queues(url: str, as_json: bool, timeout: float, options: dict[str, Any]) -> None:
    """List the queues of a server and their counters."""
    rows = []
    with opened(url, "-", options, timeout=timeout) as source:
        for name in source.queues():
            source.name = name
            rows.append((name, asdict(source.stats())))
    if as_json:
        for name, stats in rows:
            click.echo(json.dumps({"queue": name, **stats}))
    else:
        columns(("queue", *SHOWN),
                [[as_text(name), *(stats[key] for key in SHOWN)] for name, stats in rows])


@queue.command()
@URL
@NAME
@click.option("--json", "as_json", is_flag=True, help="Print an object, for programs.")
@ANSWER
@OPTION
@for_client_sockets
def stats(url: str, name: str, as_json: bool, timeout: float, options: dict[str, Any]) -> None:
    """Print all counters of a queue."""
    with opened(url, name, options, timeout=timeout) as source:
        found = asdict(source.stats())
    if as_json:
        click.echo(json.dumps(found))
    else:
        columns(("counter", "jobs"), list(found.items()))


@queue.command()
@URL
@NAME
@ANSWER
@OPTION
@for_client_sockets
def purge(url: str, name: str, timeout: float, options: dict[str, Any]) -> None:
    """Discard all jobs that no consumer holds, and print how many they were."""
    with opened(url, name, options, timeout=timeout) as source:
        click.echo(source.purge())
