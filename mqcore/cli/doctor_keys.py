"""`mq doctor` behind PLAIN and CURVE: does the other side let these keys in?

What a peer is, it says in the last command of the handshake, and only to a socket that fits. So
this tries the harmless types one after the other, with sockets of ours, which seal what they say.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

import mqcore as mq

TRIED = ("req", "sub", "push", "pub")  # none of them takes a message that is meant for others
LEFT = "the peer left when it had read our "
# what the handshake's reason begins with, the step that it belongs to, and what to do
VERDICTS = (
    (LEFT + "HELLO", "server key",
     "it opens nothing that is sealed for another key: compare --server-key with the public key of "
     "the server that runs now; is it a client's, or an old one?"),
    ("the peer's WELCOME", "server key",
     "whoever answers has not the secret key that belongs to --server-key"),
    ("the peer refused: 400", "credentials",
     "put the public key, or the username with its password, among those that the server lets in "
     "(allow=, its ZAP handler)"),
    ("the peer refused: 300", "credentials", "its ZAP handler cannot decide now; try again"),
    ("the peer refused", "credentials",
     "its allow= or ZAP handler failed; its log and events() say why"),
    ("the peer is a client too", "credentials",
     "neither side judges: one of them is the server, with a secret key and no server_key (PLAIN: "
     "with allow=)"),
)
AMBIGUOUS = (
    "it is of a type that this check leaves alone (push, dealer, req, pair), or its ZAP handler "
    "refuses us in silence: connect with the program itself and read its events()"
)


class Found(NamedTuple):
    """How one try ended: the peer's type and the milliseconds, or the reason."""

    pattern: str = ""
    took: float = 0.0
    reason: str = ""


def attempt(url: str, kind: str, security: mq.Security, timeout: float) -> Found:
    """Shake hands as a socket of this type."""
    with (
        mq.Context() as context,
        mq.socket(kind, context=context, security=security, linger=0) as socket,
        socket.events() as events,
    ):
        start = time.perf_counter()
        socket.connect(url)
        try:
            while True:
                event = events.get(max(0.0, start + timeout - time.perf_counter()))
                if event.kind == "Connected":
                    took = (time.perf_counter() - start) * 1e3
                    return Found(event.peer.pattern, took)
                if event.kind in ("HandshakeFailed", "Stopped"):
                    return Found(reason=event.reason)
        except mq.WaitTimeout:
            return Found(reason=f"no end of the handshake within {timeout:g} s")


def tries(url: str, security: mq.Security, timeout: float) -> Iterator[tuple[str, Found]]:
    """Each type and how it ended, up to the first that says something."""
    for kind in TRIED:
        found = attempt(url, kind, security, timeout)
        yield kind, found
        if not fits_another(found.reason):
            return


def fits_another(reason: str) -> bool:
    """The server let the key pass, as far as one can see, and did not like the socket's type."""
    return (reason.startswith(LEFT) and "HELLO" not in reason) or "does not fit" in reason


def verdict(reason: str) -> tuple[str, str]:
    """The step that failed, and what to do."""
    for start, step, advice in VERDICTS:
        if reason.startswith(start):
            return step, advice
    return "mechanism", "its events() or log may say more"
