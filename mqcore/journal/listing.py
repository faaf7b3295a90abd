"""What is there: topics, partitions and ids, of a folder or of a journal server."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from mqcore.journal.place import partitions
from mqcore.journal.segment import journal_id


class PartitionInfo(NamedTuple):
    """One partition. id: tells it from one that was deleted and made anew in its place; None:
    nothing has been written to it yet."""

    topic: str
    partition: int
    id: str | None


def in_folder(where: str | os.PathLike[str]) -> list[PartitionInfo]:
    return [PartitionInfo(topic, number, journal_id(folder))
            for topic, number, folder in partitions(where)]


def list_partitions(where: str | os.PathLike[str], **remote: Any) -> list[PartitionInfo]:
    """All partitions of a folder, or of the journal server at an address; remote: as for `open`.

    Raises FileNotFoundError; NotSupported if the server is too old to tell; RecvTimeout if nobody
    answers.
    """
    if "://" not in os.fspath(where):
        return in_folder(where)
    from mqcore.journal.remote import Directory

    with Directory(os.fspath(where), **remote) as directory:
        return directory.partitions()
