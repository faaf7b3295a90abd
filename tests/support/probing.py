"""What a test says to a `Probe` in the middle of its handshake."""

from rawzmtp import COMMAND, LONG, frame


def say(probe, body: bytes, flags: int = COMMAND) -> tuple[str, list[bytes]]:
    """A command of the peer's; the status and the bodies of what is answered."""
    status, _, answer = probe.feed(frame(body, flags))
    bodies = []
    while answer:
        head = 9 if answer[0] & LONG else 2
        size = int.from_bytes(answer[1:head], "big")
        bodies.append(answer[head:head + size])
        answer = answer[head + size:]
    return status, bodies


def flipped(body: bytes, at: int, bit: int = 1) -> bytes:
    return body[:at] + bytes([body[at] ^ bit]) + body[at + 1:]
