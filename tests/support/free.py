"""Addresses for listeners that cannot say which port they took, or come back to theirs."""

import os
import socket
import sys


def free_address() -> str:
    """host:port that nobody has now. The host is this process's own: nobody beside it, who is told
    a free port as well, can be told the same before it is taken."""
    pid = os.getpid()
    host = "127.0.0.1"
    if sys.platform == "linux":             # where the whole of 127/8 is there
        host = f"127.{1 + (pid >> 16)}.{pid >> 8 & 255}.{pid & 255}"
    with socket.create_server((host, 0)) as s:
        return "{}:{}".format(*s.getsockname())
