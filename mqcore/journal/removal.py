"""Removal: topics and partitions that are deleted, and beginnings that are cut off from outside
their writer.

Each of them takes the writer's lock, so that no running writer goes on in files that are gone. A
partition's folder is given a name that begins with a dot before its files go, so that what is half
deleted is never listed or opened. The next call sweeps what a killed one left.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from pathlib import Path

from mqcore.journal.errors import JournalNotFound
from mqcore.journal.listing import not_found
from mqcore.journal.store.commits import no_commits
from mqcore.journal.store.exclusive import CompactionLock, Lock, TopicLock
from mqcore.journal.store.group_leases import FOLDER, forget_leases
from mqcore.journal.store.place import partition_folder, partition_numbers, sync_folder
from mqcore.journal.store.snapshot import MOST_BYTES, MOST_PRODUCERS
from mqcore.journal.store.topic_names import NAME
from mqcore.journal.writer import Writer

GONE = ".deleted."


def truncate_before(where: str | os.PathLike[str], offset: int, topic: str,
                    partition: int) -> int:
    """See mqcore.journal.truncate_before."""
    folder = partition_folder(where, topic, partition)
    try:
        topic_lock = TopicLock(folder.parent, shared=True)
    except JournalNotFound:
        raise not_found(where, topic, partition) from None
    with topic_lock:                        # it would be made anew behind a rename
        if not folder.is_dir():
            raise not_found(where, topic, partition)
        with Writer(folder, topic, partition, fsync="never", stamps=True,
                    max_producers=MOST_PRODUCERS, max_producer_bytes=MOST_BYTES) as writer:
            return writer.truncate_before(offset)


def delete(where: str | os.PathLike[str], topic: str, partition: int | None) -> int:
    """See mqcore.journal.delete."""
    home = partition_folder(where, topic, partition or 0).parent
    try:
        with TopicLock(home, shared=True):      # no other topic gets the name meanwhile
            return _delete(where, home, topic, partition)
    except FileNotFoundError:
        raise not_found(where, topic, partition) from None


def _delete(where: str | os.PathLike[str], home: Path, topic: str, partition: int | None) -> int:
    _sweep(home)
    numbers: list[int] = []
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        numbers = [number for number in partition_numbers(home) if partition in (None, number)]
    if not numbers:
        raise not_found(where, topic, partition)
    for number in numbers:                  # not all at once: they may be more than descriptors
        Lock(home / str(number)).release()
        CompactionLock(home / str(number)).release()
    for number in reversed(numbers):        # a killed call leaves those that come first
        lock = Lock(home / str(number))
        try:
            compaction = CompactionLock(home / str(number))
        except BaseException:
            lock.release()
            raise
        try:
            gone = home / f"{GONE}{number}.{secrets.token_hex(8)}"
            with no_commits(home / str(number)):    # a commit would go on in a new journal
                os.rename(home / str(number), gone)
            sync_folder(home)
            _remove(gone)
        finally:
            compaction.release()
            lock.release()
    _forget(home)
    return len(numbers)


def sweep(home: Path) -> None:
    """What is left of a topic that was deleted, so that its name is free."""
    with contextlib.suppress(JournalNotFound, NotADirectoryError), TopicLock(home, shared=True):
        if all(name in (FOLDER, NAME) or name.startswith((GONE, f".{NAME}."))
               for name in os.listdir(home)):
            _sweep(home)


def _sweep(home: Path) -> None:
    leftovers = list(home.glob(f"{GONE}*"))
    if leftovers:                           # by a call that was killed, maybe before its fsync
        sync_folder(home)
    for left in leftovers:
        with contextlib.suppress(OSError):
            _remove(left)
    _forget(home)


def _forget(home: Path) -> None:
    """A topic without partitions, unless a writer makes one."""
    with contextlib.suppress(OSError):
        if not partition_numbers(home):
            for left in home.glob(f".{NAME}.*"):
                left.unlink()
            (home / NAME).unlink(missing_ok=True)
            forget_leases(home)
            with contextlib.suppress(FileNotFoundError):
                (home / FOLDER).rmdir()
        home.rmdir()
        sync_folder(home.parent)


def _remove(folder: Path) -> None:
    """Where a link leads to another disk, what it leads to."""
    with contextlib.suppress(FileNotFoundError):        # another call sweeps it, too
        shutil.rmtree(folder.resolve())
    if folder.is_symlink():
        folder.unlink(missing_ok=True)
