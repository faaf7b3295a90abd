"""zmq.asyncio by its old name: tornado's loop is asyncio's, and so are its futures."""

from __future__ import annotations

import warnings
from asyncio import CancelledError, Future
from typing import Any, ClassVar

from mqcore.zmq.asyncio import Context as AsyncContext
from mqcore.zmq.asyncio import Poller, Socket
from mqcore.zmq.borrowed import lend


class Context(AsyncContext):
    """zmq.asyncio.Context. io_loop: not needed, each call uses the loop that runs."""

    _instance: ClassVar[Any] = None
    io_loop: ClassVar[Any] = None

    def __init__(self, *args: Any, io_loop: Any = None, **kwargs: Any) -> None:
        if io_loop is not None:
            warnings.warn("io_loop is not needed any more", DeprecationWarning, stacklevel=2)
        super().__init__(*args, **kwargs)


__all__ = ["CancelledError", "Context", "Future", "Poller", "Socket"]

__getattr__ = lend(__name__)
