"""A source whose messages are made by hand: libnorm sends what we write into its stream."""

import struct

import mqcore_norm_engine as engine
from mqcore_norm import norm

import mqcore as mq

LIMIT = 60.0


class Forger:
    def __init__(self, address):
        self.sock = norm.open_socket(address, {
            "pattern.name": "pub", "multicast_hops": 1, "multicast_loop": True,
            **{name: default for name, _, default, *_ in norm.options}})
        self.sock.settimeout(LIMIT)
        self.given = 0

    def give(self, piece, begins=True):
        self.given += len(piece)
        self.sock.send((b"B" if begins else b"P") + struct.pack("!Q", self.given) + piece)

    def send(self, number, *parts):
        """A message with this number; without parts, a beat."""
        for begins, piece in engine.to_pieces([list(parts) or None], 30_000, number):
            self.give(piece, begins)

    def hear(self, sub, number=0):
        """Send, with numbers from this one on, until the subscriber gets all. The next number."""
        last = -1
        while last < 0:
            self.send(number, b"%d" % number)
            number += 1
            try:
                last = int(sub.recv(timeout=0.1))
            except mq.RecvTimeout:
                pass
        while last < number - 1:
            last = int(sub.recv(timeout=LIMIT))
        return number

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.sock.close()
