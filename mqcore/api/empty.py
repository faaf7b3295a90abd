"""empty(): memory for a message that is filled in place."""

from __future__ import annotations

from typing import Any

from mqcore.errors import UsageError


def empty(n: int, *, socket: Any = None) -> memoryview:
    """A writable buffer of n bytes to fill and send. `socket`: the one it is meant for, whose
    transport may have memory of its own."""
    if isinstance(n, bool) or not isinstance(n, int) or n < 0:
        raise UsageError(f"n must be a number of bytes, not {n!r}")
    return memoryview(bytearray(n))
