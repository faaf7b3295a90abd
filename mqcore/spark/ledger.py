"""Publishing what is staged, exactly once.

The ledger of a query says what is being published: a batch, its staged files, and for each journal
the offset and sequence number at which it begins. It is durable before the first message is
appended, and from then on the batch will be published, from these files, whatever a later attempt
at the same batch staged. Every message carries a stamp (producer: the query and the partition), so
after a crash at any byte the journal itself tells how many of them it has; the rest follows. A
batch that the ledger calls done is not published again.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from mqcore import journal
from mqcore.journal.stamp import MAGIC, SIZE
from mqcore.journal.store.place import sync_folder
from mqcore.spark.rows import column, parts_of
from mqcore.spark.staging import HOME, File, folder_of

_log = logging.getLogger("mqcore.spark")
ABANDONED = 7 * 86400.0     # seconds after which staged files are given up
JOB = "job-"            # what the names of batch jobs begin with; a stream's query is a UUID
STAMP = np.dtype([("magic", "S4"), ("zero", "<u4"), ("producer", "<u8"), ("sequence", "<u8"),
                  ("time", "<i8")])


def publish(path: str, query: str, batch: int, files: list[File], timeout: float) -> bool:
    """False: this batch has been published before. First, whatever a crash cut short is finished,
    of this query and of others."""
    with _alone(path, timeout) as home:
        _finish_others(path, home, timeout)
        entry = _load(home, query)
        fresh: bool = batch > entry["batch"]
        if fresh:
            _check_staged(path, query, batch, files)
            _begin(path, {**entry, "batch": batch, "state": "publishing",
                          "files": [list(file) for file in files]}, timeout)
        _sweep(path, query, batch)
        if _is_job(query):
            _forget(home, query)
        _sweep_abandoned(home)
    return fresh


def _check_staged(path: str, query: str, batch: int, files: list[File]) -> None:
    """Before the ledger promises to publish them."""
    folder = folder_of(path, query, batch)
    missing = [file.name for file in files if not (folder / file.name).is_file()]
    if missing:
        raise journal.JournalError(f"{len(missing)} staged files are missing from {folder}, "
                                   f"{missing[0]} among them; nothing was published",
                                   hint="run the job again")


def _finish_others(path: str, home: Path, timeout: float) -> None:
    for file in sorted((home / "ledger").glob("*.json")):
        try:
            entry = json.loads(file.read_text())
            state, query = entry["state"], entry["query"]
        except (ValueError, KeyError, TypeError, OSError) as error:
            _log.warning("%s is no entry of the ledger, and is left alone: %r", file, error)
            continue
        if state == "publishing":
            _finish(path, entry, timeout)
        if _is_job(query):      # of a driver that died before it could remove the entry
            _forget(home, query)


def _is_job(query: str) -> bool:
    """A batch job: its name is never used again, so nothing need be known of one that is done."""
    return query.startswith(JOB)


def _forget(home: Path, query: str) -> None:
    (home / "ledger" / f"{query}.json").unlink(missing_ok=True)


def discard(path: str, query: str, batch: int, files: list[File]) -> None:
    """Staged files of an attempt that will not be published."""
    entry = _load(Path(path) / HOME, query)
    if entry["state"] == "publishing" and entry["batch"] == batch:
        return          # decided: the next publication finishes it
    for file in files:
        shutil.rmtree((folder_of(path, query, batch) / file.name).parent, ignore_errors=True)


@contextmanager
def _alone(path: str, timeout: float) -> Iterator[Path]:
    home = Path(path) / HOME
    (home / "ledger").mkdir(parents=True, exist_ok=True)
    for folder in (home / "ledger", home, Path(path)):
        sync_folder(folder)
    fd = os.open(home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        patient(timeout, BlockingIOError, lambda: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB))
        yield home
    finally:
        os.close(fd)


def patient(timeout: float, kind: type[Exception], call: Any) -> Any:
    """call(), again and again for so many seconds as long as it raises `kind`."""
    end = time.monotonic() + timeout
    while True:
        try:
            return call()
        except kind:
            if time.monotonic() > end:
                raise
        time.sleep(0.05)


def _load(home: Path, query: str) -> dict[str, Any]:
    try:
        entry: dict[str, Any] = json.loads((home / "ledger" / f"{query}.json").read_text())
        return entry
    except FileNotFoundError:
        return {"version": 1, "query": query, "batch": -1, "state": "done", "files": [],
                "starts": {}, "sequences": {}}


def _store(path: str, entry: dict[str, Any]) -> None:
    """Durable on return, and never half."""
    target = Path(path) / HOME / "ledger" / f"{entry['query']}.json"
    fresh = target.with_suffix(".new")
    with open(fresh, "w") as file:
        json.dump(entry, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, target)
    sync_folder(target.parent)


def _open(stack: ExitStack, path: str, topic: str, partition: int, timeout: float) -> Any:
    def attempt() -> Any:
        return journal.open(path, "a", topic=topic, partition=partition, fsync="never",
                            stamps=True)
    return stack.enter_context(patient(timeout, journal.JournalLocked, attempt))


def _targets(entry: dict[str, Any]) -> dict[tuple[str, int], list[File]]:
    found: dict[tuple[str, int], list[File]] = {}
    for row in entry["files"]:
        file = File(*row)
        found.setdefault((file.topic, file.partition), []).append(file)
    return found


def _begin(path: str, entry: dict[str, Any], timeout: float) -> None:
    """The journals stay locked from here to the end, so what follows `starts` is ours at first."""
    targets = _targets(entry)
    with ExitStack() as stack:
        writers = {key: _open(stack, path, *key, timeout) for key in targets}
        entry["starts"] = {_name(*key): writer.next for key, writer in writers.items()}
        _store(path, entry)
        for key, writer in writers.items():
            _append(path, entry, key, targets[key], writer, 0)
    _done(path, entry)


def _finish(path: str, entry: dict[str, Any], timeout: float) -> None:
    """The rest of a publication that a crash cut short."""
    for key, files in _targets(entry).items():
        with ExitStack() as stack:
            writer = _open(stack, path, *key, timeout)
            _append(path, entry, key, files, writer, _there(path, entry, key))
    _done(path, entry)
    _sweep(path, entry["query"], entry["batch"])


def _done(path: str, entry: dict[str, Any]) -> None:
    for key, files in _targets(entry).items():
        name = _name(*key)
        entry["sequences"][name] = entry["sequences"].get(name, 0) + sum(f.rows for f in files)
    _store(path, {**entry, "state": "done", "files": [], "starts": {}})


def _there(path: str, entry: dict[str, Any], key: tuple[str, int]) -> int:
    """How many of the batch's messages the journal has. They are appended in order, so it is
    their highest sequence number that tells."""
    name = _name(*key)
    begun = entry["sequences"].get(name, 0)
    mine, count = producer(entry["query"], *key), 0
    with journal.open(path, topic=key[0], partition=key[1]) as reader:
        start = max(reader.first, min(entry["starts"][name], reader.end))
        for records in reader.batches(start):
            if records.producers is not None and records.sequences is not None:
                numbers = records.sequences[records.producers == np.uint64(mine)]
                if len(numbers):
                    count = max(count, int(numbers.max()) + 1 - begun)
    return count


def _append(path: str, entry: dict[str, Any], key: tuple[str, int], files: list[File],
            writer: Any, skip: int) -> None:
    """The batch's messages from the skip-th on, durable on return."""
    import pyarrow as pa

    sequence = entry["sequences"].get(_name(*key), 0)
    sender = producer(entry["query"], *key)
    folder = folder_of(path, entry["query"], entry["batch"])
    for file in files:
        with pa.memory_map(str(folder / file.name)) as mapped, pa.ipc.open_stream(mapped) as stream:
            for batch in stream:
                n = batch.num_rows
                if skip < n:
                    append_batch(writer, batch.slice(skip), sender, sequence + skip)
                skip -= min(n, skip)
                sequence += n
    writer.commit()


