"""Publishing what is staged, exactly once.

The ledger of a query says what is being published: a batch, its staged files, and for each journal
the offset and sequence number at which it begins. It is durable before the first message is
appended, and from then on the batch will be published, from these files, whatever a later attempt
at the same batch staged. Every message carries a stamp (producer: the query and the partition), so
after a crash at any byte the journal itself tells how many of them it has; the rest follows. A
batch that the ledger calls done is not published again.

If a publication fails while it runs, on a full disk say, what it has appended is taken back, unless
some of it is durable already. Then the next publication to the path finishes it, as after a crash.
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
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from mqcore import journal
from mqcore.errors import Error
from mqcore.journal.stamp import MAGIC, SIZE
from mqcore.journal.store.place import make_folder, sync_folder
from mqcore.spark.rows import column, parts_of
from mqcore.spark.staging import HOME, File, folder_of

_log = logging.getLogger("mqcore.spark")
ABANDONED = 86400.0     # seconds after which staged files are given up
AT_ONCE = 64            # journals that are open at the same time, four descriptors each
JOB = "job-"            # what the names of batch jobs begin with; a stream's query is a UUID
NAMED = "named-job-"    # and of those that the user has named
STAMP = np.dtype([("magic", "S4"), ("zero", "<u4"), ("producer", "<u8"), ("sequence", "<u8"),
                  ("time", "<i8")])


def publish(path: str, query: str, batch: int, files: list[File], timeout: float) -> bool:
    """False: this batch has been published before. First, what a crash cut short of this query is
    finished, and what others have left in the partitions that this batch writes; behind it, what
    others have left elsewhere."""
    with _alone(path, timeout) as home:
        entry = _load(home, query)
        if entry["state"] == "publishing":
            _finish(path, entry, timeout)
            entry = _load(home, query)
        fresh: bool = batch > entry["batch"]
        if fresh:
            _finish_others(path, home, query, {(file.topic, file.partition) for file in files},
                           timeout)
            _check_staged(path, query, batch, files)
            _begin(path, entry, {**entry, "batch": batch, "state": "publishing",
                                 "files": [list(file) for file in files]}, timeout)
        _sweep(path, query, batch)
        if _is_job(query):
            _forget(home, query)
        _finish_others(path, home, query, None, 0)
        _sweep_abandoned(home)
    return fresh


def _check_staged(path: str, query: str, batch: int, files: list[File]) -> None:
    """Before the ledger promises to publish them."""
    folder = folder_of(path, query, batch)
    missing = [file.name for file in files if not (folder / file.name).is_file()]
    if missing:
        raise journal.JournalError(f"{len(missing)} staged files are missing from {folder}, "
                                   f"{missing[0]} among them, so nothing of them was published",
                                   hint="run the job again; a stream's batch, from a copy of its "
                                        "staged files")


def _finish_others(path: str, home: Path, mine: str, targets: set[tuple[str, int]] | None,
                   timeout: float) -> None:
    """Finish what other queries have left, in these partitions; None: in all. What cannot be
    finished, since a partition is locked or staged files are gone, is theirs, and is reported."""
    for file in sorted((home / "ledger").glob("*.json")):
        try:
            entry = _parse(file)
        except (journal.JournalCorrupt, OSError) as error:
            _log.error("%s", error)
            continue
        query = entry["query"]
        if query == mine or targets is not None and not targets & _targets(entry).keys():
            continue
        try:
            if entry["state"] == "publishing":
                _finish(path, entry, timeout)
            if _is_job(query):      # of a driver that died before it could remove the entry
                _forget(home, query)
        except (Error, OSError) as error:
            _log.error("batch %s of %s in %s was not published whole, and cannot be finished now: "
                       "%s", entry["batch"], query, path, error)


def _is_job(query: str) -> bool:
    """A batch job without a name of its own: it is never run again, so nothing need be known of one
    that is done."""
    return query.startswith(JOB)


def job_name(given: str | None) -> str:
    """What the ledger calls a batch job. given: the option jobId, by which a second run is
    known."""
    return f"{JOB}{uuid.uuid4()}" if given is None else f"{NAMED}{quote(given, safe='')}"


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
        try:
            patient(timeout, BlockingIOError,
                    lambda: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB))
        except BlockingIOError:
            raise journal.JournalLocked(
                f"another write into {path} has been publishing for more than {timeout:g} s",
                hint='run the job again, or wait longer: option("timeoutMs", ...)') from None
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
        return _parse(home / "ledger" / f"{query}.json")
    except FileNotFoundError:
        return {"version": 1, "query": query, "batch": -1, "state": "done", "files": [],
                "starts": {}, "sequences": {}}


def _parse(file: Path) -> dict[str, Any]:
    """JournalCorrupt: the entry does not match its check sum."""
    raw = file.read_bytes()
    text, _, crc = raw.rstrip().rpartition(b"\n")
    try:
        if int(crc, 16) == journal.checksum(text):
            entry: dict[str, Any] = json.loads(text)
            return entry
    except ValueError:
        pass
    raise journal.JournalCorrupt(
        f"{file} is damaged: it is unknown which batches were published", path=str(file),
        fault="an entry of the ledger does not match its check sum",
        hint="bring it back from a backup. Without it, compare its checkpoint with what the "
             "journals hold; removing it publishes the next batch in any case")


def _store(path: str, entry: dict[str, Any]) -> None:
    """Durable on return, and never half."""
    target = Path(path) / HOME / "ledger" / f"{entry['query']}.json"
    fresh = target.with_suffix(".new")
    text = json.dumps(entry)
    with open(fresh, "w") as file:
        file.write(f"{text}\n{journal.checksum(text.encode()):08x}\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, target)
    sync_folder(target.parent)


def _open_all(stack: ExitStack, path: str, keys: list[tuple[str, int]],
              timeout: float) -> dict[tuple[str, int], Any]:
    return {key: _open(stack, path, *key, timeout) for key in keys}


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


def _begin(path: str, before: dict[str, Any], entry: dict[str, Any], timeout: float) -> None:
    """Where each journal begins is stored before the first message is appended. Journals stay
    locked from there to the end, or, if there are too many to be open at once, from their first
    message on."""
    targets = _targets(entry)
    groups = [list(targets)[i:i + AT_ONCE] for i in range(0, len(targets), AT_ONCE)]
    with ExitStack() as stack:
        writers = _open_all(stack, path, groups[0], timeout)
        entry["starts"] = {_name(*key): writer.next for key, writer in writers.items()}
        for key in [key for group in groups[1:] for key in group]:
            with ExitStack() as shortly:
                entry["starts"][_name(*key)] = _open(shortly, path, *key, timeout).next
        _store(path, entry)
        _append_all(path, before, entry, targets, writers)
    for group in groups[1:]:
        with ExitStack() as stack:
            _append_all(path, None, entry, targets, _open_all(stack, path, group, timeout))
    _done(path, entry)


def _append_all(path: str, before: dict[str, Any] | None, entry: dict[str, Any],
                targets: dict[tuple[str, int], list[File]],
                writers: dict[tuple[str, int], Any]) -> None:
    """Into these journals, or into none of them. before: the ledger's entry, to be put back if
    nothing else was published."""
    marks = {key: writer._mark() for key, writer in writers.items()}
    try:
        for key, writer in writers.items():
            _append(path, entry, key, targets[key], writer, 0)
        for writer in writers.values():
            writer.commit()
    except (Error, OSError) as error:
        if all([writer._undo(marks[key]) for key, writer in writers.items()]) and before:
            _store(path, before)
        else:
            error.add_note("Some of it is durable, so the next write into this path publishes the "
                           "rest. Do not run the job again.")
        raise


def _finish(path: str, entry: dict[str, Any], timeout: float) -> None:
    """The rest of a publication that a crash cut short."""
    _check_staged(path, entry["query"], entry["batch"], [File(*row) for row in entry["files"]])
    for key, files in _targets(entry).items():
        with ExitStack() as stack:
            writer = _open(stack, path, *key, timeout)
            _append(path, entry, key, files, writer, _there(path, entry, key))
            writer.commit()
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
    """The batch's messages from the skip-th on."""
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
    make_folder(Path(path))
    return path
