"""The classes and functions from which pyzmq builds its own classes, under their names. Here they
are the public ones: mqcore has no second layer and no libzmq below."""

from mqcore.zmq.backend.select import public_api as public_api
from mqcore.zmq.backend.select import select_backend as select_backend
from mqcore.zmq.borrowed import lend
from mqcore.zmq.context import Context
from mqcore.zmq.device import monitored_queue as monitored_queue
from mqcore.zmq.device import proxy, proxy_steerable
from mqcore.zmq.differences import missing
from mqcore.zmq.error import strerror, zmq_errno
from mqcore.zmq.frame import Frame, Message
from mqcore.zmq.mechanism import curve_keypair, curve_public
from mqcore.zmq.poller import zmq_poll
from mqcore.zmq.socket import Socket
from mqcore.zmq.version import IPC_PATH_MAX_LEN, has, zmq_version_info

PYZMQ_DRAFT_API = True

__getattr__ = lend(__name__, lambda name: missing(f"backend.{name}"))


__all__ = [
    "Context", "Frame", "IPC_PATH_MAX_LEN", "Message", "PYZMQ_DRAFT_API", "Socket",
    "curve_keypair", "curve_public", "has", "proxy", "proxy_steerable", "strerror", "zmq_errno",
    "zmq_poll", "zmq_version_info",
]
