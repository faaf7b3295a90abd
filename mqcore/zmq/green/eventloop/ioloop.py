"""zmq.eventloop.ioloop, by the name that it has beside green sockets."""

from mqcore.zmq.borrowed import lend
from mqcore.zmq.eventloop.ioloop import *  # noqa: F403

__getattr__ = lend(__name__)
