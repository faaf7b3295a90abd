"""Which pyzmq and libzmq this is the interface of, and what it has."""

from __future__ import annotations

import os

import mqcore as mq
from mqcore.zmq.borrowed import lend
from mqcore.zmq.mechanism import has_curve

#: pyzmq's, whose interface this is
__version__ = "27.3.0"
__revision__ = ""
VERSION_MAJOR, VERSION_MINOR, VERSION_PATCH = version_info = (27, 3, 0)
VERSION_EXTRA = ""
#: libzmq's, whose behaviour this is
LIBZMQ = (4, 3, 5)
IPC_PATH_MAX_LEN = 107
FOLDER = os.path.dirname(os.path.abspath(__file__))
#: capability: the transport of mqcore that has it, "" for none; draft sockets are there as udp is
CAPABILITIES = {"ipc": "ipc", "pgm": "", "tipc": "", "norm": "", "curve": "curve", "gssapi": "",
                "vmci": "", "draft": "udp", "ws": "ws", "WS": "ws", "wss": "wss", "WSS": "wss"}


def pyzmq_version() -> str:
    return __version__


def pyzmq_version_info() -> tuple[int, int, int]:
    return version_info


def zmq_version() -> str:
    return ".".join(map(str, LIBZMQ))


def zmq_version_info() -> tuple[int, int, int]:
    return LIBZMQ


def has(capability: str) -> bool:
    """Whether this transport or mechanism is here."""
    name = CAPABILITIES.get(capability, "")
    if name == "curve":
        return has_curve()
    return bool(name) and any(info.name == name and not info.refused for info in mq.transports())


def get_includes() -> list[str]:
    """The folders of pyzmq's C headers. They have no zmq.h, because mqcore has no libzmq."""
    return [FOLDER, os.path.join(FOLDER, "utils")]


def get_library_dirs() -> list[str]:
    """The folder where pyzmq has libzmq. There is none in it."""
    return [FOLDER]


__getattr__ = lend(__name__)
