"""The relay protocol of Iris: every vector, any chunking, false lengths, random bytes."""

import os
import random
import tracemalloc

import pytest

from mqcore.cluster import relay_frames as frames
from mqcore.cluster.relay_frames import (
    FROM_BINDING,
    FROM_RELAY,
    MAX_BODY,
    MAX_NAME,
    Decoder,
    MalformedPacket,
    encode,
)

ROUNDS = int(os.environ.get("MQCORE_ROUNDS", "1"))
SEED = int(os.environ.get("MQCORE_SEED", "1"))
C, R = FROM_BINDING, FROM_RELAY

# (who sends, frame, its bytes): computed apart from this code, and tried against the Java binding
VECTORS = [
    (C, frames.Hello("iris-client-magic", "v1.0-draft2", "echo"),
     "00 11 697269732d636c69656e742d6d61676963 0b 76312e302d647261667432 04 6563686f"),
    (R, frames.Welcome("iris-relay-magic", "v1.0-draft2"),
     "00 10 697269732d72656c61792d6d61676963 0b 76312e302d647261667432"),
    (C, frames.Request(0, "echo", b"hi", 1000), "04 00 04 6563686f 02 6869 e807"),
    (R, frames.Requested(7, b"hi", 1000), "04 07 02 6869 e807"),
    (C, frames.Reply(7, b"hi"), "05 07 01 02 6869"),
    (C, frames.Reply(7, "bad"), "05 07 00 03 626164"),
    (R, frames.Replied(0, b"hi"), "05 00 00 01 02 6869"),
    (R, frames.Replied(0, "bad"), "05 00 00 00 03 626164"),
    (R, frames.Replied(0, None), "05 00 01"),
    (C, frames.TunnelInit(3, "echo", 300), "09 03 04 6563686f ac02"),
    (R, frames.TunnelOffer(5, 65536), "09 05 808004"),
    (C, frames.TunnelConfirm(5, 2), "0a 05 02"),
    (R, frames.TunnelResult(3, 65536), "0a 03 00 808004"),
    (R, frames.TunnelResult(3, None), "0a 03 01"),
    (C, frames.TunnelAllow(3, 4 << 20), "0b 03 80808002"),
    (R, frames.TunnelAllow(3, 4 << 20), "0b 03 80808002"),
    (C, frames.TunnelTransfer(3, 5, b"hello"), "0c 03 05 05 68656c6c6f"),
    (R, frames.TunnelTransfer(3, 0, b"lo"), "0c 03 00 02 6c6f"),
    (C, frames.TunnelClose(3), "0d 03"),
    (R, frames.TunnelClosed(3, ""), "0d 03 00"),
    # the rest of the byte table
    (R, frames.Deny("iris-relay-magic", "no"), "01 10 697269732d72656c61792d6d61676963 02 6e6f"),
    (C, frames.Close(), "02"),
    (R, frames.Closed(""), "02 00"),
    (C, frames.Broadcast("echo", b"hi"), "03 04 6563686f 02 6869"),
    (R, frames.Broadcasted(b"hi"), "03 02 6869"),
    (C, frames.Subscribe("t"), "06 01 74"),
    (C, frames.Unsubscribe("t"), "07 01 74"),
    (C, frames.Publish("t", b"hi"), "08 01 74 02 6869"),
    (R, frames.Publish("t", b"hi"), "08 01 74 02 6869"),
]


def sender(table):
    return "binding" if table is C else "relay"


@pytest.mark.parametrize(("table", "frame", "data"), VECTORS,
                         ids=[f"{sender(t)}-{type(f).__name__}-{i}"
                              for i, (t, f, _) in enumerate(VECTORS)])
def test_vectors(table, frame, data):
    data = bytes.fromhex(data)
    assert encode(frame) == data
    decoder = Decoder(table)
    assert list(decoder.feed(data)) == [frame] and len(decoder) == 0


def test_every_row_has_a_vector():
    for table in (C, R):
        assert {type(frame) for one, frame, _ in VECTORS if one is table} == \
            {kind for kind, _ in table.values()}


@pytest.mark.parametrize("table", [C, R], ids=sender)
def test_any_chunking_gives_the_same_frames(table):
    chance = random.Random(SEED)
    sent = [frame for one, frame, _ in VECTORS if one is table] * 3
    big = frames.Publish("big", chance.randbytes(200_000))
    sent.insert(5, big)
    stream = b"".join(map(encode, sent))
    decoder = Decoder(table)
    assert [one for byte in stream[:3000] for one in decoder.feed(bytes([byte]))] == \
        list(Decoder(table).feed(stream[:3000]))
    for _ in range(20):
        decoder, got, at = Decoder(table), [], 0
        while at < len(stream):
            size = chance.choice((1, 2, 7, 100, 70_000))
            got += decoder.feed(stream[at:at + size])
            at += size
        assert got == sent


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16383, 16384, 2**32, 2**63, 2**64 - 1])
def test_varints(value):
    data = encode(frames.TunnelClose(value))
    assert list(Decoder(C).feed(data)) == [frames.TunnelClose(value)]


@pytest.mark.parametrize("value", [-1, 2**64])
def test_numbers_that_do_not_fit(value):
    with pytest.raises(ValueError):
        encode(frames.TunnelClose(value))


@pytest.mark.parametrize(("table", "data", "why"), [
    (C, "01", "opcode 01"), (C, "0e", "opcode 0e"), (C, "ff", "opcode ff"), (R, "06 00", "opcode"),
    (R, "07 00", "opcode"),
    (C, "0d ffffffffffffffffff7f", "64 bits"), (C, "0d 8080808080808080808000", "10 bytes"),
    (C, "05 07 02 00", "00 or 01"), (R, "05 00 02", "00 or 01"), (R, "0a 03 02", "00 or 01"),
    (C, "06 01 ff", "UTF-8"), (C, "06 02 c328", "UTF-8"), (C, "05 00 00 02 c328", "UTF-8"),
    (C, "06 8108", f"{MAX_NAME} is the limit"), (C, "06 ffffffffffffffffff01", "is the limit"),
    (C, "08 00 81808008", f"{MAX_BODY} is the limit"), (C, "0c 03 05 818004", "65536 is the limit"),
    (C, "05 00 00 818004", "is the limit"),
])
def test_bytes_that_are_no_packet(table, data, why):
    """Found as soon as the length is there, before what it announces."""
    with pytest.raises(MalformedPacket, match=why):
        list(Decoder(table).feed(bytes.fromhex(data)))


def test_announced_lengths_take_no_memory():
    tracemalloc.start()
    try:
        decoders = [Decoder(C) for _ in range(100)]
        for decoder in decoders:
            assert not list(decoder.feed(bytes.fromhex("08 00 80808008 00")))      # 16 MiB
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


def test_random_bytes():
    chance = random.Random(SEED)
    good = [bytes.fromhex(data) for _, _, data in VECTORS]
    refused = 0
    for _ in range(5000 * ROUNDS):
        data = bytearray(b"".join(chance.choices(good, k=3)))
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        for table in (C, R):
            decoder = Decoder(table)
            try:
                for frame in decoder.feed(bytes(data)):
                    assert list(Decoder(table).feed(encode(frame))) == [frame]
            except MalformedPacket:
                refused += 1
            assert len(decoder) <= len(data)
    assert refused > 1000
