"""Which topic a folder is of. The folder's name tells, unless that of the topic is too long for
one: then the headers of the segments tell, which have the topic's name.

    WHERE/TOPIC/names       the names of a topic that was renamed

A topic that is renamed keeps its segments, whose headers have the name of before. The file lists
all that a header there may have, the present one included. FORMAT.md has the bytes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from errno import ELOOP
from pathlib import Path
from urllib.parse import quote, unquote

from mqcore.errors import OptionError
from mqcore.journal.errors import JournalCorrupt
from mqcore.journal.store.core import checksum
from mqcore.journal.store.place import (
    HASHED,
    TOPIC_MAX,
    partition_numbers,
    read_regular,
    replace,
    segment_name,
    segments,
    topic_folder,
)
from mqcore.journal.store.scan import HEADER_SIZE, Header, parse_segment

NAME = "names"
LARGEST = 16 << 20      # bytes
FAULT = "the file of a renamed topic's names does not match its CRC"


def names_of(home: Path) -> list[str]:
    """What the file in a topic's folder says; nothing without one. JournalCorrupt."""
    path = home / NAME
    try:
        raw = read_regular(path, LARGEST)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        if error.errno != ELOOP:
            raise
        raw = None
    crc, _, rest = (raw or b"").partition(b"\n")
    with contextlib.suppress(UnicodeDecodeError, OptionError):
        found = [unquote(line, errors="strict") for line in rest.decode("ascii").splitlines()]
        if crc == b"%08x" % checksum(rest) and all(map(topic_folder, found)):
            return found
    raise JournalCorrupt(f"{path} is damaged: it is unknown which names this topic had",
                         path=str(path), fault=FAULT,
                         hint="`mq journal repair` makes it again, of what the segments say")


def write_names(home: Path, names: Iterable[str]) -> None:
    """Durable on return."""
    rest = "".join(f"{quote(name, safe='')}\n" for name in names).encode()
    replace(home / NAME, b"%08x\n" % checksum(rest) + rest)


def headers(folder: Path) -> Iterator[Header | None]:
    """Of a partition's segments; None for each that cannot be read."""
    for first in segments(folder):
        try:
            found = parse_segment(read_regular(folder / segment_name(first), HEADER_SIZE) or b"")
        except FileNotFoundError:       # removed by retention meanwhile
            continue
        except OSError:
            found = "unreadable"
        yield None if isinstance(found, str) else found


def is_place_of(folder: Path, topic: bytes, partition: int) -> bool:
    """Whether a partition's folder is the one of this topic and partition, or was when the topic
    had that name. JournalCorrupt."""
    try:
        name = topic.decode()
        return folder.name == str(partition) and (
            folder.parent.name == topic_folder(name) or name in names_of(folder.parent))
    except (UnicodeDecodeError, OptionError):
        return False


def topic_of(folder: Path) -> str | None:
    """The topic of a partition's folder. None: its name was too long to be the folder's, and no
    segment says it yet."""
    name = folder.parent.name
    if HASHED not in name:
        return unquote(name)
    with contextlib.suppress(JournalCorrupt):
        for known in names_of(folder.parent):
            if topic_folder(known) == name:
                return known
    for first in segments(folder):
        try:
            raw = read_regular(folder / segment_name(first), HEADER_SIZE) or b""
        except OSError:         # removed by retention meanwhile, or the disk does not give it
            continue
        # a damaged header may still hold the topic: the hash tells
        topic = raw[64:64 + min(raw[60], TOPIC_MAX)] if len(raw) == HEADER_SIZE else b""
        try:
            if topic_folder(topic.decode()) == name:
                return topic.decode()
        except (UnicodeDecodeError, OptionError):
            continue
    return None


def check_named(folder: Path) -> None:
    """JournalCorrupt: topic_of() finds no name, though there are segments that should tell it."""
    for first in segments(folder):
        path = folder / segment_name(first)
        if os.path.getsize(path) >= HEADER_SIZE:
            raise JournalCorrupt(
                f"{path} does not say which topic it is of", path=str(path), offset=first,
                fault="no segment's header tells the topic, whose name is too long for a folder's",
                hint="`mq journal repair` mends headers, if you name the topic")


def partitions(where: str | os.PathLike[str]) -> Iterator[tuple[str, int, Path]]:
    """(topic, partition, folder) of every journal below where, in order."""
    for folder in sorted(Path(where).iterdir()):
        if folder.is_dir():
            for number in partition_numbers(folder):
                path = folder / str(number)
                topic = topic_of(path)
                if topic is not None:
                    yield topic, number, path
