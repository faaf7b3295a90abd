"""Datagrams and exchanges that are forged, replayed, cut, changed or wrong inside: nothing crashes,
nobody joins, memory stays flat, and each refusal has its reason.

MQCORE_ROUNDS=10 makes the 100,000 datagrams a million; MQCORE_SEED: where they begin.
"""

import os
import random
from collections import Counter

import msgspec
import pytest
from cluster_simulation import EPOCH, KEY, Network
from memory import FED, growth

from mqcore.cluster.gossip import messages, seal
from mqcore.cluster.gossip.messages import Claim, Digest, Entry, Malformed, Record, State
from mqcore.cluster.gossip.seal import OVERHEAD, Refused, Seal
from mqcore.cluster.membership import Config, Membership

ROUNDS = int(os.environ.get("MQCORE_ROUNDS", "1"))
SEED = int(os.environ.get("MQCORE_SEED", "1"))
MANY = 100_000 * ROUNDS
FROM = ("n99", 7400)


def recorded(count=5, seconds=20):
    """(a node, datagrams that others sent to it and it has had, the network)"""
    net = Network(seed=SEED)
    nodes = net.many(count)
    heard = []
    net.taps.append(lambda node, address, data: heard.append(data)
                    if address == nodes[0].address else None)
    net.run(seconds)
    assert net.converged() and len(heard) > 20
    return nodes[0], heard, net


def forger(heard, chance):
    """Endless datagrams that must not count."""
    other = Seal([bytes(31) + b"\1"], lambda: EPOCH)
    while True:
        data = chance.choice(heard)
        kind = chance.randrange(6)
        if kind == 0:
            yield "random", chance.randbytes(chance.randrange(1500))
        elif kind == 1:
            yield "replayed", data
        elif kind == 2:
            yield "cut", data[:chance.randrange(len(data))]
        elif kind == 3:
            place = chance.randrange(len(data))
            changed = data[place] ^ 1 << chance.randrange(8)
            yield "changed", data[:place] + bytes([changed]) + data[place + 1:]
        elif kind == 4:
            yield "longer", data + chance.randbytes(chance.choice((1, 100, 10_000)))
        else:
            yield "wrong key", other.seal(chance.randbytes(chance.randrange(200)))


def test_forged_datagrams():
    node, heard, _ = recorded()
    membership = node.membership
    view, chance = membership.view(), random.Random(SEED)
    datagrams, before = forger(heard, chance), sum(membership.refused.values())
    kinds = Counter()

    def feed(count):
        for _ in range(count):
            kind, data = next(datagrams)
            kinds[kind] += 1
            membership.on_datagram(FROM, data)
    grown = growth(feed)
    sessions = membership.stats()["sessions"]
    feed(MANY - FED)
    assert grown < 20_000
    assert membership.stats()["sessions"] == sessions
    assert membership.view() == view and not membership.events() and not membership.datagrams()
    assert sum(kinds.values()) == MANY
    assert sum(membership.refused.values()) - before == MANY        # each has its reason
    for reason in ("seal", "short", "replay", "long"):
        assert membership.refused[reason] > MANY // 100, membership.refused
    assert membership.refused["replay"] == kinds["replayed"]


def mutations(chance, good):
    """Well sealed and wrong inside: what a member with a fault, or a thief of the key, may send."""
    while True:
        data = bytearray(chance.choice(good))
        for _ in range(chance.randrange(1, 4)):
            place = chance.randrange(len(data))
            match chance.randrange(4):
                case 0:
                    data[place] = chance.randrange(256)
                case 1:
                    del data[place:place + chance.randrange(8)]
                case 2:
                    data[place:place] = chance.randbytes(chance.randrange(8))
                case 3:
                    # a container that claims to be huge, a deep one, extreme numbers
                    data[place:place] = chance.choice((
                        b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff",
                        b"\x91" * 500, b"\xcf" + b"\xff" * 8, b"\xd3" + b"\x80" + bytes(7),
                        b"\xcb\x7f\xf8" + bytes(6), b"\xd6\xff" + b"\xff" * 4, b"\xc1"))
            data = data or bytearray(b"\0")
        yield bytes(data)


def test_mutated_packets_from_a_holder_of_the_key():
    """They may change what is believed, since who holds the key is trusted; they raise nothing and
    no table grows past its bound."""
    node, _, net = recorded()
    membership = node.membership
    chance = random.Random(SEED)
    reader = Seal([KEY], lambda: EPOCH)
    good = []
    for _ in range(3):
        for other in net.nodes[1:]:
            net._collect(other)
            other.membership.update(meta=chance.randbytes(50))
            other.membership._send(("x", 1), node.id, messages.Ping, (1, node.id))
            other.membership._send(("x", 1), node.id, messages.Ack, (1, other.id, True))
            other.membership._send(("x", 1), node.id, messages.Request, (1, other.id))
            other.membership._send(("x", 1), node.id, messages.Gossip, ())
            good += [reader.open(data) for _, data in other.membership.datagrams()]
    writer = Seal([KEY], lambda: EPOCH)
    count = MANY // 10
    for _, packet in zip(range(count), mutations(chance, good), strict=False):
        membership.on_datagram(FROM, writer.seal(packet))
        net.now += 0.001
        membership.datagrams()
        membership.events()
    assert membership.refused["malformed"] > count // 10
    stats = membership.stats()
    assert stats["members"] + stats["gone"] <= Config().max_members + 1
    assert len(membership._detector._relays) <= Config().max_relays


