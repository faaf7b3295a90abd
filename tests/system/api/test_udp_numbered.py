"""PUB and SUB over plain udp: numbered datagrams between mqcore's sockets, with counted gaps."""

import socket
import struct
import time

import pytest
from machine import ipv6

from mqcore import events
from mqcore.errors import UsageError

LIMIT = 20.0


def head(source, number):
    return b"mqu1" + struct.pack("!QQ", source, number)


def datagram(source, number, *parts):
    return head(source, number) + b"".join(struct.pack("!I", len(part)) + part for part in parts)


@pytest.fixture
def sub(mq_context):
    return mq_context.socket("sub", topics=[b""], bind="udp://127.0.0.1:0")


@pytest.fixture
def source(sub):
    """A socket that sends to the subscriber."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("127.0.0.1", int(sub.endpoints[0].url.rpartition(":")[2])))
        yield sock


def until(done):
    end = time.monotonic() + LIMIT
    while not done():
        assert time.monotonic() < end
        time.sleep(0.002)


@pytest.mark.parametrize("sender", ["pub", "xpub"])
@pytest.mark.parametrize("receiver", ["sub", "xsub"])
@pytest.mark.parametrize("host", ["127.0.0.1", "lo;239.192.8.1",
                                  pytest.param("[::1]", marks=ipv6)])
def test_messages_of_any_number_of_parts(mq_context, sender, receiver, host):
    back = mq_context.socket(receiver, bind=f"udp://{host}:0",
                             **({"topics": [b""]} if receiver == "sub" else {}))
    out = mq_context.socket(sender)
    out.connect(back.endpoints[0].url, wait=LIMIT)
    for parts in ([b""], [b"a"], [b"a", b"", b"c"], [bytes(60_000)], [b"x" * 300] * 100):
        out.send_parts(parts)
        assert back.recv_parts(timeout=LIMIT) == parts
    for n in range(50):
        out.send_parts([b"%d" % n] * (n % 3 + 1))
    for n in range(50):
        assert back.recv_parts(timeout=LIMIT) == [b"%d" % n] * (n % 3 + 1)
    assert back.stats().lost == {}


def test_the_subscriber_filters(mq_context):
    back = mq_context.socket("sub", topics=[b"EUR"], bind="udp://127.0.0.1:0")
    out = mq_context.socket("pub")
    out.connect(back.endpoints[0].url, wait=LIMIT)
    for n in range(10):
        out.send_parts([b"EUR" if n % 2 else b"USD", b"%d" % n])
    assert [int(back.recv_parts(timeout=LIMIT)[1]) for _ in range(5)] == [1, 3, 5, 7, 9]
    [peer] = back.stats().peers.values()
    assert (peer.dropped_in, peer.lost) == ({"unsubscribed": 5}, 0)


def test_a_datagram_byte_by_byte(mq_context):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(LIMIT)
        out = mq_context.socket("pub")
        out.connect(f"udp://127.0.0.1:{sock.getsockname()[1]}", wait=LIMIT)
        for number, parts in enumerate(([b"one"], [b"a", b"", bytes(100)])):
            out.send_parts(parts)
            got = sock.recv(65536)
            [source] = struct.unpack("!Q", got[4:12])
            assert got == datagram(source, number, *parts)


def test_gaps_are_counted_by_source_and_order_is_kept(sub, source):
    seen = sub.events()
    for number in (7, 8, 11, 10, 11, 12, 20):
        source.send(datagram(1, number, b"%d" % number))
    assert [int(sub.recv(timeout=LIMIT)) for _ in range(5)] == [7, 8, 11, 12, 20]
    where = f"127.0.0.1:{source.getsockname()[1]}"
    found = [next(e for e in seen if isinstance(e, events.Lost)).reason for _ in range(2)]
    assert found == [f"2 from {where}", f"7 from {where}"]
    [peer] = sub.stats().peers.values()
    assert (peer.read, peer.lost, sub.stats().lost) == (5, 9, {where: 9})


def test_each_source_has_numbers_of_its_own(sub, source):
    for number in range(3):
        for each in range(300):       # more than are told apart
            source.send(datagram(each + 1, number * 1000, b"%d" % each))
            assert int(sub.recv(timeout=LIMIT)) == each
    [peer] = sub.stats().peers.values()
    assert peer.read == 900


BAD = [b"", b"mqu1", b"mqu2" + datagram(1, 1, b"x")[4:], head(1, 1), datagram(1, 1, b"x")[:-1],
       datagram(1, 1, b"x") + b"y", head(1, 1) + b"\xff\xff\xff\xffxxxx",
       datagram(1, 1, bytes(2000))]


def test_what_has_another_layout_is_malformed_and_nothing_ends(mq_context):
    sub = mq_context.socket("sub", topics=[b""], bind="udp://127.0.0.1:0", max_message_size=1000)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("127.0.0.1", int(sub.endpoints[0].url.rpartition(":")[2])))
        for bad in BAD:
            sock.send(bad)
        sock.send(datagram(1, 5, b"good"))
    assert sub.recv(timeout=LIMIT) == b"good"
    [peer] = sub.stats().peers.values()
    assert peer.dropped_in == {"malformed": len(BAD)} and peer.lost == 0


def test_what_no_datagram_holds_is_unsendable(mq_context, sub):
    out = mq_context.socket("pub")
    out.connect(sub.endpoints[0].url, wait=LIMIT)
    out.send(bytes(65507 - 20 - 4))
    out.send(bytes(65507 - 20 - 3))
    out.send_parts([b"x" * 40_000] * 2)
    out.send(b"small")
    assert [len(sub.recv(timeout=LIMIT)) for _ in range(2)] == [65507 - 24, 5]
    until(lambda: next(iter(out.stats().peers.values())).dropped_out == {"unsendable": 2})


def test_directions(mq_context):
    with pytest.raises(UsageError, match="it can only connect"):
        mq_context.socket("pub").bind("udp://127.0.0.1:0")
    with pytest.raises(UsageError, match="it can only bind"):
        mq_context.socket("sub").connect("udp://127.0.0.1:9999")


NEAR, OLD = 4096, 1 << 24           # of mqcore/spi/sequence.pxd
FORGED = NEAR + 20, 1 << 30, 1 << 40, 1 << 63, (1 << 64) - OLD - 1


@pytest.mark.parametrize("number", FORGED)
def test_a_number_far_away_is_not_believed(sub, source, number):
    """It silences no source, and nothing counts as lost."""
    for sent in (0, 1, number, 2, number, number, 3, 4):
        source.send(datagram(1, sent, b"%d" % sent))
    assert [int(sub.recv(timeout=LIMIT)) for _ in range(5)] == list(range(5))
    [peer] = sub.stats().peers.values()
    assert (peer.lost, peer.dropped_in) == (0, {"malformed": 3})


def test_numbers_from_two_programs_under_one_name(sub, source):
    """One of them forges, each time a number that follows no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.connect(source.getpeername())
        for sent in range(200):
            source.send(datagram(1, sent, b"%d" % sent))
            assert sub.recv(timeout=LIMIT) == b"%d" % sent
            other.send(datagram(1, (sent + 1) << 32, b"forged"))
        source.send(datagram(1, 200, b"200"))
        assert sub.recv(timeout=LIMIT) == b"200"
    [peer] = sub.stats().peers.values()
    assert (peer.lost, peer.dropped_in) == (0, {"malformed": 200})


