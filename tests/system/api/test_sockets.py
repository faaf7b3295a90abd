"""The blocking calls, over inproc and tcp."""

import copy
import pickle
import threading
import time

import numpy as np
import pytest

import mqcore as mq
from mqcore.control.links import SocketLinks


def test_every_way_to_send_and_receive(linked):
    pull, push = linked("pull", "push")
    push.send(b"1")
    push.send_parts([b"2", bytearray(b"3")])
    assert push.send_many([b"4", [b"5", b"6"], memoryview(b"7")]) == 3
    assert push.send_batch(np.frombuffer(b"abcdef", np.uint8), np.array([0, 1, 3, 6])) == 3
    assert pull.recv(timeout=5) == b"1"
    assert pull.recv_parts(timeout=5) == [b"2", b"3"]
    message = pull.recv_msg(timeout=5)
    assert (message.body, message.topic, message.parts, bytes(message), len(message)) == (
        b"4", None, (b"4",), b"4", 1)
    buffer = bytearray(5)
    assert pull.recv_into(buffer, timeout=5) == 2 and buffer[:2] == b"56"
    rest = []
    while len(rest) < 4:
        rest += pull.recv_many(2, timeout=5)
    assert rest == [b"7", b"a", b"bc", b"def"]
    push.send_parts([b"topic", b"body"])
    batch = pull.recv_batch(timeout=5)
    assert batch.to_list() == [b"topicbody"] and batch.split.tolist() == [5]


def test_reference(linked):
    pull, push = linked("pull", "push")
    data = bytearray(b"x" * 100_000)
    pinned = push.send_ref(data)
    assert pull.recv(timeout=5) == data
    pinned.wait_done(5)
    assert pinned.done


def test_timeouts(linked):
    pull, push = linked("pull", "push", recv_timeout=None)
    with pytest.raises(mq.RecvTimeout, match="at once"):
        pull.recv(timeout=0)
    started = time.monotonic()
    with pytest.raises(TimeoutError, match="within 0.05 s"):
        pull.recv_msg(timeout=0.05)
    assert time.monotonic() - started > 0.04
    for bad in (-1, "1", True, float("nan")):
        with pytest.raises(mq.UsageError):
            pull.recv(timeout=bad)
        with pytest.raises(mq.UsageError):
            pull.wait_peers(5, timeout=bad)


def test_iteration_ends_by_our_close_only(linked):
    pull, push = linked("pull", "push")
    push.send_many([b"a", b"b"])
    got = []

    def reader():
        got.extend(pull)

    thread = threading.Thread(target=reader)
    thread.start()
    while len(got) < 2:
        time.sleep(0.001)
    push.close()
    assert thread.is_alive()
    pull.close()
    thread.join(10)
    assert got == [b"a", b"b"] and list(pull) == []
    pull2 = pull.context.socket("pull", recv_timeout=0.01)
    with pytest.raises(mq.RecvTimeout):
        next(iter(pull2))


def test_closed(linked):
    pull, push = linked("pull", "push")
    errors = []

    def blocked():
        try:
            pull.recv()
        except mq.SocketClosed as error:
            errors.append(error)

    thread = threading.Thread(target=blocked)
    thread.start()
    time.sleep(0.02)
    report = pull.close()
    thread.join(10)
    assert len(errors) == 1
    assert pull.close() is report and pull.closed
    for call in (lambda: pull.recv(), lambda: pull.bind("inproc://x"), pull.peers, pull.stats,
                 lambda: pull.wait_peers(), pull.fileno, pull.__enter__, pull.events,
                 lambda: setattr(pull, "linger", 1)):
        with pytest.raises(mq.SocketClosed):
            call()
    assert "closed" in repr(pull) and "closed" in pull.explain()


def test_wrong_direction(ctx):
    for pattern in ("push", "pub"):
        with pytest.raises(mq.UsageError, match=f"{pattern} socket cannot recv"):
            ctx.socket(pattern).recv(timeout=0)
    for pattern in ("pull", "sub"):
        with pytest.raises(mq.UsageError, match=f"{pattern} socket cannot send"):
            ctx.socket(pattern).send(b"", timeout=0)


def test_text_is_refused_with_the_remedy(linked):
    pull, push = linked("pull", "push")
    for call in (lambda: push.send("x"), lambda: push.send_parts(["x"]),
                 lambda: push.send_many(["x"]),
                 lambda: push.send_ref("x")):
        with pytest.raises(TypeError, match=r"\.encode\(\)"):
            call()
    with pytest.raises(mq.UsageError, match="sequence of parts"):
        push.send_parts(b"x")


