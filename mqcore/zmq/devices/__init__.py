"""Devices that run in a thread or a process of their own."""

from mqcore.zmq.constants import DeviceType
from mqcore.zmq.device import proxy
from mqcore.zmq.devices.basedevice import Device, ProcessDevice, ThreadDevice
from mqcore.zmq.devices.monitoredqueue import monitored_queue
from mqcore.zmq.devices.monitoredqueuedevice import (
    MonitoredQueue,
    ProcessMonitoredQueue,
    ThreadMonitoredQueue,
)
from mqcore.zmq.devices.proxydevice import ProcessProxy, Proxy, ThreadProxy
from mqcore.zmq.devices.proxysteerabledevice import (
    ProcessProxySteerable,
    ProxySteerable,
    ThreadProxySteerable,
)

__all__ = [
    "Device", "DeviceType", "MonitoredQueue", "ProcessDevice", "ProcessMonitoredQueue",
    "ProcessProxy", "ProcessProxySteerable", "Proxy", "ProxySteerable", "ThreadDevice",
    "ThreadMonitoredQueue", "ThreadProxy", "ThreadProxySteerable", "monitored_queue", "proxy",
]
