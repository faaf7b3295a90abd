"""The leases of a topic's consumer groups: the files WHERE/TOPIC/groups/NAME. rosters.py writes
them; a server that coordinates a group has a lock on its file. What follows is for topics without
partitions, whose members have nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from mqcore.base.native import time
from mqcore.journal.store.place import partition_numbers, sync_folder

FOLDER = "groups"
PATIENCE = 1.0          # seconds
PAUSE = 0.002


def forget_leases(home: Path) -> None:
    """Those of servers that were killed. A server that runs keeps its own: its members go on with
    the topic that gets the name."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for path in list((home / FOLDER).iterdir()):
            with contextlib.suppress(OSError):
                fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
                finally:
                    os.close(fd)


def begin_anew(home: Path) -> None:
    """Before a topic gets its first partition: what a deleted one of its name has left. One process
    at a time: behind the first partition there may be a server, and a lease that counts."""
    def left() -> bool:
        return bool(os.listdir(home / FOLDER)) and not partition_numbers(home)

    with contextlib.suppress(OSError):
        if left():
            _alone(home / FOLDER, lambda: forget_leases(home) if left() else None)


def _alone(folder: Path, call: Callable[[], None]) -> None:
    """Nothing, if the lock is not to be had: members of a new topic then wait for those of the
    deleted one."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                try:
                    call()
                finally:
                    fcntl.flock(fd, fcntl.LOCK_UN)  # a forked child may have the descriptor, too
                return
            time.sleep(PAUSE)
    finally:
        os.close(fd)


def take_leases(home: Path, former: Path) -> None:
    """The topic at `home` is about to get the place of one that was deleted, whose leases of
    servers that run move along. Where both have one, its own counts."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if os.listdir(former) != [FOLDER]:
            return
        for path in list((former / FOLDER).iterdir()):
            target = home / FOLDER / path.name
            target.parent.mkdir(exist_ok=True)
            if os.path.lexists(target):
                path.unlink()
            else:
                os.rename(path, target)
        sync_folder(home / FOLDER)
        (former / FOLDER).rmdir()
        sync_folder(former)
