"""Messages that no source of ours sends, in streams as libnorm sends them."""

import os
import struct

import pytest
from forger import LIMIT, Forger
from mqcore_norm import norm
from mqcore_norm_engine import to_pieces

pytestmark = pytest.mark.skipif(bool(norm.unavailable()), reason=norm.unavailable() or "-")

GROUP = "239.192.8.6"
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
PORTS = iter(range(24_100 + 100 * WORKER, 24_200 + 100 * WORKER))
NEAR, OLD = 4096, 1 << 24           # of mqcore/spi/sequence.pxd


@pytest.fixture
def url():
    return f"norm://lo;{GROUP}:{next(PORTS)}"


@pytest.fixture
def forger(url):
    with Forger(url.removeprefix("norm://")) as one:
        yield one


@pytest.fixture
def sub(mq_context, url):
    return mq_context.socket("sub", topics=[b""], bind=url, max_message_size=1 << 20,
                             recv_hwm=None, recv_hwm_bytes=None)


def accounts(sub):
    """(read, lost, malformed)"""
    [peer] = sub.stats().peers.values()
    return peer.read, peer.lost, peer.dropped_in.get("malformed", 0)


def test_forged_numbers_silence_no_source(sub, forger, chance):
    """Each is far ahead or far behind, and no other follows it."""
    due = forger.hear(sub)
    for n in range(due, due + 200):
        number = n + chance.choice([NEAR + 1, 1 << 31, 1 << 32, -OLD - 1, 1 << 63])
        forger.send((number + (n << 33)) % (1 << 64), b"forged")
        forger.send(n, b"%d" % n)
        assert sub.recv(timeout=LIMIT) == b"%d" % n
    assert accounts(sub)[1:] == (0, 200)


def test_a_beat_with_a_forged_number_counts_no_loss(sub, forger):
    due = forger.hear(sub)
    forger.send(due + (1 << 29))
    forger.send(due, b"after")
    assert sub.recv(timeout=LIMIT) == b"after"
    assert accounts(sub)[1:] == (0, 1)


def test_a_source_that_goes_on_far_ahead_is_back_with_its_second_message(sub, forger):
    due = forger.hear(sub)
    for n in range(3):
        forger.send(due + 1_000_000 + n, b"%d" % n)
    assert [sub.recv(timeout=LIMIT) for _ in range(2)] == [b"1", b"2"]
    assert accounts(sub)[1:] == (1_000_001, 0)


BAD = {"parts": struct.pack("!I", 9) + b"a", "none": b"ab", "more": struct.pack("!I", 1 << 31),
       "behind": struct.pack("!I", 0) + b"a"}


@pytest.mark.parametrize("bad", BAD)
def test_a_malformed_message_costs_what_is_on_the_way(sub, forger, bad):
    """The subscriber joins again where a message begins, and counts what it has not got."""
    due = begin = forger.hear(sub)
    before = accounts(sub)[0]
    for _ in range(3):
        forger.give(struct.pack("!IQ", len(BAD[bad]), due) + BAD[bad])
        due = forger.hear(sub, due + 1)
    read, lost, malformed = accounts(sub)
    assert (read - before + lost, malformed) == (due - begin, 3)


def test_a_malformed_message_inside_a_packet(sub, forger):
    """What comes with it is not taken either."""
    due = forger.hear(sub)
    before = accounts(sub)[0]
    pieces = [to_pieces([[body]], 1000, due + n)[0][1] for n, body in enumerate((b"a", b"b"))]
    bad = struct.pack("!IQ", 2, due + 2) + b"ab"
    forger.give(b"".join([*pieces, bad, to_pieces([[b"c"]], 1000, due + 3)[0][1]]))
    assert [sub.recv(timeout=LIMIT) for _ in range(2)] == [b"a", b"b"]
    end = forger.hear(sub, due + 4)
    read, lost, malformed = accounts(sub)
    assert (read - before + lost, malformed) == (end - due, 1)
