"""A whole ZMTP handshake in Python: greeting, then the mechanism's commands or an old identity.

It does what the native codec does up to the first frame of traffic, for mechanisms that are Python.
The control thread drives it: `start`, then `feed` with whatever was read until `done`; the bytes
behind `used` are traffic.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from handshake.greeting import Greeting
from handshake.mechanism import HANDSHAKE_MAX, Mechanism, Refused, printable

NUMBERS = ("PAIR", "PUB", "SUB", "REQ", "REP", "DEALER", "ROUTER", "PULL", "PUSH", "XPUB", "XSUB",
           "STREAM")


@dataclass
class Us:
    """What we are: the socket's pattern, whom it talks to, and its routing id."""

    pattern: str
    peers: tuple[str, ...]
    number: int = 0
    routing_id: bytes = b""


@dataclass
class Peer:
    """What the handshake found out."""

    version: tuple[int, int] = (0, 0)
    pattern: str = ""
    mechanism: str = ""
    routing_id: bytes = b""
    properties: dict[str, bytes] = field(default_factory=dict)


class Handshake:
    """One connection's. Raises Refused; then the connection is of no further use."""

    def __init__(self, us: Us, mechanism: Mechanism) -> None:
        self.us = us
        self.mechanism = mechanism
        self.greeting = Greeting(mechanism, us.number, us.routing_id)
        self.peer = Peer()
        self.done = False
        self._frame = bytearray()

    def start(self, listening: bool = False) -> bytes:
        """What to say at once; a listener waits for the peer's first bytes."""
        return self.greeting.start(listening)

    def feed(self, data: bytes) -> tuple[int, bytes]:
        """Bytes used and our answer. Not all are used only if `done`."""
        answer = bytearray()
        at = 0
        while at < len(data) and not self.greeting.done:
            answer += self.greeting.byte(data[at])
            at += 1
            if self.greeting.done:
                answer += self._greeted()
        while self.greeting.done and not self.done:
            body, used = self._collect(data[at:])
            at += used
            if body is None:
                break
            answer += self._take(body)
        return at, bytes(answer)

    def _greeted(self) -> bytes:
        greeting = self.greeting
        assert greeting.version is not None
        self.peer.version = greeting.version
        self.peer.mechanism = greeting.peer_mechanism
        if greeting.version >= (3, 0):
            return self._commands(self.mechanism.start())
        if greeting.unversioned:                  # our signature is the header of our identity
            self._frame += greeting.seen
            return self.us.routing_id
        number = greeting.seen[11]
        if number < len(NUMBERS):
            self._check_pattern(NUMBERS[number].encode())
        return self._identity()

    def _identity(self) -> bytes:
        ours = self.us.routing_id
        if self.peer.version == (2, 0):
            return bytes([0, len(ours)]) + ours
        if len(ours) < 254:
            return bytes([len(ours) + 1, 0]) + ours
        return b"\xff" + (len(ours) + 1).to_bytes(8, "big") + b"\0" + ours

    @staticmethod
    def _commands(bodies: list[bytes]) -> bytes:
        return b"".join(
            (bytes([4, len(body)]) if len(body) <= 255 else b"\x06" + len(body).to_bytes(8, "big"))
            + body for body in bodies)

    def _header(self) -> tuple[int, int]:
        """Header length and body size of the frame under way; (0, 0): not yet known."""
        at = self._frame
        if len(at) < 2:
            return 0, 0
        old = self.peer.version == (1, 0)
        long = at[0] == 0xff if old else at[0] & 2
        header = 2 if not long else 10 if old else 9
        if len(at) < header:
            return 0, 0
        size = int.from_bytes(at[1:9], "big") if long else at[0] if old else at[1]
        if old:
            if size == 0:
                raise Refused("the peer sent a frame of length 0")
            size -= 1                             # it counts the flags
        if size > HANDSHAKE_MAX:
            raise Refused("the peer's handshake is longer than 64 KiB")
        return header, size

    def _collect(self, data: bytes) -> tuple[bytes | None, int]:
        """The body of the frame under way once all is here, and how many bytes were used."""
        used = 0
        while True:
            header, size = self._header()
            missing = header + size - len(self._frame) if header else 1
            if header and not missing:
                body = bytes(self._frame[header:])
                self._frame.clear()
                return body, used
            piece = data[used:used + missing]
            if not piece:
                return None, used
            self._frame += piece
            used += len(piece)

    def _take(self, body: bytes) -> bytes:
        if self.peer.version < (3, 0):
            self.peer.routing_id = body
            self.done = True
            return b""
        answer = self._commands(self.mechanism.command(body))
        if self.mechanism.done:
            self.peer.properties = dict(self.mechanism.properties)
            if "socket-type" in self.peer.properties:
                self._check_pattern(self.peer.properties["socket-type"])
            self.peer.routing_id = self.peer.properties.get("identity", b"")
            self.done = True
        return answer

    def _check_pattern(self, name: bytes) -> None:
        self.peer.pattern = printable(name, 23)
        if name.decode("latin-1") not in self.us.peers:
            raise Refused(f"the peer is a {self.peer.pattern} socket, "
                          f"which does not fit {self.us.pattern}")
