"""Promotion: a mirror becomes the primary.

    1. the lock of the mirror, so no mirror writes to it, and its recovery; its file `epoch` gets
       the token of the promotion
    2. with `old`: the lock of the former primary, so no writer appends to it; what the mirror lacks
       is copied; then the former primary's file `epoch` says that it is fenced, and its groups,
       which commit nothing more to its server, are copied
    3. the mirror's file `epoch` says that a new epoch begins at its next offset

A kill between two of these leaves no journal that takes messages by mistake: after step 2 the
former primary refuses them, and the mirror is promoted by promoting it again, into the same epoch.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from mqcore.errors import UsageError
from mqcore.journal.errors import JournalDiverged, JournalNotFound, OffsetGone
from mqcore.journal.mirror import check_same, follows
from mqcore.journal.reader import Reader
from mqcore.journal.remembered import take_over
from mqcore.journal.replicas import fenced_error, separate
from mqcore.journal.store.commits import no_commits
from mqcore.journal.store.epoch import Epochs, new_token, newer, parting
from mqcore.journal.store.exclusive import TopicLock
from mqcore.journal.store.place import (
    groups,
    groups_folder,
    partition_folder,
    set_group_offset,
    sync_folder,
)
from mqcore.journal.writer import Writer


@dataclass(frozen=True)
class Promoted:
    """The new `epoch` begins at `offset`. `copied`: messages taken from the former primary."""

    epoch: int
    offset: int
    copied: int = 0


def promote(where: str | os.PathLike[str], *, topic: str = "default", partition: int = 0,
            old: str | os.PathLike[str] | None = None) -> Promoted:
    home = partition_folder(where, topic, partition).parent
    try:
        topic_lock = TopicLock(home, shared=True)
    except JournalNotFound:
        raise _not_there(home / str(partition)) from None
    with topic_lock:
        folder = _folder_of(where, topic, partition)
        former = None if old is None else _folder_of(old, topic, partition)
        if former is not None and os.path.samefile(folder, former):
            raise UsageError(f"{old} is the mirror itself",
                             hint="old= is the former primary's folder")
        return _promote(folder, topic, partition, former)


def _promote(folder: Path, topic: str, partition: int, former: Path | None) -> Promoted:
    with Writer(folder, topic, partition, mirror=True) as writer:
        epochs = writer._epochs
        if epochs.fenced:
            raise fenced_error(folder, epochs, writer.next)
        if not epochs.mirror and epochs.own:
            return _again(writer, topic, partition, former)
        token = epochs.intent or new_token()
        writer._set_epochs(replace(epochs, intent=token))
        copied, made = 0, epochs.promoted(writer.next, token)
        if former is not None:
            copied, made = _take_over(writer, former, topic, partition, token)
        writer.commit()
        writer._set_epochs(made)
        return Promoted(made.number, made.own[-1].start, copied)


def _folder_of(where: str | os.PathLike[str], topic: str, partition: int) -> Path:
    folder = partition_folder(where, topic, partition)
    if not folder.is_dir():
        raise _not_there(folder)
    return folder


def _not_there(folder: Path) -> JournalNotFound:
    return JournalNotFound(f"there is no journal at {folder}",
                           hint="`mq journal ls` lists what a folder holds")


def _take_over(writer: Writer, former: Path, topic: str, partition: int,
               token: bytes) -> tuple[int, Epochs]:
    """(messages copied, the history with the new epoch). The former primary is fenced."""
    ours = writer._epochs
    with Writer(former, topic, partition, mirror=True) as last:
        theirs = last._epochs
        _check_related(writer, ours, last, theirs)
        if theirs.fenced:
            if len(theirs.newer) > 1 or theirs.newer[0].token != token \
                    or theirs.newer[0].start != writer.next:
                raise fenced_error(former, theirs, last.next)
            # a promotion that was interrupted behind step 2
            _copy_groups(writer, last)
            return 0, Epochs((*theirs.own, *theirs.newer), origin=ours.origin)
        if theirs.own != ours.own:      # first: what it is about to hold is of these epochs
            ours = replace(ours, own=theirs.own, mirror=True,
                           origin=ours.origin or theirs.origin or last._journal)
            writer._set_epochs(replace(ours, intent=token))
        copied = _copy(writer, last)
        made = Epochs(theirs.own, origin=ours.origin).promoted(writer.next, token)
        last._set_epochs(theirs.fenced_by(made.own))
        _copy_groups(writer, last)
        return copied, made


def _check_related(writer: Writer, ours: Epochs, last: Writer, theirs: Epochs) -> None:
    if ours.origin not in (b"", theirs.origin or last._journal):
        raise UsageError(f"{last.path} is not the journal that {writer.path} is a mirror of",
                         hint="old= is the folder of its former primary")
    apart = parting(ours.own, theirs.own)
    if apart is not None and newer(theirs.own, ours.own):
        raise UsageError(f"{last.path} is in an older epoch than its mirror {writer.path}",
                         hint="old= is the folder of the former primary")
    if apart is not None and not newer(ours.own, theirs.own):
        raise separate(str(last.path), ours.own, theirs.own, apart)
    if apart is not None and writer.next > apart or writer.next > last.next:
        first = last.next if apart is None else min(apart, last.next)
        raise JournalDiverged(
            f"messages {first} to {writer.next - 1} of {writer.path} are not in {last.path}",
            epoch=theirs.number, first=first, end=writer.next)
    with Reader(last.path, last.topic, last.partition) as reader:
        check_same(writer, reader)


def _copy(writer: Writer, last: Writer) -> int:
    """Everything that the mirror lacks: how many messages. Both locks are held."""
    copied = 0
    last.commit()
    with Reader(last.path, last.topic, last.partition) as reader:
        try:
            for records in reader.batches(writer.next):
                if not follows(writer, records):
                    raise _lost(writer, last, records.first)
                writer._append_in_place(records)
                copied += len(records)
        except OffsetGone as gone:
            if _end_of_gap(reader, gone.first) != last.next:
                raise _lost(writer, last, gone.first) from gone
            writer.skip(last.next)
    writer.commit()
    take_over(writer, last)
    _copy_groups(writer, last)
    return copied


def _copy_groups(writer: Writer, last: Writer) -> None:
    """Once the former primary is fenced, its server takes no commit any more."""
    with no_commits(last.path):
        found = groups(last.path)
    have = groups(writer.path)
    for name, offset in found.items():
        at = min(offset, writer.next)
        if have.get(name) != at:
            set_group_offset(writer.path, name, at)
    if found:       # one that is there already may be of a promotion that was killed
        sync_folder(groups_folder(writer.path))


def _end_of_gap(reader: Reader, at: int) -> int:
    """Where the gap ends, or the journal does, that goes on at this offset."""
    while True:
        try:
            return reader.read(at, max_bytes=1).first
        except OffsetGone as gone:
            at = gone.first


def _lost(writer: Writer, last: Writer, first: int) -> UsageError:
    return UsageError(f"{last.path} has lost the messages {writer.next} to {first - 1}",
                      hint="promote the mirror without old=")


def _again(writer: Writer, topic: str, partition: int, former: Path | None) -> Promoted:
    """It has been promoted already: the former primary may still have to be fenced."""
    epochs = writer._epochs
    if former is None:
        raise UsageError(f"{writer.path} is no mirror: it was promoted to epoch {epochs.number} at "
                         f"message {epochs.own[-1].start}",
                         hint="write to it; a mirror of it can be promoted in its turn")
    with Writer(former, topic, partition, mirror=True) as last:
        if last._epochs.fenced or newer(last._epochs.own, epochs.own):
            fenced = last._epochs.fenced_by(epochs.own)
            last._set_epochs(fenced)
            lost = fenced_error(former, fenced, last.next)
            if lost.first < lost.end:
                raise lost
            return Promoted(epochs.number, epochs.own[-1].start)
    raise UsageError(f"{former} is not the journal that {writer.path} was a mirror of",
                     hint="old= is the folder of its former primary")
