"""Pollers, socket pairs and eventfds for the tests of the reactor."""

import os
import socket

import pytest
from mqcore.testing.native import reactor_bench as bench


@pytest.fixture
def poller():
    with bench.Poller() as poller:
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
