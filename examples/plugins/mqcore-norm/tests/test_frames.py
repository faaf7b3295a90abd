"""The layout of messages in streams, byte by byte, and streams that are damaged."""

import random
import struct

import mqcore_norm_engine as engine
import pytest


def test_a_message_byte_by_byte():
    [(begins, piece)] = engine.to_pieces([[b"topic", b"", b"x" * 3]], 1000, 7)
    assert begins
    assert piece == bytes.fromhex(
        "00000014 0000000000000007 80000005") + b"topic" + bytes.fromhex(
        "80000000 00000003") + b"xxx"


def test_a_beat_byte_by_byte():
    assert engine.to_pieces([[b"a"], None], 1000, 41) == [
        (True, bytes.fromhex("00000005 0000000000000029 00000001") + b"a"),
        (True, bytes.fromhex("00000000 000000000000002a"))]


def some(chance, n=60):
    return [[chance.randbytes(chance.choice([0, 1, 8, 50, 300, 3000]))
             for _ in range(chance.randrange(1, 6))] for _ in range(n)]


@pytest.mark.parametrize("size", [17, 64, 1000, 32_768])
def test_messages_come_back_whatever_the_size_of_pieces(size, chance):
    messages = some(chance)
    pieces = engine.to_pieces(messages, size)
    assert all(len(piece) <= size for _, piece in pieces)
    assert engine.to_messages(pieces) == (messages, 0, 0)


def test_any_lost_pieces_are_counted_in_messages(chance):
    """After a loss the source joins again with a piece that is marked. The last one, a beat, tells
    what was lost at the end."""
    for _ in range(200):
        messages = [[b"%d" % n, bytes(chance.randrange(400))] for n in range(50)]
        first, *pieces, beat = engine.to_pieces([*messages, None], chance.choice([64, 200, 1000]))
        kept, lost = [first], False
        for begins, piece in pieces:
            if chance.random() < 0.2:
                lost = True
            elif begins or not lost:
                kept.append((begins, piece))
                lost = False
        got, count, malformed = engine.to_messages([*kept, beat])
        assert (count, malformed) == (len(messages) - len(got), 0)
        assert got == [message for message in messages if message in got]


def test_what_comes_again_is_not_delivered_again():
    pieces = engine.to_pieces([[b"%d" % n] for n in range(9)], 50)
    assert engine.to_messages([*pieces, *pieces[3:]]) == ([[b"%d" % n] for n in range(9)], 0, 0)


def numbered(*runs):
    """Messages with these numbers, each in a piece of its own; -1 is a beat after the last one."""
    pieces, due = [], 0
    for number in runs:
        pieces += engine.to_pieces([None if number < 0 else [b"%d" % number]], 1000,
                                   due if number < 0 else number)
        due = due if number < 0 else number + 1
    return pieces


def read(*runs):
    """(numbers that arrive, lost, malformed)"""
    messages, lost, malformed = engine.to_messages(numbered(*runs))
    return [int(body) for [body] in messages], lost, malformed


NEAR, OLD, FAR = 4096, 1 << 24, 1 << 30     # of mqcore/spi/sequence.pxd


def test_a_number_far_ahead_is_not_believed(chance):
    for _ in range(300):
        far = chance.choice([NEAR + 20, FAR, FAR + 9, 1 << 63,
                             chance.randrange(NEAR + 20, (1 << 64) - OLD)])
        before = chance.randrange(1, 9)
        assert read(*range(before), far, *range(before, 20)) == (list(range(20)), 0, 1)
        assert read(*range(before), far, far, far - 9, *range(before, 20)) == (
            list(range(20)), 0, 3)


def test_a_source_that_was_away_for_long_is_back_with_its_second_message():
    """The gap is exact: with the first message, which was not believed."""
    for gap in (NEAR + 1, 1 << 20, FAR - 9):
        assert read(0, 1, 2 + gap, 3 + gap, 4 + gap) == ([0, 1, 3 + gap, 4 + gap], gap + 1, 0)
        assert read(0, 1, 2 + gap, 9 + gap, 10 + gap) == ([0, 1, 9 + gap, 10 + gap], gap + 7, 0)
        assert read(0, 1, 2 + gap, -1, 3 + gap) == ([0, 1, 3 + gap], gap + 1, 0)


def test_a_gap_of_an_honest_source_is_believed_at_once():
    assert read(0, 1 + NEAR, 2 + NEAR) == ([0, 1 + NEAR, 2 + NEAR], NEAR, 0)
    assert read(7, 8, 9, 9 + NEAR) == ([7, 8, 9, 9 + NEAR], NEAR - 1, 0)


