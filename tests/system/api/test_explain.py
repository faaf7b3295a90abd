"""What explain() says."""

import pytest

import mqcore as mq


def test_explain(linked):
    rep, req = linked("rep", "req")
    assert "1 connected" in rep.explain() and "connected to" in req.explain()
    assert "would wait" in rep.explain()
    req.send(b"x")
    rep.recv_msg(timeout=5)
    assert "1 sent" in req.explain()
    assert "neither bound nor connected" in req.context.socket("sub").explain()
    assert "has no subscription" in req.context.socket("sub").explain()


def test_explain_tells_a_listener_who_did_not_fit(ctx):
    rep = ctx.socket("rep", bind="tcp://127.0.0.1:0")
    stream = rep.events()
    push = ctx.socket("push", connect=rep.endpoints[0])
    while stream.get(5).kind != "HandshakeFailed":
        pass
    assert "no peer has connected yet" in rep.explain() and "does not fit REP" in rep.explain()
    assert rep.endpoints[0].state == "listening"
    push.close(0)
    req = ctx.socket("req", connect=rep.endpoints[0])
    rep.wait_peers(1, 5)
    assert rep.peers() and rep.endpoints[0].error is None
    assert "does not fit" not in rep.explain()
    req.close()


def test_explain_at_the_mark_in_bytes(ctx):
    push = ctx.socket("push", bind="inproc://bytes", send_hwm_bytes=100, recv_hwm_bytes=1)
    pull = ctx.socket("pull", connect="inproc://bytes", recv_hwm_bytes=100)
    push.wait_peers(1, 5)
    assert "high-water mark" not in push.explain()
    with pytest.raises(mq.SendTimeout):
        for _ in range(100):
            push.send(b"x" * 60, timeout=0)
    assert "at its high-water mark: the peer reads" in push.explain()
    pull.close()
