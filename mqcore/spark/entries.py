"""The ledger's entries: one file for each query, with a check sum, and a lock beside it.

    %spark/ledger/QUERY.json        a line of JSON, then its CRC-32C as eight hexadecimal digits
                  QUERY.lock        held by the process that publishes for the query
           named/QUERY.json         entries of batch jobs with a jobId that are done

An entry holds `version`, `query`, `batch` (the last one that is published or being published),
`state` ("publishing" or "done"), `files` (the staged ones that are being published), `starts` (the
offset at which the batch begins in each journal) and `sequences` (the next sequence number in
each). A second run of a batch job that failed, or whose driver was killed, is recognized by the
staged files, or by `marks` once the files are gone: a hash of the messages for each partition.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mqcore import journal
from mqcore.journal.store.core import checksum
from mqcore.journal.store.exclusive import sign
from mqcore.journal.store.place import group_name, make_folder, sync_folder
from mqcore.spark.staging import HOME

VERSION = 2
JOB = "job-"            # what the names of batch jobs begin with; a stream's query is a UUID
NAMED = "named-"        # those of batch jobs with a jobId
FIELDS = {"query": str, "batch": int, "state": str, "files": list, "starts": dict,
          "sequences": dict}
ADVICE = ("restore it from a backup. Without one, what the query has published is not known: "
          "compare its target with its source, remove the file, and start the query with a new "
          "checkpoint at the right startingOffsets (a batch job: with another jobId)")


def check_home(path: str) -> str:
    """The folder of the journals, made if it is missing; durable."""
    make_folder(Path(path).absolute())
    return path


def home_of(path: str) -> Path:
    """The ledger's folder, made if it is missing; durable."""
    home = Path(path) / HOME
    make_folder((home / "ledger").absolute())
    for folder in (home, home.parent):      # a task may have made them, and not synced them yet
        sync_folder(folder)
    return home


def is_job(query: str) -> bool:
    """A batch job without a jobId: its name is never used again."""
    return query.startswith(JOB)


def is_named(query: str) -> bool:
    return query.startswith(NAMED)


def name_of(job: str) -> str:
    """The query's name of the batch job with this jobId; a file can be called that."""
    return NAMED + group_name(job)


def file_of(home: Path, query: str) -> Path:
    return home / "ledger" / f"{query}.json"


def load(home: Path, query: str) -> dict[str, Any]:
    """The query's entry, or a new one. JournalCorrupt."""
    places = [file_of(home, query)]
    if is_named(query):
        places.append(home / "named" / f"{query}.json")
    for file in places:
        try:
            return read(file)
        except FileNotFoundError:
            pass
    return {"version": VERSION, "query": query, "batch": -1, "state": "done", "files": [],
            "starts": {}, "sequences": {}}


def read(file: Path) -> dict[str, Any]:
    """JournalCorrupt, FileNotFoundError."""
    body, _, rest = file.read_bytes().partition(b"\n")
    if rest != _sum(body):
        raise _damaged(file, "its check sum does not match" if rest else "it has no check sum")
    try:
        entry = json.loads(body)
        if all(type(entry[name]) is kind for name, kind in FIELDS.items()) \
                and entry["version"] == VERSION and entry["query"] == file.stem:
            return dict(entry)
    except (ValueError, KeyError, TypeError):
        pass
    raise _damaged(file, f"it is not the entry of {file.stem} in version {VERSION}")


def _damaged(file: Path, fault: str) -> journal.JournalCorrupt:
    return journal.JournalCorrupt(f"the ledger's entry {file} is damaged: {fault}",
                                  path=str(file), fault=fault, hint=ADVICE)


def _sum(body: bytes) -> bytes:
    return b"%08x\n" % checksum(body)


def store(path: str, entry: dict[str, Any]) -> None:
    """Durable on return, and never half."""
    target = file_of(Path(path) / HOME, entry["query"])
    fresh = target.with_suffix(".new")
    body = json.dumps(entry).encode()
    with open(fresh, "wb") as file:
        file.write(body + b"\n" + _sum(body))
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, target)
    sync_folder(target.parent)


def forget(home: Path, query: str) -> None:
    """Remove the entry, and the lock, which the caller holds. Durable on return."""
    file_of(home, query).unlink(missing_ok=True)
    _lock_of(home, query).unlink(missing_ok=True)
    sync_folder(home / "ledger")


def keep_named(home: Path, query: str) -> None:
    """Move the entry of a job with a jobId that is done to where no publication looks through it.
    The caller holds the lock, which goes."""
    make_folder((home / "named").absolute())
    try:
        os.replace(file_of(home, query), home / "named" / f"{query}.json")
    except FileNotFoundError:       # moved before
        pass
    sync_folder(home / "named")
    forget(home, query)


def others(home: Path, query: str) -> list[Path]:
    """The entries of all others that may have to be completed."""
    return [file for file in sorted((home / "ledger").glob("*.json")) if file.stem != query]


def leftovers(home: Path) -> list[Path]:
    """Half written entries, and locks without an entry: of a process that is at work, or was
    killed."""
    return [file for file in sorted((home / "ledger").iterdir())
            if file.suffix == ".new"
            or file.suffix == ".lock" and not file_of(home, file.stem).exists()]


def tidy(home: Path, query: str) -> None:
    """Remove leftovers(). The caller holds the lock, which goes if there is no entry."""
    file_of(home, query).with_suffix(".new").unlink(missing_ok=True)
    if not file_of(home, query).exists():
        _lock_of(home, query).unlink(missing_ok=True)


# -- one process publishes for a query -----------------------------------------------------------


def _lock_of(home: Path, query: str) -> Path:
    return home / "ledger" / f"{query}.lock"


@contextmanager
def alone(home: Path, query: str, timeout: float) -> Iterator[None]:
    """No other process publishes for this query meanwhile, and what the last one has stored is
    durable. JournalLocked: one did, for longer than `timeout` seconds."""
    fd = patient(timeout, journal.JournalLocked, lambda: _take(_lock_of(home, query)))
    try:
        # it may have been killed before it did so: a power cut must not take back an entry that
        # this one builds on
        sync_folder(home / "ledger")
        yield
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)      # for children that have inherited it, too
        os.close(fd)


def _take(path: Path) -> int:
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(fd, path):
                sign(fd, b"%d\n" % os.getpid())
                return fd
        except BlockingIOError:
            text = os.pread(fd, 20, 0).partition(b"\n")[0].strip()
            os.close(fd)
            pid = int(text) if text.isdigit() else 0
            raise journal.JournalLocked(
                f"process {pid or '?'} is publishing for {path.stem} and holds {path}", pid=pid,
                hint="wait for it, or raise timeoutMs; if that process is stuck, end it: the next "
                     "publication completes what it began") from None
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)        # its holder has removed it meanwhile


def _is_at(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def patient(timeout: float, kind: type[Exception], call: Any) -> Any:
    """call(), again and again for so many seconds as long as it raises `kind`."""
    end = time.monotonic() + timeout
    while True:
        try:
            return call()
        except kind:
            if time.monotonic() >= end:
                raise
        time.sleep(0.05)