def test_mutated_exchanges():
    node, _, net = recorded()
    chance = random.Random(SEED)
    others = [other.membership for other in net.nodes[1:]]
    good = [others[0].begin_sync()]
    good.append(others[1].on_sync(good[0]) or b"")
    blank = messages.encode(Digest(bytes(16), ()))
    good += [others[2].on_sync(blank), blank]
    count = MANY // 20
    for _, data in zip(range(count), mutations(chance, good), strict=False):
        node.membership.on_sync(data)
        node.membership.events()
    assert node.membership.refused["malformed_sync"] > count // 10
    assert node.membership.on_sync(bytes(messages.MAX_EXCHANGE + 1)) is None


# -- the bounds ----------------------------------------------------------------------------------

def lone(**settings):
    now = [0.0]
    me = Record(bytes(16), 0, "me", 1)
    membership = Membership(me, [KEY], clock=lambda: now[0], wall=lambda: EPOCH + now[0],
                            rng=random.Random(1), config=Config(**settings))
    return membership, now


def tell(membership, *updates):
    writer = Seal([KEY], membership._seal._wall)
    for start in range(0, len(updates), 8):
        packet = messages.encode_packet(messages.Gossip, (bytes(15) + b"\x63",), [
            messages.encode_update(one) for one in updates[start:start + 8]])
        membership.on_datagram(FROM, writer.seal(packet))


def records(count, incarnation=1):
    return [Record(number.to_bytes(16, "big"), incarnation, "h", 1) for number in
            range(1, count + 1)]


def test_a_full_table_refuses_and_reports():
    membership, _ = lone(max_members=50)
    tell(membership, *records(80))
    assert len(membership.members()) == 51 and membership.refused["table_full"] == 30


def test_the_dead_make_room():
    membership, _ = lone(max_members=50)
    old = records(50)
    by = old[0].id
    tell(membership, *old, *(Claim(one.id, 1, State.DEAD, by) for one in old[:10]))
    assert len(membership.members()) == 41
    tell(membership, *records(60)[50:])
    stats = membership.stats()
    assert (stats["members"], stats["gone"]) == (51, 0)


def test_events_that_nobody_takes():
    membership, _ = lone(max_events=100)
    tell(membership, *records(150))
    events = membership.events()
    assert len(events) == 100 and membership.refused["events_lost"] == 50
    assert events[-1].record.id == records(150)[-1].id


def test_relays_are_bounded():
    membership, now = lone(max_relays=10)
    tell(membership, *records(2))
    writer = Seal([KEY], lambda: EPOCH)
    for number in range(50):
        packet = messages.encode_packet(messages.Request,
                                        ((1).to_bytes(16, "big"), number, (2).to_bytes(16, "big")),
                                        [])
        membership.on_datagram(FROM, writer.seal(packet))
    assert membership.refused["too_many_relays"] == 40
    assert len(membership.datagrams()) == 10
    now[0] = 0.9
    membership.tick()
    now[0] = 5.0
    membership.tick()
    assert not membership._detector._relays


def test_the_dead_and_the_left_are_forgotten():
    membership, now = lone()
    one, two = records(2)
    tell(membership, one, two, Claim(one.id, 1, State.LEFT, one.id),
         Claim(two.id, 1, State.DEAD, one.id))
    membership.tick()
    assert membership.stats()["gone"] == 2
    for now[0], left in ((599, 2), (601, 1), (86_399, 1), (86_402, 0)):
        membership.tick()
        assert membership.stats()["gone"] == left, now


def test_what_only_the_owner_may_say():
    membership, _ = lone()
    one, two = records(2)
    tell(membership, one, two, Claim(one.id, 1, State.LEFT, two.id))
    assert membership.refused["foreign_leave"] == 1 and membership.state(one.id) is State.ALIVE
    mine = membership.me
    tell(membership, Claim(mine.id, mine.incarnation, State.DEAD, one.id))
    assert membership.me.incarnation == mine.incarnation + 1
    tell(membership, Record(mine.id, mine.incarnation + 100, "evil", 9))
    assert membership.me.host == "me" and membership.me.incarnation == mine.incarnation + 101
    tell(membership, Claim(mine.id, messages.MAX_INCARNATION - 1, State.DEAD, one.id))
    assert membership.me.incarnation == messages.MAX_INCARNATION - 1
    tell(membership, Claim(bytes([9]) * 16, 1, State.DEAD, one.id))
    assert membership.refused["unknown_member"] == 1


