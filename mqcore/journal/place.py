"""Where things lie: the folder of a partition, its segment files, its lock, its groups.

    WHERE/TOPIC/PARTITION/00000000000000000000.mqj     segments, named by their first offset
                          lock                         flock, held by the one writer
                          groups/NAME                  how far a consumer group has come, in decimal
                          producers                    see snapshot.py

TOPIC is percent-encoded (RFC 3986's unreserved characters stay).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote

from mqcore.errors import AddressError, OptionError
from mqcore.journal.errors import JournalLocked

SUFFIX = ".mqj"
DIGITS = 20
TOPIC_MAX = 255


def topic_folder(topic: str) -> str:
    raw = topic.encode()
    if not 0 < len(raw) <= TOPIC_MAX or "\0" in topic:
        raise OptionError(f"the topic {topic!r} has {len(raw)} bytes; 1 to {TOPIC_MAX} are allowed")
    name = quote(topic, safe="")
    return name.replace(".", "%2E") if set(topic) == {"."} else name


def partition_folder(where: str | os.PathLike[str], topic: str, partition: int) -> Path:
    text = os.fspath(where)
    if "://" in text:
        raise AddressError(f"{text!r} is not a folder", position=text.index("://"),
                           hint="this version opens journals on this machine's disks only")
    if not 0 <= partition < 1 << 32:
        raise OptionError(f"partition {partition}; 0 to {(1 << 32) - 1} are possible")
    return Path(text) / topic_folder(topic) / str(partition)


def partitions(where: str | os.PathLike[str]) -> Iterator[tuple[str, int, Path]]:
    """(topic, partition, folder) of every journal below where, in order."""
    for folder in sorted(Path(where).iterdir()):
        if folder.is_dir():
            numbers = [p for p in folder.iterdir() if p.is_dir() and p.name.isdecimal()]
            for path in sorted(numbers, key=lambda p: int(p.name)):
                yield unquote(folder.name), int(path.name), path


def topic_of(folder: Path) -> str | None:
    """The topic of a partition's folder."""
    return unquote(folder.parent.name)


def segment_name(first: int) -> str:
    return f"{first:0{DIGITS}d}{SUFFIX}"


def segments(folder: Path) -> list[int]:
    """The first offsets of the segments that are there, ascending."""
    return sorted(int(name[:DIGITS]) for name in os.listdir(folder)
                  if len(name) == DIGITS + len(SUFFIX) and name.endswith(SUFFIX)
                  and name[:DIGITS].isdecimal())


def sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace(path: Path, raw: bytes) -> None:
    """Durable on return, and never half."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    with open(new, "wb") as stream:
        stream.write(raw)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(new, path)
    sync_folder(path.parent)


# -- one writer ----------------------------------------------------------------------------------


def lock(folder: Path) -> int:
    """The descriptor that holds the lock; JournalLocked. The system lets go of it when the process
    ends, however it ends (a forked child that still has the descriptor keeps it)."""
    fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d\n" % os.getpid(), 0)
    except BlockingIOError:
        text = os.pread(fd, 20, 0).strip()
        os.close(fd)
        pid = int(text) if text.isdigit() else 0
        raise JournalLocked(f"process {pid or '?'} writes to {folder}", pid=pid) from None
    except BaseException:
        os.close(fd)
        raise
    return fd


def unlock(fd: int) -> None:
    fcntl.flock(fd, fcntl.LOCK_UN)      # for children that have inherited it, too
    os.close(fd)


# -- consumer groups -----------------------------------------------------------------------------


def group_file(folder: Path, group: str) -> Path:
    return folder / "groups" / topic_folder(group)


def group_offset(folder: Path, group: str) -> int | None:
    """The next offset that the group will read; None: it has never committed."""
    try:
        return int(group_file(folder, group).read_bytes())
    except FileNotFoundError:
        return None


def set_group_offset(folder: Path, group: str, offset: int) -> None:
    """Durable on return, and never half."""
    path = group_file(folder, group)
    path.parent.mkdir(exist_ok=True)
    replace(path, b"%d\n" % offset)


def groups(folder: Path) -> dict[str, int]:
    try:
        names = sorted(os.listdir(folder / "groups"))
    except FileNotFoundError:
        return {}
    found = {unquote(name): group_offset(folder, unquote(name))
             for name in names if not name.startswith(".")}
    return {name: offset for name, offset in found.items() if offset is not None}
