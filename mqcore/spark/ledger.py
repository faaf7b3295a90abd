"""Publishing what is staged, exactly once.

The ledger of a query says what is being published: a batch, its staged files, and for each journal
the offset and sequence number at which it begins. It is durable before the first message is
appended, and from then on the batch will be published, from these files, whatever a later attempt
at the same batch staged. Every message carries a stamp (producer: the query and the partition), so
after a crash at any byte the journal itself tells how many of them it has; the rest follows. A
batch that the ledger calls done is not published again.

Queries meet only in a partition that both write. There the next one first completes what another's
crash or failure cut short. If it cannot, the log says so, and it goes on.

Spark runs a batch job that failed again under another name. What it has appended is taken back,
unless some is durable by then. If nothing of it is stored, its entry goes. Else the entry stays
until the job is whole, and a job with the same messages is taken for its second run; so is one with
the same jobId.
"""

from __future__ import annotations

import hashlib
import logging
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mqcore import journal
from mqcore.errors import Error
from mqcore.journal.store.snapshot import highest_of
from mqcore.spark.columns import halves
from mqcore.spark.entries import (
    alone,
    file_of,
    forget,
    home_of,
    is_job,
    is_named,
    keep_named,
    load,
    others,
    patient,
    read,
)
from mqcore.spark.entries import store as _store
from mqcore.spark.rows import column, parts_of, stamped, tombstones_too
from mqcore.spark.staging import HOME, File, StagedFilesLost, fault_of, folder_of
from mqcore.spark.sweep import discard, sweep, sweep_abandoned

__all__ = ["discard", "publish"]
_log = logging.getLogger("mqcore.spark")
TOGETHER = 100          # writers open at a time; each has four descriptors
Key = tuple[str, int]   # topic and partition


def publish(path: str, query: str, batch: int, files: list[File], timeout: float,
            compression: str | None = None) -> bool:
    """False: this batch has been published before. First, whatever a crash cut short is completed,
    of this query, and of others in the partitions that this batch goes to. compression: of the
    journals' writers."""
    home = home_of(path)
    with alone(home, query, timeout):
        fresh = _publish(path, home, query, batch, files, timeout, compression)
        try:
            _leave(home, query)
            sweep(path, query, batch, files)
            sweep_abandoned(home)
        except Exception as error:      # it is published: raising would say that it is not
            _log.warning("leftovers of %s stay: %s", query, error)
    return fresh


def _publish(path: str, home: Path, query: str, batch: int, files: list[File],
             timeout: float, compression: str | None) -> bool:
    entry = load(home, query)
    if entry["state"] == "publishing":
        try:
            _finish(path, entry, timeout)
        except StagedFilesLost:
            if not _give_up(path, entry):
                raise
        entry = load(home, query)
    last: int = entry["batch"]
    if batch <= last:
        _log.info("batch %d of %s has been published before", batch, query)
        return False
    _check_staged(path, query, batch, files, "nothing was published", "run the job again")
    entry = {**entry, "batch": batch, "state": "publishing", "files": [list(f) for f in files],
             "compression": compression}
    if is_job(query) and _ran_before(path, home, entry, timeout):
        return False
    _finish_others(path, home, query, set(_targets(entry)), timeout)
    try:
        _begin(path, entry, timeout)
    except Exception as error:
        if is_job(query) or is_named(query):
            _failed(path, home, query, error)
        raise
    return True


def _leave(home: Path, query: str) -> None:
    """Of a job that is done: nothing, or what tells its second run."""
    if is_job(query):
        forget(home, query)
    elif is_named(query):
        keep_named(home, query)


def _check_staged(path: str, query: str, batch: int, files: list[File], what: str,
                  advice: str) -> None:
    folder = folder_of(path, query, batch)
    missing = [file.name for file in files if not (folder / file.name).is_file()]
    if missing:
        raise StagedFilesLost(f"{len(missing)} staged files are missing from {folder}, "
                              f"{missing[0]} among them; {what}", hint=advice)
    for file in files:
        fault = fault_of(folder / file.name, file.crc)
        if fault is not None:
            raise StagedFilesLost(f"the staged file {folder / file.name} {fault}; {what}",
                                  hint=advice)


# -- what others left ----------------------------------------------------------------------------


