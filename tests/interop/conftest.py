import contextlib

import pytest
import zmq

with contextlib.suppress(ImportError):        # its threads stay: before anything is counted
    import pynng

    pynng.Pair0(listen="ws://127.0.0.1:0/x").close()


@pytest.fixture
def zctx():
    """A pyzmq context; its sockets are closed without linger."""
    ctx = zmq.Context()
    yield ctx
    ctx.destroy(linger=0)


@pytest.fixture(params=["tcp", "ipc"])
def where(request, tmp_path):
    """An address to bind."""
    return "tcp://127.0.0.1:0" if request.param == "tcp" else f"ipc://{tmp_path}/s"


@pytest.fixture
def theirs():
    """theirs("Pair0", ...): a pynng socket that waits for ten seconds at most and ends with the
    test."""
    pynng = pytest.importorskip("pynng")
    held = []

    def make(name, **options):
        s = getattr(pynng, name)(recv_timeout=10_000, send_timeout=10_000, **options)
        s.recv_max_size = 0
        held.append(s)
        return s
    yield make
    for s in held:
        s.close()


@pytest.fixture
def zsock(zctx):
    """zsock("PULL", bind=...) -> pyzmq socket with limits, so that nothing waits for ever; .url is
    where it is."""
    held = []

    def make(pattern, bind=None, connect=None, **options):
        s = zctx.socket(getattr(zmq, pattern))
        s.setsockopt(zmq.LINGER, 0)
        s.setsockopt(zmq.RCVTIMEO, 10000)
        s.setsockopt(zmq.SNDTIMEO, 10000)
        for name, value in options.items():
            s.setsockopt(getattr(zmq, name), value)
        if bind:
            s.bind(bind)
        if connect:
            s.connect(connect)
        held.append(s)
        return s
    yield make
    for s in held:
        s.close(0)
    held.clear()


@pytest.fixture
def zurl():
    def url(s):
        return s.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode()
    return url
