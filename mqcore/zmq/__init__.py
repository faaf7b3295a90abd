"""pyzmq's interface over mqcore: `import mqcore.zmq as zmq`. README.md says what differs."""

from __future__ import annotations

from mqcore.zmq import backend, constants, decorators, devices, error, sugar, utils
from mqcore.zmq.borrowed import lend
from mqcore.zmq.constants import *  # noqa: F403
from mqcore.zmq.context import Context, SyncContext
from mqcore.zmq.device import device, proxy, proxy_steerable
from mqcore.zmq.differences import missing
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
    strerror,
    zmq_errno,
)
from mqcore.zmq.frame import FINISHED as _FINISHED_TRACKER
from mqcore.zmq.frame import Frame, Message, MessageTracker
from mqcore.zmq.mechanism import curve_keypair, curve_public
from mqcore.zmq.part import COPY_THRESHOLD
from mqcore.zmq.poller import Poller, select, zmq_poll
from mqcore.zmq.run import install
from mqcore.zmq.socket import Socket, SyncSocket
from mqcore.zmq.stopwatch import Stopwatch
from mqcore.zmq.version import (
    IPC_PATH_MAX_LEN,
    __revision__,
    __version__,
    get_includes,
    get_library_dirs,
    has,
    pyzmq_version,
    pyzmq_version_info,
    zmq_version,
    zmq_version_info,
)

DRAFT_API = PYZMQ_DRAFT_API = True

__getattr__ = lend(__name__, missing)  # also for packages, loaded by those who want them

__all__ = [  # noqa: PLE0604
    *constants.__all__,
    "Again", "COPY_THRESHOLD", "Context", "ContextTerminated", "DRAFT_API", "DraftFDWarning",
    "Frame", "IPC_PATH_MAX_LEN", "InterruptedSystemCall", "Message", "MessageTracker", "NotDone",
    "PYZMQ_DRAFT_API", "Poller", "Socket", "Stopwatch", "SyncContext", "SyncSocket",
    "ZMQBaseError", "ZMQBindError", "ZMQError", "ZMQVersionError", "_FINISHED_TRACKER",
    "__revision__", "__version__", "backend", "constants", "curve_keypair", "curve_public",
    "decorators", "device", "devices", "error",
    "get_includes", "get_library_dirs", "has", "install", "proxy", "proxy_steerable",
    "pyzmq_version", "pyzmq_version_info", "select", "strerror", "sugar", "utils", "zmq_errno",
    "zmq_poll", "zmq_version", "zmq_version_info",
]
