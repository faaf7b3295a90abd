"""The layout of packets, without a network and without libpgm."""

import random

import mqcore_pgm_engine as engine
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

SIZE = 1428  # of libzmq's packets in frames of 1500 bytes
MESSAGES = st.lists(st.lists(st.binary(max_size=700), min_size=1, max_size=4), max_size=20)


def test_a_message_of_three_parts_as_libzmq_sends_it():
    parts = [bytes(40), b"part2", b""]
    assert engine.to_packets([parts], SIZE) == [
        b"\0\0" + b"\x29\x01" + bytes(40) + b"\x06\x01part2" + b"\x01\x00"]


def test_a_packet_that_ends_with_a_message_says_where_the_next_one_would_begin():
    [first, second] = engine.to_packets([[bytes(92)], [b"x"]], 2 + 2 + 92)
    assert (first[:2], second[:2]) == (b"\0\0", b"\0\0")
    [first, second] = engine.to_packets([[bytes(93)], [b"x"]], 2 + 2 + 92)
    assert (first[:2], second[:2]) == (b"\0\0", b"\0\x01")


def test_a_long_message_has_packets_in_which_none_begins():
    packets = engine.to_packets([[b"a"], [bytes(10_000)], [b"b"]], SIZE)
    assert [packet[:2] for packet in packets][:-1] == [b"\0\0"] + [b"\xff\xff"] * 6
    assert packets[0][5:14] == b"\xff" + (10_001).to_bytes(8, "big")
    assert engine.to_messages(packets) == ([[b"a"], [bytes(10_000)], [b"b"]], 0)


@settings(deadline=None, max_examples=100)
@given(messages=MESSAGES, size=st.integers(20, 2000))
def test_what_is_packed_comes_back(messages, size):
    packets = engine.to_packets(messages, size)
    assert all(len(packet) <= size for packet in packets)
    assert engine.to_messages(packets) == (messages, 0)


@settings(deadline=None, max_examples=100)
@given(messages=MESSAGES, gap=st.integers(0, 30), size=st.integers(20, 2000))
def test_after_a_loss_whole_messages_follow(messages, gap, size):
    """All messages of which no packet is missing arrive, whole and in order."""
    packets = engine.to_packets(messages, size)
    if not packets:
        return
    gap %= len(packets)
    before, after = packets[:gap], packets[gap + 1:]
    got, refused = engine.to_messages([*before, None, *after])
    first, _ = engine.to_messages(before)
    rest, _ = engine.to_messages(after)
    assert (got, refused) == (first + rest, 0)
    assert first == messages[:len(first)] and rest == messages[len(messages) - len(rest):]
    assert len(first) + len(rest) >= len(messages) - 2 - len(packets[gap]) // 2


@pytest.mark.parametrize("packet", [
    b"", b"\0", b"\0\x05ab", b"\0\0\0", b"\0\0\x05\0abcd\0x",
    b"\0\0\xff" + b"\xff" * 8 + b"\0", b"\0\0\xff" + bytes(8) + b"\0"])
def test_a_packet_of_another_layout_is_refused_and_the_next_one_is_read(packet):
    got, refused = engine.to_messages([packet, b"\0\0\x02\0y"], most=1000)
    assert got[-1:] == [[b"y"]] and refused == 1


def test_a_message_above_the_limit_is_refused():
    packets = engine.to_packets([[bytes(400), bytes(400), bytes(400)], [b"ok"]], 200)
    got, refused = engine.to_messages(packets, most=1000)
    assert got == [[b"ok"]] and refused == 1
    packets = engine.to_packets([[b""] * 30_000, [b"ok"]], SIZE)
    assert engine.to_messages(packets, most=1000) == ([[b"ok"]], 1)


def test_noise_is_refused_or_read_and_nothing_else_happens():
    chance = random.Random(7)
    real = engine.to_packets([[chance.randbytes(chance.randrange(600))] for _ in range(50)], 300)
    for _ in range(2000):
        packets = list(real)
        for _ in range(chance.randrange(1, 5)):
            at = chance.randrange(len(packets))
            noisy = bytearray(packets[at])
            noisy[chance.randrange(len(noisy))] = chance.randrange(256)
            packets[at] = bytes(noisy)
        got, refused = engine.to_messages(packets, most=5000)
        assert len(got) + refused > 0
