import pytest
import zmq
from nngpeer import GONE, Peers


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


@pytest.fixture(scope="session")
def nng_peers():
    pytest.importorskip("pynng")
    peers = Peers()
    peers.make("Pair0").close()     # the descriptors that stay: before anything is counted
    yield peers
    peers.stop()


@pytest.fixture
def theirs(nng_peers):
    """theirs("Pair0", ...): a pynng socket in another process (nngpeer.py), which waits for ten
    seconds at most and ends with the test."""
    held = []

    def make(name, **options):
        held.append(nng_peers.make(name, recv_timeout=10_000, send_timeout=10_000, **options))
        return held[-1]
    yield make
    try:
        for s in held:
            s.close()
    except GONE:
        print(f"nng has ended its process ({nng_peers.restart()}): see tests/support/nngpeer.py")
    held.clear()


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
