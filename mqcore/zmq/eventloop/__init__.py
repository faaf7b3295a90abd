"""Sockets in tornado's loop: zmqstream."""

from mqcore.zmq.borrowed import lend

try:
    from tornado.ioloop import IOLoop
except ImportError as error:
    raise ImportError("zmq.eventloop needs tornado: pip install tornado") from error

__all__ = ["IOLoop"]

__getattr__ = lend(__name__)
