"""Which backend: there is one."""

from __future__ import annotations

from importlib import import_module
from typing import Any

public_api = [
    "Context", "Socket", "Frame", "Message", "proxy", "proxy_steerable", "zmq_poll", "strerror",
    "zmq_errno", "has", "curve_keypair", "curve_public", "zmq_version_info", "IPC_PATH_MAX_LEN",
    "PYZMQ_DRAFT_API",
]


def select_backend(name: str) -> dict[str, Any]:
    """The names of a module that has all of them. ImportError for pyzmq's own, "zmq.backend.cython"
    and "zmq.backend.cffi"."""
    module = import_module(name)
    return {"monitored_queue": module.monitored_queue,
            **{key: getattr(module, key) for key in public_api}}
