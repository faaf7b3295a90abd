"""JSON in bytes."""

from __future__ import annotations

import json as jsonmod
from typing import Any

from mqcore.zmq.borrowed import lend


def dumps(o: Any, **kwargs: Any) -> bytes:
    """An object as JSON in bytes."""
    return jsonmod.dumps(o, **kwargs).encode("utf-8")


def loads(s: bytes | str, **kwargs: Any) -> Any:
    """The object that JSON in bytes or text stands for."""
    return jsonmod.loads(s.decode("utf-8") if isinstance(s, bytes) else s, **kwargs)


__getattr__ = lend(__name__)
