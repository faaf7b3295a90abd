"""Commits of consumer groups, one at a time for each partition, whichever process makes them.

`flock` of the folder `groups` keeps others out between the look at where a group is and the write.
It is held for one small write and two syncs. Where the file system has no such lock, commits with
`expected=` from several machines at once may still pass each other; a journal server makes them
one after the other.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from mqcore.errors import UsageError
from mqcore.journal.errors import GroupMoved, JournalBusy
from mqcore.journal.store.exclusive import HELD, TopicLock, missing
from mqcore.journal.store.place import (
    group_offset,
    groups_folder,
    set_group_offset,
    sync_folder,
)

Expected = int | None | Literal["any"]

PATIENCE = 10.0         # seconds that a commit waits for those of others
SHORTEST, LONGEST = 0.0002, 0.02        # seconds between two looks at the lock


def commit(folder: Path, group: str, offset: int, expected: Expected = "any",
           patience: float = PATIENCE, check: Callable[[None], object] | None = None) -> None:
    """Set a group to an offset, if it is where it is `expected`. Durable on return. GroupMoved: it
    is elsewhere; nothing has changed. JournalBusy: the commit of another process does not end
    within `patience` seconds. JournalNotFound: so says check(None), or the folder is gone. It is
    asked again behind no_commits()."""
    with TopicLock(folder.parent, shared=True):     # no other journal gets the folder's place
        if check is not None:
            check(None)
        if not folder.is_dir():
            raise missing(folder)
        _commit(folder, group, offset, expected, patience, check)


@contextlib.contextmanager
def no_commits(folder: Path) -> Iterator[None]:
    """Those that are under way have ended, and others wait. What their check() refuses by then
    comes no more."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):      # the disk is full, say
            (folder / "groups").mkdir(exist_ok=True)
            stack.enter_context(_alone(folder / "groups", PATIENCE))
        yield


def _commit(folder: Path, group: str, offset: int, expected: Expected, patience: float,
            check: Callable[[None], object] | None) -> None:
    with _alone(groups_folder(folder), patience):
        if check is not None:
            check(None)
        if expected != "any":
            known = group_offset(folder, group)
            if known == offset:         # also this call itself, repeated over another connection
                sync_folder(groups_folder(folder))      # its process may have been killed just here
                return
            if known != expected:
                raise moved(group, known, expected)
        set_group_offset(folder, group, offset)


def moved(group: str, known: int | None, expected: Expected) -> GroupMoved:
    where = "has never committed" if known is None else f"is at {known}"
    wanted = "never to have committed" if expected is None else f"to be at {expected}"
    return GroupMoved(f"the group {group!r} {where}, and was expected {wanted}",
                      group=group, offset=-1 if known is None else known)


def check_expected(expected: object) -> Expected:
    """UsageError."""
    if expected is None or expected == "any" or type(expected) is int and expected >= 0:
        return expected
    raise UsageError(f"expected={expected!r} is no place of a group",
                     hint='give an offset; None for a group that has never committed; "any" if it '
                          "does not matter")


@contextlib.contextmanager
def _alone(folder: Path, patience: float) -> Iterator[None]:
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            _wait_for(held, folder, patience)
        except OSError:         # no such locks here
            yield
            return
        try:
            yield
        finally:
            fcntl.flock(held, fcntl.LOCK_UN)    # a forked child may have the descriptor, too
    finally:
        os.close(held)


def _wait_for(held: int, folder: Path, patience: float) -> None:
    ends, pause = time.monotonic() + patience, SHORTEST
    while True:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except HELD:
            if time.monotonic() >= ends:
                break
        time.sleep(pause)
        pause = min(LONGEST, 2 * pause)
    raise JournalBusy(f"another process has been committing in {folder} for {patience:g} s",
                      hint="commit again; if that does not help, the other is stopped, or its disk "
                           "hangs: `fuser -v` on that folder tells which process it is")
