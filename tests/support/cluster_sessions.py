"""Two sessions that are linked, without a network."""

from mqcore.cluster.crypto import X25519PrivateKey
from mqcore.cluster.key import Key
from mqcore.cluster.session import Session


def linked(key=None, other=None):
    key = key or Key.generate()
    wires = [[], []]
    ends = [Session(first, own, X25519PrivateKey.generate(), wires[not first].append)
            for first, own in ((True, key), (False, other or key))]
    ends[0].start()
    while any(wires):
        for end, wire in ((ends[0], wires[1]), (ends[1], wires[0])):
            while wire:
                end.receive(wire.pop(0))
    return ends, wires
