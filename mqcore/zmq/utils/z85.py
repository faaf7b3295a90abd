"""Z85 (ZeroMQ's RFC 32): four bytes as five characters."""

from __future__ import annotations

import struct

from mqcore.zmq.borrowed import lend

Z85CHARS = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
Z85MAP = {char: value for value, char in enumerate(Z85CHARS)}


def encode(rawbytes: bytes) -> bytes:
    """Bytes, a multiple of four, as characters."""
    if len(rawbytes) % 4:
        raise ValueError(f"length must be multiple of 4, not {len(rawbytes)}")
    out = bytearray()
    for (value,) in struct.iter_unpack(">I", rawbytes):
        for power in (52200625, 614125, 7225, 85, 1):
            out.append(Z85CHARS[value // power % 85])
    return bytes(out)


def decode(z85bytes: str | bytes) -> bytes:
    """Characters, a multiple of five, as bytes."""
    raw = z85bytes.encode("ascii") if isinstance(z85bytes, str) else bytes(z85bytes)
    if len(raw) % 5:
        raise ValueError(f"Z85 length must be multiple of 5, not {len(raw)}")
    out = bytearray()
    for at in range(0, len(raw), 5):
        value = 0
        for char in raw[at:at + 5]:
            value = value * 85 + Z85MAP[char]
        out += struct.pack(">I", value)
    return bytes(out)


__getattr__ = lend(__name__)
