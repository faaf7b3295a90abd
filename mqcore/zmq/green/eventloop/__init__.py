"""zmq.eventloop, by the name that it has beside green sockets."""

from mqcore.zmq.borrowed import lend
from mqcore.zmq.eventloop import IOLoop

__all__ = ["IOLoop"]

__getattr__ = lend(__name__)
