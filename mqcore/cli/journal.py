"""`mq journal`: look at, check, mend and export what a journal holds. What needs sockets is in
journal_live."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from mqcore.cli.common import columns, note, progress
from mqcore.cli.journal_live import record, replay, serve
from mqcore.errors import UsageError

WHERE = click.argument("where", type=click.Path(exists=True, file_okay=False))
TOPIC = click.option("-s", "--topic", default="default", show_default=True, help="Which topic.")
PARTITION = click.option("-p", "--partition", default=0, show_default=True, help="Which partition.")


@click.group()
def journal() -> None:
    """Look at a journal's files: list, print, verify, repair, export. Fill them from a socket, let
    others read them, send them again: record, serve, replay.

    WHERE is the folder that was given to mqcore.journal.open().
    """


for _command in (record, serve, replay):
    journal.add_command(_command)


def chosen(where: str, topic: str | None, partition: int | None) -> Iterator[tuple[str, int, Path]]:
    from mqcore.journal import partitions

    for name, number, folder in partitions(where):
        if topic in (None, name) and partition in (None, number):
            yield name, number, folder


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.mqj"))


@journal.command("ls")
@WHERE
@click.option("--json", "as_json", is_flag=True, help="An object a line, for programs.")
def ls(where: str, as_json: bool) -> None:
    """List topics and partitions: offsets, size, segments, consumer groups."""
    from mqcore.journal import Reader

    rows = []
    for topic, partition, folder in chosen(where, None, None):
        with Reader(folder, topic, partition) as reader:
            rows.append({"topic": topic, "partition": partition, "first": reader.first,
                         "end": reader.end, "bytes": size_of(folder),
                         "segments": len(list(folder.glob("*.mqj"))), "groups": reader.groups()})
    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
        return
    columns(("topic", "partition", "first", "end", "bytes", "segments", "groups"),
            [[*list(row.values())[:6],
              " ".join(f"{name}={at}" for name, at in row["groups"].items()) or "-"]
             for row in rows])


@journal.command()
@WHERE
@TOPIC
@PARTITION
@click.option("-n", "--count", type=click.IntRange(0), default=10, show_default=True,
              help="So many of the last messages.")
@click.option("--from", "start", type=click.IntRange(0), metavar="OFFSET",
              help="From this message on, instead of --count.")
@click.option("-f", "--follow", is_flag=True, help="Then print what comes, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="An object a line, with offset and time.")
def tail(where: str, topic: str, partition: int, count: int, start: int | None, follow: bool,
         as_json: bool) -> None:
    """Print the last messages, a line each; odd bytes as \\x00."""
    from mqcore import journal as library

    with library.open(where, topic=topic, partition=partition) as reader:
        at = max(reader.first, reader.end - count) if start is None else start
        for records in reader.follow(at) if follow else reader.batches(at):
            for i, message in enumerate(records):
                text = message.decode("ascii", "backslashreplace")
                click.echo(json.dumps({"offset": records.first + i,
                                       "time": int(records.times[i]) / 1e6, "value": text})
                           if as_json else text)


@journal.command()
@WHERE
@click.option("-s", "--topic", help="Only this topic.")
@click.option("-p", "--partition", type=int, help="Only this partition.")
def verify(where: str, topic: str | None, partition: int | None) -> None:
    """Read everything and check every block. Exit status 1 if something is damaged.

    What a running writer is just writing is not damage. Gaps and duplicates by producer are told,
    where messages carry stamps.
    """
    from mqcore import journal as library

    found = list(chosen(where, topic, partition))
    bad = 0
    with progress() as bar:
        task = bar.add_task("verifying", total=sum(size_of(folder) for _, _, folder in found))
        for name, number, folder in found:
            checked = library.verify(folder, lambda n: bar.advance(task, n))
            click.echo(f"{name}/{number}: {checked.messages} messages, {checked.blocks} blocks, "
                       f"{checked.segments} segments, {checked.bytes} bytes")
            for item in checked.findings:
                lost = "an unknown number of" if item.lost is None else item.lost
                click.echo(f"  {item.path} at byte {item.position}: {item.fault}; "
                           f"{lost} messages from {item.offset} on")
            bad += len(checked.findings)
            if not checked.findings:
                tell_sequences(name, number, folder)
    if bad:
        note(f"{bad} damaged places; `mq journal repair` keeps what is whole")
        raise click.exceptions.Exit(1)


def tell_sequences(topic: str, partition: int, folder: Path) -> None:
    from mqcore.journal import OffsetGone, Reader, Sequences

    seen = Sequences()
    with Reader(folder, topic, partition, verify=False) as reader:
        at, end = reader.first, reader.end
        while at < end:
            try:
                records = reader.read(at)
            except OffsetGone as gone:      # given up by a repair
                at = gone.first
                continue
            seen.add(records)
            at = records.next
    if seen.messages:
        click.echo(f"  {len(seen.highest)} producers: {seen.missing} messages missing, "
                   f"{seen.duplicates} twice")


@journal.command()
@WHERE
@TOPIC
@PARTITION
def repair(where: str, topic: str, partition: int) -> None:
    """Write damaged segments anew out of their whole blocks.

    Nothing is deleted: the damaged files stay, renamed to *.damaged. Lost offsets stay lost, and
    reading one says where to go on. The partition must have no writer.
    """
    from mqcore import journal as library

    for _, _, folder in chosen(where, topic, partition):
        done = library.repair(folder)
        for path in done.kept:
            click.echo(f"rewritten; the damaged one is {path}")
        if not done.kept:
            click.echo("nothing to repair")
        return
    raise click.UsageError(f"{where} has no topic {topic!r} with a partition {partition}")


@journal.command()
@WHERE
@click.argument("file", type=click.Path(dir_okay=False))
@TOPIC
@PARTITION
@click.option("--from", "start", type=click.IntRange(0), metavar="OFFSET", help="From here on.")
@click.option("--columns", "wanted", default="key,value,topic,partition,offset,timestamp",
              show_default=True, help="Which, apart by commas; there are also headers, producer, "
              "sequence and sent.")
def export(where: str, file: str, topic: str, partition: int, start: int | None,
           wanted: str) -> None:
    """Write a partition to a Parquet FILE, as far as it goes now."""
    from mqcore import journal as library
    from mqcore.journal import arrow

    arrow.library()
    import pyarrow.parquet as parquet

    names = tuple(wanted.split(","))
    schema = arrow.schema(names)
    part = f"{file}.part"
    with library.open(where, topic=topic, partition=partition) as reader, progress() as bar:
        first = reader.first if start is None else start
        end = reader.end
        if first > end:
            raise UsageError(f"message {first} is beyond the end, {end}")
        task = bar.add_task("exporting", total=end - first)
        with parquet.ParquetWriter(part, schema) as out:
            for group in row_groups(reader, first, end):
                out.write_table(library_table(group, names))
                bar.advance(task, sum(map(len, group)))
    os.replace(part, file)
    note(f"{end - first} messages")


def row_groups(reader: Any, first: int, end: int, size: int = 32 << 20) -> Iterator[list[Any]]:
    """Batches in groups of some size: a small block is no row group of its own."""
    group: list[Any] = []
    for records in reader.batches(first, end):
        group.append(records)
        if sum(part.nbytes for part in group) >= size:
            yield group
            group = []
    if group:
        yield group


def library_table(group: list[Any], names: tuple[str, ...]) -> Any:
    import pyarrow

    return pyarrow.Table.from_batches([records.to_arrow(names) for records in group])
