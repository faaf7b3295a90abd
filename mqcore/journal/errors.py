"""What a journal raises, in the form of `mqcore.errors`: a `code`, a `hint`, and facts."""

from __future__ import annotations

import errno
import os
from typing import Any

from mqcore.errors import Error


class JournalError(Error):
    """Something is wrong with a journal."""

    code = "journal"


class JournalNotFound(JournalError, FileNotFoundError):
    """There is no such journal."""

    code = "journal_not_found"
    hint = 'opening it with mode "a" makes it; `mq journal ls WHERE` lists what is there'
    fields = {"errno": errno.ENOENT}


class JournalLocked(JournalError):
    """Another writer has this journal open. `pid` is its process, 0 if unknown."""

    code = "journal_locked"
    hint = "a partition has one writer at a time; close the other, or write to another partition"
    fields = {"pid": 0}
    pid: int


class JournalClosed(JournalError):
    """The reader or writer is closed."""

    code = "journal_closed"
    hint = "open the journal again"


class JournalCorrupt(JournalError):
    """Stored bytes are damaged. `path` and `position` (bytes) say where, `offset` is the first
    message that cannot be read, `fault` what is wrong there."""

    code = "journal_corrupt"
    hint = "`mq journal verify` shows the extent, `mq journal repair` keeps what is whole"
    fields = {"path": "", "position": 0, "offset": 0, "fault": ""}
    path: str
    position: int
    offset: int
    fault: str


class OffsetGone(JournalError):
    """Retention has removed the messages at this offset. `first` is the oldest one kept."""

    code = "offset_gone"
    fields = {"offset": 0, "first": 0}
    offset: int
    first: int


class JournalWriteError(JournalError, OSError):
    """The system refused to write or to sync. `errno` is its number; `taken` tells how many
    messages of the call are kept in spite of it and must not be appended again."""

    code = "journal_write"
    fields = {"errno": None, "taken": 0}
    taken: int


class JournalFull(JournalWriteError):
    """No space is left where the journal lies."""

    code = "journal_full"
    hint = "make room; what was taken waits in memory and is written by the next commit()"


class JournalBusy(JournalError):
    """A journal server is at one of its limits and does not answer this request now."""

    code = "journal_busy"
    hint = "ask again later, or raise the limit: journal.serve(limits=journal.Limits(...))"


class JournalRefused(JournalError):
    """The journal has not stored the message, and never will. `status` is the one of the answer;
    `taken`: how many messages of the call came before it, and are dealt with."""

    code = "journal_refused"
    fields = {"status": 1, "taken": 0}
    status: int
    taken: int


class StampRefused(JournalRefused):
    """The message's sequence number cannot be right, so it is not stored: it is older than what
    the journal remembers of its producer (status 2), or another message has it (status 3)."""

    code = "stamp_refused"
    hint = ("a producer needs a new id whenever it starts to count at 0 again; a message that is "
            "sent again keeps its number, key and content")


STAMP_FAULTS = {2: "its sequence number is too old to tell whether it was stored before",
                3: "another message of this producer is stored under its sequence number"}


def stamp_refused(status: int, taken: int = 0) -> StampRefused:
    return StampRefused(f"the message was not stored: {STAMP_FAULTS[status]}", status=status,
                        taken=taken)


NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
BROKEN = ("after a failed sync nobody knows what is on the disk: close the writer and open it "
          "again; `durable` is what is certain")


def write_error(number: int, path: Any, *, taken: int = 0, broken: bool = False) -> Error:
    """The exception that fits the errno of a failed write or sync."""
    if number == errno.ENOMEM:
        return JournalWriteError(f"no memory to append to {path}", errno=number, taken=taken)
    kind = JournalFull if number in NO_ROOM and not broken else JournalWriteError
    return kind(f"cannot write to {path}: {os.strerror(number)}", errno=number, taken=taken,
                hint=BROKEN if broken else None)
