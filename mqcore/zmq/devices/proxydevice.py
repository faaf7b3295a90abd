"""Proxy: a device with a third socket that gets a copy of every message."""

from __future__ import annotations

from typing import Any

from mqcore.zmq.borrowed import lend
from mqcore.zmq.constants import DeviceType, SocketType
from mqcore.zmq.devices.basedevice import Device, End, ProcessDevice, ThreadDevice


class ProxyBase:
    """What a Proxy adds to a Device."""

    def __init__(self, in_type: int, out_type: int, mon_type: int = SocketType.PUB) -> None:
        Device.__init__(self, DeviceType.QUEUE, in_type, out_type)  # type: ignore[arg-type]
        self.mon_type = mon_type
        self._mon = End(mon_type)

    def bind_mon(self, addr: str) -> None:
        """The copies' socket listens there."""
        self._mon.binds.append(addr)

    def bind_mon_to_random_port(self: Any, addr: str, *args: Any, **kwargs: Any) -> int:
        """bind_mon() at a free port; which it is."""
        return int(self._mon.reserve(addr, self._reserved, *args, **kwargs))

    def connect_mon(self, addr: str) -> None:
        """The copies' socket connects there."""
        self._mon.connects.append(addr)

    def setsockopt_mon(self, opt: int, value: Any) -> None:
        """An option of the copies' socket."""
        self._mon.options.append((opt, value))

    def _ends(self: Any) -> tuple[End, ...]:
        return self._in, self._out, self._mon


class Proxy(ProxyBase, Device):
    """In the caller's thread."""


class ThreadProxy(ProxyBase, ThreadDevice):
    """In a thread."""


class ProcessProxy(ProxyBase, ProcessDevice):
    """In a process."""


__getattr__ = lend(__name__)
