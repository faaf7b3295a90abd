"""Threads of the program that meet what is closed while the program ends."""

from __future__ import annotations

from typing import Any

from mqcore.base.waits import stay_asleep


class AtRest:
    """Around what such a thread calls: it sleeps rather than hear one of these errors, which say
    that something is closed. Not with a lock."""

    def __init__(self, *errors: type[Exception]) -> None:
        self._errors = errors

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, self._errors):
            stay_asleep()
