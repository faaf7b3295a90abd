"""Deprecated: tornado's loops are asyncio's."""

from __future__ import annotations

import warnings
from typing import Any

from mqcore.zmq.auth.asyncio import AsyncioAuthenticator
from mqcore.zmq.borrowed import lend

warnings.warn("zmq.auth.ioloop is deprecated; use zmq.auth.asyncio", DeprecationWarning,
              stacklevel=2)


class IOLoopAuthenticator(AsyncioAuthenticator):
    """AsyncioAuthenticator, by its old name."""

    def __init__(self, context: Any = None, encoding: str = "utf-8", log: Any = None,
                 io_loop: Any = None) -> None:
        super().__init__(context, None, encoding, log)
        if io_loop is not None:
            warnings.warn(f"{type(self).__name__}'s io_loop is asyncio's running loop",
                          DeprecationWarning, stacklevel=2)


__all__ = ["IOLoopAuthenticator"]

__getattr__ = lend(__name__)
