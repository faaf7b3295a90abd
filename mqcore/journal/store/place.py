"""Where things lie: the folder of a partition, its segment files, its lock, its groups.

    WHERE/TOPIC/groups/NAME                            a consumer group with members: see groups/
    WHERE/TOPIC/PARTITION/00000000000000000000.mqj     segments, named by their first offset
                          lock                         flock, held by the one writer
                          groups/NAME                  how far a consumer group has come, in decimal
                          producers                    see snapshot.py
                          durable                      see durable.py
    WHERE/TOPIC/names                                  see topic_names.py

TOPIC and NAME are percent-encoded (RFC 3986's unreserved characters stay). A name whose encoding is
longer than a file name may be is cut, and ends with "%~" and its hash; FORMAT.md has the rule.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import operator
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from mqcore.errors import AddressError, OptionError, UsageError
from mqcore.journal.errors import JournalCorrupt
from mqcore.journal.store.core import checksum
from mqcore.journal.store.scan import HEADER_SIZE, parse_segment

_log = logging.getLogger("mqcore.journal")
SUFFIX = ".mqj"
DIGITS = 20
TOPIC_MAX = 255
NAME_MAX = 200          # characters of an encoded name; some file systems allow no more than 255
HASHED = "%~"           # no percent-encoded name has it
CHUNK = 1 << 20         # bytes copied at a time
HALF = ".compact"       # ends the name of a segment that compaction is writing
LISTINGS = 100          # until two are the same
ABANDONED = 86400.0     # seconds after which a temporary file's writer is taken for dead


def _encoded(name: str, what: str) -> str:
    try:
        raw = name.encode()
    except (UnicodeEncodeError, AttributeError):
        raise OptionError(f"the {what} {name!r} is not text in Unicode",
                          hint=f"a {what} is a str without lone surrogates") from None
    if not 0 < len(raw) <= TOPIC_MAX or "\0" in name:
        raise OptionError(f"the {what} {name!r} has {len(raw)} bytes",
                          hint=f"1 to {TOPIC_MAX} bytes are allowed, none of them zero")
    quoted = quote(name, safe="")
    if set(name) == {"."}:
        quoted = quoted.replace(".", "%2E")
    if len(quoted) <= NAME_MAX:
        return quoted
    kept = re.sub(r"%.?$", "", quoted[:100])        # no half of an escape
    return f"{kept}{HASHED}{hashlib.sha256(raw).hexdigest()[:32]}"


def topic_folder(topic: str) -> str:
    return _encoded(topic, "topic")


def may_be_topic(name: str) -> bool:
    """Whether a topic's folder can be called that."""
    try:
        return HASHED in name or topic_folder(unquote(name)) == name
    except OptionError:
        return False


def partition_folder(where: str | os.PathLike[str], topic: str, partition: int) -> Path:
    text = os.fsdecode(where)
    if "://" in text:
        raise AddressError(f"{text!r} is not a folder", position=text.index("://"),
                           hint="this version opens journals on this machine's disks only")
    if type(partition) is bool or not isinstance(partition, int) or not 0 <= partition < 1 << 32:
        raise OptionError(f"partition {partition!r}",
                          hint=f"a partition is a number from 0 to {(1 << 32) - 1}")
    return Path(text) / topic_folder(topic) / str(partition)


def partition_numbers(folder: Path) -> list[int]:
    """Those of the partitions in a topic's folder, in order."""
    return sorted(int(path.name) for path in folder.iterdir()
                  if is_number(path.name) and path.is_dir())


def is_number(name: str) -> bool:
    """Whether a partition's folder can be called that."""
    return name.isascii() and name.isdecimal() and (name == "0" or name[0] != "0")


def is_partition(folder: str | os.PathLike[str]) -> bool:
    """Whether it is a partition's folder, not a journal's: its name is a number, and it holds
    segments."""
    folder = Path(os.path.abspath(folder))
    return is_number(folder.name) and folder.is_dir() \
        and any(_is_segment(name) for name in os.listdir(folder))


def segment_name(first: int) -> str:
    return f"{first:0{DIGITS}d}{SUFFIX}"


