"""monitored_queue(), where pyzmq has it."""

from mqcore.zmq.borrowed import lend
from mqcore.zmq.device import monitored_queue

__all__ = ["monitored_queue"]

__getattr__ = lend(__name__)