def append_batch(writer: Any, batch: Any, sender: int, sequence: int) -> None:
    """Rows of value, and key and timestamp if they are there, stamped."""
    now = time.time_ns() // 1000
    times = column(batch, "timestamp")
    when = np.full(batch.num_rows, now) if times is None else \
        times.view("int64").fill_null(now).to_numpy(zero_copy_only=False)
    when = when.view("datetime64[us]")
    data, ends = stamped(*parts_of(column(batch, "value"), "value"), sender, sequence, now)
    keys = column(batch, "key")
    if keys is None or keys.null_count == len(keys):
        writer.append_batch(data, ends, times=when)
        return
    key_data, key_ends = parts_of(keys)
    valid = keys.is_valid().to_numpy(zero_copy_only=False)
    cuts = [0, *(np.flatnonzero(np.diff(valid)) + 1).tolist(), len(valid)]
    for a, b in zip(cuts, cuts[1:], strict=False):      # runs with keys, runs without
        with_keys = {"keys": (key_data, key_ends[a:b + 1])} if valid[a] else {}
        writer.append_batch(data, ends[a:b + 1], times=when[a:b], **with_keys)


def stamped(data: Any, ends: Any, sender: int, sequence: int, now: int) -> tuple[Any, Any]:
    """The messages with a stamp in front of each."""
    n = len(ends) - 1
    starts = ends[:-1] - ends[0] + SIZE * np.arange(n)
    out = np.empty(int(ends[-1] - ends[0]) + SIZE * n, np.uint8)
    stamps = np.zeros(n, STAMP)
    stamps["magic"], stamps["producer"], stamps["time"] = MAGIC, sender, now
    stamps["sequence"] = sequence + np.arange(n)
    body = np.ones(len(out), bool)
    at = starts[:, None] + np.arange(SIZE)
    body[at] = False
    out[at] = stamps.view(np.uint8).reshape(n, SIZE)
    out[body] = data[ends[0]:ends[-1]]
    return out, np.append(starts, len(out)).astype(np.int64)


