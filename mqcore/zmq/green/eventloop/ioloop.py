"""zmq.eventloop.ioloop, by the name that it has beside green sockets."""

from mqcore.zmq.eventloop.ioloop import *  # noqa: F403
