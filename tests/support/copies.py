"""Copies of a journal: a primary, its mirrors, and what each of them holds."""

import contextlib

from journal_case import contents
from waiting import until

import mqcore as mq
from mqcore import journal
from mqcore.journal.store.epoch import read_epochs


@contextlib.contextmanager
def mirroring(source, into, **how):
    """A running mirror of a folder, or of an address."""
    with journal.open(source, **how) as reader, journal.open(
            into, "a", mirror=True, begin=reader.first) as writer:
        with mq.device(reader, writer) as device:
            yield device, writer


def mirror(source, into, **how):
    """Until the copy has all that is durable in the source."""
    with mirroring(source, into, **how) as (device, writer):
        until(lambda: device.error is not None or writer.next >= device.reader.durable)
        if device.error is not None:
            raise device.error


def fill(where, *messages, **how):
    with journal.open(where, "a", **how) as log:
        return list(log.append_many(messages))


def epochs(where):
    return read_epochs(where / "default" / "0")


def read_all(where, **how):
    return contents(where, **how)


def files_in(folder):
    """What is in a folder: files, and folders that are half made."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*")
                  if path.is_file() or path.name.startswith("."))
