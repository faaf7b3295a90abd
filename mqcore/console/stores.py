"""Journals with their consumer groups, and Spark's streaming queries by their checkpoints."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mqcore import journal
from mqcore.base.waits import Event
from mqcore.console import requests
from mqcore.console.tables import clean, cut
from mqcore.console.worker import Worker
from mqcore.errors import Error

EVERY = 2.0             # seconds between two looks
FIRST = 3.0             # seconds for which a request waits for the first look
PARTITIONS = 500        # of all journals together; the others are counted
GROUPS = 100            # of a partition
ANSWER = 2.0            # seconds to wait for a journal server
LARGEST = 1 << 20       # bytes of a checkpoint's file that are read
JOURNAL_SORTS = ("lag", "where", "topic", "partition", "messages", "rate", "group")
SPARK_SORTS = ("query", "batch", "behind", "age")


class Stores:
    """What the folders and addresses hold that the console was given."""

    def __init__(self, journals: Iterable[str], checkpoints: Iterable[str], ending: Event) -> None:
        self._journals = list(journals)
        self._checkpoints = [Path(path) for path in checkpoints]
        self.has_journals, self.has_spark = bool(self._journals), bool(self._checkpoints)
        self._readers: dict[tuple[str, str, int], Any] = {}
        self._ends: dict[tuple[str, str, int], tuple[float, int]] = {}
        self._journal_rows: list[dict[str, Any]] = []
        self._spark_rows: list[dict[str, Any]] = []
        self._left_out = 0
        self._ending = ending
        self.worker = Worker("stores", self._look, self._rest, EVERY, ending)

    def stop(self) -> None:
        self.worker.stop()

    def journals(self, asked: requests.Journals) -> dict[str, Any]:
        self._wait(self.has_journals)
        rows = self._journal_rows
        return {**cut(rows, asked, JOURNAL_SORTS, lambda row: (
            f"{row['where']} {row['topic']} {row['partition']} {row['group']}")),
            "left_out": self._left_out}

    def spark(self, asked: requests.Spark) -> dict[str, Any]:
        self._wait(self.has_spark)
        return cut(self._spark_rows, asked, SPARK_SORTS, lambda row: str(row["query"]))

    def _wait(self, there: bool) -> None:
        if there:
            self.worker.want()
            self.worker.looked(FIRST)

    # -- the thread --------------------------------------------------------------------------------

    def _look(self) -> None:
        rows: list[dict[str, Any]] = []
        known: set[tuple[str, str, int]] = set()
        left_out = 0
        for where in self._journals:
            try:
                for found in journal.list_partitions(where, **patience(where)):
                    key = where, found.topic, found.partition
                    if len(known) >= PARTITIONS:
                        left_out += 1
                    elif not self._ending.is_set():
                        known.add(key)
                        rows += self._partition(key)
            except (Error, OSError) as error:
                rows.append(row_of((where, "", 0), error=error))
        for key in self._readers.keys() - known:
            self._readers.pop(key).close()
            self._ends.pop(key, None)
        self._journal_rows, self._left_out = rows, left_out
        self._spark_rows = [query(path) for path in self._checkpoints]

    def _partition(self, key: tuple[str, str, int]) -> list[dict[str, Any]]:
        where, topic, partition = key
        try:
            if key not in self._readers:
                self._readers[key] = journal.open(where, topic=topic, partition=partition,
                                                  **patience(where))
            reader = self._readers[key]
            first, end = reader.first, reader.end
            groups = sorted(reader.groups().items())
        except (Error, OSError) as error:
            if key in self._readers:
                self._readers.pop(key).close()
            return [row_of(key, error=error)]
        then, before = self._ends.get(key, (time.monotonic(), end))
        self._ends[key] = now, _ = time.monotonic(), end
        rate = (end - before) / (now - then) if now - then > 0.01 else 0.0
        common = {"messages": end - first, "first": first, "end": end, "rate": max(0.0, rate)}
        rows = [row_of(key, group=clean(name), offset=offset, lag=end - max(first, offset),
                       **common) for name, offset in groups[:GROUPS]]
        return rows or [row_of(key, **common)]

    def _rest(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()
        self._ends.clear()


def patience(where: str) -> dict[str, Any]:
    """The options of a reader: a folder has no time-out."""
    return {"timeout": ANSWER} if "://" in where else {}


def row_of(key: tuple[str, str, int], error: Any = None, **more: Any) -> dict[str, Any]:
    where, topic, partition = key
    return {"where": clean(where), "topic": clean(topic), "partition": partition, "group": "",
            "lag": None, "offset": None, "messages": None, "rate": None,
            "error": clean(str(error)) if error is not None else "", **more}


# -- Spark -----------------------------------------------------------------------------------------


def query(path: Path) -> dict[str, Any]:
    """A Structured Streaming query by its checkpoint: Spark writes the file offsets/N when it plans
    batch N, and commits/N when the batch is done. Their first line is a version, the second a JSON
    object of facts, each further one a source's offset."""
    row: dict[str, Any] = {"query": clean(path.name), "where": clean(str(path)), "batch": None,
                           "behind": None, "age": None, "sources": [], "error": ""}
    try:
        planned, done = latest(path / "offsets"), latest(path / "commits")
        if planned is None:
            return {**row, "error": "no batch has been planned"}
        with open(path / "offsets" / str(planned), "rb") as file:
            lines = file.read(LARGEST).decode(errors="replace").splitlines()
        facts = json.loads(lines[1]) if len(lines) > 1 else {}
        made = facts.get("batchTimestampMs", 0) / 1000
        return {**row, "batch": planned, "behind": planned - (-1 if done is None else done),
                "age": max(0.0, time.time() - made) if made else None,
                "watermark": facts.get("batchWatermarkMs", 0) / 1000,
                "sources": [clean(line, 300) for line in lines[2:10]]}
    except Exception as error:      # such as numbers that no float holds
        return {**row, "error": clean(f"cannot read the checkpoint: {error}")}


def latest(folder: Path) -> int | None:
    """The largest number that is a file's name."""
    try:
        return max((int(path.name) for path in folder.iterdir() if path.name.isdecimal()),
                   default=None)
    except FileNotFoundError:
        return None
