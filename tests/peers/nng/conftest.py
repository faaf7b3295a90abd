"""pynng's interface twice: pynng itself, where it is installed, and ours.

`sides` is two modules, for the two ends of a program: the same program runs with both ends real,
both ours, and one of each, which then talk over tcp.
"""

from typing import NamedTuple

import pytest

import mqcore as mq
import mqcore.nng as ours
from mqcore.testing import until

try:
    import pynng as real
except ImportError:
    real = None
BOTH = [pytest.param("ours", id="ours"),
        pytest.param("real", id="real", marks=pytest.mark.skipif(real is None, reason="no pynng"))]


class Sides(NamedTuple):
    """Two modules, and addresses that both can use."""

    a: object
    b: object
    wire: str

    def url(self, name):
        return f"inproc://{name}" if self.wire == "inproc" else "tcp://127.0.0.1:0"


@pytest.fixture(autouse=True)
def default_context():
    """Ours are sockets of the default context; its threads end with the test."""
    yield
    mq.Context.default().close(0)


@pytest.fixture(params=BOTH)
def n(request):
    """One of the two modules."""
    return ours if request.param == "ours" else real


@pytest.fixture(params=["ours", "real", "ours-real", "real-ours"])
def sides(request):
    if real is None and request.param != "ours":
        pytest.skip("no pynng")
    named = {"ours": ours, "real": real}
    first, _, second = request.param.partition("-")
    wire = "tcp" if second else "inproc"
    return Sides(named[first], named[second or first], wire)


@pytest.fixture
def joined(sides):
    """joined("Rep0", "Req0") -> a listening socket of one side, a dialled one of the other; both
    see each other. Closed after the test."""
    held = []

    def make(first, *others, a=None, b=None):
        """a, b: options of one side's."""
        limits = {"recv_timeout": 5000, "send_timeout": 5000}
        one = getattr(sides.a, first)(listen=sides.url("s"), **limits, **(a or {}))
        held.append(one)
        seen = []       # .pipes names a peer earlier, while real nng sends it nothing yet
        one.add_post_pipe_connect_cb(seen.append)
        for count, other in enumerate(others, 1):
            held.append(getattr(sides.b, other)(dial=one.listeners[0].url, block_on_dial=True,
                                                **limits, **(b or {})))
            until(lambda count=count: len(seen) == count and len(held[-1].pipes) == 1)
        return held

    yield make
    for socket in held:
        socket.close()
