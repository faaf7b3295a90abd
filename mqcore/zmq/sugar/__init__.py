"""pyzmq's inner modules by their names, for programs that import from there."""

import sys

from mqcore.zmq import attributes, context, frame, poller, socket, stopwatch, version
from mqcore.zmq.borrowed import lend
from mqcore.zmq.context import Context, SyncContext
from mqcore.zmq.device import device, proxy
from mqcore.zmq.error import (
    Again,
    ContextTerminated,
    DraftFDWarning,
    InterruptedSystemCall,
    NotDone,
    ZMQBaseError,
    ZMQBindError,
    ZMQError,
    ZMQVersionError,
)
from mqcore.zmq.frame import FINISHED as _FINISHED_TRACKER
from mqcore.zmq.frame import Frame, Message, MessageTracker
from mqcore.zmq.poller import Poller, select
from mqcore.zmq.socket import Socket, SyncSocket
from mqcore.zmq.stopwatch import Stopwatch
from mqcore.zmq.version import (
    __revision__,
    __version__,
    pyzmq_version,
    pyzmq_version_info,
    zmq_version,
    zmq_version_info,
)

poll = poller
for _name, _module in {"attrsettr": attributes, "context": context, "frame": frame, "poll": poller,
                       "socket": socket, "stopwatch": stopwatch, "tracker": frame,
                       "version": version}.items():
    sys.modules[f"{__name__}.{_name}"] = globals()[_name] = _module

__all__ = [
    "Again", "Context", "ContextTerminated", "DraftFDWarning", "Frame", "InterruptedSystemCall",
    "Message", "MessageTracker", "NotDone", "Poller", "Socket", "Stopwatch", "SyncContext",
    "SyncSocket", "ZMQBaseError", "ZMQBindError", "ZMQError", "ZMQVersionError",
    "_FINISHED_TRACKER", "__revision__", "__version__", "device", "proxy", "pyzmq_version",
    "pyzmq_version_info", "select", "zmq_version", "zmq_version_info",
]

__getattr__ = lend(__name__)