def _finish_others(path: str, home: Path, query: str, mine: set[Key], timeout: float) -> None:
    """Complete publications that a crash or a failure cut short and that write a partition of
    `mine`. Nothing is raised: what is in this query's way, too, its own steps will meet."""
    for file in others(home, query):
        try:
            entry = read(file)
            if entry["state"] == "publishing" and mine & set(_targets(entry)):
                _finish_other(path, home, entry["query"], mine, timeout)
            elif entry["state"] == "done" and "marks" not in entry:
                _tidy(path, home, entry["query"])
        except FileNotFoundError:       # done meanwhile
            continue
        except Exception as error:
            _log.error("what %s was publishing could not be completed, and waits: %s", file.stem,
                       error)


def _finish_other(path: str, home: Path, query: str, mine: set[Key], timeout: float) -> None:
    with ExitStack() as stack:
        try:
            stack.enter_context(alone(home, query, 0))
        except journal.JournalLocked:       # it lives, and is publishing
            return
        entry = load(home, query)
        if entry["state"] == "publishing":
            if is_job(query):               # a second run of it may follow
                with suppress(FileNotFoundError, StagedFilesLost):
                    entry["marks"] = _marks(path, entry)
            try:
                _finish(path, entry, timeout, mine)
            except StagedFilesLost:
                if not _give_up(path, entry):
                    raise
                if is_job(query):
                    forget(home, query)
        if is_named(query):
            keep_named(home, query)


def _give_up(path: str, entry: dict[str, Any]) -> bool:
    """Withdraw what the ledger promised to publish, if staged files are lost and none of it is
    stored."""
    if any(_there(path, entry, key) or _may_be_gone(path, entry, key) for key in _targets(entry)):
        return False
    _store(path, {**entry, "batch": entry["batch"] - 1, "state": "done", "files": [],
                  "starts": {}})
    _log.warning("batch %d of %s is given up: its staged files are lost, and nothing of it was "
                 "published", entry["batch"], entry["query"])
    return True


def _may_be_gone(path: str, entry: dict[str, Any], key: Key) -> bool:
    """Whether retention may have removed messages of the batch."""
    with journal.open(path, topic=key[0], partition=key[1]) as reader:
        begun: int = entry["starts"][_name(*key)]
        return reader.first > begun


def _tidy(path: str, home: Path, query: str) -> None:
    """Of a job that is done, whose driver died before it could do this. Spark may call it failed,
    so a second run may follow."""
    if not is_job(query) and not is_named(query):
        return
    with suppress(journal.JournalLocked), alone(home, query, 0):
        entry = load(home, query)
        if entry["state"] == "done" and "marks" not in entry:
            try:
                if is_named(query):
                    keep_named(home, query)
                elif entry["files"]:
                    _store(path, {**entry, "marks": _marks(path, entry), "files": []})
                else:
                    forget(home, query)
            except (FileNotFoundError, StagedFilesLost):
                forget(home, query)
            sweep(path, query, entry["batch"], [File(*row) for row in entry["files"]])


# -- jobs that failed, and their second run ------------------------------------------------------


def _failed(path: str, home: Path, query: str, error: Exception) -> None:
    """A job's publication raised. If nothing of it is stored, it will never be. Else it will be
    whole: raises JournalError that says so."""
    try:
        entry = load(home, query)
        if entry["state"] != "publishing":
            return
        total = sum(row[3] for row in entry["files"])
        there = sum(_there(path, entry, key) for key in _targets(entry))
        if there == 0:
            forget(home, query)
            return
        stored = f"{there} of its {total} messages are stored"
    except (Error, OSError) as other:
        stored = f"how many of its messages are stored is not known ({other})"
    raise journal.JournalError(
        f"the job failed while it was published: {error}; {stored}",
        hint="remove the cause, then run the job again: the same messages, or the same jobId, are "
             "recognized and completed, not written twice. The next write to the same partitions "
             f"completes it, too. Until then keep {Path(path) / HOME}") from error


def _ran_before(path: str, home: Path, entry: dict[str, Any], timeout: float) -> bool:
    """Whether a job that failed, or whose driver was killed, held exactly these messages. It is
    whole on return, and this one is its second run."""
    marks = cache(lambda: _marks(path, entry))      # reads everything that is staged
    for file in others(home, entry["query"]):
        if not is_job(file.stem):
            continue
        with ExitStack() as stack:
            try:
                stack.enter_context(alone(home, file.stem, 0))
                other = read(file)
                if not _same(path, entry, other, marks):
                    continue
            except journal.JournalLocked:       # it lives, and is publishing
                continue
            except (journal.JournalCorrupt, StagedFilesLost, OSError) as error:
                _log.warning("%s cannot be compared: %s", file, error)
                continue
            if other["state"] == "publishing":
                # its marks outlive its staged files: this driver may die before it forgets it, and
                # a third run follow
                _finish(path, {**other, "marks": marks()}, timeout)
            forget(home, file.stem)
            _log.info("%s is the second run of %s", entry["query"], file.stem)
            return True
    return False


