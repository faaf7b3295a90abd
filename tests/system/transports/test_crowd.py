"""max_handshakes: how many connections of one listener may be in the middle of their handshake."""

import socket

import pytest

import mqcore as mq
from mqcore.control import crowd

LIMIT, MORE = 4, 6


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_the_oldest_gives_way_once_it_had_its_time():
    clock = Clock()
    them = crowd.Crowd(2, clock)
    assert them.enter("a") is None and them.enter("b") is None
    assert them.enter("c") == "c" and len(them) == 2  # all have just come
    clock.now = crowd.PATIENCE
    assert them.enter("d") == "a" and len(them) == 2
    them.leave("a")
    them.leave("b")
    them.leave("b")
    assert them.enter("e") is None
    assert them.enter("f") == "f"


def test_no_limit():
    them = crowd.Crowd(None)
    assert [them.enter(i) for i in range(5000)] == [None] * 5000


def dial(url, n):
    host, port = url.rpartition("/")[2].split(":")
    return [socket.create_connection((host, int(port))) for _ in range(n)]


def ended(sock):
    """Whether the other side closes it, now or later."""
    sock.settimeout(10)
    try:
        while sock.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


@pytest.fixture(params=["tcp", "tls+tcp"])
def listening(request, ctx, authority):
    """(socket, URL, options of those who connect)"""
    pull = ctx.socket("pull", handshake_timeout=60, max_handshakes=LIMIT)
    own, theirs = ({}, {}) if request.param == "tcp" else (authority.server, authority.ca)
    return pull, pull.bind(f"{request.param}://127.0.0.1:0", **own).url, theirs


def test_a_crowd_that_says_nothing_keeps_nobody_out(ctx, listening, monkeypatch):
    monkeypatch.setattr(crowd, "PATIENCE", 0.0)
    pull, url, theirs = listening
    with pull.events() as events:
        silent = dial(url, LIMIT + MORE)
        try:
            assert all(ended(sock) for sock in silent[:MORE])
            reasons = []
            while len(reasons) < MORE:
                event = events.get(10)
                reasons += [event.reason] if event.kind == "HandshakeFailed" else []
            assert all("max_handshakes" in reason for reason in reasons)
            assert pull.stats().failed_handshakes == MORE
            push = ctx.socket("push")
            push.connect(url, wait=10, **theirs)
            push.send(b"in spite of them")
            assert pull.recv(timeout=10) == b"in spite of them"
            assert pull.stats().failed_handshakes == MORE + 1
        finally:
            for sock in silent:
                sock.close()


def test_many_at_once_are_refused_and_come_again(ctx, listening, monkeypatch):
    monkeypatch.setattr(crowd, "PATIENCE", 1e9)
    pull, url, theirs = listening
    silent = dial(url, LIMIT + MORE)
    try:
        assert all(ended(sock) for sock in silent[LIMIT:])
        assert pull.stats().failed_handshakes == MORE
        push = ctx.socket("push", reconnect=0.01)
        endpoint = push.connect(url, **theirs)
        with pytest.raises(mq.ConnectTimeout):
            endpoint.wait_ready(0.3)
    finally:
        for sock in silent:
            sock.close()
    endpoint.wait_ready(10)  # the listener accepts again


def test_each_listener_has_its_own(ctx):
    pull = ctx.socket("pull", handshake_timeout=60)
    one, two = (pull.bind("tcp://127.0.0.1:0", max_handshakes=1).url for _ in range(2))
    silent = dial(one, 1) + dial(two, 1)
    push = ctx.socket("push", connect=[one, two], reconnect=0.01)
    for sock in silent:
        sock.close()
    push.wait_peers(2, 10)


def test_those_that_are_done_do_not_count(ctx):
    pull = ctx.socket("pull")
    url = pull.bind("tcp://127.0.0.1:0", max_handshakes=1).url
    many = [ctx.socket("push") for _ in range(20)]
    for n, push in enumerate(many, 1):
        push.connect(url, wait=10)
        pull.wait_peers(n, 10)      # the listener has seen the end of this handshake as well
    assert len(pull.peers()) == 20 and pull.stats().failed_handshakes == 0
