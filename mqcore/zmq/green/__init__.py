"""zmq.green: pyzmq's whole interface for gevent. What waits lets other greenlets run."""

from __future__ import annotations

try:
    import gevent  # noqa: F401
except ImportError as missing:
    raise ImportError("zmq.green needs gevent: pip install gevent") from missing

from mqcore.zmq import *  # noqa: F403
from mqcore.zmq import __all__ as _all
from mqcore.zmq.borrowed import lend
from mqcore.zmq.green.core import Context, Socket
from mqcore.zmq.green.device import device, proxy  # type: ignore[assignment]
from mqcore.zmq.green.poll import Poller, select, zmq_poll

__all__ = [*_all, "Context", "Poller", "Socket", "device", "proxy", "select",  # noqa: PLE0604
           "zmq_poll"]


__getattr__ = lend(__name__)
