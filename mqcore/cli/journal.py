"""`mq journal`: list, check, repair and export journals. journal_live has the commands that run
until they are stopped, journal_groups those for consumer groups."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from mqcore.cli.common import OPTION, columns, note, progress
from mqcore.cli.format import FORMATS, Incoming, as_text, told_messages
from mqcore.cli.journal_backup import backup
from mqcore.cli.journal_compaction import compact
from mqcore.cli.journal_groups import groups, members
from mqcore.cli.journal_live import mirror, record, replay, serve
from mqcore.cli.journal_promote import promote
from mqcore.cli.journal_removal import delete, rename, truncate
from mqcore.cli.journal_where import (
    FOLDER,
    GAPS,
    PARTITION,
    TOPIC,
    WHERE,
    newest,
    opened,
    remote,
    told,
    way_past,
)
from mqcore.cli.keys import for_client_sockets
from mqcore.cli.values import Since
from mqcore.errors import Error, UsageError


@click.group()
def journal() -> None:
    """List, print, verify, repair and export journals. Fill them from a socket, serve them to other
    machines, replay and copy them: record, serve, replay, mirror, backup. Remove what is old:
    truncate, compact, delete. Give a topic another name: rename. A mirror can take over: promote.

    WHERE is the folder that you pass to mqcore.journal.open(). Commands that only read also take
    the address of a `mq journal serve`.
    """


for _command in (record, serve, replay, mirror, promote, backup, truncate, compact, delete, rename,
                 groups, members):
    journal.add_command(_command)


def chosen(where: str, topic: str | None, partition: int | None,
           options: dict[str, Any]) -> tuple[list[tuple[str, int]], int]:
    """Topics and partitions, and the number of unreadable ones, which it reports itself."""
    from mqcore.journal.listing import in_folder, list_partitions

    bad: list[Path] = []

    def skip(path: Path, error: Exception) -> None:
        note(f"{as_text(str(path))}: {error}")
        bad.append(path)

    how = remote(where, options)
    rows = list_partitions(where, **how) if "://" in where else in_folder(where, skip)
    return [(info.topic, info.partition) for info in rows
            if topic in (None, info.topic) and partition in (None, info.partition)], len(bad)


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.mqj"))


@journal.command("ls")
@WHERE
@click.option("--json", "as_json", is_flag=True, help="Print an object per line, for programs.")
@OPTION
@for_client_sockets
def ls(where: str, as_json: bool, options: dict[str, Any]) -> None:
    """List topics and partitions: offsets, size, segments, consumer groups."""
    rows = []
    found, bad = chosen(where, None, None, options)
    for topic, partition in found:
        try:
            rows.append(row_of(where, topic, partition, options))
        except (Error, OSError) as error:       # keep listing the others
            note(f"{as_text(topic)}/{partition}: {error}")
            bad += 1
    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
    else:
        shown = [["-" if value is None else value for value in list(row.values())[:6]]
                 + [" ".join(f"{name}={at}" for name, at in row["groups"].items()) or "-"]
                 for row in rows]
        columns(("topic", "partition", "first", "end", "bytes", "segments", "groups"),
                [[as_text(str(cell)) for cell in row] for row in shown])
    if bad:
        raise click.exceptions.Exit(1)


def row_of(where: str, topic: str, partition: int, options: dict[str, Any]) -> dict[str, Any]:
    with opened(where, topic, partition, options) as reader:
        first, end = reader.first, reader.end
        here = "://" not in where
        return {"topic": topic, "partition": partition, "first": first, "end": end,
                "bytes": size_of(reader.path) if here else reader.stored_bytes(first, end),
                "segments": len(list(reader.path.glob("*.mqj"))) if here else None,
                "groups": reader.groups()}


@journal.command()
@WHERE
@TOPIC
@PARTITION
@click.option("-n", "--count", type=click.IntRange(0), default=10, show_default=True,
              help="Print the last N messages.")
@click.option("--from", "start", type=click.IntRange(0), metavar="OFFSET",
              help="Start at this offset, instead of --count.")
@click.option("--since", type=Since(), metavar="TIME",
              help="Start at this time, instead of --count: 10m (ago), 2h, 2026-11-22T10:00:00.")
@click.option("-f", "--follow", is_flag=True, help="Then keep printing new messages until Ctrl-C.")
@click.option("--format", "form", type=click.Choice(list(FORMATS)), default="ascii",
              show_default=True, help="The form of messages; json adds offset, time and key.")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@GAPS
@OPTION
@for_client_sockets
def tail(where: str, topic: str | None, partition: int, count: int, start: int | None,
         since: float | None, follow: bool, form: str, as_json: bool, gaps: str,
         options: dict[str, Any]) -> None:
    """Print the last messages, a line each, also those that are not durable yet. Terminal control
    characters are shown as \\x1b. A tombstone (a message without a value) is null in json. In ascii
    and hex it is \\N, as which no other message is shown, and in raw nothing."""
    if start is not None and since is not None:
        raise click.UsageError("--from and --since conflict: give one of them")
    show = FORMATS["json" if as_json else form].show
    described = as_json or form == "json"
    with opened(where, topic, partition, options, durable=False, gaps=gaps) as reader:
        gaps = way_past(gaps)
        if since is not None:
            at = reader.at(since)
        else:
            end = reader.end
            at = newest(reader, count, end) if start is None else start
            if at > end:
                raise UsageError(f"message {at} is beyond the end of the journal, {end}")
        walk = reader.follow(at, gaps=gaps) if follow else reader.batches(at, gaps=gaps)
        for records in told(walk, at):
            for i, message in enumerate(records):
                if described:
                    line = line_of(records, i)
                elif message is None:
                    line = NULL[form]
                else:
                    line = show(Incoming([message]))
                sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()


# a message of these two characters has two backslashes in ascii
NULL = {"ascii": b"\\N\n", "hex": b"\\N\n", "raw": b""}


def line_of(records: Any, i: int) -> bytes:
    facts = {"offset": records.offset(i), "time": float(records.times[i]),
             "value": text_of(records[i])}          # null: a tombstone
    key, headers = records.key(i), records.headers(i)
    if key is not None:
        facts["key"] = text_of(key)
    if headers:
        facts["headers"] = [[name, text_of(value)] for name, value in headers]
    return json.dumps(facts).encode() + b"\n"


def text_of(raw: bytes | None) -> Any:
    if raw is None:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"hex": raw.hex()}


@journal.command()
@WHERE
@click.option("-s", "--topic", help="Only this topic.")
@click.option("-p", "--partition", type=int, help="Only this partition.")
@OPTION
@for_client_sockets
def verify(where: str, topic: str | None, partition: int | None,
           options: dict[str, Any]) -> None:
    """Read all messages and check every block. Exit status 1 if a block is damaged.

    A block that a running writer has not completed is not damage. If messages carry stamps, the
    command reports gaps and duplicates per producer. A journal server checks the blocks as it reads
    them, so over the network only the first damage of each partition is reported.
    """
    found, bad = chosen(where, topic, partition, options)
    if not (found or bad or topic is None and partition is None):
        from mqcore.journal.listing import nothing_there

        raise click.UsageError(nothing_there(where, topic, partition))
    check = verify_remote if "://" in where else verify_folder
    with progress() as bar:
        for name, number in found:
            try:
                bad += check(where, name, number, options, bar)
            except (Error, OSError) as error:
                click.echo(f"{as_text(name)}/{number}: {error}")
                bad += 1
    if bad:
        note(f"{bad} damaged places; `mq journal repair` recovers the intact blocks")
        raise click.exceptions.Exit(1)


def verify_folder(where: str, topic: str, partition: int, options: dict[str, Any],
                  bar: Any) -> int:
    from mqcore import journal as library
    from mqcore.journal.store.place import partition_folder

    folder = partition_folder(where, topic, partition)
    task = bar.add_task(f"{topic}/{partition}", total=size_of(folder))
    checked = library.verify(where, topic=topic, partition=partition,
                             progress=lambda n: bar.advance(task, n))
    click.echo(f"{as_text(topic)}/{partition}: {checked.messages} messages, {checked.blocks} "
               f"blocks, {checked.segments} segments, {checked.bytes} bytes"
               + (f", {checked.compacted} offsets compacted" if checked.compacted else ""))
    for item in checked.findings:
        lost = "an unknown number of" if item.lost is None else item.lost
        click.echo(f"  {item.path} at byte {item.position}: {item.fault}; "
                   f"{lost} messages from {item.offset} on")
    if not checked.findings:
        with library.Reader(folder, topic, partition, verify=False, durable=False) as reader:
            tell_sequences(reader, lambda n: None)
    return len(checked.findings)


def verify_remote(where: str, topic: str, partition: int, options: dict[str, Any],
                  bar: Any) -> int:
    with opened(where, topic, partition, options) as reader:
        task = bar.add_task(f"{topic}/{partition}", total=reader.end - reader.first)
        click.echo(f"{as_text(topic)}/{partition}: {told_messages(reader.first, reader.end)}")
        tell_sequences(reader, lambda n: bar.advance(task, n))
    return 0


def tell_sequences(reader: Any, advance: Any) -> None:
    """Read all messages and report gaps and duplicates by their stamps."""
    from mqcore.journal import Sequences

    seen = Sequences()
    for records in reader.batches(gaps="skip"):
        seen.add(records)
        advance(len(records))
    if seen.messages:
        click.echo(f"  {seen.producers} producers: {seen.missing} messages missing, "
                   f"{seen.duplicates} twice")


@journal.command()
@FOLDER
@TOPIC
@PARTITION
def repair(where: str, topic: str | None, partition: int) -> None:
    """Rewrite damaged segments from their intact blocks.

    Nothing is deleted: damaged files are renamed to *.damaged. Lost offsets stay lost; reading one
    reports where to continue. The partition must have no open writer.
    """
    from mqcore import journal as library
    from mqcore.journal.listing import nothing_there
    from mqcore.journal.store.place import partition_folder

    topic = topic or "default"
    if not partition_folder(where, topic, partition).is_dir():
        raise click.UsageError(nothing_there(where, topic, partition))
    done = library.repair(where, topic=topic, partition=partition)
    for path in done.kept:
        click.echo(f"rewritten; the damaged file is kept as {path}")
    if done.lives:
        click.echo(f"the sequence numbers of {done.lives} producers with a life are forgotten; "
                   "their lives are kept")
    if not done.kept:
        click.echo("nothing to repair")


@journal.command()
@WHERE
@click.argument("file", type=click.Path(dir_okay=False))
@TOPIC
@PARTITION
@click.option("--from", "start", type=click.IntRange(0), metavar="OFFSET",
              help="Start at this offset.")
@click.option("--columns", "wanted", default="key,value,topic,partition,offset,timestamp",
              show_default=True, help="Comma-separated; also available: headers, producer, "
              "sequence, sent and life.")
@GAPS
@OPTION
@for_client_sockets
def export(where: str, file: str, topic: str | None, partition: int, start: int | None,
           wanted: str, gaps: str, options: dict[str, Any]) -> None:
    """Export a partition to a Parquet FILE, up to its current end."""
    from mqcore.journal import arrow

    arrow.library()
    import pyarrow.parquet as parquet

    names = tuple(wanted.split(","))
    schema = arrow.schema(names)
    part = f"{file}.part"
    with opened(where, topic, partition, options, gaps=gaps) as reader, progress() as bar:
        first = reader.first if start is None else start
        end = reader.end
        if first > end:
            raise UsageError(f"message {first} is beyond the end of the journal, {end}")
        task = bar.add_task("exporting", total=end - first)
        count = 0
        with parquet.ParquetWriter(part, schema) as out:
            for group in row_groups(told(reader.batches(first, end, gaps=way_past(gaps)), first)):
                out.write_table(library_table(group, names))
                count += sum(map(len, group))
                bar.advance(task, sum(map(len, group)))
    os.replace(part, file)
    note(f"{count} messages")


def row_groups(walk: Iterator[Any], size: int = 32 << 20) -> Iterator[list[Any]]:
    """Group batches to about this size, so that small blocks do not become row groups."""
    group: list[Any] = []
    held = 0
    for records in walk:
        group.append(records)
        held += records.size
        if held >= size:
            yield group
            group, held = [], 0
    if group:
        yield group


def library_table(group: list[Any], names: tuple[str, ...]) -> Any:
    import pyarrow

    return pyarrow.Table.from_batches([records.to_arrow(names) for records in group])
