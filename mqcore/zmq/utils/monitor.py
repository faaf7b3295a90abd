"""What comes from a monitor's socket, read."""

from __future__ import annotations

import inspect
import struct
from typing import Any

from mqcore.zmq.borrowed import lend
from mqcore.zmq.constants import Event


def parse_monitor_message(msg: list[bytes]) -> dict[str, Any]:
    """{"event", "value", "endpoint"} of the two parts."""
    if len(msg) != 2 or len(msg[0]) != 6:
        raise RuntimeError(f"Invalid event message format: {msg}")
    number, value = struct.unpack("=hi", msg[0])
    return {"event": Event(number), "value": value, "endpoint": msg[1]}


def recv_monitor_message(socket: Any, flags: int = 0) -> Any:
    """The next event of a monitor's socket; awaitable if the socket is."""
    found = socket.recv_multipart(flags)
    if inspect.isawaitable(found):
        return _later(found)
    return parse_monitor_message(found)


async def _later(found: Any) -> dict[str, Any]:
    return parse_monitor_message(await found)


__getattr__ = lend(__name__)
