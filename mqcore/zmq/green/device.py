"""proxy() and device() for gevent: messages are moved by the greenlet that calls."""

from __future__ import annotations

from typing import Any

from mqcore.zmq.borrowed import lend
from mqcore.zmq.device import Moved, Tap
from mqcore.zmq.green.poll import Poller


def proxy(frontend: Any, backend: Any, capture: Any = None) -> int:
    """zmq.proxy()."""
    mover = Moved(frontend, backend, None if capture is None else Tap(capture), poller=Poller())
    while True:
        mover.step(-1)


def device(device_type: int, isocket: Any, osocket: Any) -> int:
    """proxy(), by its old name."""
    return proxy(isocket, osocket)


__getattr__ = lend(__name__)
