"""`mq doctor` with PLAIN and CURVE: does the other side accept these keys?

A peer reveals its socket type in the last command of the handshake, and only to a socket that fits.
So this module tries the harmless types one after another. It uses mqcore's own sockets, because
CURVE encrypts that command.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

import mqcore as mq

TRIED = ("req", "sub", "push", "pub")  # none of them can take a message meant for others
LEFT = "the peer left when it had read our "
# start of the handshake's reason, the step that it belongs to, and what to do
VERDICTS = (
    (LEFT + "HELLO", "server key",
     "it cannot decrypt data for this key: compare --server-key with the public key of the server "
     "that runs now; is it a client's key, or an old one?"),
    ("the peer's WELCOME", "server key",
     "the server does not have the secret key that belongs to --server-key"),
    ("the peer refused: 400", "credentials",
     "add the public key, or the username and password, to those that the server accepts (allow=, "
     "its ZAP handler)"),
    ("the peer refused: 300", "credentials", "its ZAP handler cannot decide now; try again later"),
    ("the peer refused", "credentials",
     "its allow= or ZAP handler failed; its log and events() say why"),
    ("the peer is a client too", "credentials",
     "no side is a server: one of them needs a secret key and no server_key (PLAIN: "
     "allow=)"),
)
AMBIGUOUS = (
    "it has a type that this check leaves alone (push, dealer, req, pair), or its ZAP handler "
    "refuses us silently: connect with your program and read its events()"
)


class Found(NamedTuple):
    """The result of one attempt: the peer's type and the milliseconds, or the reason."""

    pattern: str = ""
    took: float = 0.0
    reason: str = ""


def attempt(url: str, kind: str, security: mq.security.Security, timeout: float) -> Found:
    """Perform a handshake as a socket of this type."""
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
                if event.kind == "Connected" and event.peer is not None:
                    took = (time.perf_counter() - start) * 1e3
                    return Found(event.peer.pattern, took)
                if event.kind in ("HandshakeFailed", "Stopped"):
                    return Found(reason=event.reason)
        except mq.WaitTimeout:
            return Found(reason=f"the handshake did not complete within {timeout:g} s")


def tries(url: str, security: mq.security.Security, timeout: float) -> Iterator[tuple[str, Found]]:
    """Yield each type with its result, up to the first conclusive one."""
    for kind in TRIED:
        found = attempt(url, kind, security, timeout)
        yield kind, found
        if not fits_another(found.reason):
            return


def fits_another(reason: str) -> bool:
    """Whether the server seems to have accepted the key but not the socket's type."""
    return (reason.startswith(LEFT) and "HELLO" not in reason) or "does not fit" in reason


def verdict(reason: str) -> tuple[str, str]:
    """The step that failed, and the advice."""
    for start, step, advice in VERDICTS:
        if reason.startswith(start):
            return step, advice
    return "mechanism", "its events() or log may say more"
