"""ProxySteerable: a Proxy with a fourth socket that takes PAUSE, RESUME, TERMINATE, STATISTICS."""

from __future__ import annotations

from typing import Any

from mqcore.zmq.borrowed import lend
from mqcore.zmq.constants import SocketType
from mqcore.zmq.device import proxy_steerable
from mqcore.zmq.devices.basedevice import Device, End, ProcessDevice, ThreadDevice
from mqcore.zmq.devices.proxydevice import ProxyBase


class ProxySteerableBase(ProxyBase):
    """What a ProxySteerable adds to a Proxy."""

    def __init__(self, in_type: int, out_type: int, mon_type: int = SocketType.PUB,
                 ctrl_type: int | None = None) -> None:
        super().__init__(in_type, out_type, mon_type)
        self.ctrl_type = SocketType.PAIR if ctrl_type is None else ctrl_type
        self._ctrl = End(self.ctrl_type)

    def bind_ctrl(self, addr: str) -> None:
        """The control socket listens there."""
        self._ctrl.binds.append(addr)

    def bind_ctrl_to_random_port(self: Any, addr: str, *args: Any, **kwargs: Any) -> int:
        """bind_ctrl() at a free port; which it is."""
        return int(self._ctrl.reserve(addr, self._reserved, *args, **kwargs))

    def connect_ctrl(self, addr: str) -> None:
        """The control socket connects there."""
        self._ctrl.connects.append(addr)

    def setsockopt_ctrl(self, opt: int, value: Any) -> None:
        """An option of the control socket."""
        self._ctrl.options.append((opt, value))

    def _ends(self: Any) -> tuple[End, ...]:
        return (*super()._ends(), self._ctrl)

    def run_device(self: Any) -> Any:
        """Until the context ends or the control socket says TERMINATE."""
        return proxy_steerable(*self._setup_sockets())


class ProxySteerable(ProxySteerableBase, Device):
    """In the caller's thread."""


class ThreadProxySteerable(ProxySteerableBase, ThreadDevice):
    """In a thread."""


class ProcessProxySteerable(ProxySteerableBase, ProcessDevice):
    """In a process."""


__getattr__ = lend(__name__)
