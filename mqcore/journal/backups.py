"""Backup: a copy of partitions as of one moment, while their writers go on.

A segment that another one follows never changes: the copy gets a hard link to it, or a copy where
the file system makes no links. The last segment is copied up to what is durable, so that no writer
of the copy ever touches a file of the original, and no power cut makes the two differ. Groups and
producers are looked at first, and so are never ahead of the messages.

The copy is made in a folder whose name begins with a dot, which gets its name when it is whole.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from dataclasses import dataclass
from errno import EEXIST, EIO, ENOTDIR, ENOTEMPTY
from itertools import groupby
from pathlib import Path

from mqcore.errors import UsageError
from mqcore.journal.errors import JournalBusy, JournalCorrupt, JournalError, write_error
from mqcore.journal.listing import in_folder, not_found
from mqcore.journal.reader import Reader
from mqcore.journal.store import epoch, snapshot
from mqcore.journal.store.durable import write_durable
from mqcore.journal.store.exclusive import TopicLock
from mqcore.journal.store.place import (
    copy_file,
    groups,
    groups_folder,
    is_abandoned,
    make_folder,
    partition_folder,
    read_regular,
    replace,
    segment_name,
    segments,
    set_group_offset,
    settled_segments,
    sync_folder,
    topic_folder,
)
from mqcore.journal.store.recovery import check_chain, own_segment, owner_of
from mqcore.journal.store.scan import BLOCK_HEADER_SIZE, FOUND, HEADER_SIZE, LOST, Block
from mqcore.journal.store.segment import Segment, home_of
from mqcore.journal.store.topic_names import names_of, write_names

# Retention, a promotion or a repair may change what is being copied: seconds, and attempts at
# least, until that is an error
PATIENCE = 10.0
TRIES = 10
PAUSE = 0.02            # seconds between two attempts
NOTHING_LEFT = "make room, or back up to another disk; nothing of this partition's copy is left"


@dataclass(frozen=True)
class BackedUp:
    """A partition of a backup, with the messages `first` to `end` - 1. `linked` of its `segments`
    share their bytes with the original, `copied` bytes are the backup's own."""

    topic: str
    partition: int
    first: int
    end: int
    segments: int = 0
    linked: int = 0
    copied: int = 0


class _Changed(Exception):
    """Begin again."""


def backup(where: str | os.PathLike[str], to: str | os.PathLike[str], *, topic: str | None = None,
           partition: int | None = None) -> list[BackedUp]:
    """See mqcore.journal.backup."""
    where = os.fsdecode(where)
    for folder in (where, to):
        partition_folder(folder, "default", 0)      # AddressError: it is a server's address

    def unreadable(path: Path, error: Exception) -> None:
        """A backup that lacks something must not look like a whole one."""
        name, *number = path.relative_to(where).parts
        if (topic is None or name == topic_folder(topic)) \
                and (partition is None or number in ([], [str(partition)])):
            raise error

    try:
        found = in_folder(where, unreadable)
    except (FileNotFoundError, NotADirectoryError):
        found = []
    rows = [(row.topic, row.partition) for row in found
            if topic in (None, row.topic) and partition in (None, row.partition)]
    if not rows:
        raise not_found(where, topic, partition)
    done = []
    for name, its in groupby(rows, lambda row: row[0]):
        # all of one topic: it is not renamed meanwhile
        with TopicLock(partition_folder(where, name, 0).parent, shared=True):
            done += [back_up(partition_folder(where, *row), partition_folder(to, *row), *row)
                     for row in its]
    return done


def back_up(source: Path, target: Path, topic: str, partition: int) -> BackedUp:
    """One partition."""
    if os.path.lexists(target):
        raise _taken(target)
    _sweep(target)
    until = time.monotonic() + PATIENCE
    tries = 0
    while tries < TRIES or time.monotonic() < until:
        tries += 1
        home = home_of(source)
        try:
            return _attempt(source, target, topic, partition)
        except _Changed:
            time.sleep(PAUSE)
        except (OSError, JournalError):
            if _is_there(source, home):
                raise
    raise JournalBusy(f"{source} changed during each of {tries} attempts to copy it",
                      hint="try again when no segments are removed, repaired or promoted there")


def _attempt(source: Path, target: Path, topic: str, partition: int) -> BackedUp:
    making = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        make_folder(target.parent)
        sync_folder(target.parent.parent)   # a backup that was killed may have made it
        making.mkdir()
        done = _copy(source, making, topic, partition)
        _bring_names(source.parent, target.parent)
        _rename(making, target)
        return done
    except OSError as error:
        shutil.rmtree(making, ignore_errors=True)
        if error.filename is not None and Path(error.filename).is_relative_to(source):
            raise
        raise write_error(error.errno or EIO, target, hint=NOTHING_LEFT) from error
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise


def _is_there(folder: Path, home: os.stat_result) -> bool:
    """Whether it is the same one still, not deleted or renamed."""
    try:
        return os.path.samestat(home, os.stat(folder))
    except FileNotFoundError:
        return False


