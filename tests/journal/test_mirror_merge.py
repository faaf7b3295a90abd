"""A mirror that has made a table of producers from its own segments, before it took its source's:
the two are merged."""

import struct
from itertools import groupby

import pytest
from compact_case import SMALL, folder_of
from copies import mirroring
from waiting import until

from mqcore import journal
from mqcore.journal.errors import ProducerFenced
from mqcore.journal.mirror import Remembered
from mqcore.journal.store.producers import ProducerTable
from mqcore.journal.store.segment import journal_id
from mqcore.journal.store.snapshot import load, save

WINDOW, TRACKS, HEAD = 1024, 4, 168
END = (1 << 63) - 1          # of what an offset may be
OLD = "too old to know"


# -- rows ------------------------------------------------------------------------------------------


def row(numbers, life=0, producer=7, low=None):
    """A track with these numbers, ascending; of no number, the life alone."""
    window = [0] * 16
    for number in numbers:
        window[number % WINDOW // 64] |= 1 << number % 64
    ends = 0, 0, -1
    if numbers:
        ends = numbers[0] if low is None else low, numbers[-1], min(numbers[-1], END)
    return struct.pack("<QQQq16QII", producer, *ends, *window, life, 0) \
        + b"".join(struct.pack("<I", number % 1000) for number in numbers)


def tracks(rows):
    """{producer: (life, [(low, highest, {number known: its checksum})])}."""
    found, at = {}, 0
    while at < len(rows):
        producer, low, highest, _, *window, life, _ = struct.unpack_from("<QQQq16QII", rows, at)
        at += HEAD
        known = {}
        for number in range(max(low, highest - WINDOW + 1), highest + 1):
            if window[number % WINDOW // 64] >> number % 64 & 1:
                known[number] = struct.unpack_from("<I", rows, at)[0]
                at += 4
        found.setdefault(producer, (life, []))[1].extend([(low, highest, known)] if known else [])
    return found


def merged(*tables, most=100):
    into = ProducerTable(most, 1 << 30)
    for rows in tables:
        into.merge(rows)
    again = ProducerTable(most, 1 << 30)
    again.load(into.dump())             # no track contradicts another
    found = tracks(into.dump())
    assert {producer: spans(found, producer) for producer in found} \
        == {producer: spans(tracks(again.dump()), producer) for producer in found}
    return found


def spans(found, producer=7):
    return sorted((low, highest, sorted(known)) for low, highest, known in found[producer][1])


def test_the_newer_life_stays():
    for tables in ([row([5], 3), row([9], 2)], [row([9], 2), row([5], 3)]):
        assert merged(*tables) == {7: (3, [(5, 5, {5: 5})])}
    for tables in ([row([], 3), row([9], 2)], [row([9], 2), row([], 3)]):
        assert merged(*tables) == {7: (3, [])}
    assert merged(row([9], 2), row([], 2)) == merged(row([], 2), row([9], 2)) \
        == {7: (2, [(9, 9, {9: 9})])}
    assert merged(row([1], 2), row([9], 2, producer=8)).keys() == {7, 8}


def test_tracks_that_overlap_become_one():
    assert spans(merged(row([1, 5, 9]), row([4, 5, 20]))) == [(1, 20, [1, 4, 5, 9, 20])]
    assert spans(merged(row([1, 9]), row([4, 5]))) == [(1, 9, [1, 4, 5, 9])]
    assert spans(merged(row([4, 5]), row([1, 9]))) == [(1, 9, [1, 4, 5, 9])]
    # one of three that it joins
    three = row([1, 2]) + row([50, 60]) + row([5000, 5001])
    assert spans(merged(three, row([2, 55]))) == [(1, 60, [1, 2, 50, 55, 60]),
                                                  (5000, 5001, [5000, 5001])]


def test_what_the_window_of_the_higher_one_has_left_is_old():
    far = row(list(range(2000, 3000)), low=100)
    assert spans(merged(row([90, 150, 2500]), far)) == [(90, 3000 - 1, list(range(2000, 3000)))]


@pytest.mark.parametrize("low", [0, 2**64 - 2000, 2**64 - 5, 2**64 - 1])
def test_the_largest_number_of_all(low):
    last = 2**64 - 1
    found = merged(row([last], low=low), row([last - 1, last]))
    assert spans(found) == [(min(low, last - 1), last, [last - 1, last])]


def test_disjoint_ones_stay_side_by_side_and_the_closest_make_way():
    four = [row([at, at + 1]) for at in (0, 10_000, 20_000, 23_000)]
    assert len(spans(merged(b"".join(four[:2]), b"".join(four[2:])))) == TRACKS
    found = spans(merged(b"".join(four), row([40_000])))
    assert [ends[:2] for ends in found] == [(0, 1), (10_000, 10_001), (20_000, 23_001),
                                            (40_000, 40_000)]
    # it lies between the two that make way
    assert [ends[:2] for ends in spans(merged(b"".join(four), row([22_000])))] \
        == [(0, 1), (10_000, 10_001), (20_000, 23_001)]


def test_all_that_one_of_the_tables_knows(rng):
    """Whatever the numbers are: none that is stored is taken for new, and none that is not is taken
    for stored."""
    for _ in range(100):
        stored = sorted({rng.choice((rng.randrange(400), rng.randrange(6000)))
                         for _ in range(rng.randint(1, 60))})
        tables = [b"".join(row(list(some)) for some in parts_of(
            sorted(rng.sample(stored, rng.randint(1, len(stored)))))) for _ in range(2)]
        known = {number for rows in tables for _, _, had in tracks(rows)[7][1] for number in had}
        found = merged(*tables)[7][1]
        for number in range(6000):
            assert state_of(found, number) in (
                (number % 1000, OLD) if number in known else (None, OLD))


def parts_of(numbers):
    """Tracks, as few as there may be."""
    cuts = {b: b - a for a, b in zip(numbers, numbers[1:], strict=False) if b - a > WINDOW}
    ends = sorted(cuts, key=cuts.get)[-(TRACKS - 1):]
    for _, some in groupby(numbers, lambda number: sum(number >= end for end in ends)):
        some = list(some)
        yield [number for number in some if some[-1] - number < WINDOW]


def state_of(found, number):
    for low, highest, known in found:
        if low <= number <= highest:
            return known.get(number, OLD if highest - number >= WINDOW else None)
    return None


def test_the_bounds_hold():
    """Those go first that only the older table knows."""
    older, newer = (b"".join(row([1], producer=at) for at in numbers)
                    for numbers in (range(1, 41), range(31, 51)))
    assert merged(older, newer, most=20).keys() == set(range(31, 51))


@pytest.mark.parametrize("rows", [row([5])[:-1], row([5], producer=0), row([5], low=9)])
def test_rows_that_cannot_be(rows):
    with pytest.raises(ValueError, match="row"):
        ProducerTable(9, 1 << 20).merge(rows)


# -- mirrors ---------------------------------------------------------------------------------------


@pytest.fixture
def where(tmp_path):
    return tmp_path / "j"


@pytest.fixture
def copy(tmp_path):
    return tmp_path / "copy"


def opened(where, **options):
    return journal.open(where, "a", stamps=True, deduplicate=True, **{**SMALL, **options})


def told(life, sequence, producer=7):
    return journal.stamp(producer, sequence, life=life) + b"%d.%d " % (life, sequence) + bytes(300)


def fill(log):
    """Life 1 of producer 7 and then life 2, of which compaction leaves a few; and producer 9."""
    for life in (1, 2):
        for i in range(60):
            log.append(told(life, i), key=b"k%d" % (i % 3))
    for i in range(60):
        log.append(told(0, i, 9), key=b"k%d" % (i % 3))
    log.append(b"more", key=b"last")
    log.commit()


def copied(source, copy, *, kill=False):
    """kill: before it took the table."""
    with pytest.MonkeyPatch.context() as patched:
        if kill:
            patched.setattr(Remembered, "look", lambda *_: None)
            patched.setattr(Remembered, "finish", lambda *_: None)
        with mirroring(source, copy) as (device, writer):
            until(lambda: device.error is not None or writer.next >= device.reader.durable)
            assert device.error is None


def covered(where):
    table = ProducerTable(100, 1 << 20)
    ident = bytes.fromhex(journal_id(folder_of(where)))
    return load(folder_of(where), ident, table)[0]


def assert_knows(copy):
    journal.promote(copy)
    with opened(copy) as log:
        before = log.next
        assert log.life_of(7) == 2
        for i in range(60):
            log.append(told(2, i), key=b"k%d" % (i % 3))
            log.append(told(0, i, 9), key=b"k%d" % (i % 3))
        assert log.next == before
        with pytest.raises(ProducerFenced):
            log.append(told(1, 99))


@pytest.mark.parametrize("own", ["compaction", "retention", "writer"])
@pytest.mark.parametrize("ahead", [False, True])
def test_its_own_table_is_as_far_or_ahead(where, copy, own, ahead):
    with opened(where) as log:
        fill(log)
    journal.compact(where)
    table = (folder_of(where) / "producers").read_bytes()
    if ahead:
        with journal.open(where, "a", stamps=True) as log:
            log.append_many([told(0, 100 + i, 11) for i in range(60)])
            log.rotate()
            log.append(b"behind", key=b"last")
    copied(where, copy, kill=True)
    assert not (folder_of(copy) / "producers").exists()
    if own == "retention":
        with journal.open(copy, "a", mirror=True) as log:
            log.truncate_before(log.next)
    elif own == "compaction":
        journal.compact(copy, min_share=0, keep_tombstones=0)
    with opened(copy, mirror=True):
        pass
    assert covered(copy) >= covered(where) > 0
    assert (folder_of(where) / "producers").read_bytes() == table
    copied(where, copy)
    assert_knows(copy)
    if ahead:
        with opened(copy) as log:       # that, only its own segments and table told
            before = log.next
            log.append(told(0, 159, 11))
            assert log.next == before


def test_promotion_merges_the_one_of_the_former_primary(where, copy):
    with opened(where) as log:
        fill(log)
    journal.compact(where)
    with journal.open(where, "a", stamps=True) as log:
        log.append(b"behind")
    copied(where, copy, kill=True)
    with opened(copy, mirror=True):
        pass
    assert covered(copy) > covered(where)
    journal.promote(copy, old=where)
    with opened(copy) as log:
        before = log.next
        log.append(told(2, 1), key=b"k1")
        assert (log.next, log.life_of(7)) == (before, 2)


def test_what_lies_behind_both_tables_is_read_from_the_segments(where, copy):
    """The merged one claims no more than the higher of the two."""
    with opened(where) as log:
        fill(log)
        end = log.next
    with journal.open(where, "a", stamps=True) as log:
        log.append_many([told(2, 100 + i) for i in range(9)])
    copied(where, copy, kill=True)
    ident = bytes.fromhex(journal_id(folder_of(copy)))
    save(folder_of(copy), ident, 50, row([], 1))
    copied(where, copy)
    assert covered(copy) == end
    journal.promote(copy)
    with opened(copy) as log:
        before = log.next
        log.append_many([told(2, 100 + i) for i in range(9)])
        assert log.next == before


def test_a_table_of_its_own_that_is_damaged(where, copy):
    """The source's takes its place, and says how far that goes."""
    with opened(where) as log:
        fill(log)
    journal.compact(where)
    copied(where, copy, kill=True)
    (folder_of(copy) / "producers").write_bytes(b"noise" * 20)
    copied(where, copy)
    assert covered(copy) == covered(where)
    assert_knows(copy)
