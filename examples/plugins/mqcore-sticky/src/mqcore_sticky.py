"""STICKY: a PUSH whose messages with the same first part go to the same peer. Peer: PULL.

Which one is found by rendezvous hashing: the peer whose name and the first part together hash
highest. So when a peer comes or goes, only the messages that are or were its own move; all others
keep their peer. A peer's name is its routing_id, if it announces one, else its address-independent
number in this socket: give the pulls a routing_id if the same keys are to meet the same pull again
after a reconnection, or from several pushers.

Order is kept per key: a message never overtakes another of the same key, so one whose peer is
full waits (and a send with it), although other peers are not full.
"""

from hashlib import blake2b

from mqcore.spi.python.pattern import WAIT, Parts, Pattern, Peer


class Sticky(Pattern):
    """Each message to the peer that its first part belongs to."""

    abi = 1
    name = "sticky"
    zmtp, number, peers = "PUSH", 8, ("pull",)
    options = (("key_size", "size", 0, "so many bytes of the first part decide; 0: all of it"),)

    sends = True
    waits = True
    reroutes = True

    def attach(self, peer: Peer) -> None:
        name = peer.routing_id or b"%d" % peer.id
        peer.data = blake2b(name, digest_size=16).digest()

    def route(self, parts: Parts) -> Peer | None:
        if not self.live:
            return WAIT
        key = parts.head(self.key_size) if self.key_size else parts[0]
        return max(self.live, key=lambda peer: blake2b(key, key=peer.data, digest_size=8).digest())

    def can_send(self) -> bool:
        # whose turn it is depends on the message: say yes only if the answer holds for any
        return bool(self.live) and all(peer.has_room() for peer in self.live)
