"""Names the protocol of a peer from its first bytes, for error messages.

A wrong port and a URL without "tls+" are the most frequent mistakes. TLS and WebSocket use this
table; the native handshake (`wire/strangers.pyx`) has the same one.
"""

from __future__ import annotations

#: (first bytes of the stream, the protocol)
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
