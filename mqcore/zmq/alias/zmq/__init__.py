"""`zmq` for the child processes of a program that runs with mqcore.zmq (mqcore/zmq/run.py)."""

import sys

from mqcore.zmq.run import install

if __name__ == "zmq":  # not by its place in the package
    install()
    sys.modules[__name__] = sys.modules["mqcore.zmq"]
