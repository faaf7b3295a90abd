"""An append-only log of messages in files: written once, read by offset, by time, or as it grows.

    from mqcore import journal

    with journal.open("data", "a", topic="flights") as log:
        log.append(b"hello")
    with journal.open("data", topic="flights") as log:
        for records in log.batches():
            print(records.first, records.to_list())

README.md beside this file is the guide, FORMAT.md the bytes.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from mqcore.base.renamed import find_renamed
from mqcore.errors import OptionError
from mqcore.journal.errors import (
    GroupMoved,
    JobLost,
    JobTooLarge,
    JournalBusy,
    JournalClosed,
    JournalCorrupt,
    JournalDenied,
    JournalDiverged,
    JournalError,
    JournalFenced,
    JournalFull,
    JournalLocked,
    JournalNotFound,
    JournalRefused,
    JournalUnconfirmed,
    JournalWriteError,
    OffsetGone,
    PartitionLost,
    ProducerFenced,
    QueueFull,
    StampRefused,
)
from mqcore.journal.listing import PartitionInfo, list_partitions
from mqcore.journal.multi_writer import MultiWriter
from mqcore.journal.queues.options import QueueLimits, QueueOptions
from mqcore.journal.reader import Reader
from mqcore.journal.records import Records
from mqcore.journal.replay import replay
from mqcore.journal.rights import Rights
from mqcore.journal.server.limits import Limits
from mqcore.journal.stamp import (
    Sequences,
    partition_of_key,
    partition_of_message,
    read_key,
    read_life,
    read_stamp,
    stamp,
    stored_at,
)
from mqcore.journal.store.core import checksum
from mqcore.journal.store.place import is_partition, partition_folder
from mqcore.journal.store.recovery import Checked, Dropped
from mqcore.journal.store.recovery import verify as _verify
from mqcore.journal.store.repair import Repaired
from mqcore.journal.store.repair import repair as _repair
from mqcore.journal.traced import TracedWriter
from mqcore.journal.waiting import in_thread
from mqcore.journal.writer import Writer
from mqcore.journal.writer_stats import WriterStats

if TYPE_CHECKING:
    from mqcore.journal.backups import BackedUp
    from mqcore.journal.compaction import Compacted
    from mqcore.journal.groups.member import GroupMember
    from mqcore.journal.promotion import Promoted
    from mqcore.journal.queues.client import Queue
    from mqcore.journal.queues.job import Job
    from mqcore.journal.queues.server import QueueServer
    from mqcore.journal.rights import Given
    from mqcore.journal.server.server import Server
    from mqcore.journal.spilling import Spill, SpillStats, spill

__all__ = [
    "BackedUp", "Checked", "Compacted", "Dropped", "GroupMember", "GroupMoved", "Job", "JobLost",
    "JobTooLarge", "JournalBusy", "JournalClosed", "JournalCorrupt", "JournalDenied",
    "JournalDiverged", "JournalError", "JournalFenced", "JournalFull", "JournalLocked",
    "JournalNotFound", "JournalRefused", "JournalUnconfirmed", "JournalWriteError", "Limits",
    "MultiWriter", "OffsetGone", "PartitionInfo", "PartitionLost", "ProducerFenced", "Promoted",
    "Queue", "QueueFull", "QueueLimits", "QueueOptions", "QueueServer", "Reader", "Records",
    "Repaired", "Rights", "Sequences", "Spill", "SpillStats", "StampRefused", "Writer",
    "WriterStats", "ajoin", "aopen",
    "backup", "checksum", "compact", "delete", "join", "list_partitions", "open",
    "partition_of_key", "partition_of_message", "promote", "queue", "read_key", "read_life",
    "read_stamp", "rename", "repair", "replay", "serve", "serve_queues", "spill", "stamp",
    "stored_at", "truncate_before", "verify",
]

_LATER = {"BackedUp": "backups", "Compacted": "compaction", "GroupMember": "groups.member",
          "Job": "queues.job", "Promoted": "promotion", "Queue": "queues.client",
          "QueueServer": "queues.server", "Spill": "spilling", "SpillStats": "spilling",
          "spill": "spilling"}                  # need msgspec, or are rare


# Names that were here before the first release.
_FORMER = {
    "mqcore.journal": "partition_of=partition_of_key partition_for=partition_of_message "
                      "Writers=MultiWriter",
    "mqcore.journal.store.topic_names": "partitions",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        former = find_renamed(__name__, name, _FORMER)
        if former is not None:
            return former
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"mqcore.journal.{_LATER[name]}")
    found = globals()[name] = getattr(module, name)
    return found


MANY = {"partitions", "topic_from", "max_topics", "max_open"}      # options of a MultiWriter


@overload
def open(where: str | os.PathLike[str], mode: Literal["r"] = "r", *,
         topic: str | None = "default",
         partition: int = 0, verify: bool = True, durable: bool | None = None,
         salvage: bool = False, **remote: Any) -> Reader: ...
@overload
def open(where: str | os.PathLike[str], mode: Literal["a"], *, topic: str = "default",
         partition: int = 0, fsync: Literal["always", "interval", "never"] = "interval",
         fsync_interval: float = 0.1, segment_bytes: int = 256 << 20,
         segment_age: float | None = None, block_bytes: int = 1 << 20,
         retain_bytes: int | None = None, retain_age: float | None = None,
         retain_for: tuple[str, ...] = (), stamps: bool = False, deduplicate: bool = False,
         max_producers: int = 100_000, max_producer_bytes: int = 64 << 20, begin: int = 0,
         trace: bool = False, mirror: bool = False, replicas: str | Iterable[str] = (),
         replica_timeout: float = 5.0, replica_options: dict[str, Any] | None = None,
         compression: Literal["zstd", "lz4"] | None = None) -> Writer: ...
@overload
def open(where: str | os.PathLike[str], mode: Literal["a"], *, topic: str | None = None,
         partitions: int = 1, topic_from: Literal["first-part"] | None = None,
         max_topics: int = 100, max_open: int | None = None,
         fsync: Literal["always", "interval", "never"] = "interval",
         fsync_interval: float = 0.1, segment_bytes: int = 256 << 20,
         segment_age: float | None = None, block_bytes: int = 1 << 20,
         retain_bytes: int | None = None, retain_age: float | None = None,
         retain_for: tuple[str, ...] = (), stamps: bool = False, deduplicate: bool = False,
         max_producers: int = 100_000, max_producer_bytes: int = 64 << 20,
         replicas: str | Iterable[str] = (), replica_timeout: float = 5.0,
         replica_options: dict[str, Any] | None = None,
         compression: Literal["zstd", "lz4"] | None = None) -> MultiWriter: ...
def open(where: str | os.PathLike[str], mode: str = "r", *, topic: str | None = None,
         partition: int | None = None, **options: Any) -> Reader | Writer | MultiWriter:
    """One partition of a journal: to read ("r"), or to append, as its only writer ("a").

    fsync: "always": what is appended is durable when the call returns. "interval": it is durable
    within about fsync_interval seconds. "never": when the segment ends, at commit() and at close().
    segment_bytes, segment_age: when a new file is begun. block_bytes: messages gathered at most.
    retain_bytes, retain_age: old segments are removed beyond; retain_for: but none that these
    consumer groups have not read (alone: as soon as they have). stamps: see `stamp`.
    deduplicate: a stamped message that is stored already is not stored again, and counted. At most
    max_producers producers are remembered for that, in about max_producer_bytes. README.md says
    what that takes of them, and whose are forgotten.
    begin: the offset that a new journal begins at, for a mirror of one whose beginning is gone.
    trace: append() adds the headers of the current trace (mqcore.trace), which
    Records.trace_context() reads; with partitions=, pass headers=trace.headers() instead.
    partitions: how many there are, as one `MultiWriter`; topic_from="first-part": those of whatever
    topics come, at most max_topics in the folder. max_open: partitions of it that are open at once;
    None: as many as the process's limit of open files allows.
    mirror: the writer is for a mirror, so a former primary whose mirror was promoted may be opened,
    too. replicas: addresses of the journal servers of this journal's mirrors; each must confirm
    within replica_timeout seconds that its mirror was not promoted. The writer asks again about
    once a second. replica_options: those of a socket (security=, say) to connect to them.
    compression: "zstd" or "lz4" compresses each block that this makes smaller. It needs pyarrow, as
    do readers of what is compressed. None (the default): blocks are written as they are.
    verify: check every block before it is handed out. durable: read only what survives a power cut,
    as Kafka's consumers do (the default). False: whatever is written, which is sooner by up to
    fsync_interval; after a power cut, other messages may get the same offsets.
    salvage: read what is whole of a damaged partition, also what is not durable. Messages that are
    lost raise OffsetGone, as after a repair, so batches(gaps="skip") goes on behind them. Nothing
    is changed.

    where: a folder, or the address of a journal server ("tcp://host:port/topic", and any other of a
    socket, with topic=), which is read by the same calls: see `serve`. Its options are timeout=,
    window= and those of a socket. Several addresses with commas between them are those of a primary
    and of its mirrors: the reader fails over.

    Raises JournalNotFound ("r"), JournalLocked, JournalCorrupt, OSError, OptionError; NotSupported
    ("a") if compression= has no pyarrow, which a reader of compressed blocks raises when it comes
    to them; JournalFenced ("a") if a mirror of this journal was promoted, JournalUnconfirmed if a
    replica does not say.
    """
    return _opened(os.fsdecode(where), mode, topic, partition, options)


def _opened(where: str, mode: str, topic: str | None, partition: int | None,
            options: dict[str, Any]) -> Reader | Writer | MultiWriter:
    if "://" in where:
        from mqcore.journal.server.remote import open_remote

        _check_remote(options)
        return open_remote(where, mode, topic, partition, options)
    if mode == "a" and not MANY.isdisjoint(options):
        return _writers(where, topic, partition, options)
    topic = "default" if topic is None else topic
    partition = 0 if partition is None else partition
    folder = partition_folder(where, topic, partition)
    if mode == "r":
        return _reader(options)(folder, topic, partition, **options)
    if mode == "a":
        kind = TracedWriter if options.pop("trace", False) else Writer
        return kind(folder, topic, partition, **options)
    raise OptionError(f"mode {mode!r}", hint='"r" reads, "a" appends')


def _reader(options: dict[str, Any]) -> type[Reader]:
    if options.get("durable", False) is None:
        del options["durable"]
    if not options.pop("salvage", False):
        return Reader
    from mqcore.journal.damaged import DamagedReader

    return DamagedReader


def _check_remote(options: dict[str, Any]) -> None:
    if options.pop("salvage", False):
        raise OptionError("salvage=True of a journal server",
                          hint="it reads the files: use it where the folder is")


async def aopen(where: str | os.PathLike[str], mode: str = "r", *, topic: str | None = None,
                partition: int | None = None, **options: Any) -> Any:
    """open(), awaitable, for asyncio and trio. The event loop goes on while a journal server
    answers, or a writer recovers its journal in a worker thread."""
    where = os.fsdecode(where)
    if "://" in where:
        from mqcore.journal.server.remote import aopen_remote

        _check_remote(options)
        return await aopen_remote(where, mode, topic, partition, options)
    return await in_thread(lambda: open(  # type: ignore[call-overload]
        where, mode, topic=topic, partition=partition, **options))


def _writers(where: str | os.PathLike[str], topic: str | None, partition: int | None,
             options: dict[str, Any]) -> MultiWriter:
    if options.pop("trace", False):
        raise OptionError("trace=True with partitions= or topic_from=",
                          hint="append(..., headers=trace.headers()) carries the current trace")
    first_part = options.get("topic_from") is not None
    if partition is not None:
        raise OptionError("partition= and partitions= (or topic_from=) exclude each other",
                          hint="a `MultiWriter` writes all partitions; leave partition out")
    if first_part and topic is not None:
        raise OptionError("topic= and topic_from= exclude each other",
                          hint="with topic_from the message itself says its topic")
    return MultiWriter(where, None if first_part else topic or "default", **options)


def serve(where: str | os.PathLike[str], bind: Any, *, groups: bool = False,
          insecure: bool = False, limits: Limits | None = None, rights: Given = None,
          **options: Any) -> Server:
    """Let other processes and machines read the journals of a folder, until stop().

    bind: one address or several. Addresses that other machines reach need keys (security=) or TLS;
    insecure=True serves them without. groups: readers may commit consumer groups, which retention
    obeys. limits: what the server refuses beyond. options: those of a socket.
    rights: {user: Rights}, by `Peer.user`, with "*" for everybody else; or a function that takes a
    `Peer` and returns its Rights or None. The server calls it once for each connection, in its own
    thread, so it must not wait. Without rights=, each peer that connects can read everything.

    Raises FileNotFoundError, UsageError (an address is exposed), OptionError, NotSupported (msgspec
    is missing).
    """
    from mqcore.journal.server.server import Server

    return Server(where, bind, groups=groups, insecure=insecure, limits=limits, rights=rights,
                  **options)


def serve_queues(where: str | os.PathLike[str], bind: Any, *,
                 fsync: Literal["always", "interval", "never"] = "interval",
                 fsync_interval: float = 0.1, segment_bytes: int = 64 << 20,
                 compression: Literal["zstd", "lz4"] | None = None,
                 insecure: bool = False, configure: bool | Iterable[str] = True,
                 limits: QueueLimits | None = None, defaults: QueueOptions | None = None,
                 **options: Any) -> QueueServer:
    """Serve durable work queues to other processes and machines, until stop().

    where: the folder of their journal, which is made. bind: one address or several. Addresses that
    other machines reach need keys (security=) or TLS; insecure=True serves them without.
    fsync: "interval": what is answered survives kill -9, and after about fsync_interval seconds a
    power cut. "always": what is answered survives a power cut. "never": the system decides.
    segment_bytes: the size of a file. compression: of its blocks, as in open(). configure: which
    clients may change the options of queues and purge them: all (True), none (False), or users by
    their names, as authentication gives them (`Peer.user`).
    limits: what the server refuses beyond. defaults: the options of new queues. options: those of a
    socket.

    Raises JournalLocked (the folder has a server), JournalCorrupt, UsageError (an address is
    exposed), NotSupported (msgspec is missing).
    """
    from mqcore.journal.queues.server import QueueServer

    return QueueServer(where, bind, fsync=fsync, fsync_interval=fsync_interval,
                       segment_bytes=segment_bytes, compression=compression, insecure=insecure,
                       configure=configure, limits=limits, defaults=defaults, **options)


def queue(url: str, name: str, *, prefetch: int = 1, timeout: float = 10.0,
          producer: int | None = None, **options: Any) -> Queue:
    """One queue of a queue server, to put jobs into and to get them from.

    prefetch: jobs that get() and iteration ask for at a time and keep here until they are wanted.
    timeout: seconds until the server must have answered. producer: a number of this producer's own,
    for put(sequence=...); None: a random one. options: those of a socket.

    Raises AddressError, OptionError, NotSupported (msgspec is missing). It connects in the
    background, so a server may start later.
    """
    from mqcore.journal.queues.client import Queue

    return Queue(url, name, prefetch=prefetch, timeout=timeout, producer=producer, **options)


def join(url: str, group: str, *, topic: str | None = None,
         start: Literal["first", "end"] = "first", session: float = 10.0, handling: float = 300.0,
         autocommit: float | None = 1.0, durable: bool = True, timeout: float = 10.0,
         window: int = 8 << 20, **options: Any) -> GroupMember:
    """Read a topic together with other processes: each partition is read by one member of `group`
    at a time, and goes to another when its member leaves or dies.

    url: of a journal server with groups=True, as for open(). start: where a group begins that has
    no offset yet. session: seconds after which a member that is not heard of loses its partitions;
    one whose connection ends loses them at once. handling: seconds that a member may take to come
    back for more when another one is to have the partition. autocommit: seconds between two commits
    of what is dealt with; None: only commit() does. durable: as for open().
    timeout: seconds until the server must have answered. window: bytes under way of a partition.
    options: those of a socket.

    Raises JournalNotFound (no such topic), UsageError (the server has no groups), OptionError,
    RecvTimeout.
    """
    from mqcore.journal.groups.member import GroupMember

    return GroupMember(url, group, topic=topic, start=start, session=session, handling=handling,
                       autocommit=autocommit, durable=durable, timeout=timeout, window=window,
                       **options).joined()


async def ajoin(url: str, group: str, **options: Any) -> GroupMember:
    """join(), awaitable, for asyncio and trio."""
    return await in_thread(lambda: join(url, group, **options))


def verify(where: str | os.PathLike[str], *, topic: str = "default", partition: int = 0,
           progress: Callable[[int], Any] | None = None) -> Checked:
    """Read one partition whole. The result lists what is wrong and where; `findings` is empty if
    all is well. where: the journal's folder, or the partition's own. progress(bytes) is called
    after each segment. JournalNotFound."""
    return _verify(_folder_of(where, topic, partition), progress)


def repair(where: str | os.PathLike[str], *, topic: str = "default",
           partition: int = 0) -> Repaired:
    """Make a damaged partition readable again. where: as for verify(). Takes the writer's lock
    (JournalLocked) and deletes nothing. Intact blocks keep their offsets; a lost offset raises
    OffsetGone when it is read. An interrupted repair loses nothing: start it again.
    JournalNotFound."""
    return _repair(_folder_of(where, topic, partition), topic)


def backup(where: str | os.PathLike[str], to: str | os.PathLike[str], *, topic: str | None = None,
           partition: int | None = None) -> list[BackedUp]:
    """Copy partitions of the folder `where` into the folder `to`, each as of one moment, while
    their writers go on. The copy has all messages that were durable, with their offsets, and what
    consumer groups had committed. It is a journal like any other: to restore it, put it in the
    place of the lost one, or open it where it is.

    topic, partition: only these; None: all. Segments that are complete become hard links, which
    take no space until retention removes the original, where both folders are on one file system.
    Otherwise they are copied.

    Returns what was copied, a row for each partition. Raises JournalNotFound, UsageError (`to` has
    the partition already), JournalCorrupt (a partition cannot be read, or lacks a part),
    JournalBusy (segments were removed again and again meanwhile), JournalFull, JournalWriteError.
    Partitions that were copied before an error stay.
    """
    from mqcore.journal.backups import backup as _backup

    return _backup(where, to, topic=topic, partition=partition)


def truncate_before(where: str | os.PathLike[str], offset: int, *, topic: str = "default",
                    partition: int = 0) -> int:
    """Remove the messages of a partition below this offset, as far as whole segments hold them;
    with the offset of its end, all of them. The next message gets the same offset as before.
    Returns the offset of the first message that is still there, or of the next one.

    Takes the writer's lock: JournalLocked, and the program that writes calls
    Writer.truncate_before() itself. Raises JournalNotFound, UsageError (the offset is above the
    end), JournalCorrupt, JournalWriteError.
    """
    from mqcore.journal.removal import truncate_before as _truncate_before

    return _truncate_before(where, offset, topic, partition)


def delete(where: str | os.PathLike[str], *, topic: str, partition: int | None = None) -> int:
    """Delete a topic, or one of its partitions, with its consumer groups and producers. The number
    of partitions that were deleted.

    JournalLocked: a writer has one of them open, and nothing is deleted; one that opens a partition
    meanwhile keeps it and those in front of it. Open readers raise JournalNotFound at their next
    look, or read on in the files that they have open. Raises JournalNotFound, JournalBusy (a commit
    of a group does not come to an end), and OSError if a file cannot be removed: the next call
    tries again.
    """
    from mqcore.journal.removal import delete as _delete

    return _delete(where, topic, partition)


def compact(where: str | os.PathLike[str], *, topic: str = "default", partition: int | None = None,
            keep_tombstones: float = 86400.0, min_share: float = 0.0,
            max_memory: int = 128 << 20) -> list[Compacted]:
    """Keep only the newest message of each key, as Kafka's log compaction does. Messages without a
    key stay, and so do all offsets: readers pass over what is gone. One `Compacted` for each
    partition (None: of all).

    A writer may go on meanwhile. Only complete segments are compacted, by what is durable in all
    of the partition. A segment that would not get smaller, or by less than min_share of its bytes,
    stays as it is.
    keep_tombstones: seconds that a tombstone stays after the values that it hides were removed, so
    that readers that are behind meet it; 0: none. max_memory: bytes for the keys that are looked
    for at a time. With more keys, the partition is read several times.

    Raises JournalNotFound, JournalCorrupt (nothing of this partition is changed), JournalLocked (it
    is being compacted, repaired or deleted), JournalFull and JournalWriteError (the segment at hand
    stays as it was), OptionError, NotSupported (compressed blocks without pyarrow).
    """
    from mqcore.journal.compaction import compact as _compact

    return _compact(where, topic, partition, keep_tombstones, min_share, max_memory)


def rename(where: str | os.PathLike[str], *, topic: str, to: str) -> int:
    """Give a topic another name. Its messages keep their offsets, its partitions their ids; groups
    and producers go with it. The number of partitions.

    JournalLocked: a writer has one of them open, and nothing is renamed; who opens one meanwhile
    waits. Open readers raise JournalNotFound at their next look, or read on in the file that they
    have open. Raises JournalNotFound, UsageError (`to` is there already), and OSError.
    """
    from mqcore.journal.renaming import rename as _rename

    return _rename(where, topic, to)


def promote(where: str | os.PathLike[str], *, topic: str = "default", partition: int = 0,
            old: str | os.PathLike[str] | None = None) -> Promoted:
    """Make a mirror, a partition of a folder, the primary. Stop the mirror before.
    A backup, or a primary, can be promoted as well: it begins a new epoch, once.

    old: the former primary's folder, if it can be reached. Its writer must have ended. Messages
    that the mirror lacks are copied from it, and it refuses to be written from then on. Without it,
    the former primary learns of the promotion from its replicas=, or when it becomes a mirror.

    Raises JournalLocked (a mirror or the old writer still runs), UsageError (promoted already, or
    `old` is not its former primary), JournalFenced (another mirror was promoted), JournalDiverged,
    JournalNotFound.
    """
    from mqcore.journal.promotion import promote as _promote

    return _promote(where, topic=topic, partition=partition, old=old)


def _folder_of(where: str | os.PathLike[str], topic: str, partition: int) -> Path:
    folder = partition_folder(where, topic, partition)
    if not folder.is_dir() and (topic, partition) == ("default", 0) and is_partition(where):
        folder = Path(os.path.abspath(where))       # its name is its number
    if not folder.is_dir():
        raise JournalNotFound(f"there is no journal at {folder}",
                              hint="list_partitions() lists what a folder holds")
    return folder
