import gc
import os

import pytest

from mqcore import options
from mqcore.spi import registry


@pytest.fixture(autouse=True)
def leaves_no_descriptor():
    for name in ("tcp", "ipc", "inproc", "shm"):
        registry.transport(name)
    gc.collect()
    before = sorted(os.listdir("/proc/self/fd"))
    yield
    gc.collect()
    assert sorted(os.listdir("/proc/self/fd")) == before


@pytest.fixture
def opts():
    return options.defaults()


@pytest.fixture
def closing():
    """closing(x): closes a socket or what listen() gave, at the end, and returns it."""
    kept = []

    def closing(thing):
        kept.append(thing)
        return thing

    yield closing
    for thing in kept:
        if hasattr(thing, "sockets"):
            if thing.release is not None:
                thing.release()
            for sock in thing.sockets:
                sock.close()
        else:
            thing.close()
