"""A monitored program to look at, as a process of its own."""

import os
import subprocess
import sys

CHILD = """
import sys, mqcore as mq
pull = mq.Pull(bind="inproc://x")
print("ready", flush=True)
sys.stdin.readline()
"""


def child(code=CHILD, *args, **environment):
    """A process that runs `code`, once it has printed "ready"; its input's end is to end it."""
    process = subprocess.Popen([sys.executable, "-c", code, *args], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, env={**os.environ, **environment})
    assert process.stdout.readline() == b"ready\n"
    return process


def end(process):
    process.communicate(b"\n", timeout=30)
    return process.returncode


def kill(process):
    process.kill()
    process.communicate(timeout=30)
