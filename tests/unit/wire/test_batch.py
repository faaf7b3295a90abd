"""The account of a batch after partial writes, at every offset, and what is taken back."""

import pytest
from mqcore.testing.native.probe import CANCEL, SUBSCRIBE

VERSIONS = [(3, 1), (3, 0), (2, 0), (1, 0)]
MESSAGES = [
    ([b"one"], 0), ([b"t" * 20], SUBSCRIBE), ([b"A", b"", b"C" * 60], 0), ([b"x" * 300], 0),
    ([b"u"], CANCEL), ([b"", b"y" * 16400, b"z"], 0), ([b"y" * 16384], 0), ([b""], 0),
]


def parts_of(messages):
    return [(int(i < len(parts) - 1), part)
            for parts, _ in messages for i, part in enumerate(parts)]


def filled(peer, version=(3, 1)):
    """A probe with MESSAGES in its batch, and the offset at which each of them ends."""
    ours = peer(version)
    ends = []
    for parts, flags in MESSAGES:
        ours.put(*parts, flags=flags)
        ours.encode()
        ends.append(ours.account["total"])
    return ours, ends


def offsets(ends):
    """All that matter: every one near a boundary or in a small frame, some in the large bodies."""
    near = {e + d for e in [0, *ends] for d in range(-80, 330)}
    return [at for at in range(ends[-1] + 1) if at in near or at % 997 == 0]


@pytest.mark.parametrize("version", VERSIONS)
def test_account_at_every_offset(peer, version):
    ours, ends = filled(peer, version)
    text = b"".join(ours.gather())
    sent = 0
    for at in offsets(ends):
        account = ours.advance(at - sent)
        sent = at
        gone = [flags for (_, flags), end in zip(MESSAGES, ends, strict=True) if end <= at]
        assert account["done"] == gone.count(0)
        here = sum(end <= at for end in ends)
        assert account["half"] == (at not in [0, *ends] and not MESSAGES[here][1])
        assert b"".join(ours.gather()) == text[at:]
        assert b"".join(ours.gather(cap=2)) == text[at:][:sum(map(len, ours.gather(cap=2)))]
        left = [row for row, start in zip(MESSAGES, [0, *ends], strict=False)
                if start >= at and not row[1]]
        assert ours.unsent() == parts_of(left)
    assert account["sent"] == account["total"] and not ours.gather()


@pytest.mark.parametrize("version", VERSIONS)
def test_writes_of_any_size_give_the_same_bytes(peer, version):
    ours, ends = filled(peer, version)
    whole = b"".join(ours.gather())
    for step in (1000, 4097, 16384, len(whole)):
        ours, _ = filled(peer, version)
        text = b""
        while pieces := ours.gather(cap=3):
            piece = b"".join(pieces)[:step]
            text += piece
            ours.advance(len(piece))
        assert text == whole
        ours.reset()
        assert ours.memory[0] == 0


def test_taken_back_bodies_are_shared(peer):
    ours = peer()
    ours.put(b"r" * 100_000)
    ours.encode()
    before = ours.memory
    assert ours.unsent() == [(0, b"r" * 100_000)]
    assert ours.memory == before


def test_small_messages_in_one_loop(peer):
    """All encoded by one call, so that the fast loop's own account is looked at."""
    ours = peer()
    for i in range(1000):
        ours.put(bytes([i % 256]) * (i % 57))
    assert ours.encode()[0] == 1000
    ends, at = [], 0
    for i in range(1000):
        at += 2 + i % 57
        ends.append(at)
    assert ours.account["total"] == ends[-1]
    sent = 0
    for at in range(0, ends[-1] + 1, 7):
        account = ours.advance(at - sent)
        sent = at
        assert account["done"] == sum(end <= at for end in ends)
    rest = [(0, bytes([i % 256]) * (i % 57)) for i in range(1000) if ends[i] - 2 - i % 57 >= at]
    assert ours.unsent() == rest


def test_message_over_two_batches(peer):
    """The parts of one message do not fit: the account says so in both batches."""
    ours = peer()
    ours.put(b"before")
    ours.put(*[b"%05d" % i + b"r" * 20000 for i in range(40)])
    ours.put(b"after")
    assert ours.encode() == (1, 6)
    account = ours.account
    assert account["open"] and account["messages"] == 1
    assert not account["half"] and not account["cut"]
    parts = ours.unsent()
    assert [flags for flags, _ in parts] == [0] + [1] * 30   # the rest in the pipe continues them
    assert ours.advance(8)["half"] is False and ours.account["done"] == 1
    assert ours.unsent() == parts[1:]
    assert ours.advance(1)["half"] is True and ours.account["cut"] is True
    assert ours.unsent() == []
    ours.advance(ours.account["total"] - 9)
    assert ours.account["half"] is True
    ours.reset()                               # nothing in it, but the wire is in mid-message
    assert ours.account["half"] and ours.account["cut"]
    assert ours.encode() == (2, 40 * 20005 + 5)
    assert ours.account["half"] and not ours.account["open"] and not ours.account["cut"]
    assert ours.unsent() == [(0, b"after")]
    assert ours.advance(ours.account["total"] - 7) == ours.account
    assert ours.account["half"] is False and ours.account["done"] == 1
    assert ours.unsent() == [(0, b"after")]
    ours.advance(7)
    assert ours.account["done"] == 2 and ours.unsent() == []


def test_reset_forgets(peer):
    ours, _ = filled(peer)
    ours.advance(10)
    ours.reset()
    assert ours.account == {"total": 0, "sent": 0, "messages": 0, "done": 0, "half": False,
                            "open": False, "cut": False, "buffer": 0, "references": 0}
    assert ours.gather() == [] and ours.unsent() == [] and ours.memory[0] == 0


def test_bodies_beyond_two_gigabytes(peer):
    """Ends are 31 bits wide: the last one may be farther, and counts when all is sent."""
    ours = peer()
    sizes = [1 << 30, 900 << 20, 300 << 20, 5 << 30, 20000]
    for size in sizes:
        ours.put_hollow(size)
    ours.encode()
    first = sum(sizes[:3]) + 27
    assert ours.account["total"] == first and ours.account["messages"] == 3
    assert ours.advance(sizes[0] + 8)["done"] == 0
    assert ours.advance(1)["done"] == 1
    assert ours.advance(sizes[1] + 9)["done"] == 2
    assert ours.advance(sizes[2] + 8)["done"] == 2 and ours.account["half"]
    assert ours.advance(1)["done"] == 3 and not ours.account["half"]
    ours.reset()
    ours.encode()
    assert ours.account["total"] == sizes[3] + 9 and ours.account["messages"] == 1
    assert ours.advance(3 << 30)["done"] == 0 and ours.account["half"]
    assert ours.advance((2 << 30) + 9)["done"] == 1
    ours.reset()
    ours.encode()
    assert ours.account["messages"] == 1
