"""Addresses of objects in C, as numbers."""

from __future__ import annotations

from typing import Any


def cast_int_addr(n: Any) -> int:
    """A number, or something that can be one."""
    if isinstance(n, int):
        return n
    try:
        return int(n)
    except (TypeError, ValueError):
        raise ValueError(f"Cannot cast {n!r} to int") from None
