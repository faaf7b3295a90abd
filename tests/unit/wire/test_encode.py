"""Messages out: the bytes of real peers, the limits of a batch, and a round trip."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mqcore.testing.native.probe import CANCEL, SUBSCRIBE

VERSIONS = [(3, 1), (3, 0), (2, 0), (1, 0)]
KIB = 1024


@pytest.mark.parametrize("name,messages", [
    ("zmtp31_frame_empty", [[b""]]),
    ("zmtp31_probe_router", [[b""]]),
    ("zmtp31_frame_small", [[b"hello"]]),
    ("zmtp31_frame_255", [[b"\xaa" * 255]]),
    ("zmtp31_frame_256", [[b"\xbb" * 256]]),
    ("zmtp31_frame_multi3", [[b"A", b"", b"CC"]]),
    ("zmtp31_req_send", [[b"", b"ping"]]),
    ("zmtp31_rep_reply_envelope", [[b"hop1", b"hop2", b"", b"answer"]]),
    ("zmtp31_pub_after_both_styles", [[b"t1-x"], [b"t2-y"]]),
    ("zmtp31_xsub_raw_sub", [[b"\1top"]]),
])
def test_captured(peer, vectors, name, messages):
    ours = peer()
    for parts in messages:
        ours.put(*parts)
    assert ours.encode() == (len(messages), sum(len(p) for m in messages for p in m))
    assert b"".join(ours.gather()) == vectors[name]


@pytest.mark.parametrize("version,name,messages", [
    ((2, 0), "zmtp20_frames", [[b"x", b"y"]]),
    ((1, 0), "zmtp10_frames", [[b"x", b"yy"], [b"\xdd" * 300]]),
    ((1, 0), "zmtp10_pub_phantom_subscribe_all", [[b"anything"]]),
])
def test_captured_of_old_peers(peer, vectors, version, name, messages):
    ours = peer(version)
    for parts in messages:
        ours.put(*parts)
    assert ours.wire() == vectors[name]


@pytest.mark.parametrize("version,topic,flags,name", [
    ((3, 1), b"a", SUBSCRIBE, "zmtp31_subscribe_a"),
    ((3, 1), b"a", CANCEL, "zmtp31_cancel_a"),
    ((3, 1), b"L" * 250, SUBSCRIBE, "zmtp31_subscribe_250"),
    ((3, 0), b"topic", SUBSCRIBE, "zmtp30_subscribe_msg"),
    ((3, 0), b"topic", CANCEL, "zmtp30_cancel_msg"),
    ((2, 0), b"topic", SUBSCRIBE, "zmtp30_subscribe_msg"),
    ((1, 0), b"tt", SUBSCRIBE, "zmtp10_sub_subscription"),
])
def test_subscriptions(peer, vectors, version, topic, flags, name):
    ours = peer(version)
    ours.put(topic, flags=flags)
    assert ours.encode() == (1, len(topic))
    assert ours.account["messages"] == 0       # not an application message
    assert b"".join(ours.gather()) == vectors[name]


@pytest.mark.parametrize("ttl,tenths", [(0, 0), (1, 1), (100, 1), (2500, 25), (65500, 655),
                                        (65600, 655), (10**9, 655)])
def test_ping(peer, ttl, tenths):
    for version in VERSIONS:
        ours = peer(version)
        text = b"\x04\x07\x04PING" + tenths.to_bytes(2, "big")
        assert ours.ping(ttl) == (text if version >= (3, 0) else b"")


def test_captured_ping(peer, vectors):
    ours = peer()
    assert ours.ping(2500) == vectors["zmtp31_ping"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [0, 1, 55, 56, 57, 253, 254, 255, 256, 300, 16383, 16384, 70000])
def test_round_trip_of_sizes(peer, version, size):
    sender, receiver = peer(version), peer(version)
    body = bytes(i % 253 for i in range(size))
    sender.put(body, b"mid", body)
    sender.put(body)
    assert sender.encode() == (2, 3 * size + 3)
    assert sender.account["references"] == (3 if size >= 16384 else 0)
    text = b"".join(sender.gather())
    assert len(text) == sender.account["total"]
    assert receiver.decode(text) == ("need_data", [(1, body), (1, b"mid"), (0, body), (0, body)])


@settings(deadline=None)
@given(st.lists(st.lists(st.one_of(st.binary(max_size=80), st.sampled_from(
    [b"m" * 300, b"n" * 5000, b"o" * 16384, b"p" * 40000])), min_size=1, max_size=4), max_size=30))
def test_round_trip(pair_of, messages):
    for version in VERSIONS:
        sender, receiver = pair_of(version)
        for parts in messages:
            sender.put(*parts)
        expected = [(int(i < len(m) - 1), p) for m in messages for i, p in enumerate(m)]
        assert receiver.decode(sender.wire()) == ("need_data", expected)
        assert sender.memory[0] == receiver.memory[0] == 0


@pytest.fixture(scope="module")
def pair_of():
    from mqcore.testing.native.probe import Probe

    def make(version):
        sides = Probe(), Probe()
        head = bytes.fromhex("ff00000000000000017f")
        text = b"\1\0" if version == (1, 0) else head + (
            b"\1\0\0\0" if version == (2, 0)
            else bytes(version) + b"NULL" + bytes(48) + b"\x04\x06\x05READY")
        for side in sides:
            side.start()
            assert side.feed(text)[0] == "done"
        return sides
    return make


# -- limits ---------------------------------------------------------------------------------------

def fill(ours, count, *parts):
    for _ in range(count):
        ours.put(*parts)


def drain(ours):
    """Batches until nothing is left: (account, bytes) of each."""
    batches = []
    while True:
        ours.encode()
        if not ours.account["total"]:
            return batches
        batches.append((ours.account, b"".join(ours.gather())))
        ours.reset()


def test_no_more_than_8192_messages(peer):
    ours = peer()
    fill(ours, 20000, b"x")
    assert [account["messages"] for account, _ in drain(ours)] == [8192, 8192, 3616]


@pytest.mark.parametrize("size", [16, 40, 56, 57, 200, 1000, 16000])
def test_no_more_than_256_kib(peer, size):
    ours = peer()
    count = 700 * KIB // size
    fill(ours, count, b"x" * size)
    batches = drain(ours)
    assert sum(account["messages"] for account, _ in batches) == count
    for account, text in batches:
        assert account["buffer"] == len(text) <= 256 * KIB + size + 9
    for account, _ in batches[:-1]:
        assert account["buffer"] >= 256 * KIB or account["messages"] == 8192


def test_no_more_than_30_references(peer):
    ours = peer()
    for _ in range(100):
        ours.put(b"small")
        ours.put(b"r" * 16384)
    batches = drain(ours)
    assert [account["references"] for account, _ in batches] == [30, 30, 30, 10]
    assert sum(account["messages"] for account, _ in batches) == 200
    text = b"".join(text for _, text in batches)
    assert peer().decode(text)[1] == [(0, b"small"), (0, b"r" * 16384)] * 100


@pytest.mark.parametrize("part,count", [(b"r" * 16384, 100), (b"s" * 16000, 100), (b"", 400_000)])
def test_a_message_larger_than_a_batch_continues(peer, part, count):
    ours = peer()
    ours.put(b"before")
    ours.put(*[part] * count)
    ours.put(b"after")
    batches, done, body = [], 0, 0
    while True:
        msgs, size = ours.encode()
        done, body = done + msgs, body + size
        account = ours.account
        if not account["total"]:
            break
        assert account["buffer"] <= 512 * KIB and account["references"] <= 30
        batches.append((account, b"".join(ours.gather())))
        ours.reset()
    # "after" waits for the next batch if the end of the long message made the last one full
    assert len(batches) > 1 and batches[0][0]["open"] and not batches[-1][0]["open"]
    assert (done, body) == (3, 11 + len(part) * count)
    text = b"".join(text for _, text in batches)
    assert peer().decode(text)[1] == [(0, b"before"), *[(1, part)] * (count - 1), (0, part),
                                      (0, b"after")]


def test_more_is_added_to_a_batch_under_way(peer):
    ours = peer()
    ours.put(b"one")
    ours.encode()
    ours.advance(3)
    fill(ours, 5000, b"x" * 50)                # the buffer moves
    ours.encode()
    assert peer().decode(b"\0\3o" + b"".join(ours.gather()))[1] == [
        (0, b"one"), *[(0, b"x" * 50)] * (ours.account["messages"] - 1)]


def test_encode_one(peer):
    ours = peer()
    assert ours.encode_one(b"a")
    assert ours.encode_one(b"topic", SUBSCRIBE)
    assert ours.encode_one(b"r" * 20000)
    assert b"".join(ours.gather()) == (
        b"\0\1a\x04\x0f\x09SUBSCRIBEtopic\2" + (20000).to_bytes(8, "big") + b"r" * 20000)
    while ours.encode_one(b"s" * 1000):
        pass
    assert ours.account["buffer"] >= 256 * KIB
    before = ours.account
    assert not ours.encode_one(b"")
    assert ours.account == before
    ours.reset()
    assert ours.memory[0] == 0


def test_a_steady_stream_allocates_nothing(peer):
    ours = peer()
    fill(ours, 10, b"x" * 56)
    drain(ours)
    before = ours.memory[2]
    for _ in range(100):
        fill(ours, 10, b"x" * 56)
        drain(ours)
    assert ours.memory[2] == before
