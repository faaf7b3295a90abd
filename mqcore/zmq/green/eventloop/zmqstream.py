"""ZMQStream, which never waits: the same for green sockets."""

from mqcore.zmq.eventloop.zmqstream import ZMQStream

__all__ = ["ZMQStream"]
