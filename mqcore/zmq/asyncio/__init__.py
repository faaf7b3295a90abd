"""zmq.asyncio: Context, Socket and Poller whose calls give futures."""

from __future__ import annotations

import asyncio
import warnings
from typing import Any, ClassVar

from mqcore.zmq.asyncio.poller import Poller
from mqcore.zmq.asyncio.socket import Socket
from mqcore.zmq.borrowed import lend
from mqcore.zmq.context import Context as SyncContext

ZMQEventLoop = asyncio.SelectorEventLoop


class Context(SyncContext):
    """One whose sockets are asynchronous."""

    _socket_class: ClassVar[Any] = Socket
    _instance: ClassVar[Any] = None


def install() -> None:
    """Was needed once; does nothing."""
    warnings.warn("zmq.asyncio.install() is not needed any more", DeprecationWarning, stacklevel=2)


__all__ = ["Context", "Poller", "Socket", "ZMQEventLoop", "install"]

__getattr__ = lend(__name__)
