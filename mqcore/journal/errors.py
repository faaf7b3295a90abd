"""What a journal raises, in the form of `mqcore.errors`: a `code`, a `hint`, and facts."""

from __future__ import annotations

import errno
import os
from typing import Any

from mqcore.errors import Error, UsageError


class JournalError(Error):
    """Something is wrong with a journal."""

    code = "journal"


class JournalNotFound(JournalError, FileNotFoundError):
    """The journal does not exist."""

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


class JournalFenced(JournalError):
    """A mirror of this journal was promoted, so this journal takes no more messages. `epoch` is
    the newer one. `first` to `end` (exclusive) are the offsets of messages that only this journal
    has; they are equal if there are none."""

    code = "journal_fenced"
    hint = ("write to the promoted journal; `mq journal mirror` makes this one its mirror, once "
            "the messages that only this one has are saved elsewhere")
    fields = {"epoch": 0, "first": 0, "end": 0}
    epoch: int
    first: int
    end: int


class JournalDiverged(JournalError):
    """Two journals that were one hold different messages at the offsets `first` to `end`
    (exclusive). `epoch`: the one that began at `first`."""

    code = "journal_diverged"
    hint = ("nothing was overwritten: read these messages where they are, with "
            "`mq journal tail --from`, decide what to send again, then begin a new copy in an "
            "empty folder")
    fields = {"epoch": 0, "first": 0, "end": 0}
    epoch: int
    first: int
    end: int


class JournalUnconfirmed(JournalError):
    """A replica did not answer, so it is unknown whether it was promoted meanwhile. `replica` is
    its address."""

    code = "journal_unconfirmed"
    hint = ("start the journal server of that replica; or, if you know that it was not promoted, "
            "open the journal without it in replicas=")
    fields = {"replica": ""}
    replica: str


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
    """A journal server is at one of its limits and does not answer this request now, or another
    process is committing for a consumer group and does not come to an end."""

    code = "journal_busy"
    hint = "ask again later, or raise the limit: journal.serve(limits=journal.Limits(...))"


class JournalDenied(JournalError, PermissionError):
    """A journal server does not let this reader read this topic, or commit this consumer group; or
    a journal device does not let this sender write this topic."""

    code = "journal_denied"
    hint = ("who runs the server grants it: journal.serve(rights=...), mq journal serve --rights; "
            "for a device: mqcore.device(rights=...), mq journal record --rights")
    fields = {"errno": errno.EACCES}


class QueueFull(JournalError):
    """The queue holds as many jobs or bytes as its options allow. Nothing of the call is stored
    beyond `taken` jobs."""

    code = "queue_full"
    hint = ("let consumers catch up and put again, raise max_jobs or max_bytes, or let producers "
            'wait with on_full="block"')
    fields = {"taken": 0}
    taken: int


class JobTooLarge(JournalError, UsageError):
    """The job is larger than its queue, or the server, may hold at all, so no later put can
    succeed. `taken`: how many jobs of the call are stored."""

    code = "job_too_large"
    hint = ("store large bodies elsewhere and queue their place, or raise the limit: max_bytes of "
            "the queue, or QueueLimits(job_bytes=..., bytes=...) of its server")
    fields = {"taken": 0}
    taken: int


class JobLost(JournalError):
    """This consumer no longer holds the job: its visibility time-out has passed or its connection
    was lost, and the job went back to the queue. `ids` are the jobs."""

    code = "job_lost"
    hint = ("another consumer may have the job: undo what you did, or make the work idempotent; "
            "call extend() in time, or raise the queue's visibility")
    fields = {"ids": ()}
    ids: tuple[int, ...]


class GroupMoved(JournalError):
    """A consumer group is not where commit_offset(expected=) expected it, so it stays where it is.
    `group` is its name, `offset` where it is; -1: it has never committed."""

    code = "group_moved"
    hint = ("another consumer of the group has committed meanwhile: go on from there, or commit "
            "without expected= to set the group back")
    fields = {"group": "", "offset": 0}
    group: str
    offset: int


class PartitionLost(JournalError):
    """This member of a consumer group no longer has the partition, so its offset was not committed:
    the member was not heard of for its `session`, lost its connection, or took longer than
    `handling` to let the partition go. Another member reads on from the last commit."""

    code = "partition_lost"
    hint = ("another member may have handled the same messages: make handling idempotent; give the "
            "members more time with session= and handling=")
    fields = {"partition": 0}
    partition: int


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


class ProducerFenced(JournalRefused):
    """The producer that sent this message was replaced: the journal has a message of a newer life
    of it (status 5). Nothing is stored of the older one any more. If the message was sent before,
    it may have been stored then. `life` is the newest."""

    code = "producer_fenced"
    hint = ("another process goes on in its place, so end this one; to take over, begin the next "
            "life: journal.stamp(producer, sequence, life=error.life + 1)")
    fields = {"status": 5, "taken": 0, "life": 0}
    life: int


FENCED = 5
DENIED = 4              # the status of an answer; 1: it cannot be stored
STAMP_FAULTS = {2: "its sequence number is too old to tell whether it was stored before",
                3: "another message of this producer is stored under its sequence number"}


def stamp_refused(status: int, taken: int = 0) -> StampRefused:
    return StampRefused(f"the message was not stored: {STAMP_FAULTS[status]}", status=status,
                        taken=taken)


def producer_fenced(life: int, taken: int = 0) -> ProducerFenced:
    return ProducerFenced(f"the message was refused: life {life} of its producer has begun. If it "
                          "was sent before, it may have been stored then", life=life, taken=taken)


NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
NO_FILES = {errno.EMFILE, errno.ENFILE}
BROKEN = ("after a failed sync nobody knows what is on the disk: close the writer and open it "
          "again; `durable` is what is certain")


STALE = ("another process writes there, or the files were removed or replaced. See that only one "
         "process opens the partition to append, also on other machines that share its disk. Then "
         "close the writer, run `mq journal verify`, and open it again. What was durable is kept "
         "unless the other has written over it")


def write_error(number: int, path: Any, *, taken: int = 0, broken: bool = False,
                hint: str | None = None) -> Error:
    """The exception that fits the errno of a failed write or sync. hint: if a full disk is not
    what a writer does with it."""
    if number == errno.ENOMEM:
        return JournalWriteError(f"no memory to append to {path}", errno=number, taken=taken)
    if number == errno.ESTALE:
        return JournalWriteError(f"the files of {path} are not as this writer left them",
                                 errno=number, taken=taken, hint=STALE)
    kind = JournalFull if number in NO_ROOM and not broken else JournalWriteError
    return kind(f"cannot write to {path}: {os.strerror(number)}", errno=number, taken=taken,
                hint=BROKEN if broken else hint)
