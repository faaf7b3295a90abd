"""inotify(7): what changes in folders. The errors are the system's, as OSError."""

from __future__ import annotations

import functools
import os
import struct
from collections.abc import Iterator
from typing import Any

MODIFY, CLOSE_WRITE, MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x2, 0x8, 0x40, 0x80, 0x100, 0x200
OVERFLOW, IGNORED = 0x4000, 0x8000      # events were lost; the watch is gone
_EVENT = struct.Struct("iIII")          # watch, mask, cookie, length of the name behind it


@functools.lru_cache(maxsize=1)
def _libc() -> Any:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str | bytes) -> int:
    if result < 0:
        import ctypes

        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


def inotify_open() -> int:
    """A new instance, which the caller closes: non-blocking, not inherited. A user has 128."""
    return _checked(_libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), "inotify")


def inotify_add(fd: int, folder: str | bytes | os.PathLike[str], mask: int) -> int:
    """The number of the watch of this folder, the same each time."""
    path = os.fsencode(folder)
    return _checked(_libc().inotify_add_watch(fd, path, mask), path)


def inotify_remove(fd: int, watch: int) -> None:
    """It fails if the folder is gone, and the watch with it: then nothing is left to do."""
    _libc().inotify_rm_watch(fd, watch)


def inotify_events(raw: bytes) -> Iterator[tuple[int, int, bytes]]:
    """What was read from an instance, as watch, mask and name."""
    at = 0
    while at < len(raw):
        watch, mask, _, size = _EVENT.unpack_from(raw, at)
        at += _EVENT.size
        yield watch, mask, raw[at:at + size].rstrip(b"\0")
        at += size
