"""Ctrl-C on Windows, which mqcore's waits let through anyway."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mqcore.zmq.borrowed import lend


class allow_interrupt:  # noqa: N801 - pyzmq's name
    """A context manager that need not do anything here."""

    def __init__(self, action: Callable[[], Any] | None = None) -> None:
        self.action = action

    def __enter__(self) -> allow_interrupt:
        return self

    def __exit__(self, *args: Any) -> None:
        pass


__getattr__ = lend(__name__)