def segments(folder: Path) -> list[int]:
    """The first offsets of the segments that are there, ascending. JournalCorrupt: a repair by an
    older version was interrupted between its two renames; a writer or a repair completes it."""
    names = os.listdir(folder)
    firsts = sorted(int(name[:DIGITS]) for name in names if _is_segment(name))
    for name in names:
        if name.endswith(".new") and _is_segment(name[:-4] + SUFFIX):
            path = folder / (name[:-4] + SUFFIX)
            if not os.path.lexists(path) and _may_replace(folder / name, path):
                raise JournalCorrupt(
                    f"{path} is missing: its repair was interrupted", path=str(path),
                    offset=int(name[:DIGITS]), fault="a repair was interrupted",
                    hint="open the journal to append, or repair it again, to complete the repair")
    return firsts


def settled_segments(folder: Path) -> list[int]:
    """segments() beside a writer. Of two files that are made while a folder is listed, the list may
    have the second alone."""
    found = segments(folder)
    for _ in range(LISTINGS):
        again = segments(folder)
        if again == found:
            break
        found = again
    return found


def _is_segment(name: str) -> bool:
    return len(name) == DIGITS + len(SUFFIX) and name.endswith(SUFFIX) \
        and name[:DIGITS].isdecimal() and name.isascii()


def _may_replace(new: Path, path: Path) -> bool:
    """Whether it is a segment, and the one that belongs there."""
    try:
        header = parse_segment(read_regular(new, HEADER_SIZE) or b"")
    except OSError:
        return False
    return not isinstance(header, str) and segment_name(header.first) == path.name


def finish_repair(folder: Path) -> None:
    """Complete a repair that was interrupted. With the writer's lock, before anything is read.

    A new file that is not in its place yet is only half written, or not needed: the damaged one is
    still there. Versions that moved the damaged file away first left a gap, which a whole new file
    fills."""
    for new in sorted(folder.glob("*.new")):
        path = new.with_suffix(SUFFIX)
        if not _is_segment(path.name):
            continue
        if path.exists():
            new.unlink()
        elif _may_replace(new, path):
            os.replace(new, path)
            sync_folder(folder)


def sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(folder: Path) -> None:
    """With its parents, as far as they are missing, and durable on return."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    if missing:         # the last one that is there may be of a process that was killed
        with contextlib.suppress(PermissionError):
            sync_folder(folder.parent)
    for made in reversed(missing):
        made.mkdir(exist_ok=True)
        sync_folder(made.parent)


def replace(path: Path, raw: bytes) -> None:
    """Durable on return, and never half, whichever threads and processes do so together."""
    new = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}")
    try:
        with open(new, "xb") as stream:
            stream.write(raw)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def copy_file(fd: int, path: Path, target: Path, size: int) -> int:
    """Copy the first bytes of a file, which fd has open, into a new one with the same mode; how
    many there were, if the file is shorter. Durable on return. JournalCorrupt: the disk cannot
    read it."""
    at = 0
    with open(target, "xb") as out:
        os.fchmod(out.fileno(), stat.S_IMODE(os.fstat(fd).st_mode))     # who may read it
        while at < size:
            try:
                raw = os.pread(fd, min(CHUNK, size - at), at)
            except OSError as error:
                raise JournalCorrupt(
                    f"{path} at byte {at}: the disk cannot read it ({error.strerror})",
                    path=str(path), position=at, fault="the disk cannot read it") from error
            if not raw:
                break
            out.write(raw)
            at += len(raw)
        out.flush()
        os.fsync(out.fileno())
    return at


# -- consumer groups -----------------------------------------------------------------------------


def group_name(group: str) -> str:
    """The file name of a consumer group."""
    name = _encoded(group, "group")
    return f"%2E{name[1:]}" if name.startswith(".") else name


def group_file(folder: Path, group: str) -> Path:
    return folder / "groups" / group_name(group)


def group_offset(folder: Path, group: str) -> int | None:
    """The next offset that the group will read; None: it has never committed. JournalCorrupt: its
    file is damaged."""
    found = _read_group(group_file(folder, group))
    return None if found is None else found[1]


def floor_of(folder: Path, groups: Iterable[str]) -> int | None:
    """The offset below which all these groups have read everything; None: there are none. A group
    whose file is damaged has read nothing, as far as is known."""
    found = []
    for group in groups:
        try:
            found.append(group_offset(folder, group) or 0)
        except JournalCorrupt as error:
            _warn(group_file(folder, group), error.fault)
            found.append(0)
    return min(found, default=None)


def groups_folder(folder: Path) -> Path:
    """Where a partition's groups are; made, if need be, and durable."""
    found = folder / "groups"
    with contextlib.suppress(FileNotFoundError):
        if found.stat().st_ino == _synced.get(found):
            return found
    found.mkdir(exist_ok=True)
    inode = found.stat().st_ino
    sync_folder(folder)         # also if another process has just made it
    if len(_synced) > 1000:
        _synced.clear()
    _synced[found] = inode
    return found


