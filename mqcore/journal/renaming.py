"""A topic gets another name.

One rename(2) of its folder does it, with all partitions, groups and producers. The segments keep
their headers, which have the name of before, so the file `names` in the folder lists it first. A
crash between the two leaves a name in the file that no header has.
"""

from __future__ import annotations

import os
from errno import EEXIST, EISDIR, ENOTDIR, ENOTEMPTY
from pathlib import Path

from mqcore.errors import UsageError
from mqcore.journal.errors import JournalNotFound
from mqcore.journal.listing import not_found
from mqcore.journal.removal import sweep
from mqcore.journal.store.exclusive import Lock, TopicLock
from mqcore.journal.store.group_leases import take_leases
from mqcore.journal.store.place import partition_folder, partition_numbers, sync_folder
from mqcore.journal.store.topic_names import headers, names_of, write_names


def rename(where: str | os.PathLike[str], topic: str, to: str) -> int:
    """See mqcore.journal.rename."""
    home, new = (partition_folder(where, name, 0).parent for name in (topic, to))
    if home == new:
        raise UsageError(f"the topic {topic!r} has that name", hint="give it another one")
    sweep(new)
    try:
        alone = TopicLock(home)
    except JournalNotFound:
        if new.exists():                    # a call that was killed may have renamed it
            sync_folder(new.parent)
        raise not_found(where, topic, None) from None
    try:
        numbers = partition_numbers(home)
        if not numbers:
            raise not_found(where, topic, None)
        for number in numbers:              # not all at once: they may be more than descriptors
            Lock(home / str(number), renaming=True).release()
        take_leases(home, new)
        if _is_used(new):
            raise _taken(new)
        write_names(home, _names(home, numbers, topic, to))
        try:
            os.rename(home, new)            # over an empty folder, too
        except OSError as error:
            if error.errno in (EEXIST, EISDIR, ENOTDIR, ENOTEMPTY):
                raise _taken(new) from None
            raise
        sync_folder(new.parent)
        return len(numbers)
    finally:
        alone.release()


def _names(home: Path, numbers: list[int], topic: str, to: str) -> list[str]:
    """Those that segments have, as far as they belong here, and the new one. All former ones, if a
    header cannot be read."""
    known = {topic, *names_of(home)}
    found = [header for number in numbers for header in headers(home / str(number))]
    if None not in found:
        used = {header.topic for header in found if header is not None}
        known = {name for name in known if name.encode() in used}
    return sorted({*known, to})


def _is_used(folder: Path) -> bool:
    try:
        return bool(os.listdir(folder))
    except FileNotFoundError:
        return os.path.lexists(folder)      # a link that leads nowhere
    except NotADirectoryError:
        return True


def _taken(folder: Path) -> UsageError:
    return UsageError(f"{folder} is there already, and a topic that gets a name replaces nothing",
                      hint="choose another name, or delete or rename that topic first")
