"""A mirror whose process has no descriptors left at the moment: it waits, and does not believe
to be stored what it could not store."""

import errno

import pytest
from compact_case import SMALL
from copies import epochs, fill, mirroring, read_all
from waiting import until

from mqcore import journal
from mqcore.journal import mirror, writer
from mqcore.journal.errors import write_error
from mqcore.journal.mirror import Mirror
from mqcore.journal.store.epoch import EpochsOf
from mqcore.journal.writer import Writer


@pytest.fixture
def where(tmp_path):
    return tmp_path / "j"


@pytest.fixture
def copy(tmp_path):
    return tmp_path / "copy"


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(mirror, "SHORTAGE", 0.01)
    monkeypatch.setattr(mirror, "GROUPS", 0.01)


class Scarce:
    """A function for which there are no descriptors at first. only: in this folder. after: it has
    done its work."""

    def __init__(self, monkeypatch, home, name, times=2, number=errno.EMFILE, only="",
                 after=False):
        real = getattr(home, name)
        self.left = times

        def scarce(*args):
            if not self.left or str(only) not in str(getattr(args[0], "path", args[0])):
                return real(*args)
            self.left -= 1
            if after:
                real(*args)
                raise write_error(number, "the copy", taken=len(args[1]))
            raise OSError(number, "no descriptors")

        monkeypatch.setattr(home, name, scarce)


def copied(source, copy):
    with mirroring(source, copy) as (device, log):
        until(lambda: device.error is not None or log.next >= device.reader.durable)
        assert device.error is None
    return device.stats()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("home, what", [
    (Mirror, "_copy_groups"), (Mirror, "_follow"), (Mirror, "_append"), (EpochsOf, "look"),
    (Writer, "_append_in_place"), (mirror, "set_group_offset")])
def test_it_goes_on_when_there_are_some(where, copy, monkeypatch, caplog, home, what, number):
    fill(where, b"0", b"1")
    with journal.open(where) as reader:
        reader.commit_offset("g", 1)
    scarce = Scarce(monkeypatch, home, what, number=number)
    stats = copied(where, copy)
    assert not scarce.left and read_all(copy) == [b"0", b"1"]
    assert (stats.messages, stats.bytes) == (2, 2)
    assert caplog.text.count("waits: ") == 1 and "no descriptors" in caplog.text


def test_another_error_ends_it(where, copy, monkeypatch):
    fill(where, b"0")
    Scarce(monkeypatch, Mirror, "_follow", times=-1, number=errno.EIO)
    with mirroring(where, copy) as (device, _):
        until(lambda: device.error is not None)
        assert device.error.errno == errno.EIO


@pytest.mark.parametrize("home, what", [(writer, "write_epochs"), (Writer, "_set_epochs")])
def test_the_epoch_of_its_source_is_stored(where, copy, monkeypatch, home, what):
    """Only then messages of that epoch are."""
    fill(where, b"0", b"1")
    with mirroring(where, copy) as (device, log):
        until(lambda: device.error is not None or log.next == 2)
        scarce = Scarce(monkeypatch, home, what, times=3, only=copy)
        journal.promote(where)
        fill(where, b"2")
        until(lambda: device.error is not None or log.next == 3)
        assert device.error is None and not scarce.left
        assert epochs(copy).number == log._epochs.number == 1
    fill(where, b"3")
    assert copied(where, copy).messages == 1
    assert journal.promote(copy).epoch == 2


@pytest.mark.parametrize("after", [False, True])
def test_what_compaction_has_removed_counts_once(where, copy, monkeypatch, after):
    """After an error too, whether its messages were taken or not."""
    with journal.open(where, "a", **SMALL) as log:
        for i in range(300):
            log.append(b"v" * 1000, key=b"k%d" % (i % 3))
            log.commit()
    journal.compact(where)
    scarce = Scarce(monkeypatch, Writer, "_append_in_place", times=1, after=after)
    stats = copied(where, copy)
    with journal.open(copy) as reader:
        messages = sum(map(len, reader.batches()))
    assert not scarce.left and stats.messages == messages < 300
    assert stats.compacted == 300 - messages
    assert read_all(copy) == read_all(where)


def test_a_fence_that_cannot_be_written_holds(where, copy, monkeypatch):
    """Until it can be."""
    fill(where, b"0")
    copied(where, copy)
    journal.promote(copy)
    newer = epochs(copy).own
    with journal.open(where, "a") as log:
        Scarce(monkeypatch, writer, "write_epochs", times=1)
        with pytest.raises(OSError, match="no descriptors"):
            log._fence(newer)
        assert not epochs(where).fenced
        with pytest.raises(journal.JournalFenced):
            log.append(b"1")
        log._fence(newer)
        assert epochs(where).fenced
