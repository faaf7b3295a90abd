"""Subscriptions through XPUBs: the last one's end arrives through chains of proxies, and a manual
XPUB is told of each end."""

import contextlib

import pytest

import mqcore as mq
from mqcore.testing import until


def notes(app, n, kind):
    """Notifications until there are n of this kind: 1 subscribes, 0 cancels."""
    got = []
    while got.count(kind) < n:
        got.append(app.recv(timeout=10)[0])
    return got


@pytest.mark.parametrize("leave", ["close", "unsubscribe"])
@pytest.mark.parametrize("hops", [1, 2, 3])
@pytest.mark.parametrize("kind", ["plain", "verbose", "verboser"])
def test_the_last_unsubscribe_arrives(ctx, kind, hops, leave):
    told = {} if kind == "plain" else {kind: True}
    app = ctx.socket("xpub", bind="tcp://127.0.0.1:0", **told)
    at = app.endpoints[0].url
    with contextlib.ExitStack() as devices:
        backs = []
        for _ in range(hops):
            front = ctx.socket("xsub", connect=at)
            backs.append(ctx.socket("xpub", bind="tcp://127.0.0.1:0", **told))
            at = backs[-1].endpoints[0].url
            devices.enter_context(mq.device(front, backs[-1]))
        subs = [ctx.socket("sub", connect=at, topics=[b"T"]) for _ in range(3)]
        until(lambda: len(backs[-1]._links.peers) == 3)
        notes(app, 1, 1)
        for sub in subs[:2]:
            sub.close() if leave == "close" else sub.unsubscribe(b"T")
        app.send(b"T1")
        assert subs[2].recv(timeout=10) == b"T1"
        subs[2].close() if leave == "close" else subs[2].unsubscribe(b"T")
        assert 0 in notes(app, 1, 0)
        before = app.stats().unmatched
        app.send(b"T2")
        assert app.stats().unmatched == before + 1
        # and again
        late = ctx.socket("sub", connect=at, topics=[b"T"])
        assert 1 in notes(app, 1, 1)
        app.send(b"T3")
        assert late.recv(timeout=10) == b"T3"


def test_subscriptions_of_its_own_outlive_those_that_a_device_forwards(ctx):
    app = ctx.socket("xpub", bind="inproc://app", verboser=True)
    front = ctx.socket("xsub", connect="inproc://app")
    front.send(b"\1T")
    assert app.recv(timeout=10) == b"\1T"
    back = ctx.socket("xpub", bind="inproc://back", verbose=True)
    with mq.device(front, back):
        with ctx.socket("sub", connect="inproc://back", topics=[b"T"]) as sub:
            assert app.recv(timeout=10) == b"\1T"
            app.send(b"T1")
            assert sub.recv(timeout=10) == b"T1"
        assert back._links is not None
        until(lambda: not back._links.peers)
        app.send(b"T2")
        assert app.stats().unmatched == 0      # it still goes to the device


@pytest.mark.parametrize("transport", ["tcp://127.0.0.1:0", "inproc://manual"])
@pytest.mark.parametrize("confirm", [True, False])
def test_a_manual_xpub_is_told_of_each_end(ctx, transport, confirm):
    app = ctx.socket("xpub", bind=transport, manual=True)
    url = app.endpoints[0].url
    subs = [ctx.socket("sub", connect=url, topics=[b"own%d" % n, b"common"]) for n in range(5)]
    wanted = sorted([b"own%d" % n for n in range(5)] + [b"common"] * 5)
    told = []
    while len(told) < 10:
        note = app.recv(timeout=10)
        assert note[0] == 1
        told.append(note[1:])
        if confirm:
            app.subscribe(note[1:])
    assert sorted(told) == wanted
    for sub in subs:
        sub.close()
    until(lambda: not app.peers())
    told = []
    while len(told) < 10:
        note = app.recv(timeout=10)
        assert note[0] == 0
        told.append(note[1:])
        app.unsubscribe(note[1:])       # of a peer that has left: no error, no effect
        app.subscribe(note[1:])
    assert sorted(told) == wanted
    with pytest.raises(mq.RecvTimeout):
        app.recv(timeout=0)
    app.send(b"common")
    assert app.stats().unmatched == 1


def test_a_manual_xpub_is_told_once_of_what_was_taken_back(ctx):
    app = ctx.socket("xpub", bind="inproc://manual", manual=True)
    sub = ctx.socket("sub", connect="inproc://manual", topics=[b"a", b"b"])
    assert sorted(app.recv(timeout=10) for _ in range(2)) == [b"\1a", b"\1b"]
    app.subscribe(b"other")     # which the application chose itself: nobody asked for it
    sub.unsubscribe(b"a")
    assert app.recv(timeout=10) == b"\0a"
    sub.close()
    assert app.recv(timeout=10) == b"\0b"
    until(lambda: not app.peers())
    with pytest.raises(mq.RecvTimeout):
        app.recv(timeout=0)
