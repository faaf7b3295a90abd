import pytest
import zmq
from rawcurve import keypair

import mqcore as mq
from mqcore.security import z85_encode


class Keys:
    """A key pair as both sides of a test want it: Z85 for us, ASCII for pyzmq, bytes for raw."""

    def __init__(self) -> None:
        self.raw = keypair()
        self.public, self.secret = map(z85_encode, self.raw)


@pytest.fixture(scope="session")
def server_keys():
    return Keys()


@pytest.fixture(scope="session")
def client_keys():
    return Keys()


@pytest.fixture(scope="session")
def other_keys():
    return Keys()


@pytest.fixture(params=["tcp", "ipc"])
def where(request, tmp_path):
    return "tcp://127.0.0.1:0" if request.param == "tcp" else f"ipc://{tmp_path}/s"


@pytest.fixture
def zctx():
    ctx = zmq.Context()
    yield ctx
    ctx.destroy(linger=0)


@pytest.fixture
def told():
    """told(socket) begins to listen; told(socket)() waits for the reason of its next failed
    handshake."""
    def begin(sock):
        stream = sock.events()

        def reason(kind="HandshakeFailed"):
            return next(event.reason for event in stream if event.kind == kind)
        return reason
    return begin


@pytest.fixture
def ctx():
    with mq.Context(recv_timeout=10, send_timeout=10, linger=0) as context:
        yield context
