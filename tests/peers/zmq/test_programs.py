"""pyzmq programs with each end of either module: what they send and receive is the same."""

import threading

import pytest

from mqcore.testing import until

PARTS = [[b"one"], [b""], [b"a", b"b"], [b"", b"", b"z"], [b"x" * 70_000, b"y" * 300]]


def pump(z, *sockets):
    """Read each to the end of what is there: (which, message)."""
    poller = z.Poller()
    for socket in sockets:
        poller.register(socket, z.POLLIN)
    while ready := poller.poll(50):
        for socket, _ in ready:
            yield sockets.index(socket), socket.recv_multipart()


def test_pair(pair_up):
    a, b = pair_up("PAIR", "PAIR")
    for one, other in ((b, a), (a, b)):
        for parts in PARTS:
            one.send_multipart(parts)
            assert other.recv_multipart() == parts
            one.send_multipart(parts, copy=False)
            assert [f.bytes for f in other.recv_multipart(copy=False)] == parts
    b.send(b"first", 2)         # SNDMORE
    b.send(b"second")
    assert (a.recv(), a.recv()) == (b"first", b"second")


def test_request_and_reply(pair_up):
    rep, *reqs = pair_up("REP", "REQ", "REQ")
    for round_ in range(3):
        for req in reqs:
            req.send_multipart([b"q", b"%d" % round_])
        for _ in reqs:
            parts = rep.recv_multipart()
            rep.send_multipart([b"re", *parts])
        for req in reqs:
            assert req.recv_multipart() == [b"re", b"q", b"%d" % round_]


def test_publish_and_subscribe(pair_up, sides):
    pub, *subs = pair_up("XPUB", "SUB", "SUB")
    subs[0].subscribe("a")
    subs[1].subscribe("")
    assert {pub.recv(), pub.recv()} == {b"\1a", b"\1"}
    for topic in (b"a", b"b", b"ab"):
        pub.send_multipart([topic, b"body"])
    assert [subs[0].recv_multipart() for _ in range(2)] == [[b"a", b"body"], [b"ab", b"body"]]
    assert [subs[1].recv_multipart()[0] for _ in range(3)] == [b"a", b"b", b"ab"]
    subs[1].unsubscribe("")
    assert pub.recv() == b"\0"


def test_pipeline(pair_up, sides):
    push, *pulls = pair_up("PUSH", "PULL", "PULL")
    for pull in pulls:      # both are there before the work is dealt out
        while True:
            push.send(b"hello")
            if pull.poll(20):
                break
    for _ in pump(sides.b, *pulls):
        pass
    for i in range(10):
        push.send(b"%d" % i)
    found = list(pump(sides.b, *pulls))
    assert sorted(int(parts[0]) for _, parts in found) == list(range(10))
    assert {which for which, _ in found} == {0, 1}


def test_router_and_dealer(pair_up):
    router, *dealers = pair_up("ROUTER", "DEALER", "DEALER", a={"router_mandatory": 1})
    for dealer in dealers:
        dealer.send_multipart([b"", b"ready"])
    for at in range(2):
        who, empty, word = router.recv_multipart()
        assert (empty, word) == (b"", b"ready")
        router.send_multipart([who, b"", b"%d" % at])
    assert sorted(dealer.recv_multipart()[1] for dealer in dealers) == [b"0", b"1"]


def test_xsub(pair_up):
    pub, xsub = pair_up("XPUB", "XSUB")
    xsub.send(b"\1t")
    assert pub.recv() == b"\1t"
    pub.send_multipart([b"t", b"x"])
    assert xsub.recv_multipart() == [b"t", b"x"]


def test_marks(pair_up, sides):
    """Nobody reads: the sender stops before 4 * the marks, and nothing is lost."""
    push, pull = pair_up("PUSH", "PULL", a={"sndhwm": 10, "sndbuf": 4096},
                         b={"rcvhwm": 10, "rcvbuf": 4096})
    body = bytes(10_000)
    sent = 0
    with pytest.raises(sides.a.Again):
        while sent < 2000:
            if not push.poll(200, sides.a.POLLOUT):
                raise sides.a.Again
            push.send(body, sides.a.NOBLOCK)
            sent += 1
    assert 10 <= sent < 2000
    for _ in range(sent):
        assert pull.recv() == body


def bound(z, socket, address):
    """libzmq's close() lets the port go some time later."""
    try:
        return socket.bind(address)
    except z.ZMQError:
        return None


def test_lazy_pirate(make, sides):
    """A client that gives a request up closes its socket and asks anew."""
    server = make(sides.a, "REP")
    port = server.bind_to_random_port("tcp://127.0.0.1")

    def serve():
        assert server.recv() == b"1"
        server.close(0)         # it crashes, and comes back
        again = make(sides.a, "REP")
        until(lambda: bound(sides.a, again, f"tcp://127.0.0.1:{port}"))
        question = again.recv()
        again.send(question + b" answered")

    thread = threading.Thread(target=serve)
    thread.start()
    for tries in range(1, 50):
        client = make(sides.b, "REQ")
        client.connect(f"tcp://127.0.0.1:{port}")
        client.send(b"1")
        if client.poll(200) & sides.b.POLLIN:
            break
        client.close(0)
    assert client.recv() == b"1 answered"
    assert tries > 1
    thread.join()