def test_too_large_for_the_buffer_stays(linked):
    pull, push = linked("pull", "push")
    push.send(b"12345")
    with pytest.raises(mq.MessageTooLarge, match="5 bytes"):
        pull.recv_into(bytearray(3), timeout=5)
    assert pull.recv(timeout=5) == b"12345"


def test_queue_before_connection(ctx, url):
    if url.startswith("tcp"):
        probe = ctx.socket("pull", bind=url)
        url = probe.endpoints[0].url
        probe.close()
    push = ctx.socket("push", connect=url, reconnect=0.02, reconnect_max=0.05)
    for i in range(10):
        push.send(b"%d" % i, timeout=0)
    assert push.stats().waiting == 10
    with ctx.socket("pull", bind=url) as pull:
        assert [pull.recv(timeout=5) for _ in range(10)] == [b"%d" % i for i in range(10)]
        stats = push.stats()
        assert (stats.sent, stats.waiting, sum(p.offered for p in stats.peers.values())) == (10, 0,
                                                                                             10)


def test_send_timeout_says_why(ctx):
    push = ctx.socket("push")
    with pytest.raises(mq.SendTimeout, match="no peer") as caught:
        push.send(b"", timeout=0)
    assert (caught.value.why, caught.value.peers) == ("no_peer", 0)
    push = ctx.socket("push", bind="inproc://full", send_hwm=1)
    ctx.socket("pull", connect="inproc://full", recv_hwm=1)
    push.wait_peers(1, 5)
    with pytest.raises(mq.SendTimeout, match="high-water mark") as caught:
        push.send_many([b"x"] * 10, timeout=0.01)
    assert (caught.value.why, caught.value.peers, caught.value.sent) == ("full", 1, 2)


def test_wait_peers_says_why(ctx):
    pull = ctx.socket("pull")
    with pytest.raises(mq.WaitTimeout, match="neither bound nor connected") as caught:
        pull.wait_peers(2, 0)
    assert (caught.value.have, caught.value.want) == (0, 2)
    pull.bind("tcp://127.0.0.1:0")
    with pytest.raises(mq.WaitTimeout, match="no peer has connected"):
        pull.wait_peers(1, 0.01)


def test_connect_wait(ctx, url):
    pull = ctx.socket("pull", bind=url)
    push = ctx.socket("push")
    assert push.connect(pull.endpoints[0], wait=5).state == "connected"
    with pytest.raises(mq.ConnectTimeout):
        push.connect("inproc://nobody", wait=0.05)
    assert len(push.endpoints) == 1
    sub = ctx.socket("sub")
    with pytest.raises(mq.HandshakeFailed):
        sub.connect(pull.endpoints[0], wait=5, reconnect_stop=["handshake"])


def test_endpoints(ctx, url):
    pull = ctx.socket("pull", bind=[url])
    end = pull.endpoints[0]
    assert (end.kind, end.state, str(end)) == ("bind", "listening", end.url) and ":0" not in end.url
    push = ctx.socket("push", connect=[end])
    push.wait_peers(1, 5)
    push.disconnect(end)
    assert push.endpoints == () and push.peers() == []
    pull.unbind(end)
    assert pull.endpoints == () and end.state == "closed"
    with pytest.raises(mq.AddressError, match="nothing is bound"):
        pull.unbind(end)
    other = ctx.socket("pull", bind=end)
    with pytest.raises(mq.AddressInUse):
        pull.bind(end.url)
    other.close()


