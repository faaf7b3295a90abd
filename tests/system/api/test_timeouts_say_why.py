"""What a time-out says about its reason."""

import sys

import pytest

import mqcore as mq
from mqcore import api
from mqcore.security import Curve, curve_keypair


def test_a_time_out_says_what_keeps_the_peer_away(ctx):
    req = ctx.socket("req", connect="tcp://127.0.0.1:1")
    pull = ctx.socket("pull", connect="tcp://127.0.0.1:1")
    push = ctx.socket("push", immediate=True, connect="tcp://127.0.0.1:1")
    alone = ctx.socket("req")
    why = "nobody listens at tcp://127.0.0.1:1 .*`mq doctor URL`"
    with pytest.raises(mq.RecvTimeout, match=f"no answer came within 0.2 s: .*{why}"):
        req.request(b"?", timeout=0.2)
    with pytest.raises(mq.RecvTimeout, match=f"^no message came within 0.1 s: .*{why}"):
        pull.recv(timeout=0.1)
    with pytest.raises(mq.SendTimeout, match=f"could not be sent within 0.1 s: .*{why}"):
        push.send(b"", timeout=0.1)
    with pytest.raises(mq.SendTimeout, match="within 0.1 s: .*neither bound nor"):
        alone.request(b"?", timeout=0.1)
    with pytest.raises(mq.RecvTimeout, match="^no message came at once; use a longer timeout"):
        pull.recv(timeout=0)


def test_a_request_says_why_the_handshake_is_refused(ctx):
    keys, stranger = curve_keypair(), curve_keypair()
    rep = ctx.socket("rep", security=Curve(secret_key=keys.secret, allow=[keys.public]))
    url = rep.bind("tcp://127.0.0.1:0").url
    for security, why in ((None, "the peer wants mechanism CURVE, this socket uses NULL"),
                          (Curve(stranger.public), "server_key is probably not its public key"),
                          (Curve(keys.public), r"refused: 400 \(it does not accept our key\)")):
        req = ctx.socket("req", security=security, connect=url)
        events = req.events()
        while events.get(10).kind != "HandshakeFailed":
            pass
        with pytest.raises(mq.RecvTimeout, match=f"no answer came within 0.1 s: .*{why}"):
            req.request(b"?", timeout=0.1)


def test_a_peer_that_does_not_answer_is_there(ctx):
    rep = ctx.socket("rep", bind="inproc://silent")
    req = ctx.socket("req", connect=rep.endpoints[0])
    req.wait_peers(1, 5)
    with pytest.raises(mq.RecvTimeout, match="0.05 s: the peer is connected, and has not answered"):
        req.request(b"?", timeout=0.05)


def test_a_time_out_whose_reason_cannot_be_loaded(ctx, monkeypatch):
    """The module is imported when it is needed, perhaps without a descriptor left to do so."""
    monkeypatch.delattr(api, "explain", raising=False)
    monkeypatch.setitem(sys.modules, "mqcore.api.explain", None)
    pull, push, req = ctx.socket("pull"), ctx.socket("push", immediate=True), ctx.socket("req")
    for socket in (pull, push, req):
        socket.bind("tcp://127.0.0.1:0")
    with pytest.raises(mq.RecvTimeout, match="within 0.1 s: .*reason cannot be loaded"):
        pull.recv(timeout=0.1)
    with pytest.raises(mq.SendTimeout, match="within 0.1 s: .*reason cannot be loaded"):
        push.send(b"", timeout=0.1)
    with pytest.raises(mq.Timeout, match="within 0.1 s: .*reason cannot be loaded"):
        req.request(b"", timeout=0.1)
    with pytest.raises(mq.WaitTimeout, match="within 0.1 s: .*reason cannot be loaded"):
        pull.wait_peers(1, timeout=0.1)