def set_group_offset(folder: Path, group: str, offset: int) -> None:
    """Durable on return, and never half."""
    path = groups_folder(folder) / group_name(group)
    name = f"{quote(group, safe='')}\n" if HASHED in path.name else ""
    replace(path, f"{offset}\n{_group_crc(group, offset):08x}\n{name}".encode())


def _group_crc(group: str, offset: int) -> int:
    return checksum(f"{offset}\n{quote(group, safe='')}".encode())


def groups(folder: Path, bad: Callable[[Path, str], Any] | None = None) -> dict[str, int]:
    """All groups that have committed. Other files are reported by bad(path, why), or by a
    warning."""
    try:
        names = sorted(os.listdir(folder / "groups"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    found: dict[str, int] = {}
    for name in names:
        if name.startswith("."):        # half written
            continue
        try:
            read = _read_group(folder / "groups" / name)
        except (OSError, JournalCorrupt) as error:
            (bad or _warn)(folder / "groups" / name, getattr(error, "fault", str(error)))
            continue
        if read is not None:
            found[read[0]] = read[1]
    return found


def _read_group(path: Path) -> tuple[str, int] | None:
    """(name, offset)"""
    try:
        raw = read_regular(path, 4096)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if raw is None:
        _warn(path, "it is not a regular file")
        return None
    number, _, rest = raw.partition(b"\n")
    crc, _, text = rest.partition(b"\n")
    try:
        name = unquote(text.decode("ascii").strip() if HASHED in path.name else path.name,
                       errors="strict")
        if number.isdigit() and len(number) < 20 \
                and group_file(path.parent.parent, name) == path \
                and crc == b"%08x" % _group_crc(name, int(number)):
            return name, int(number)
    except (UnicodeDecodeError, OptionError):
        pass
    raise JournalCorrupt(
        f"{path} is damaged: it is unknown how far this consumer group has come", path=str(path),
        fault="the file of a consumer group does not match its CRC",
        hint="commit an offset for the group again (reader.commit_offset); until then retain_for= "
             "keeps every message for it")


def read_regular(path: Path, most: int = -1) -> bytes | None:
    """What is in the file, or its first `most` bytes. None: it is a pipe or a folder, say."""
    try:
        with open(path, "rb", opener=at_once) as file:
            return file.read(most) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    except IsADirectoryError:
        return None


def at_once(path: str, flags: int) -> int:
    """Without waiting for the writer of a pipe."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


_synced: dict[Path, int] = {}   # folders of groups that are known to be durable, by inode
_warned: set[Path] = set()


def _warn(path: Path, why: str) -> None:
    """Once for each file."""
    if path not in _warned and len(_warned) < 1000:
        _warned.add(path)
        _log.warning("%s is passed over as the file of a consumer group: %s", path, why)


def is_abandoned(path: str | os.PathLike[str]) -> bool:
    """Whether nobody has changed a temporary file or folder for so long that its writer is dead."""
    try:
        return time.time() - os.stat(path).st_mtime > ABANDONED
    except FileNotFoundError:       # it has its name now, or another process has swept
        return False


def sweep_groups(folder: Path) -> None:
    """Remove what killed processes have left half written."""
    try:
        for entry in os.scandir(folder / "groups"):
            if entry.name.startswith(".") and is_abandoned(entry.path):
                os.unlink(entry.path)
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            _log.warning("%s: %s", folder / "groups", error)


def check_commit(group: object, offset: Any, reader: Any) -> int:
    """The offset as a number, if a group can have come so far. UsageError."""
    if not isinstance(group, str):
        raise UsageError(f"the group {group!r} is no text")
    try:
        at = operator.index(offset)
    except TypeError:
        raise UsageError(f"the offset {offset!r} is no whole number",
                          hint="it is that of the next message that the group will read") from None
    end = reader.end
    if not 0 <= at <= end:
        raise UsageError(f"the group {group!r} cannot have come to message {at}",
                          hint=f"the journal has messages up to {end}; commit 0 to {end}")
    return at