def test_request_from_many_threads(linked):
    rep, req = linked("rep", "req")
    stop = []

    def serve():
        for message in rep.messages():
            message.reply(b"re ", message.body)
        stop.append(True)

    servers = [threading.Thread(target=serve) for _ in range(3)]
    for thread in servers:
        thread.start()
    wrong = []

    def ask(name):
        for i in range(50):
            text = b"%d.%d" % (name, i)
            if req.request(text, timeout=10) != b"re " + text:
                wrong.append(text)

    clients = [threading.Thread(target=ask, args=(n,)) for n in range(6)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join(30)
    rep.close()
    for thread in servers:
        thread.join(10)
    assert wrong == [] and stop == [True] * 3


def test_request_timeouts(linked):
    rep, req = linked("rep", "req")
    with pytest.raises(mq.RecvTimeout):
        req.request(b"lost", timeout=0.05)
    def serve():
        for message in rep.messages():
            try:
                message.reply(message.body)
            except mq.NoSuchPeer:
                pass

    server = threading.Thread(target=serve)
    server.start()
    assert req.request(b"again", timeout=10) == b"again"
    message = req.request_msg([b"a", b"b"], timeout=10)
    assert message.parts == (b"b",)
    rep.close()
    server.join(10)


def test_rep_plain_calls(linked):
    rep, req = linked("rep", "req")
    req.send(b"1")
    with pytest.raises(mq.StateError, match=r"recv\(\) one first"):
        rep.send(b"too early")
    assert rep.recv(timeout=5) == b"1"
    with pytest.raises(mq.StateError, match=r"reply\(\)"):
        rep.recv(timeout=1)
    rep.send(b"2")
    assert req.recv(timeout=5) == b"2"
    with pytest.raises(mq.StateError, match="send a request first"):
        req.recv(timeout=1)
    req.send(b"3")
    message = rep.recv_msg(timeout=5)
    message.reply(b"4")
    with pytest.raises(mq.StateError, match="has been answered"):
        message.reply(b"5")
    assert req.recv(timeout=5) == b"4"


def test_router(linked):
    router, dealer = linked("router", "dealer", routing_id=b"bob")
    dealer.send(b"hello")
    with pytest.raises(mq.UsageError, match=r"recv_msg\(\)"):
        router.recv(timeout=1)
    message = next(iter(router))
    assert (message.routing_id, message.parts) == (b"bob", (b"hello",))
    message.reply(b"1")
    router.send_to(b"bob", b"2", b"3")
    router.send_to(message.peer, b"4")
    assert [dealer.recv_parts(timeout=5) for _ in range(3)] == [[b"1"], [b"2", b"3"], [b"4"]]
    dealer.send_parts([b"a", b"b"])
    assert router.recv_parts(timeout=5) == [b"bob", b"a", b"b"]
    with pytest.raises(mq.NoSuchPeer):
        router.send_to(b"nobody", b"x")
    with pytest.raises(mq.UsageError, match="encode"):
        router.send_to("bob", b"x")
    with pytest.raises(mq.UsageError, match="at least one part"):
        router.send_to(b"bob")


def test_pub_sub(linked):
    pub, sub = linked("pub", "sub", topics=["news", b"x", "news"])
    assert sub.topics == (b"news", b"x")
    pub.wait_subscribers("news.sport", timeout=5)
    with pytest.raises(mq.WaitTimeout, match="0 of 1 subscribers"):
        pub.wait_subscribers("weather", timeout=0.01)
    pub.send(b"weather")
    pub.send_parts([b"news.sport", b"1:0"])
    message = sub.recv_msg(timeout=5)
    assert (message.topic, message.body) == (b"news.sport", b"1:0")
    sub.unsubscribe("news")
    pub.wait_subscribers("news", timeout=5)
    sub.unsubscribe("news")
    assert sub.topics == (b"x",)
    end = time.monotonic() + 5
    while pub._subscribers(b"news") and time.monotonic() < end:
        time.sleep(0.001)
    assert pub._subscribers(b"news") == 0
    with pytest.raises(mq.NotSubscribed, match="b'x'"):
        sub.unsubscribe("news")
    sub.unsubscribe("x")
    with pytest.raises(mq.NotSubscribed, match=r'subscribe\(b""\)'):
        sub.recv(timeout=1)


def test_xpub_xsub(linked):
    xpub, xsub = linked("xpub", "xsub")
    xsub.send(b"\1abc")
    assert xpub.recv(timeout=5) == b"\1abc"
    xpub.wait_subscribers("abcd", timeout=5)
    xpub.send(b"abcd")
    assert xsub.recv(timeout=5) == b"abcd"


def test_pair(linked):
    a, b = linked("pair", "pair")
    a.send(b"1")
    b.send(b"2")
    assert (a.recv(timeout=5), b.recv(timeout=5)) == (b"2", b"1")


def test_message_peer(linked):
    pull, push = linked("pull", "push", metadata={"app": b"test"})
    push.send(b"x" * 10_000)
    message = pull.recv_msg(timeout=5)
    peer = message.peer
    assert peer == pull.peers()[0] and peer.pattern == "push" and peer.metadata["app"] == b"test"
    assert isinstance(message.parts[0], memoryview)
    push.close()
    assert message.peer is peer and hash(peer)
    with pytest.raises(mq.StateError, match="no answers"):
        message.reply(b"")


def test_a_peer_knows_both_ends(linked):
    a, b = linked("pair", "pair")
    [there], [here] = a.peers(), b.peers()
    assert (there.local, there.address) == (here.address, here.local)
    assert here.address == here.endpoint and here.local.partition("://")[0] in ("inproc", "tcp")


def test_not_picklable(ctx):
    for obj in (ctx, ctx.socket("push")):
        for how in (pickle.dumps, copy.copy):
            with pytest.raises(mq.UsageError, match="URL"):
                how(obj)


def test_factory(ctx):
    with mq.socket("push", context=ctx) as push:
        assert type(push) is mq.Push
    with pytest.raises(mq.UsageError, match="installed"):
        ctx.socket("nosuch")
    with pytest.raises(mq.UsageError, match="base"):
        mq.Socket()
    with pytest.raises(AttributeError):
        ctx.socket("push").recv_timeot = 1
    with pytest.raises(mq.UsageError):
        mq.socket(b"push")
    assert {info.name for info in mq.patterns()} >= {"push", "pull"}
    assert {info.name for info in mq.transports()} >= {"tcp", "ipc", "inproc"}


def test_failed_opening_leaves_nothing(ctx):
    with pytest.raises(mq.UnknownTransport):
        ctx.socket("push", connect="carrier-pigeon://x")
    with pytest.raises(mq.OptionError, match="did you mean 'linger'"):
        ctx.socket("push", lingr=1)
    assert ctx.sockets == ()


def test_context_closes_all_side_by_side(monkeypatch):
    """Each close() begins only when all have begun: one after the other would break the barrier."""
    context = mq.Context(linger=0.05)
    socks = [context.socket("push", connect="inproc://nobody") for _ in range(5)]
    for sock in socks:
        sock.send(b"x")
    assert set(context.sockets) == set(socks)
    together = threading.Barrier(5, timeout=60)
    close = SocketLinks.close

    def close_together(self, *args):
        if self.report is None:
            together.wait()
        return close(self, *args)
    monkeypatch.setattr(SocketLinks, "close", close_together)
    report = context.close()
    assert not together.broken
    assert not report and report.undelivered == 5 and context.close() is report
    assert all(sock.closed for sock in socks) and context.sockets == ()
    with pytest.raises(mq.ContextClosed):
        context.socket("push")
    with pytest.raises(mq.SocketClosed):
        socks[0].send(b"")


def test_events(ctx, url):
    pull = ctx.socket("pull")
    stream = pull.events()
    other = pull.events(backlog=1)
    pull.bind(url)
    push = ctx.socket("push", connect=pull.endpoints[0])
    pull.wait_peers(1, 5)
    kinds = [stream.get(5).kind for _ in range(3)]
    assert kinds == ["Listening", "Accepted", "Connected"]
    push.close()
    event = stream.get(5)
    assert event.kind == "Disconnected" and event.peer is not None and event.socket is pull
    assert (len(other), other.lost) == (1, 3)
    with pytest.raises(mq.WaitTimeout):
        stream.get(0)
    pull.close()
    assert [event.kind for event in stream][-1] == "Closed"
    assert [event.kind for event in other] == ["Listening", "Closed"]
    with pytest.raises(mq.SocketClosed):
        stream.get()


def test_empty(linked):
    pull, push = linked("pull", "push")
    view = mq.empty(3)
    view[:] = b"abc"
    push.send(view)
    assert pull.recv(timeout=5) == b"abc"
    for bad in (-1, 1.5, True):
        with pytest.raises(mq.UsageError):
            mq.empty(bad)


def test_parts_in_a_list(linked):
    """request() and reply() take one; send() names the call that does."""
    rep, req = linked("rep", "req", recv_timeout=5, send_timeout=5)
    with pytest.raises(mq.UsageError, match=r"bytes, not list; send_parts\(\[...\]\)"):
        req.send([b"a", b"b"])

    def serve():
        for _ in range(2):
            message = rep.recv_msg(timeout=5)
            message.reply([*message.parts, b"!"])

    server = threading.Thread(target=serve)
    server.start()
    assert req.request_msg([b"a", b"b"]).parts == (b"a", b"b", b"!")
    assert req.request_msg((b"c",)).parts == (b"c", b"!")
    server.join()


def test_help_of_an_option_is_its_row():
    assert mq.Pull.recv_timeout.__doc__ == (
        "recv_timeout: seconds, default None: how long a receive waits for a message; "
        "None: for ever.")
    assert mq.Req.resend.__doc__.startswith(
        "resend: seconds, default None: send an unanswered request again")
