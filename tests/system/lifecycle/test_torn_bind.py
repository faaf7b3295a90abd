"""Ctrl-C in the middle of bind() and connect(): the address is free again, nothing waits for ever,
and no peer stays that came through it."""

import pytest

from mqcore.control import listener, loop
from mqcore.control.links import SocketLinks
from mqcore.testing import until


@pytest.fixture
def torn(monkeypatch):
    """torn(place): the next call of it is interrupted, right after it has done its work."""
    def at(owner, name):
        call = getattr(owner, name)

        def interrupted(*args, **kw):
            monkeypatch.setattr(owner, name, call)
            call(*args, **kw)
            raise KeyboardInterrupt
        monkeypatch.setattr(owner, name, interrupted)
    return at


PLACES = [(listener.Listener, "listen"), (SocketLinks, "_enter"), (listener.Listener, "accept"),
          (loop.ControlLoop, "call_wait")]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[1])
def test_a_bind_that_is_torn_leaves_no_listener(ctx, torn, place):
    at = "tcp://127.0.0.1:" + str(ctx.socket("pull").bind("tcp://127.0.0.1:0")).rpartition(":")[2]
    for sock in ctx.sockets:
        sock.close()
    pull = ctx.socket("pull")
    torn(*place)
    with pytest.raises(KeyboardInterrupt):
        pull.bind(at)
    assert pull.endpoints == () and pull.peers() == []
    pull.bind(at)  # the address is free
    push = ctx.socket("push", connect=at)
    push.send(b"x")
    assert pull.recv(timeout=5) == b"x"


def test_a_peer_that_came_meanwhile_does_not_stay(ctx, torn):
    """The listener accepts before bind() has returned; that connection waits on the control
    thread."""
    pull, push = ctx.socket("pull"), ctx.socket("push", reconnect=0.01)
    where = []
    enter = SocketLinks._enter

    def late(links, endpoint, node):
        if links is pull._links:
            where.append(endpoint.url)
            push.connect(endpoint.url)
            raise KeyboardInterrupt
        return enter(links, endpoint, node)

    SocketLinks._enter = late
    try:
        with pytest.raises(KeyboardInterrupt):
            pull.bind("tcp://127.0.0.1:0")
    finally:
        SocketLinks._enter = enter
    assert pull.peers() == [] and pull.endpoints == ()
    pull.bind(where[0])
    push.send(b"x", timeout=60)
    assert pull.recv(timeout=60) == b"x"
    until(lambda: len(pull.peers()) == 1)   # the first connection may show while it is ended


@pytest.mark.parametrize("place", [(SocketLinks, "_enter"), (SocketLinks, "count")],
                         ids=lambda place: place[1])
def test_a_connect_that_is_torn_leaves_no_endpoint(ctx, torn, place):
    pull, push = ctx.socket("pull"), ctx.socket("push")
    at = pull.bind("tcp://127.0.0.1:0")
    torn(*place)
    with pytest.raises(KeyboardInterrupt):
        push.connect(at)
    assert push.endpoints == ()
    push.connect(at, wait=5)
    pull.wait_peers(1, 5)
    assert len(pull.peers()) == 1
