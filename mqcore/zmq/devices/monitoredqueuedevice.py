"""MonitoredQueue: a Proxy whose copies say which way the message went."""

from __future__ import annotations

from typing import Any

from mqcore.zmq.borrowed import lend
from mqcore.zmq.constants import SocketType
from mqcore.zmq.device import monitored_queue
from mqcore.zmq.devices.basedevice import Device, ProcessDevice, ThreadDevice
from mqcore.zmq.devices.proxydevice import ProxyBase


class MonitoredQueueBase(ProxyBase):
    """What a MonitoredQueue adds to a Proxy."""

    def __init__(self, in_type: int, out_type: int, mon_type: int = SocketType.PUB,
                 in_prefix: bytes = b"in", out_prefix: bytes = b"out") -> None:
        super().__init__(in_type, out_type, mon_type)
        self._in_prefix, self._out_prefix = in_prefix, out_prefix

    def run_device(self: Any) -> Any:
        """Until the context ends."""
        front, back, copies = self._setup_sockets()
        return monitored_queue(front, back, copies, self._in_prefix, self._out_prefix)


class MonitoredQueue(MonitoredQueueBase, Device):
    """In the caller's thread."""


class ThreadMonitoredQueue(MonitoredQueueBase, ThreadDevice):
    """In a thread."""


class ProcessMonitoredQueue(MonitoredQueueBase, ProcessDevice):
    """In a process."""


__getattr__ = lend(__name__)
