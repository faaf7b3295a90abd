"""Handshakes and sealed messages that are forged, replayed, cut or changed, at a session: no crash,
no join, memory flat.

MQCORE_ROUNDS=10 makes the 100,000 messages a million; MQCORE_SEED: where they begin.
"""

import os
import random
from collections import Counter

from memory import FED, growth

from mqcore.cluster import frames
from mqcore.cluster.crypto import X25519PrivateKey
from mqcore.cluster.errors import KeyRejected, MalformedFrame, NoiseError
from mqcore.cluster.key import Key
from mqcore.cluster.session import REFUSED, SEALED, SHAKE, Session

ROUNDS = int(os.environ.get("MQCORE_ROUNDS", "1"))
SEED = int(os.environ.get("MQCORE_SEED", "1"))
MANY = 100_000 * ROUNDS
EACH = 8                # messages to one session


def recorded(key):
    """The messages that a responder gets in a good session."""
    wires = [[], []]
    ends = [Session(first, key, X25519PrivateKey.generate(), wires[first].append)
            for first in (True, False)]
    heard = []
    ends[0].start()
    while any(wires):
        for end, wire in zip(ends, wires, strict=True):
            while wire:
                data = wire.pop(0)
                if end is ends[1]:
                    heard.append(data)
                end.receive(data)
    assert all(end.ready for end in ends) and len(heard) == 2
    for number in range(4):
        ends[0].send(frames.Ping(number))
    return [*heard, *wires[1]]


def forged(heard, foreign, chance):
    """Endless messages, none of which a session can finish a handshake with."""
    while True:
        data = chance.choice(heard)
        match chance.randrange(6):
            case 0:
                kind = chance.choice((SHAKE, SEALED, REFUSED, b"", chance.randbytes(1)))
                yield "random", kind + chance.randbytes(chance.randrange(300))
            case 1:
                yield "replayed", data
            case 2:
                yield "cut", data[:chance.randrange(len(data))]
            case 3:
                place = chance.randrange(len(data))
                yield "changed", data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) \
                    + data[place + 1:]
            case 4:
                yield "longer", data + chance.randbytes(chance.choice((1, 100, 10_000)))
            case 5:
                yield "foreign key", chance.choice(foreign)


def test_forged_handshakes_and_messages():
    key, chance = Key.generate(), random.Random(SEED)
    heard, foreign = recorded(key), recorded(Key.generate())
    static, messages = X25519PrivateKey.generate(), forged(heard, foreign, chance)
    kinds, refusals = Counter(), Counter()
    answers = []

    def feed(count):
        for at in range(0, count, EACH):
            answers.clear()
            session = Session(False, key, static, answers.append)
            for _ in range(min(EACH, count - at)):
                kind, data = next(messages)
                kinds[kind] += 1
                try:
                    assert session.receive(data) is None
                    refusals["begun"] += 1
                except (KeyRejected, NoiseError, MalformedFrame) as error:
                    refusals[type(error).__name__] += 1
                assert not session.ready and session.remote is None
            assert sum(map(len, answers)) <= EACH * 97      # no more comes back than went in

    grown = growth(feed)
    feed(MANY - FED)
    assert grown < 20_000
    assert sum(kinds.values()) == sum(refusals.values()) == MANY
    # a first message can be replayed: it is answered, and the second cannot be made from it
    assert 0 < refusals["begun"] < kinds["replayed"]
    assert min(refusals[name] for name in ("KeyRejected", "NoiseError", "MalformedFrame")) \
        > MANY // 100


def test_forged_messages_in_a_session():
    """What comes between good messages ends the session, or does nothing to it."""
    key, chance = Key.generate(), random.Random(SEED)
    heard = recorded(key)
    taken = Counter()
    for _ in range(MANY // 100):
        wires = [[], []]
        ends = [Session(first, key, X25519PrivateKey.generate(), wires[first].append)
                for first in (True, False)]
        ends[0].start()
        while any(wires):
            for end, wire in zip(ends, wires, strict=True):
                while wire:
                    end.receive(wire.pop(0))
        ends[0].send(frames.Ping(7))
        good = wires[1].pop()
        wrong = next(messages for kind, messages in forged([good, *heard], heard, chance)
                     if messages != good)
        try:
            assert ends[1].receive(wrong) is None
            taken["nothing"] += 1
        except (KeyRejected, NoiseError, MalformedFrame) as error:
            taken[type(error).__name__] += 1
        assert ends[1].receive(good) == frames.Ping(7)
        for again in (good, heard[-1]):
            try:
                ends[1].receive(again)
                raise AssertionError("a replayed message was taken")
            except NoiseError:
                taken["replayed"] += 1
    assert taken["nothing"] == 0 and taken["replayed"] == 2 * (MANY // 100)
