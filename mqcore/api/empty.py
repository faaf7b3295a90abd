"""empty(): memory for a message that is filled in place."""

from __future__ import annotations

from mqcore.errors import UsageError


def empty(n: int) -> memoryview:
    """A writable buffer of n bytes to fill and send. send() copies it; send_ref() does not."""
    if isinstance(n, bool) or not isinstance(n, int) or n < 0:
        raise UsageError(f"n must be a number of bytes, not {n!r}")
    return memoryview(bytearray(n))
