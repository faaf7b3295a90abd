"""Text and bytes, by the names that pyzmq has for programs from before Python 3."""

from __future__ import annotations

from mqcore.zmq.borrowed import lend

bytes = bytes
unicode = str
basestring = (str, bytes)


def cast_bytes(s: str | bytes, encoding: str = "utf8", errors: str = "strict") -> bytes:
    """Text as bytes; bytes as they are."""
    if isinstance(s, bytes):
        return s
    if isinstance(s, str):
        return s.encode(encoding, errors)
    raise TypeError(f"Expected unicode or bytes, got {s!r}")


def cast_unicode(s: str | bytes, encoding: str = "utf8", errors: str = "strict") -> str:
    """Bytes as text; text as it is."""
    if isinstance(s, bytes):
        return s.decode(encoding, errors)
    if isinstance(s, str):
        return s
    raise TypeError(f"Expected unicode or bytes, got {s!r}")


b = asbytes = cast_bytes
u = cast_unicode
__all__ = ["asbytes", "b", "basestring", "bytes", "cast_bytes", "cast_unicode", "u", "unicode"]

__getattr__ = lend(__name__)
