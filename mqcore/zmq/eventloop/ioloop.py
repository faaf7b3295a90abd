"""tornado's loop by the names that it had in pyzmq, when that had one of its own."""

from __future__ import annotations

import warnings

from tornado.ioloop import IOLoop, PeriodicCallback

from mqcore.zmq.borrowed import lend

ZMQIOLoop = IOLoop

warnings.warn("zmq.eventloop.ioloop is deprecated: use tornado.ioloop", DeprecationWarning,
              stacklevel=2)


def install() -> None:
    """Was needed once; does nothing."""
    warnings.warn("zmq.eventloop.ioloop.install() is not needed any more", DeprecationWarning,
                  stacklevel=2)


__all__ = ["IOLoop", "PeriodicCallback", "ZMQIOLoop", "install"]

__getattr__ = lend(__name__)