def test_a_source_that_begins_anew_is_back_with_its_second_message():
    for first in (0, 1, 1 << 30):
        old = first + OLD + 1
        for begun in (first, first + (1 << 40)):
            assert read(old, old + 1, begun, begun + 1, begun + 2) == (
                [old, old + 1, begun + 1, begun + 2], 1, 0)


def test_a_first_number_that_is_forged_silences_no_source():
    """Whether its message arrives whole, or is only a beat, or only begins."""
    for far in (NEAR + 20, 1 << 20, OLD - 1, OLD + 1, 1 << 40, 1 << 63):
        assert read(far, *range(9)) == ([far, *range(1, 9)], 1, 0)
        beat = engine.to_pieces([None], 1000, far)
        assert engine.to_messages([*beat, *numbered(*range(9))]) == (
            [[b"%d" % n] for n in range(1, 9)], 1, 0)


def test_numbers_that_change_places_or_repeat_after_a_gap_are_not_malformed():
    far = 1_000_000
    assert read(0, 1, far + 1, far, far + 2, far + 3) == ([0, 1, far + 2, far + 3], far, 0)
    assert read(0, 0, 1, 1, far, far, far + 1, far + 1) == ([0, 1, far + 1], far - 1, 0)


def test_numbers_go_round():
    for border in (1 << 30, 1 << 32, 1 << 63):
        assert read(*range(border - 3, border + 3)) == (list(range(border - 3, border + 3)), 0, 0)
    last = (1 << 64) - 1
    assert read(last - 1, last, 0, 1) == ([last - 1, last, 0, 1], 0, 0)
    assert read(last - 1, 5, 6) == ([last - 1, 5, 6], 6, 0)


def test_a_beat_far_ahead_is_believed_with_the_next_one():
    """All that a source has sent since then was lost."""
    pieces = [*numbered(0, 1), *engine.to_pieces([None], 1000, 10_002)]
    assert engine.to_messages(pieces) == ([[b"0"], [b"1"]], 0, 0)
    assert engine.to_messages([*pieces, pieces[-1]]) == ([[b"0"], [b"1"]], 10_000, 0)
    assert engine.to_messages([*pieces, *numbered(2)]) == ([[b"0"], [b"1"], [b"2"]], 0, 1)


def test_a_message_that_is_not_believed_may_come_in_pieces_or_be_too_large():
    for size, count in ((20, 5000), (700, 5000)):
        far = engine.to_pieces([[bytes(count)]], size, 1 << 40)
        for most in (-1, 10_000, 1000):
            pieces = [*numbered(0), *far, *numbered(1, 2)]
            assert engine.to_messages(pieces, most) == ([[b"0"], [b"1"], [b"2"]], 0, 1)


def test_messages_above_the_limit_are_losses(chance):
    messages = [[b"small"], [bytes(2_000_000)], [b"a", b"b"], [bytes(1001)], [b"last"]]
    for size in (100, 32_768):
        got = engine.to_messages(engine.to_pieces(messages, size), 1000)
        assert got == ([[b"small"], [b"a", b"b"], [b"last"]], 2, 0)


@pytest.mark.parametrize("parts", [
    b"", struct.pack("!I", 5) + b"abcd", struct.pack("!I", 0x80000001) + b"a",
    struct.pack("!I", 1) + b"a" + struct.pack("!I", 1) + b"b", struct.pack("!I", 1) + b"ab"])
def test_parts_that_do_not_end_where_the_message_ends(parts):
    piece = struct.pack("!IQ", len(parts), 0) + parts
    good = engine.to_pieces([[b"good"]], 1000, 1)
    expected = 0 if not parts else 1        # a size of 0 is a beat
    assert engine.to_messages([(True, piece), *good]) == ([[b"good"]], 1 - expected, expected)


def test_noise_gives_no_crash_and_no_memory(chance):
    for _ in range(2000):
        pieces = [(chance.random() < 0.5, chance.randbytes(chance.randrange(200)))
                  for _ in range(10)]
        engine.to_messages(pieces, 1 << 20)


def test_changed_bytes(chance):
    """Whatever comes of it is messages."""
    whole = engine.to_pieces(some(random.Random(1)), 500)
    for _ in range(500):
        pieces = [(begins, bytearray(piece)) for begins, piece in whole]
        for _ in range(chance.randrange(1, 5)):
            begins, piece = chance.choice(pieces)
            piece[chance.randrange(len(piece))] = chance.randrange(256)
        got, lost, malformed = engine.to_messages([(b, bytes(p)) for b, p in pieces], 1 << 20)
        assert all(isinstance(part, bytes) for message in got for part in message)
        assert lost >= 0 and malformed >= 0
