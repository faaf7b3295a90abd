"""The journal's small state: files that are replaced, or one SQLite database.

    python perf/small_state.py [ROUNDS]

Both kinds in alternating rounds on the same disk, in TMPDIR. The rows: a consumer group's commit,
durable on return; the same by four processes at once, each with a group and a partition of its own;
the state of one partition read by a fresh look, as at an opening. SQLite is measured with its
rollback journal and with WAL, both with synchronous=FULL, and an open connection for the commits.
The decision that this was measured for is in docs/inside/decisions.md.
"""

from __future__ import annotations

import multiprocessing
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from mqcore.journal.store import commits, place

COMMITS = 200           # in a round
GROUPS = 10             # of a partition
PROCESSES = 4
LOOKS = 200


class Files:
    """What the journal does: a file for each group."""

    def __init__(self, where: Path, partition: int) -> None:
        self.folder = where / "files" / "topic" / str(partition)
        place.make_folder(self.folder)

    def commit(self, group: str, offset: int) -> None:
        commits.commit(self.folder, group, offset)

    def look(self) -> dict[str, int]:
        return place.groups(self.folder)


class Database:
    """One for the whole journal; mode: of its journal."""

    mode = ""

    def __init__(self, where: Path, partition: int) -> None:
        self.path, self.partition = where / f"{self.mode}.db", partition
        self.db = self.connected()
        with self.db:
            self.db.execute(f"PRAGMA journal_mode={self.mode}")
            self.db.execute("CREATE TABLE IF NOT EXISTS groups (topic TEXT, partition INTEGER, "
                            "name TEXT, at INTEGER, PRIMARY KEY (topic, partition, name))")

    def connected(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=60)
        db.execute("PRAGMA synchronous=FULL")
        return db

    def commit(self, group: str, offset: int) -> None:
        with self.db:
            self.db.execute("INSERT OR REPLACE INTO groups VALUES ('topic', ?, ?, ?)",
                            (self.partition, group, offset))

    def look(self) -> dict[str, int]:
        db = self.connected()
        try:
            return dict(db.execute("SELECT name, at FROM groups WHERE topic = 'topic' "
                                   "AND partition = ?", (self.partition,)))
        finally:
            db.close()


class Rollback(Database):
    mode = "DELETE"


class Wal(Database):
    mode = "WAL"


def commit_many(kind: type[Files] | type[Database], where: Path, partition: int) -> float:
    """Seconds for each."""
    state = kind(where, partition)
    started = time.perf_counter()
    for i in range(COMMITS):
        state.commit(f"group{i % GROUPS}", i)
    return (time.perf_counter() - started) / COMMITS


def side_by_side(kind: type[Files] | type[Database], where: Path) -> float:
    kind(where, 0)
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        pool.starmap(time.sleep, [(0.1,)] * PROCESSES)      # they are there
        each = pool.starmap(commit_many, [(kind, where, n) for n in range(PROCESSES)], chunksize=1)
    return max(each) / PROCESSES


def looks(kind: type[Files] | type[Database], where: Path) -> float:
    state = kind(where, 0)
    started = time.perf_counter()
    for _ in range(LOOKS):
        assert len(state.look()) == GROUPS
    return (time.perf_counter() - started) / LOOKS


def main(rounds: int) -> None:
    kinds = Files, Rollback, Wal
    rows: dict[str, Callable[[type, Path], float]] = {
        "a group's commit": lambda kind, where: commit_many(kind, where, 0),
        f"the same, {PROCESSES} processes": side_by_side,
        "a partition's groups, read": looks}
    with tempfile.TemporaryDirectory() as folder:
        found: dict[tuple[str, type], list[float]] = {}
        for _ in range(rounds):
            for name, row in rows.items():
                for kind in kinds:
                    found.setdefault((name, kind), []).append(row(kind, Path(folder)))
    print("us, median of", rounds, *(kind.__name__ for kind in kinds), sep="\t")
    for name in rows:
        print(name, *(f"{statistics.median(found[name, kind]) * 1e6:.0f}" for kind in kinds),
              sep="\t")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 5)