def _same(path: str, entry: dict[str, Any], other: dict[str, Any],
          marks: Callable[[], dict[str, str]]) -> bool:
    """marks: of the entry."""
    if "marks" in other:
        same: bool = other["marks"] == marks()
    else:
        same = _shape(entry) == _shape(other) and marks() == _marks(path, other)
    return same


def _shape(entry: dict[str, Any]) -> dict[Key, int]:
    """How many messages go where."""
    return {key: sum(f.rows for f in files) for key, files in _targets(entry).items()}


def _marks(path: str, entry: dict[str, Any]) -> dict[str, str]:
    """A hash of the messages for each partition, however they are cut into batches and files."""
    return {_name(*key): _mark(path, entry, files) for key, files in _targets(entry).items()}


def _mark(path: str, entry: dict[str, Any], files: list[File]) -> str:
    hashes: dict[str, Any] = {}

    def add(name: str, array: Any) -> None:
        hashes.setdefault(name, hashlib.blake2b(digest_size=16)).update(np.ascontiguousarray(array))

    for batch in _staged(path, entry, files):
        for name in ("value", "key"):
            found = column(batch, name)
            if found is not None:
                data, ends = parts_of(found)
                add(name, data[ends[0]:ends[-1]])
                add(f"{name} lengths", np.diff(ends))
                add(f"{name} valid", found.is_valid().to_numpy(zero_copy_only=False))
        times = column(batch, "timestamp")
        if times is not None:
            add("timestamp", times.view("int64").fill_null(-1).to_numpy(zero_copy_only=False))
    found = hashlib.blake2b(digest_size=16)
    for name in sorted(hashes):
        found.update(f"{name}={hashes[name].hexdigest()};".encode())
    return found.hexdigest()


# -- appending -----------------------------------------------------------------------------------


def _open(stack: ExitStack, path: str, entry: dict[str, Any], key: Key, timeout: float) -> Any:
    topic, partition = key

    def attempt() -> Any:
        return journal.open(path, "a", topic=topic, partition=partition, fsync="never",
                            stamps=True, compression=entry.get("compression"))
    return stack.enter_context(patient(timeout, journal.JournalLocked, attempt))


def _targets(entry: dict[str, Any]) -> dict[Key, list[File]]:
    """In an order, so that two queries do not wait for each other's journals."""
    found: dict[Key, list[File]] = {}
    for row in entry["files"]:
        file = File(*row)
        found.setdefault((file.topic, file.partition), []).append(file)
    return dict(sorted(found.items()))


def _groups(targets: dict[Key, list[File]]) -> list[list[Key]]:
    """Journals that are open together."""
    most = max(1, min(TOGETHER, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 8))
    keys = list(targets)
    return [keys[i:i + most] for i in range(0, len(keys), most)]


def _begin(path: str, entry: dict[str, Any], timeout: float) -> None:
    """All journals are opened before the ledger promises anything, so that one that another process
    has open is met before. If they are few, they stay open."""
    targets = _targets(entry)
    groups = _groups(targets)
    with ExitStack() as few:
        writers: dict[Key, Any] = {}
        for group in groups:
            with ExitStack() as stack:
                writers = {key: _open(stack, path, entry, key, timeout) for key in group}
                entry["starts"].update({_name(*key): writers[key].next for key in group})
                if len(groups) == 1:
                    few.push(stack.pop_all())
        _store(path, entry)
        for group in groups:
            with ExitStack() as stack:
                if len(groups) > 1:
                    writers = {key: _open(stack, path, entry, key, timeout) for key in group}
                _append_all(path, entry, targets, {key: writers[key] for key in group})
    _done(path, entry)


def _append_all(path: str, entry: dict[str, Any], targets: dict[Key, list[File]],
                writers: dict[Key, Any]) -> None:
    """Into each of these journals, durable on return. Readers see nothing of it before all of them
    have it. If one fails, what no reader can have seen is taken back."""
    for writer in writers.values():
        writer._hold()
    try:
        for key, writer in writers.items():
            _append(path, entry, key, targets[key], writer, 0)
        for writer in writers.values():     # before any of them shows what it has
            writer.flush()
        for writer in writers.values():
            writer.commit()
    except Exception:
        for writer in writers.values():
            writer._undo()
        raise


