"""The events of an endpoint come in the order of what happened, whichever threads report them."""

import socket
import threading

import pytest

from mqcore.control.listener import Listener
from mqcore.errors import AddressInUse
from mqcore.testing import until

LIMIT = 20.0


@pytest.fixture
def once_it_accepts(monkeypatch):
    """Run a function in bind(), as soon as others can reach the listener."""
    accept = Listener.accept

    def given(function):
        def and_then(listener):
            accept(listener)
            function(listener)
        monkeypatch.setattr(Listener, "accept", and_then)
    return given


def kinds(stream, last):
    """Of all events, up to the first of kind `last`."""
    found = []
    while last not in found:
        found.append(stream.get(timeout=LIMIT).kind)
    return found


def test_a_connection_comes_after_its_listener(mq_context, once_it_accepts):
    sock = mq_context.socket("pull")
    seen = sock.events()
    peers = []

    def connect(listener):
        peers.append(socket.create_connection(("127.0.0.1", int(listener.address.split(":")[1]))))
        until(lambda: listener.accepted)
    once_it_accepts(connect)
    sock.bind("tcp://127.0.0.1:0")
    peers[0].close()
    assert kinds(seen, "Accepted") == ["Listening", "Accepted"]


def test_an_endpoint_that_is_closed_while_bind_returns(mq_context, once_it_accepts):
    sock = mq_context.socket("pull")
    seen = sock.events()

    def close(listener):
        other = threading.Thread(target=listener.endpoint.close)
        other.start()
        other.join(LIMIT)
    once_it_accepts(close)
    assert sock.bind("tcp://127.0.0.1:0").state == "closed"
    assert kinds(seen, "Closed") == ["Listening", "Closed"]


def test_a_peer_that_waited_for_an_inproc_name_comes_after_its_listener(mq_context):
    peer, sock = mq_context.socket("push"), mq_context.socket("pull")
    seen = sock.events()
    peer.connect("inproc://name")
    sock.bind("inproc://name")
    assert kinds(seen, "Connected") == ["Listening", "Accepted", "Connected"]


def test_a_bind_that_is_interrupted_as_it_returns_is_told_as_closed(mq_context, once_it_accepts):
    sock = mq_context.socket("pull")
    seen = sock.events()

    def interrupt(listener):
        raise KeyboardInterrupt
    once_it_accepts(interrupt)
    with pytest.raises(KeyboardInterrupt):
        sock.bind("tcp://127.0.0.1:0")
    assert not sock.endpoints
    assert kinds(seen, "Closed") == ["Listening", "Closed"]


def test_a_bind_that_fails_tells_nothing(mq_context):
    sock = mq_context.socket("pull")
    with mq_context.socket("pull", bind="tcp://127.0.0.1:0") as other:
        seen = sock.events()
        with pytest.raises(AddressInUse):
            sock.bind(other.endpoints[0].url)
    sock.bind("inproc://name")
    assert kinds(seen, "Listening") == ["Listening"]
