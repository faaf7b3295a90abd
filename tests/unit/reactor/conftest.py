"""Both pollers go through the same tests."""

import os
import socket

import pytest

from mqcore.testing import reactor_bench as bench

POLLERS = ["epoll", "poll"]


@pytest.fixture(params=POLLERS)
def name(request):
    return request.param


@pytest.fixture
def poller(name):
    with bench.Poller(name) as poller:
        yield poller


@pytest.fixture
def pairs():
    """Makes connected, non-blocking sockets; closes them."""
    made = []

    def pair():
        both = socket.socketpair()
        for one in both:
            one.setblocking(False)
        made.extend(both)
        return both
    yield pair
    for one in made:
        one.close()


@pytest.fixture
def events():
    """Makes eventfds; closes them."""
    made = []

    def event():
        made.append(bench.eventfd())
        return made[-1]
    yield event
    for fd in made:
        os.close(fd)
