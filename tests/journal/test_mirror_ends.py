"""A source that ends with a gap: it was repaired at its end, or retention has left nothing."""

import pytest
from compact_case import SMALL, folder_of
from copies import epochs, fill, mirroring, read_all
from waiting import until

from mqcore import journal
from mqcore.errors import UsageError
from mqcore.journal import mirror
from mqcore.journal.errors import OffsetGone


@pytest.fixture
def where(tmp_path):
    return tmp_path / "j"


@pytest.fixture
def copy(tmp_path):
    return tmp_path / "copy"


def opened(where):
    return journal.open(where, "a", stamps=True, deduplicate=True, **SMALL)


def told(sequence):
    return journal.stamp(7, sequence, life=2) + b"%d" % sequence


def copied(source, copy, **options):
    with mirroring(source, copy, **options) as (device, writer):
        until(lambda: device.error is not None or writer.next >= device.reader.durable)
        assert device.error is None
    return device.stats()


def repaired(where):
    """It has lost five messages at its end, which were durable. The offset behind."""
    fill(where, *[b"lost"] * 5)
    with journal.open(where) as reader:
        end = reader.end
    path = max(folder_of(where).glob("*.mqj"))
    raw = bytearray(path.read_bytes())
    at = raw.index(b"lostlost")
    raw[at] ^= 1
    path.write_bytes(raw)
    assert journal.repair(where).findings
    return end


def idle(where):
    with opened(where) as log:
        log.append_many([told(i) for i in range(100)])
        log.truncate_before(log.next)
        return log.next


@pytest.mark.parametrize("end", [repaired, idle])
@pytest.mark.parametrize("how", ["folder", "server"])
def test_a_mirror_comes_to_the_end(ctx, where, copy, serve, end, how):
    """And takes what the source remembers."""
    with opened(where) as log:
        log.append_many([b"0", told(1000)])
    copied(where, copy)
    (folder_of(copy) / "producers").unlink()
    behind = end(where)
    with opened(where):
        pass                            # which saves its table
    place, options = (where, {}) if how == "folder" else \
        (f"{serve(where).urls[0]}/default", {"context": ctx})
    stats = copied(place, copy, **options)
    assert (stats.messages, stats.gone) == (0, behind - 2)
    journal.promote(copy)
    with opened(copy) as log:
        assert log.next == behind and log.life_of(7) == 2
        log.append(told(1000))          # a retry
        assert log.next == behind
        assert log.append(b"next") == behind
    with journal.open(copy) as reader, pytest.raises(OffsetGone) as gone:
        reader.read(2)
    assert gone.value.first == behind


def test_it_goes_on_behind_the_gap(where, copy):
    fill(where, b"0", b"1")
    with mirroring(where, copy) as (device, writer):
        until(lambda: writer.next == 2)
        with journal.open(where, "a") as log:
            log.skip(5)
            log.skip(9)
            until(lambda: device.error is not None or writer.next == 9)
            log.append(b"9")
            log.commit()
            until(lambda: device.error is not None or writer.next == 10)
        assert device.error is None
    assert (device.stats().gone, device.stats().messages) == (7, 3)
    with journal.open(copy) as reader:
        assert [*reader.read(9)] == [b"9"]


@pytest.mark.parametrize("end", [repaired, idle])
def test_promotion_comes_to_the_end_of_the_former_primary(where, copy, end):
    fill(where, b"0", b"1")
    copied(where, copy)
    behind = end(where)
    done = journal.promote(copy, old=where)
    assert (done.epoch, done.offset, done.copied) == (1, behind, 0)
    assert fill(copy, b"next") == [behind]
    assert epochs(where).fenced


def test_promotion_passes_several_gaps_at_the_end(where, copy):
    fill(where, b"0", b"1")
    copied(where, copy)
    with journal.open(where, "a") as log:
        log.append(b"2")
        log.skip(5)
        log.skip(9)
    done = journal.promote(copy, old=where)
    assert (done.offset, done.copied) == (9, 1)


def test_promotion_says_what_the_former_primary_has_lost_in_the_middle(where, copy):
    fill(where, b"0", b"1")
    copied(where, copy)
    with journal.open(where, "a") as log:
        log.skip(9)
        log.append(b"9")
    with pytest.raises(UsageError, match="has lost the messages 2 to 8; promote"):
        journal.promote(copy, old=where)
    assert epochs(copy).mirror and not epochs(where).fenced
    assert journal.promote(copy).offset == 2
    assert read_all(copy) == [b"0", b"1"]


def test_more_groups_than_are_copied_are_named_once(where, copy, monkeypatch, caplog):
    monkeypatch.setattr(mirror, "MOST_GROUPS", 2)
    monkeypatch.setattr(mirror, "GROUPS", 0.0)
    fill(where, b"0", b"1")
    with journal.open(where) as reader:
        for name in "abc":
            reader.commit_offset(name, 1)
    with mirroring(where, copy), journal.open(where) as reader:
        for name in "abc":
            reader.commit_offset(name, 2)
        until(lambda: list(read_groups(copy).values()) == [2, 2])
    assert caplog.text.count("has 3 consumer groups, and a mirror copies the offsets of 2") == 1


def read_groups(where):
    with journal.open(where) as reader:
        return reader.groups()