# -- the seal ------------------------------------------------------------------------------------

def test_nothing_can_be_read():
    node, heard, net = recorded()
    for data in heard:
        for other in net.nodes:
            assert other.id not in data and other.address[0].encode() + b":" not in data
            assert other.membership.me.meta not in data
    # what is in clear is random: no two begin alike but those of one session
    assert len({data[:12] for data in heard}) == len(net.nodes) - 1
    assert len({data[12:24] for data in heard}) == len(heard)


def sealed(count, wall=lambda: EPOCH):
    writer = Seal([KEY], wall)
    return [writer.seal(b"%d" % number) for number in range(count)]


def refusal(reader, data):
    with pytest.raises(Refused) as caught:
        reader.open(data)
    return caught.value.args[0]


def test_the_replay_window():
    data = sealed(4000)
    reader = Seal([KEY], lambda: EPOCH)
    chance = random.Random(1)
    for start in range(0, 2000, 500):           # any order within the window
        block = list(range(start, start + 500))
        chance.shuffle(block)
        for number in block:
            assert reader.open(data[number]) == b"%d" % number
    for number in range(2000):
        assert refusal(reader, data[number]) == "replay"
    assert reader.open(data[3999]) == b"3999"
    assert refusal(reader, data[3999 - seal.WINDOW]) == "replay"       # too old to be known
    assert reader.open(data[3999 - seal.WINDOW + 1])


def test_recordings_of_old_sessions():
    old = sealed(2)
    for clock in (EPOCH + seal.TOLERANCE + 1, EPOCH - seal.TOLERANCE - 1):
        assert refusal(Seal([KEY], lambda clock=clock: clock), old[0]) == "clock"
    late = [EPOCH + seal.TOLERANCE - 1]
    reader = Seal([KEY], lambda: late[0])
    assert reader.open(old[0]) == b"0"
    late[0] += 1e6              # a session that is known needs no clock
    assert reader.open(old[1]) == b"1"


def test_sessions_are_bounded(monkeypatch):
    monkeypatch.setattr(seal, "MAX_SESSIONS", 10)
    reader = Seal([KEY], lambda: EPOCH)
    first, second = sealed(2)
    reader.open(first)
    for _ in range(9):
        reader.open(sealed(1)[0])
    reader.open(second)         # the first session was used last
    for _ in range(9):
        reader.open(sealed(1)[0])
    assert refusal(reader, second) == "replay" and reader.sessions == 10


def test_sizes_and_keys():
    reader = Seal([KEY], lambda: EPOCH)
    assert refusal(reader, b"") == "short" and refusal(reader, bytes(OVERHEAD - 1)) == "short"
    assert refusal(reader, bytes(OVERHEAD)) == "seal"
    [data] = sealed(1)
    assert len(data) == OVERHEAD + 1
    assert Seal([bytes(32), KEY], lambda: EPOCH).open(data) == b"0"
    assert refusal(Seal([bytes(32)], lambda: EPOCH), data) == "seal"
    reader.open(data)
    reader.replace_keys([bytes(32), KEY])
    assert refusal(reader, data) == "replay"    # the window has outlived the change
    reader.replace_keys([bytes(32)])
    assert refusal(reader, data) == "seal"


def test_a_forked_child_begins_a_session_of_its_own(monkeypatch):
    writer = Seal([KEY], lambda: EPOCH)
    first = writer.seal(b"")
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert writer.seal(b"")[:12] != first[:12]


# -- decoding ------------------------------------------------------------------------------------

@pytest.mark.parametrize("wrong", [
    (), (9, bytes(16), []), (4, bytes(15), []), (4, bytes(17), []), (4, "x" * 16, []),
    (0, bytes(16), -1, None, []), (0, bytes(16), 1 << 32, None, []), (0, bytes(16), 0, b"", []),
    (4, bytes(16), [[0, bytes(16), 1 << 62, "h", 1]]), (4, bytes(16), [[0, bytes(16), 1, "", 1]]),
    (4, bytes(16), [[0, bytes(16), 1, "h", 65536]]),
    (4, bytes(16), [[1, bytes(16), 1, 4, bytes(16)]]),
    (4, bytes(16), [[1, bytes(16), 1, 1, bytes(16)]] * 65),
    (4, bytes(16), [[0, bytes(16), 1, "h", 1, "", "", bytes((16 << 10) + 1)]]),
    {"a": 1}, None, 1.5,
])
def test_packets_out_of_bounds(wrong):
    with pytest.raises(Malformed):
        messages.decode_packet(msgspec.msgpack.encode(wrong))


def test_exchanges_out_of_bounds():
    entries = tuple(Entry(bytes(16), 0, State.ALIVE) for _ in range(messages.MAX_TABLE + 1))
    with pytest.raises(Malformed):
        messages.decode_exchange(messages.encode(Digest(bytes(16), entries)))
