"""pyzmq's interface twice: pyzmq itself, where it is installed, and ours.

`z` is one module for a whole program. `sides` is two, for the two ends of one: both real, both ours
and one of each, which then talk over tcp.
"""

import importlib
from typing import NamedTuple

import pytest

import mqcore.zmq as ours

try:
    import zmq as real
except ImportError:
    real = None
else:
    real.Frame(bytes(100_000), copy=False)  # its thread starts with the first and stays: no test's

BOTH = [pytest.param("ours", id="ours"),
        pytest.param("real", id="real", marks=pytest.mark.skipif(real is None, reason="no pyzmq"))]
LIMIT = 5000  # ms that anything may take


class Sides(NamedTuple):
    a: object
    b: object
    wire: str

    def url(self, name):
        return f"inproc://{name}" if self.wire == "inproc" else "tcp://127.0.0.1:*"


class Maker:
    """Contexts and sockets of either module, with limits; ended after the test."""

    def __init__(self):
        self.contexts = {}
        self.sockets = []

    def context(self, module):
        if module not in self.contexts:
            self.contexts[module] = module.Context()
        return self.contexts[module]

    def __call__(self, module, kind, **options):
        made = self.context(module).socket(getattr(module, kind))
        self.sockets.append(made)
        made.linger, made.rcvtimeo, made.sndtimeo = 0, LIMIT, LIMIT
        for name, value in options.items():
            setattr(made, name, value)
        return made

    def end(self):
        for made in self.sockets:
            made.close(0)
        for context in self.contexts.values():
            context.term()


@pytest.fixture
def make():
    maker = Maker()
    yield maker
    maker.end()


@pytest.fixture(params=BOTH)
def z(request):
    """One of the two modules."""
    return ours if request.param == "ours" else real


@pytest.fixture
def new(make, z):
    """new("PUSH", hwm=3): a socket of the one module."""
    def one(kind, **options):
        return make(z, kind, **options)

    one.context = lambda: make.context(z)
    return one


@pytest.fixture
def part(z):
    """part("asyncio"): a module of the one module."""
    return lambda name: importlib.import_module(f"{z.__name__}.{name}")


@pytest.fixture(params=["ours", "real", "ours-real", "real-ours"])
def sides(request):
    if real is None and request.param != "ours":
        pytest.skip("no pyzmq")
    named = {"ours": ours, "real": real}
    first, _, second = request.param.partition("-")
    return Sides(named[first], named[second or first], "tcp" if second else "inproc")


@pytest.fixture
def pair_up(make, sides):
    """pair_up("REP", "REQ", ...): the first binds, on one side; the others connect, on the other.
    a, b: options of one side's."""
    def joined(first, *others, a=None, b=None):
        one = make(sides.a, first, **(a or {}))
        one.bind(sides.url("here"))
        url = one.get_string(sides.a.LAST_ENDPOINT)
        rest = [make(sides.b, other, **(b or {})) for other in others]
        for other in rest:
            other.connect(url)
        return [one, *rest]

    return joined
