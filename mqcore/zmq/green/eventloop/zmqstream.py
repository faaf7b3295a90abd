"""ZMQStream, which never waits: the same for green sockets."""

from mqcore.zmq.borrowed import lend
from mqcore.zmq.eventloop.zmqstream import ZMQStream

__all__ = ["ZMQStream"]

__getattr__ = lend(__name__)
