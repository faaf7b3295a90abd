"""A running control loop, and proof that a test leaves no descriptor and no thread behind."""

import gc
import os
import queue
import socket
import threading
import time

import pytest

from mqcore import options
from mqcore.control.loop import ControlLoop
from mqcore.spi import registry


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def _eventually(condition, what="condition", seconds=10.0):
    """Poll for something that another thread does on its own, such as a thread's end."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"never came true: {what}"
        time.sleep(0.001)


@pytest.fixture
def eventually():
    return _eventually


@pytest.fixture(autouse=True)
def leaves_nothing():
    for name in ("tcp", "ipc"):
        registry.transport(name)
    gc.collect()
    before, threads = descriptors(), set(threading.enumerate())
    yield
    gc.collect()
    _eventually(lambda: set(threading.enumerate()) <= threads, "threads ended")
    assert descriptors() == before


@pytest.fixture
def errors():
    return []


@pytest.fixture
def loop(errors):
    loop = ControlLoop(on_error=lambda error, source: errors.append(error))
    loop.start()
    yield loop
    loop.stop()
    assert errors == []


@pytest.fixture
def opts():
    """All options at their defaults, with quick reconnects."""
    return {**options.defaults(), "reconnect": 0.01, "reconnect_max": 0.05}


class Sink:
    """Collects what a listener or connector hands over; closes it all at the end."""

    def __init__(self):
        self.q = queue.Queue()
        self.all = []

    def __call__(self, sock, remote):
        assert sock.gettimeout() == 0 and not os.get_inheritable(sock.fileno())
        self.all.append(sock)
        self.q.put((sock, remote))

    def get(self):
        return self.q.get(timeout=10)

    def close(self):
        for sock in self.all:
            sock.close()


@pytest.fixture
def sink():
    sink = Sink()
    yield sink
    sink.close()


@pytest.fixture
def sink2():
    sink = Sink()
    yield sink
    sink.close()


@pytest.fixture
def tcp():
    return registry.transport("tcp")


@pytest.fixture
def ipc():
    return registry.transport("ipc")


@pytest.fixture
def closed_port():
    """A port of 127.0.0.1 that refuses: bound, so that nobody else gets it, and not listening."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]
