"""What mqcore.zmq does otherwise than pyzmq, or has beside it."""

import pickle

import pytest
from zmqerrno import number

import mqcore.zmq as ours


def test_what_is_absent(make):
    """ENOTSUP, and what to do instead."""
    s = make(ours, "DEALER")
    for option, value, said in ((ours.GSSAPI_SERVER, 1, "CURVE"), (ours.USE_FD, 3, "fd://"),
                                (ours.SOCKS_PROXY, b"x", "proxy")):
        with pytest.raises(ours.ZMQError, match=said) as caught:
            s.setsockopt(option, value)
        assert caught.value.errno == ours.ENOTSUP
        assert pickle.loads(pickle.dumps(caught.value)).errno == ours.ENOTSUP
    with pytest.raises(AttributeError, match="there is no libzmq behind"):
        _ = ours.backend.cython


def test_radio_and_dish(make):
    radio, dish = make(ours, "RADIO"), make(ours, "DISH")
    dish.bind("inproc://radio")
    dish.join("news")
    radio.connect("inproc://radio")
    radio._open().wait_subscribers("news", timeout=5)
    radio.send(b"lost", group="other")
    radio.send(b"found", group="news")
    frame = ours.Frame(b"framed")
    frame.group = "news"
    radio.send(frame)
    assert dish.recv() == b"found"
    got = dish.recv(copy=False)
    assert (got.bytes, got.group) == (b"framed", "news")
    dish.leave("news")
    assert number(ours, dish.leave, "news") == ours.EINVAL


def test_conflate(make):
    push, pull = make(ours, "PUSH"), make(ours, "PULL", conflate=1)
    pull.bind("inproc://conflate")
    push.connect("inproc://conflate")
    for i in range(10):
        push.send(b"%d" % i)
    assert pull.recv() == b"9"


def test_can_be_asked_what_it_does(make):
    """mqcore's socket is there."""
    a, b = make(ours, "PUSH"), make(ours, "PULL")
    b.bind("tcp://127.0.0.1:*")
    a.connect(b.last_endpoint.decode())
    a.send(b"x")
    frame = b.recv(copy=False)
    assert (frame["Socket-Type"], frame["Peer-Address"]) == ("PUSH", "127.0.0.1")
    assert b._core.stats().received == 1


def test_a_request_knows_its_peer(make):
    req, rep = make(ours, "REQ"), make(ours, "REP")
    rep.bind("inproc://asked")
    req.connect("inproc://asked")
    req.send_multipart([b"a", b"b"])
    frames = rep.recv_multipart(copy=False)
    assert [(frame.bytes, frame.more, frame["Socket-Type"]) for frame in frames] == [
        (b"a", True, "REQ"), (b"b", False, "REQ")]
    rep.send_multipart(frames)
    assert req.recv(copy=False).more
    assert (req.recv(), req.rcvmore) == (b"b", 0)


def test_received_frames_go_on_without_a_copy(make):
    numpy = pytest.importorskip("numpy")

    def place(frame):
        return numpy.frombuffer(frame, numpy.uint8).ctypes.data

    a, b = make(ours, "PAIR"), make(ours, "PAIR")
    b.bind("inproc://forward")
    a.connect("inproc://forward")
    big = bytes(range(250)) * 400
    a.send(big)
    frame = b.recv(copy=False)
    b.send(frame)
    got = a.recv(copy=False)
    assert place(got) == place(frame) and got.bytes == big
    b.send_multipart([b"id", frame.buffer[10_000:20_000]])
    got = a.recv_multipart(copy=False)[1]
    assert place(got) == place(frame) + 10_000 and got.bytes == big[10_000:20_000]
