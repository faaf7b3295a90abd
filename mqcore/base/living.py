"""Objects of one kind that are alive, held weakly."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Living(Generic[T]):
    """Any thread adds to it and iterates over it, at any time. A weakref.WeakSet cannot be iterated
    over while another thread adds to it."""

    def __init__(self) -> None:
        self._refs: set[weakref.ref[T]] = set()

    def add(self, one: T) -> None:
        self._refs.add(weakref.ref(one, self._refs.discard))

    def clear(self) -> None:
        self._refs.clear()

    def __iter__(self) -> Iterator[T]:
        """Those that are alive now."""
        found = [ref() for ref in list(self._refs)]
        return iter([one for one in found if one is not None])
