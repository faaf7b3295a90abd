"""What TransportSuite tests on a damaged stream: peers that stop halfway or speak nonsense. The
tests write the protocol's bytes themselves (raw.py)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import mqcore as mq
from mqcore.spi.url import parse
from mqcore.testing import raw
from mqcore.testing.bed import Bed
from mqcore.testing.contract import TransportContract
from mqcore.testing.suite import LIMIT, live, needs
from mqcore.testing.traffic import laws
from mqcore.testing.watch import until


class DamagedStream(TransportContract):
    @pytest.fixture
    def wire(self, bed: Bed) -> Iterator[raw.Wire]:
        """A stream to a bound PULL, on which the test speaks for itself."""
        r = bed.socket("pull", handshake_timeout=LIMIT)
        at = bed.bind(r)
        with self.dial(self.plugin, parse(at.url).address) as sock:
            yield raw.Wire(sock, r)

    @live
    @needs("raw")
    def test_a_half_closed_peer(self, wire: raw.Wire) -> None:
        """It has said all that it will: that is received, then the connection ends."""
        wire.shake("PUSH")
        wire.say(*(raw.frame(b"%d" % n) for n in range(10)))
        wire.half_close()
        assert [wire.victim.recv(timeout=LIMIT) for _ in range(10)] == [b"%d" % n
                                                                        for n in range(10)]
        assert wire.ended()
        until(lambda: not wire.victim.peers())

    @live
    @needs("raw")
    def test_a_peer_half_closed_in_its_handshake(self, wire: raw.Wire) -> None:
        wire.say(raw.GREETING[:20])
        wire.half_close()
        assert wire.ended() and wire.victim.peers() == []

    @live
    @needs("raw")
    def test_half_a_message_is_none(self, wire: raw.Wire) -> None:
        wire.shake("PUSH")
        wire.say(raw.frame(b"whole"), raw.frame(b"x" * 100)[:50])
        wire.half_close()
        assert wire.victim.recv(timeout=LIMIT) == b"whole" and wire.ended()
        until(lambda: not wire.victim.peers())
        with pytest.raises(mq.RecvTimeout):
            wire.victim.recv(timeout=0)
        assert laws(wire.victim).received == 1

    @live
    @needs("raw")
    def test_a_handshake_byte_by_byte(self, wire: raw.Wire) -> None:
        for byte in raw.GREETING + raw.ready("PUSH") + raw.frame(b"slowly"):
            wire.say(bytes((byte,)))
        assert wire.victim.recv(timeout=LIMIT) == b"slowly"

    @live
    @needs("raw", "many")
    def test_a_peer_that_speaks_nonsense(self, bed: Bed, wire: raw.Wire) -> None:
        """It is dropped with a reason; others are served."""
        events = wire.victim.events()
        wire.say(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        assert wire.ended()
        while (event := events.get(LIMIT)).kind != "HandshakeFailed":
            pass
        assert event.reason
        s = bed.connected("push", wire.victim.endpoints[0])
        s.send(b"good", timeout=LIMIT)
        assert wire.victim.recv(timeout=LIMIT) == b"good"
