"""Buffers of the program that frames and messages use without a copy.

`gc.refs` lists them, as pyzmq's does. In pyzmq, libzmq notifies a thread when a buffer is free.
Here the last frame or message that uses the buffer removes its entry.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mqcore.zmq.borrowed import lend


class gcref(NamedTuple):  # noqa: N801  pyzmq's name
    """A buffer in use, and the event that is set when it is free."""

    obj: object
    event: Any


class GarbageCollector:
    """The buffers in use, by numbers."""

    refs: dict[int, gcref]

    def __init__(self, context: Any = None) -> None:
        self.refs = {}

    def store(self, obj: object, event: Any = None) -> int:
        """Keep a buffer. Returns its number, for release()."""
        kept = gcref(obj, event)
        self.refs[id(kept)] = kept
        return id(kept)

    def release(self, key: int) -> None:
        """It is free: forget it and set its event."""
        kept = self.refs.pop(key, None)
        if kept is not None and kept.event is not None:
            kept.event.set()


gc = GarbageCollector()


class Held:
    """What all frames and messages over one buffer share; its end releases the buffer."""

    __slots__ = ("_collector", "_key")

    def __init__(self, obj: object, event: Any) -> None:
        self._collector = gc
        self._key = gc.store(obj, event)

    def __del__(self) -> None:
        self._collector.release(self._key)


__getattr__ = lend(__name__)