def _sweep(target: Path) -> None:
    """Remove what killed backups have left half made. Its links keep what retention removes."""
    for left in target.parent.glob(f".{target.name}.*"):
        if is_abandoned(left):
            shutil.rmtree(left, ignore_errors=True)


def _bring_names(source: Path, target: Path) -> None:
    """Those of a renamed topic, which its segments have, and what other partitions brought."""
    found = names_of(source)
    known = names_of(target)
    if not set(found) <= set(known):
        write_names(target, sorted({*found, *known}))


def _rename(making: Path, target: Path) -> None:
    sync_folder(making)
    try:
        os.rename(making, target)       # over an empty folder, too
    except OSError as error:
        if error.errno in (EEXIST, ENOTDIR, ENOTEMPTY):
            raise _taken(target) from None
        raise
    sync_folder(target.parent)


def _taken(target: Path) -> UsageError:
    return UsageError(f"{target} is there already, and a backup replaces nothing",
                      hint="give each backup a folder of its own")


def _copy(source: Path, making: Path, topic: str, partition: int) -> BackedUp:
    """_Changed: something was removed or replaced meanwhile."""
    home = os.stat(source)
    begins = segments(source)[:1]
    small = {name: _small(source / name) for name in (epoch.NAME, snapshot.NAME)}
    odd: list[Path] = []        # groups whose files are damaged, and stay so
    committed = groups(source, lambda path, why: odd.append(path))
    with Reader(source, topic, partition) as reader:
        end = reader.durable
    firsts = settled_segments(source)
    if begins and begins != firsts[:1]:     # what the groups and producers know of, retention took
        raise _Changed
    wanted = [first for first in firsts if first < end] or _begun(source, firsts[:1])
    files = _files(source, wanted)
    _check(source, wanted)
    linked = copied = 0
    for first in wanted[:-1]:
        size = _link(source / segment_name(first), making / segment_name(first))
        linked, copied = linked + (size == 0), copied + size
    if wanted:
        try:
            last = own_segment(source, wanted[-1], owner_of(source, firsts))
        except FileNotFoundError:
            raise _Changed from None
        try:
            size, end = _until(last, end)
            copied += _copy_bytes(last.fd, last.path, making / last.path.name, size)
            write_durable(making, last.header.journal, end)
        finally:
            last.close()
    for name, raw in small.items():
        if raw is not None:
            replace(making / name, raw)
    for name, offset in committed.items():
        set_group_offset(making, name, min(offset, end))
    for path in odd:
        raw = _small(path)
        if raw is not None:
            replace(groups_folder(making) / path.name, raw)
    if _small(source / epoch.NAME) != small[epoch.NAME] \
            or not _is_there(source, home) or not _files(source, wanted).items() <= files.items():
        raise _Changed      # compaction: one segment of before, and one without its tombstones
    return BackedUp(topic, partition, wanted[0] if wanted else 0, end, len(wanted), linked, copied)


def _check(source: Path, firsts: list[int]) -> None:
    """JournalCorrupt: something is missing between these segments, or does not belong there."""
    try:
        check_chain(source, firsts)
    except FileNotFoundError:
        raise _Changed from None


def _files(source: Path, firsts: list[int]) -> dict[int, int]:
    """The inodes of those that are there, which tell whether one was replaced."""
    found = {}
    for first in firsts:
        with contextlib.suppress(FileNotFoundError):    # retention
            found[first] = os.stat(source / segment_name(first)).st_ino
    return found


def _begun(source: Path, first: list[int]) -> list[int]:
    """Without a segment whose header was never written: a crash has left that, or it is being
    made."""
    return [one for one in first
            if os.path.getsize(source / segment_name(one)) >= HEADER_SIZE]


def _until(segment: Segment, durable: int) -> tuple[int, int]:
    """(bytes, offset): where the blocks end whose messages are all durable."""
    size = segment.size()
    walk = segment.find(durable, size)
    if walk.why == LOST:                # in front of a checkpoint behind a gap
        return walk.pos + BLOCK_HEADER_SIZE, walk.next
    if walk.why == FOUND and walk.next < durable:
        block = segment.block(walk.pos, size, verify=False)
        if isinstance(block, Block):
            return walk.pos + block.size, block.end
    if walk.next < durable:
        raise segment.corrupt(walk.pos, walk.next, walk.why, f"and messages up to {durable - 1} "
                              "were durable")
    return walk.pos, walk.next


def _link(path: Path, target: Path) -> int:
    """The bytes that had to be copied."""
    try:
        os.link(os.path.realpath(path), target)     # not to a link that may lead nowhere one day
        return 0
    except OSError:         # another file system, or one without links; or it is gone
        pass
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise _Changed from None
    try:
        return _copy_bytes(fd, path, target, os.fstat(fd).st_size)
    finally:
        os.close(fd)


def _copy_bytes(fd: int, path: Path, target: Path, size: int) -> int:
    if copy_file(fd, path, target, size) < size:
        raise _Changed
    return size


def _small(path: Path) -> bytes | None:
    try:
        raw = read_regular(path)
    except FileNotFoundError:
        return None
    if raw is None:
        raise JournalCorrupt(f"{path} is not a regular file", path=str(path),
                             fault="not a regular file", hint="remove it")
    return raw
