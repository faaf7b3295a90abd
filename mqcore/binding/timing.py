"""What timeout= means, for the calls that are written in Python."""

from __future__ import annotations

from typing import Any

from mqcore.base.virtual import monotonic
from mqcore.binding.arguments import seconds_of


def limit_of(timeout: Any, default: float | None = None, name: str = "timeout") -> float | None:
    """The moment on the monotonic clock; None: for ever; 0.0: do not wait."""
    if timeout is ...:
        timeout = default
    if timeout is None:
        return None
    seconds = seconds_of(timeout, name)
    if seconds == 0:
        return 0.0
    return None if seconds > 4e9 else monotonic() + seconds


def left_of(limit: float | None) -> float | None:
    """Seconds until then, never negative."""
    if limit is None or limit == 0:
        return limit
    return max(0.0, limit - monotonic())


def passed(limit: float | None) -> bool:
    return limit is not None and monotonic() >= limit


def span(timeout: Any, default: float | None = None) -> str:
    """" within 2 s", for the text of an error."""
    if timeout is ...:
        timeout = default
    if timeout is None:
        return ""
    return " at once" if timeout == 0 else f" within {float(timeout):g} s"