def _finish(path: str, entry: dict[str, Any], timeout: float, mine: set[Key] | None = None) -> None:
    """The rest of a publication that was cut short. mine: other partitions are not waited for. One
    that fails does not keep the next one from being completed."""
    failed: Exception | None = None
    for key, files in _targets(entry).items():
        try:
            _finish_one(path, entry, key, files, timeout if mine is None or key in mine else 0)
        except Exception as error:
            failed = failed or error
    if failed is not None:
        raise failed
    _done(path, entry)
    sweep(path, entry["query"], entry["batch"], [File(*row) for row in entry["files"]])


def _finish_one(path: str, entry: dict[str, Any], key: Key, files: list[File],
                timeout: float) -> None:
    with ExitStack() as stack:
        writer = _open(stack, path, entry, key, timeout)
        there, total = _there(path, entry, key), sum(f.rows for f in files)
        if there < total:
            _check_staged(
                path, entry["query"], entry["batch"], files,
                f"{there} of {total} messages for {_name(*key)} are stored",
                "restore the files. If they are lost for good, compare the target with the source, "
                f"remove {file_of(Path(path) / HOME, entry['query'])}, and start the query with a "
                "new checkpoint at the right startingOffsets")
            _append(path, entry, key, files, writer, there)
        writer.commit()


def _done(path: str, entry: dict[str, Any]) -> None:
    for key, files in _targets(entry).items():
        name = _name(*key)
        entry["sequences"][name] = entry["sequences"].get(name, 0) + sum(f.rows for f in files)
    # the files of a job tell its second run from others, should the driver die now
    files = entry["files"] if is_job(entry["query"]) and "marks" not in entry else []
    _store(path, {**entry, "state": "done", "files": files, "starts": {}})


def _there(path: str, entry: dict[str, Any], key: Key) -> int:
    """How many of the batch's messages the journal has, or had. They are appended in order, so it
    is their highest sequence number that tells."""
    name = _name(*key)
    begun: int = entry["sequences"].get(name, 0)
    mine, count = producer(entry["query"], *key), 0
    with journal.open(path, topic=key[0], partition=key[1], durable=False) as reader:
        start = max(reader.first, min(entry["starts"][name], reader.end))
        for records in reader.batches(start, gaps="skip"):
            if records.producers is not None and records.sequences is not None:
                numbers = records.sequences[records.producers == np.uint64(mine)]
                if len(numbers):
                    count = max(count, int(numbers.max()) + 1 - begun)
        return max(count, highest_of(reader.path, mine) + 1 - begun)


def _append(path: str, entry: dict[str, Any], key: Key, files: list[File], writer: Any,
            skip: int) -> None:
    """The batch's messages from the skip-th on."""
    sequence = entry["sequences"].get(_name(*key), 0)
    sender = producer(entry["query"], *key)
    for batch in _staged(path, entry, files):
        n = batch.num_rows
        if skip < n:
            append_batch(writer, batch.slice(skip), sender, sequence + skip)
        skip -= min(n, skip)
        sequence += n


def _staged(path: str, entry: dict[str, Any], files: list[File]) -> Iterator[Any]:
    """Arrow batches of these files."""
    import pyarrow as pa

    folder = folder_of(path, entry["query"], entry["batch"])
    for file in files:
        place = folder / file.name
        try:
            with pa.memory_map(str(place)) as mapped, pa.ipc.open_stream(mapped) as stream:
                yield from stream
        except FileNotFoundError:
            raise
        except (pa.ArrowInvalid, OSError) as error:
            raise StagedFilesLost(f"the staged file {place} is damaged: {error}",
                                  hint="restore the file, or run the job again") from error


def append_batch(writer: Any, batch: Any, sender: int, sequence: int) -> None:
    """Rows of value, and key and timestamp if they are there, stamped."""
    now = time.time_ns() // 1000
    times = column(batch, "timestamp")
    when = np.full(batch.num_rows, now) if times is None else \
        times.view("int64").fill_null(now).to_numpy(zero_copy_only=False)
    when = when.view("datetime64[us]")
    values = column(batch, "value")
    if values.null_count:
        at = 0
        for piece in halves(batch, 1 << 30):        # whose offsets are int32
            end = at + piece.num_rows
            writer.append_records(
                tombstones_too(piece, when[at:end], sender, sequence + at, now))
            at = end
        return
    data, ends = stamped(*parts_of(values), sender, sequence, now)
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


def producer(query: str, topic: str, partition: int) -> int:
    """The 64 bits in the stamps; never 0."""
    name = f"{query}|{_name(topic, partition)}".encode()
    return int.from_bytes(hashlib.sha256(name).digest()[:8], "little") or 1


def _name(topic: str, partition: int) -> str:
    return f"{topic}|{partition}"
