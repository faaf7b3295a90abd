"""A context for tests, which holds its sockets: a test that keeps none of them in a variable must
not find one closed by the garbage collector."""

from __future__ import annotations

from typing import Any

from mqcore import Context


class Keeper(Context):
    def __init__(self, **defaults: Any) -> None:
        super().__init__(**defaults)
        self.kept: list[Any] = []

    def socket(self, pattern: str, **kw: Any) -> Any:
        self.kept.append(super().socket(pattern, **kw))
        return self.kept[-1]

    def finish(self) -> None:
        """Close at once, and let go of everything: pytest holds on to this object."""
        try:
            self.close(0)
        finally:
            self.kept.clear()
