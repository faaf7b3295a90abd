"""What timeout= means, for the calls that are written in Python."""

from __future__ import annotations

import time
from typing import Any

from mqcore.errors import UsageError


def limit_of(timeout: Any, default: float | None = None) -> float | None:
    """The moment on the monotonic clock; None: for ever; 0.0: do not wait."""
    if timeout is ...:
        timeout = default
    if timeout is None:
        return None
    if isinstance(timeout, (str, bytes, bool)):
        raise UsageError(f"timeout must be seconds or None, not {timeout!r}")
    try:
        seconds = float(timeout)
    except (TypeError, ValueError):
        raise UsageError(f"timeout must be seconds or None, not {timeout!r}") from None
    if seconds != seconds or seconds < 0:
        raise UsageError(f"timeout must not be negative, got {timeout!r}",
                         hint="0 does not wait, None waits for ever")
    if seconds == 0:
        return 0.0
    return None if seconds > 4e9 else time.monotonic() + seconds


def left_of(limit: float | None) -> float | None:
    """Seconds until then, never negative."""
    if limit is None or limit == 0:
        return limit
    return max(0.0, limit - time.monotonic())


def passed(limit: float | None) -> bool:
    return limit is not None and time.monotonic() >= limit


def span(timeout: Any, default: float | None = None) -> str:
    """" within 2 s", for the text of an error."""
    if timeout is ...:
        timeout = default
    if timeout is None:
        return ""
    return " at once" if timeout == 0 else f" within {float(timeout):g} s"
