import pytest
import zmq

import mqcore as mq


@pytest.fixture
def zctx():
    """A pyzmq context; its sockets are closed without linger."""
    ctx = zmq.Context()
    yield ctx
    ctx.destroy(linger=0)


@pytest.fixture
def ctx():
    with Holding(linger=0) as context:
        yield context
    context.held.clear()  # pytest holds the context until the leak watch has looked


class Holding(mq.Context):
    """Keeps its sockets: none is found unclosed before the context is."""

    def __init__(self, **kw):
        super().__init__(**kw)
        self.held = []

    def socket(self, pattern, **kw):
        self.held.append(super().socket(pattern, **kw))
        return self.held[-1]


@pytest.fixture(params=["tcp", "ipc"])
def where(request, tmp_path):
    """An address to bind."""
    return "tcp://127.0.0.1:0" if request.param == "tcp" else f"ipc://{tmp_path}/s"


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