@pytest.mark.parametrize(("number", "lost"), [
    (NEAR + 20, NEAR + 19), (1 << 20, (1 << 20) - 1), (1 << 40, 1), ((1 << 64) - OLD - 1, 1)])
def test_a_source_that_goes_on_far_away_is_back_with_its_second_message(sub, source, number, lost):
    """What is lost counts, with the first message, which was not believed."""
    for sent in (0, 1, number, number + 1, number + 2):
        source.send(datagram(1, sent, b"%d" % sent))
    assert [int(sub.recv(timeout=LIMIT)) for _ in range(4)] == [0, 1, number + 1, number + 2]
    [peer] = sub.stats().peers.values()
    assert (peer.lost, peer.dropped_in) == (lost, {})


@pytest.mark.parametrize("first", [NEAR + 20, 16_000_000, 1 << 40])
def test_a_first_number_that_is_forged_silences_no_source(sub, source, first):
    for sent in (first, *range(6)):
        source.send(datagram(1, sent, b"%d" % sent))
    assert [int(sub.recv(timeout=LIMIT)) for _ in range(6)] == [first, *range(1, 6)]
    [peer] = sub.stats().peers.values()
    assert (peer.lost, peer.dropped_in) == (1, {})


def test_what_changes_places_after_a_long_gap_is_lost_and_not_malformed(sub, source):
    far = 1_000_000
    for sent in (0, 1, far + 1, far, far + 2, far + 3):
        source.send(datagram(1, sent, b"%d" % sent))
    assert [int(sub.recv(timeout=LIMIT)) for _ in range(4)] == [0, 1, far + 2, far + 3]
    [peer] = sub.stats().peers.values()
    assert (peer.lost, peer.dropped_in) == (far, {})