def producer(query: str, topic: str, partition: int) -> int:
    """The 64 bits in the stamps; never 0."""
    name = f"{query}|{_name(topic, partition)}".encode()
    return int.from_bytes(hashlib.sha256(name).digest()[:8], "little") or 1


def _name(topic: str, partition: int) -> str:
    return f"{topic}|{partition}"


def _sweep(path: str, query: str, batch: int) -> None:
    """Remove leftovers of attempts at this batch and at earlier ones. Other files stay. A file that
    cannot be removed does not fail a publication, whose messages are already stored."""
    folder = folder_of(path, query, batch).parent
    try:
        for old in list(folder.iterdir()):
            if old.name.isdecimal() and int(old.name) <= batch and old.is_dir():
                shutil.rmtree(old, ignore_errors=True)
        folder.rmdir()
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            _log.warning("%s: %s", folder, error)


def _sweep_abandoned(home: Path) -> None:
    """Remove leftovers of jobs and queries whose drivers were killed. No lock is held from the
    first task to the publication, so the files' age decides. Only files that the ledger promises to
    publish are needed for longer."""
    try:
        for folder in list((home / "staging").iterdir()):
            if folder.is_dir() and not folder.is_symlink() \
                    and time.time() - _touched(folder) > ABANDONED \
                    and _load(home, folder.name)["state"] != "publishing":
                shutil.rmtree(folder, ignore_errors=True)
    except (OSError, ValueError, KeyError, TypeError) as error:
        _log.warning("%s: %s", home / "staging", error)


def _touched(folder: Path) -> float:
    """When something below the folder changed last."""
    newest = os.stat(folder).st_mtime
    for where, folders, names in os.walk(folder):
        for name in (*folders, *names):
            with suppress(FileNotFoundError):
                newest = max(newest, os.lstat(os.path.join(where, name)).st_mtime)
    return newest


def check_home(path: str) -> str:
    """The folder of the journals, made if it is missing."""
    Path(path).mkdir(parents=True, exist_ok=True)
    return path
