"""Staged files and what is published of them, without a Spark session."""

import os
import time

import pyarrow as pa

from mqcore import journal
from mqcore.spark import ledger
from mqcore.spark.options import WRITE, check
from mqcore.spark.staging import HOME, Stage

KEYS = ("a", 0), ("a", 1), ("b", 0)


class Crash(BaseException):
    """No code catches it."""


def stage(where, query, batch, label, n=30, task=0):
    """n rows, over three partitions, in two Arrow batches."""
    options = check({"path": str(where), "partitions": "2"}, WRITE)
    rows = [{"value": b"%s %d" % (label, i), "topic": KEYS[i % 3][0], "partition": KEYS[i % 3][1],
             "key": b"k%d" % i if i % 4 else None} for i in range(n)]
    schema = pa.schema([("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32()),
                        ("key", pa.binary())])
    batches = [pa.RecordBatch.from_pylist(part, schema) for part in (rows[:n // 2], rows[n // 2:])]
    return Stage(options, query, batch, task).write(iter(batches)).files


def stored(where):
    found = {}
    for topic, partition, _ in journal.store.topic_names.partitions(where):
        if topic != HOME:
            with journal.open(where, topic=topic, partition=partition) as log:
                found[topic, partition] = [
                    (m, records.key(i), int(records.sequences[i]))
                    for records in log.batches() for i, m in enumerate(records)]
    return found


def expected(*batches):
    """(label, n) of each batch that was published -> what is stored."""
    found = {key: [] for key in KEYS}
    for label, n in batches:
        for i in range(n):
            rows = found[KEYS[i % 3]]
            rows.append((b"%s %d" % (label, i), b"k%d" % i if i % 4 else None, len(rows)))
    return found


def publish(where, query, batch, files):
    return ledger.publish(str(where), query, batch, files, 5.0)


def left(where):
    return [path for path in (where / HOME / "staging").rglob("*") if path.is_file()]


def entries(where):
    return sorted(path.name for path in (where / HOME / "ledger").glob("*.json"))


def aged(folder, seconds):
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (time.time() - seconds,) * 2)


def cut_short(monkeypatch, where, query, label, topics, after=1, n=3, error=Crash):
    """A publication of n rows to each of the topics that ends when `after` of them have theirs."""
    files = stage_to(where, query, label, n, topics)
    real, calls = ledger._append, []

    def crashing(*args):
        calls.append(args)
        if len(calls) == after + 1:
            raise error
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "_append", crashing)
        try:
            publish(where, query, 0, files)
        except Crash:
            return files
    raise AssertionError("it was not cut short")


def stage_to(where, query, label, n, topics, batch=0):
    """n rows to each of the topics, two in an Arrow batch."""
    rows = [{"value": b"%s %d" % (label, i), "topic": topic} for topic in topics for i in range(n)]
    schema = pa.schema([("value", pa.binary()), ("topic", pa.string())])
    options = check({"path": str(where)}, WRITE)
    whole = pa.RecordBatch.from_pylist(rows, schema)
    return Stage(options, query, batch, 0).write(
        whole.slice(i, 2) for i in range(0, len(rows), 2)).files


def values(where, topic):
    try:
        with journal.open(where, topic=topic) as log:
            return [m for records in log.batches() for m in records]
    except journal.JournalNotFound:
        return []
