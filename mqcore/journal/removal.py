"""Removal: topics and partitions that are deleted, and beginnings that are cut off from outside
their writer.

Each of them takes the writer's lock, so that no running writer goes on in files that are gone. A
partition's folder is given a name that begins with a dot before its files go: nobody takes what is
half deleted for a journal. The next call sweeps what a killed one left.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from pathlib import Path

from mqcore.journal.errors import JournalNotFound
from mqcore.journal.listing import nothing_there
from mqcore.journal.store import snapshot
from mqcore.journal.store.exclusive import Lock
from mqcore.journal.store.place import is_number, partition_folder, sync_folder
from mqcore.journal.writer import Writer

GONE = ".deleted."


def truncate_before(where: str | os.PathLike[str], offset: int, topic: str,
                    partition: int) -> int:
    """See mqcore.journal.truncate_before."""
    folder = partition_folder(where, topic, partition)
    if not folder.is_dir():
        raise JournalNotFound(nothing_there(os.fsdecode(where), topic, partition),
                              hint="`mq journal ls` lists what a folder holds")
    # what goes may be all that tells a writer that deduplicates of its producers
    knows = (folder / snapshot.NAME).exists()
    with Writer(folder, topic, partition, fsync="never", stamps=knows,
                deduplicate=knows) as writer:
        return writer.truncate_before(offset)


def delete(where: str | os.PathLike[str], topic: str, partition: int | None) -> int:
    """See mqcore.journal.delete."""
    home = partition_folder(where, topic, partition or 0).parent
    numbers = _partitions(home)
    if partition is not None:
        numbers = [number for number in numbers if number == partition]
    if not numbers:
        raise JournalNotFound(nothing_there(os.fsdecode(where), topic, partition),
                              hint="`mq journal ls` lists what a folder holds")
    with contextlib.ExitStack() as locks:
        for number in numbers:          # all of them, or nothing is deleted
            locks.callback(Lock(home / str(number)).release)
        for number in reversed(numbers):    # a killed call leaves those that come first
            os.rename(home / str(number), home / f"{GONE}{number}.{secrets.token_hex(8)}")
        sync_folder(home)
        for left in home.glob(f"{GONE}*"):
            shutil.rmtree(left, ignore_errors=True)
    with contextlib.suppress(OSError):      # other partitions are there, or a writer makes one
        home.rmdir()
        sync_folder(home.parent)
    return len(numbers)


def _partitions(home: Path) -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(home) if is_number(name))
    except (FileNotFoundError, NotADirectoryError):
        return []
