"""ZMTP's greeting without I/O: what to say at which byte of the peer's, and which version it is.

The same rules as the native codec's (`mqcore/wire/zmtp/greeting.pyx`, which serves NULL); this one
serves every other mechanism. The signature comes first, the major version when the peer's
signature is here, the rest when its major version is. Peers of 2.0 say twelve bytes, those of 1.0
none at all.
"""

from __future__ import annotations

from handshake.mechanism import Mechanism, Refused, printable
from mqcore.base.strangers import stranger

SIZE = 64
HINTS = {
    "TLS": ": put tls+ before the transport here, or take it off there",
    "HTTP or WebSocket": ": for WebSocket put ws+ before the transport here",
    "zstd": ": put zstd+ before the transport here, or take it off there",
}
OLD_SERVED = "the peer speaks ZMTP {}, which knows no {} mechanism"


def name_stranger(data: bytes) -> str:
    """Bytes that are no ZMTP: a reason that says whose they may be, and what to do."""
    name = stranger(data)
    if name in ("", "ZMTP"):  # the other: it begins like one, and goes on as none
        return "the peer does not speak ZMTP"
    return f"the peer speaks {name}, not ZMTP{HINTS.get(name, '')}"


class Greeting:
    """Feed it the peer's bytes one at a time until `done`; say what it returns.

    version: (3, 1), (3, 0), (2, 0) or (1, 0) when known. unversioned: a 1.0 peer without any
    greeting, whose `seen` bytes are the header of its identity frame.
    """

    def __init__(self, mechanism: Mechanism, number: int = 0, routing_id: bytes = b"") -> None:
        self.mechanism = mechanism
        self.seen = bytearray()
        self.said = 0
        self.version: tuple[int, int] | None = None
        self.unversioned = False
        self.done = False
        self.peer_mechanism = ""
        head = b"\xff" + (len(routing_id) + 1).to_bytes(8, "big") + b"\x7f\x03"
        self.old = head + bytes([number & 0xff])
        self.new = (head + b"\x01" + mechanism.name.ljust(20, b"\0")
                    + bytes([mechanism.as_server]) + bytes(31))

    def start(self, listening: bool) -> bytes:
        """What to say at once. Again with listening=False after a grace period."""
        return b"" if listening else self._say(self.new, 10)

    def byte(self, value: int) -> bytes:
        """The peer's next byte; our answer. Raises Refused."""
        self.seen.append(value)
        n = len(self.seen)
        if n <= 10:
            return self._signature(n)
        if n == 11:
            return self._revision(value)
        if n == 12:
            return self._minor(value)
        if n <= 32:
            self._mechanism(n, value)
        self.done = n == SIZE
        return b""

    def _say(self, text: bytes, upto: int) -> bytes:
        answer = text[self.said:upto]
        self.said = max(self.said, upto)
        return answer

    def _signature(self, n: int) -> bytes:
        seen = bytes(self.seen)
        if seen[0] == 0xff:
            if n == 1:
                return self._say(self.new, 10)
            if n < 10:
                return b""
            if seen[9] & 1:
                return self._say(self.new, 11)
            if seen[9]:
                raise Refused(name_stranger(seen))
        elif n == 1:
            return b""
        elif seen[0] == 0:
            if not b"\0SP\0".startswith(seen):
                raise Refused(name_stranger(seen))
            if n == 4:
                raise Refused("the peer speaks SP (nanomsg), which this socket does not")
            return b""
        elif seen[1] & 0xfe:
            raise Refused(name_stranger(seen))
        self._old((1, 0))
        self.unversioned = self.done = True
        return self._say(self.new, 10)

    def _revision(self, revision: int) -> bytes:
        if revision > 1:
            return self._say(self.new, SIZE)
        self._old((2, 0) if revision else (1, 0))
        return self._say(self.old, 12)

    def _old(self, version: tuple[int, int]) -> None:
        if not self.mechanism.old_peers:
            raise Refused(OLD_SERVED.format(f"{version[0]}.0", self.mechanism.name.decode()))
        self.version = version

    def _minor(self, minor: int) -> bytes:
        if self.version is not None:              # an old peer: this was its socket type
            self.done = True
        else:
            self.version = (3, 0) if self.seen[10] == 3 and minor == 0 else (3, 1)
        return b""

    def _mechanism(self, n: int, value: int) -> None:
        if n == 13 and value == 0:
            raise Refused("the peer's greeting names no mechanism")
        if value and (not 32 < value < 127 or n > 13 and self.seen[n - 2] == 0):
            raise Refused("the peer's greeting is malformed: no mechanism's name")
        if n < 32:
            return
        name = bytes(self.seen[12:32]).rstrip(b"\0")
        self.peer_mechanism = printable(name)
        if name != self.mechanism.name:
            raise Refused(f"the peer wants mechanism {self.peer_mechanism}, "
                          f"this socket uses {self.mechanism.name.decode()}")
