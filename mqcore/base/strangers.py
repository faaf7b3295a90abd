"""Whose protocol the first bytes of a connection are, for reasons that people read.

A wrong port and a URL that lacks a "tls+" are the commonest faults of all. The wire, TLS and
WebSocket each name strangers by this table; the native handshake (`wire/greeting.pyx`) has the same
one.
"""

from __future__ import annotations

#: (how its stream begins, who that is)
FIRST_BYTES: tuple[tuple[bytes, str], ...] = (
    (b"\x16\x03", "TLS"),  # a handshake record
    (b"\x15\x03", "TLS"),  # an alert
    *((word, "HTTP or WebSocket") for word in (
        b"GET ", b"POST", b"HEAD", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ",
        b"HTTP")),
    (b"SSH-", "SSH"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\0SP\0", "SP"),
    (b"\xff\0\0\0", "ZMTP"),
)


def stranger(data: bytes) -> str:
    """The name of the protocol that `data`, the first bytes (two or more), belongs to, or ""."""
    head = data[:4]
    for first, name in FIRST_BYTES:
        n = min(len(first), len(head))
        if n > 1 and head[:n] == first[:n]:
            return name
    return ""
