"""What pyzmq does besides carrying messages, of both modules: errors, options, states, frames."""

import copy
import gc
import os
import select
import threading

import pytest
from zmqerrno import number

import mqcore.zmq as ours

SHORT = 20  # ms, for what shall not come


def test_nothing_there(z, new):
    """Who waits, who cannot, who sends to nobody."""
    for kind in ("PAIR", "PUSH", "DEALER", "REQ"):
        s = new(kind, sndtimeo=SHORT)
        assert number(z, s.send, b"x", z.NOBLOCK) == number(z, s.send, b"x") == z.EAGAIN
        assert number(z, s.send_multipart, [b"x", b"y"], z.NOBLOCK) == z.EAGAIN
    for kind in ("PAIR", "PULL", "DEALER", "ROUTER", "REP", "SUB", "XSUB", "XPUB"):
        s = new(kind, rcvtimeo=SHORT)
        for call in (s.recv, s.recv_multipart, s.recv_string, s.recv_json):
            with pytest.raises(z.Again):
                call(z.NOBLOCK)
        with pytest.raises(z.Again):
            s.recv()
        with pytest.raises(z.Again):
            s.recv(copy=False)
    for kind, call in (("PUSH", "recv"), ("PUB", "recv"), ("PUSH", "recv_multipart"),
                       ("PULL", "send"), ("SUB", "send")):
        args = [b"x"] * (call == "send")
        assert number(z, getattr(new(kind), call), *args) == z.ENOTSUP
    for kind in ("PUB", "XPUB"):
        new(kind).send(b"x")


def test_request_and_reply_states(z, new):
    req, rep = new("REQ"), new("REP")
    rep.bind("inproc://states")
    req.connect("inproc://states")
    assert number(z, req.recv) == number(z, rep.send, b"x") == z.EFSM
    assert number(z, req.recv, z.NOBLOCK) == number(z, rep.send, b"x", z.NOBLOCK) == z.EFSM
    req.send(b"q")
    assert number(z, req.send, b"again") == z.EFSM
    assert rep.recv() == b"q"
    assert number(z, rep.recv) == z.EFSM
    assert rep.events & z.POLLOUT
    rep.send_multipart([b"a", b"b"])
    assert req.recv(copy=False).bytes == b"a"
    assert req.rcvmore and req.recv() == b"b" and not req.rcvmore
    assert number(z, req.recv) == z.EFSM
    req.send(b"next")
    assert rep.recv(copy=False).bytes == b"next"
    assert number(z, rep.recv, z.NOBLOCK) == z.EFSM
    rep.send(b"done")
    assert req.recv() == b"done"


def test_a_request_whose_peer_left(z, new):
    """It waits for ever, cannot ask again, and can if it is relaxed."""
    for relaxed in (0, 1):
        req = new("REQ", rcvtimeo=SHORT, req_relaxed=relaxed, req_correlate=relaxed)
        rep = new("REP")
        rep.bind("tcp://127.0.0.1:*")
        req.connect(rep.last_endpoint.decode())
        req.send(b"q")
        assert rep.recv() == b"q"
        rep.close(0)
        with pytest.raises(z.Again):
            req.recv()
        with pytest.raises(z.Again):
            req.recv(z.NOBLOCK)
        if relaxed:
            req.sndtimeo = SHORT
            assert req.poll(0, z.POLLOUT) in (0, z.POLLOUT)
        else:
            assert number(z, req.send, b"again") == z.EFSM
            assert req.poll(SHORT, z.POLLIN | z.POLLOUT) == 0


def test_relaxed(z, new):
    req, router = new("REQ", req_relaxed=1, req_correlate=1), new("ROUTER")
    router.bind("inproc://relaxed")
    req.connect("inproc://relaxed")
    req.send(b"1")
    first = router.recv_multipart()
    req.send(b"2")
    second = router.recv_multipart()
    assert (first[-1], second[-1]) == (b"1", b"2")
    assert len(second) == 4 and first[1] != second[1]       # id, number, delimiter, body
    second[-1] = b"answer"
    router.send_multipart([second[0], first[1], b"", b"late"])
    router.send_multipart(second)
    assert req.recv() == b"answer"


def test_router(z, new):
    router = new("ROUTER")
    router.bind("inproc://router")
    router.send_multipart([b"nobody", b"lost"])
    router.router_mandatory = 1
    assert number(z, router.send_multipart, [b"nobody", b"x"]) == z.EHOSTUNREACH
    for name in (b"one", b"two"):
        dealer = new("DEALER", identity=name)
        dealer.connect("inproc://router")
        dealer.send_multipart([b"from", name])
    found = sorted(router.recv_multipart() for _ in range(2))
    assert found == [[b"one", b"from", b"one"], [b"two", b"from", b"two"]]
    router.send(b"two", z.SNDMORE)
    router.send(b"back")
    assert dealer.recv() == b"back"
    anonymous = new("DEALER")
    anonymous.connect("inproc://router")
    anonymous.send(b"x")
    who, body = router.recv_multipart()
    assert (len(who), who[:1], body) == (5, b"\0", b"x")


def test_probe(z, new):
    router, dealer = new("ROUTER"), new("DEALER", probe_router=1, identity=b"me")
    router.bind("inproc://probe")
    dealer.connect("inproc://probe")
    assert router.recv_multipart() == [b"me", b""]


def test_connecting_before_binding(z, new):
    late, early = new("PULL"), new("PUSH")
    early.connect("inproc://later")
    early.send(b"waited")
    late.bind("inproc://later")
    assert late.recv() == b"waited"


def test_instance(z):
    context = z.Context.instance()
    try:
        assert z.Context.instance() is context
        shadow = z.Context.shadow(context.underlying)
        with shadow.socket(z.PUSH) as push, context.socket(z.PULL) as pull:
            pull.bind("inproc://shadow")
            push.connect("inproc://shadow")
            z.Socket.shadow(push.underlying).send(b"x")
            copy.copy(push).send(b"y")
            assert (pull.recv(), z.Socket.shadow(pull).recv()) == (b"x", b"y")
    finally:
        context.term()
    again = z.Context.instance()
    assert again is not context and not again.closed
    again.term()


def test_instances_of_classes(z):
    """A class without an `_instance` of its own has its base's."""
    class Inherits(z.Context):
        pass

    class HasItsOwn(z.Context):
        _instance = None

    context, shared, own = (cls.instance() for cls in (z.Context, Inherits, HasItsOwn))
    assert shared is context and type(own) is HasItsOwn
    assert {"IO_THREADS", "socket"} <= set(dir(context))
    shadow = z.Context.shadow(context)
    context.term()
    own.term()
    with pytest.raises(z.ZMQError) as caught:
        shadow.socket(z.PUSH)
    assert caught.value.errno == z.EFAULT


def test_ways_to_set(z, new):
    sub = new("SUB")
    sub.bind("inproc://ways")
    sub.subscribe = "text"
    sub.subscribe = b"bytes"
    sub.routing_id = b"nobody's"    # a SUB tells it to nobody
    assert sub.routing_id == b"nobody's" and "IDENTITY" in dir(sub)
    with pytest.raises(TypeError):
        sub.setsockopt(9999, b"unknown")
    for buffer in (b"constant", memoryview(bytearray(8))[::2]):
        with pytest.raises(BufferError):
            sub.recv_into(buffer)
    assert (z.Socket[bytes].__origin__, z.Context[z.Socket].__origin__) == (z.Socket, z.Context)


def test_term_wakes_who_waits(z):
    context = z.Context()
    found = []

    def wait(kind, act):
        with context.socket(kind) as s:
            s.bind(f"inproc://{act}")
            ready.wait()
            try:
                {"recv": s.recv, "poll": s.poll, "send": lambda: s.send(b"x")}[act]()
            except z.ContextTerminated as error:
                found.append((act, error.errno == z.ETERM, number(z, s.getsockopt, z.LINGER)
                              in (z.ETERM, z.ENOTSOCK)))

    ready = threading.Barrier(4)
    threads = [threading.Thread(target=wait, args=case) for case in
               ((z.PULL, "recv"), (z.PULL, "poll"), (z.PUSH, "send"))]
    for thread in threads:
        thread.start()
    ready.wait()
    context.term()
    for thread in threads:
        thread.join()
    assert sorted(found) == [("poll", True, True), ("recv", True, True), ("send", True, True)]


def test_closing_delivers_behind(z):
    """close() returns at once, term() waits."""
    with z.Context() as there, there.socket(z.PULL) as pull:
        pull.rcvtimeo = 5000
        port = pull.bind_to_random_port("tcp://127.0.0.1")
        context = z.Context()
        push = context.socket(z.PUSH)
        push.connect(f"tcp://127.0.0.1:{port}")
        for i in range(100):
            push.send(b"%d" % i)
        push.close()
        assert push.closed
        context.term()
        assert [int(pull.recv()) for _ in range(100)] == list(range(100))


def test_forgotten(z):
    """Garbage, in a circle as well: it is closed, with a warning."""
    context = z.Context()
    for circle in (False, True):
        s = context.socket(z.PUSH)
        s.bind(f"inproc://forgotten-{circle}")
        if circle:
            s._monitor_socket = [s]
        with pytest.warns(ResourceWarning, match="Unclosed socket"):
            del s
            gc.collect()
    context.term()


def test_closed(z, new):
    s = new("DEALER")
    s.close()
    s.close()
    for call in (lambda: s.send(b"x"), s.recv, lambda: s.linger, s.fileno, lambda: s.events,
                 lambda: s.bind("inproc://x"), lambda: s.connect("inproc://x"),
                 lambda: s.send_multipart([b"x"]), s.recv_multipart):
        assert number(z, call) == z.ENOTSOCK
    assert number(z, s.poll, 0) == z.ENOTSUP
    assert s.closed and s.type == z.DEALER and "closed" in repr(s)


def test_frames(z, new):
    a, b = new("PAIR"), new("PAIR")
    a.bind("inproc://frames")
    b.connect("inproc://frames")
    big = bytes(range(256)) * 400
    frame = z.Frame(big)
    assert (frame.bytes, len(frame), bytes(frame), frame.more) == (big, len(big), big, False)
    assert memoryview(frame) == frame.buffer == big
    a.send_multipart([b"1", frame, bytearray(b"3"), memoryview(b"4")])
    got = b.recv_multipart(copy=False)
    assert [f.bytes for f in got] == [b"1", big, b"3", b"4"]
    assert [f.more for f in got] == [True, True, True, False]
    assert memoryview(got[1]) == big and got[1].get(z.MORE) == 1
    with pytest.raises(z.ZMQError):
        got[0]["No-Such-Property"]
    a.send(got[0])
    a.send(frame, z.SNDMORE)
    assert b.recv() == b"1"
    assert b.poll(SHORT) == 0       # the second is not whole
    a.send(b"end")
    assert (b.recv(), b.rcvmore, b.events & z.POLLIN) == (big, 1, z.POLLIN)
    assert b.recv_multipart() == [b"end"]
    for wrong in ("text", 3, None):
        with pytest.raises(TypeError):
            a.send(wrong)
        with pytest.raises(TypeError, match=r"Frame 1 .* does not support the buffer"):
            a.send_multipart([b"ok", wrong])
    with pytest.raises(TypeError):
        z.Frame("text")
    with pytest.raises(BufferError):
        z.Frame(memoryview(bytearray(8))[::2])
    assert [str(z.Frame(size * b"x")) for size in (0, 16, 17, 1000, 2_000_000)] == [
        "<zmq.Frame(b'')>", f"<zmq.Frame({16 * b'x'})>", "<zmq.Frame(b'xxxxxxxxxxxx'...17B)>",
        "<zmq.Frame(b'xxxxxxxxxxxx'...1kB)>", "<zmq.Frame(b'xxxxxxxxxxxx'...2MB)>"]
    changed = bytearray(b"first")
    copied = z.Frame(changed)
    changed[:] = b"later"
    assert copied.bytes == b"first" and copied.buffer is copied.buffer
    with pytest.raises(TypeError):
        a.send_string(b"bytes")
    assert b.poll(0) == 0


def test_trackers(z, new):
    a, b = new("PAIR"), new("PAIR")
    a.bind("inproc://trackers")
    b.connect("inproc://trackers")
    data = bytearray(b"x" * 100_000)
    tracker = a.send(data, copy=False, track=True)
    assert b.recv() == data
    tracker.wait(5)
    assert tracker.done
    assert a.send(b"small", copy=False, track=True).done
    assert a.send(b"x", track=True) is None
    assert (b.recv(), b.recv()) == (b"small", b"x")
    event = threading.Event()
    waits = z.MessageTracker(tracker, event)
    assert not waits.done
    with pytest.raises(z.NotDone):
        waits.wait(SHORT / 1000)
    event.set()
    waits.wait(5)
    assert waits.done
    with pytest.raises(TypeError):
        z.MessageTracker(3)
    with pytest.raises(ValueError, match="tracked"):
        z.MessageTracker(z.Frame(b"x"))


def test_forms(z, new):
    a, b = new("PAIR"), new("PAIR")
    a.bind("inproc://forms")
    b.connect("inproc://forms")
    a.send_string("ü", encoding="latin-1")
    assert b.recv_string(encoding="latin-1") == "ü"
    a.send_json({"a": [1, None]}, sort_keys=True)
    assert b.recv_json() == {"a": [1, None]}
    a.send_pyobj({1: (2, 3)})
    assert b.recv_pyobj() == {1: (2, 3)}
    a.send_serialized([3, 4], lambda some: [b"%d" % one for one in some])
    assert b.recv_serialized(lambda parts: [int(part) for part in parts]) == [3, 4]
    for data, size, expected in ((b"0123456789", 0, b"0123"), (b"ab", 0, b"ab\0\0"),
                                 (b"abcdef", 3, b"abc\0")):
        buffer = bytearray(4)
        a.send(data)
        assert (b.recv_into(buffer, nbytes=size), buffer) == (len(data), expected)
    with pytest.raises(ValueError, match="too big"):
        b.recv_into(bytearray(3), nbytes=5)
    with pytest.raises(z.Again):
        b.recv_into(bytearray(3), flags=z.NOBLOCK)


@pytest.mark.parametrize("timeout", [float("nan"), float("inf"), "1"])
def test_a_time_to_poll_for_that_means_nothing(z, new, timeout):
    s = new("PULL")
    (poller := z.Poller()).register(s, z.POLLIN)
    for poll in (s.poll, poller.poll, lambda t: z.zmq_poll([(s, z.POLLIN)], t)):
        with pytest.raises((ValueError, OverflowError, TypeError)):
            poll(timeout)


def test_polling(z, new):
    a, b, c = new("PAIR"), new("PAIR"), new("PULL")
    a.bind("inproc://poll")
    b.connect("inproc://poll")
    c.bind("inproc://pull")
    assert (a.poll(0), a.poll(0, z.POLLOUT), c.poll(SHORT)) == (0, z.POLLOUT, 0)
    poller = z.Poller()
    for s in (a, b, c):
        poller.register(s, z.POLLIN)
    assert b in poller and poller.poll(SHORT) == []
    a.send(b"x")
    assert poller.poll(5000) == [(b, z.POLLIN)]
    poller.modify(b, z.POLLIN | z.POLLOUT)
    assert dict(poller.poll(0)) == {b: z.POLLIN | z.POLLOUT}
    poller.register(b, 0)
    assert b not in poller and [s for s, _ in poller.sockets] == [a, c]
    with pytest.raises(KeyError):
        poller.unregister(b)
    assert z.select([a, b], [a, c], [], 5) == ([b], [a], [])
    read, write = os.pipe()
    try:
        with open(read, "rb", 0), open(write, "wb", 0) as pipe:
            poller.register(read, z.POLLIN)
            poller.register(pipe, z.POLLOUT)
            assert poller.poll(0) == [(write, z.POLLOUT)]
            poller.unregister(pipe)
            pipe.write(b"x")
            assert poller.poll(5000) == [(read, z.POLLIN)]
    finally:
        poller.unregister(read)
    poller.register("nothing")
    with pytest.raises(TypeError):
        poller.poll(0)


def test_descriptor(z, new):
    """Readable after a change; EVENTS calms it, and says what is."""
    a, b = new("PAIR"), new("PAIR")
    a.bind("tcp://127.0.0.1:*")
    b.connect(a.last_endpoint.decode())
    fd = b.fileno()
    assert fd == b.fd == b.get(z.FD)

    def wait_for(events):
        while b.events & events != events:
            assert select.select([fd], [], [], 5)[0]

    wait_for(z.POLLOUT)
    for i in range(3):
        a.send(b"%d" % i)
    wait_for(z.POLLIN)
    found = []
    while len(found) < 3:
        try:
            found.append(b.recv(z.NOBLOCK))
        except z.Again:
            if not b.events & z.POLLIN:
                assert select.select([fd], [], [], 5)[0]
    assert found == [b"0", b"1", b"2"]
    assert not b.events & z.POLLIN


def test_subscriptions(z, new):
    pub, sub = new("XPUB"), new("SUB")
    pub.bind("inproc://topics")
    sub.connect("inproc://topics")
    sub.subscribe("a")
    sub.setsockopt(z.SUBSCRIBE, b"a")
    sub.subscribe = b"b"
    assert sorted([pub.recv(), pub.recv()]) == [b"\1a", b"\1b"]
    assert pub.poll(SHORT) == 0
    sub.unsubscribe("a")
    sub.unsubscribe(b"nothing")
    assert pub.poll(SHORT) == 0
    for data in (b"a1", b"c", b"b1"):
        pub.send(data)
    assert (sub.recv(), sub.recv()) == (b"a1", b"b1")
    sub.unsubscribe(b"a")
    assert pub.recv() == b"\0a"


def test_xpub_options(z, new):
    pub = new("XPUB", xpub_verbose=1, xpub_welcome_msg=b"hello")
    pub.bind("tcp://127.0.0.1:*")
    if z is ours:       # libzmq 4.3.5 sends no welcome that anybody gets
        first = new("XSUB")
        first.connect(pub.last_endpoint.decode())
        assert first.recv() == b"hello"
    subs = [new("SUB") for _ in range(2)]
    for sub in subs:
        sub.subscribe(b"hello")
        sub.connect(pub.last_endpoint.decode())
        assert pub.recv() == b"\1hello"
    manual = new("XPUB", xpub_manual=1)
    manual.bind("inproc://manual")
    sub = new("XSUB")
    sub.connect("inproc://manual")
    sub.send(b"\1asked")
    assert manual.recv() == b"\1asked"
    manual.setsockopt(z.SUBSCRIBE, b"given")
    manual.send(b"asked no")
    manual.send(b"given yes")
    assert sub.recv() == b"given yes"


def test_monitor(z, new, part):
    monitor = part("utils.monitor")
    a, b = new("PAIR"), new("PAIR", reconnect_ivl=20)
    seen = {}
    sockets = {"a": a.get_monitor_socket(), "b": b.get_monitor_socket()}
    assert a.get_monitor_socket() is sockets["a"]

    def until(who, last):
        names = seen.setdefault(who, [])
        while last not in names[-1:]:
            assert sockets[who].poll(5000), seen
            message = monitor.recv_monitor_message(sockets[who])
            names.append(message["event"].name)
            if message["event"] != z.EVENT_MONITOR_STOPPED:
                assert message["endpoint"].startswith(b"tcp://127.0.0.1:")
        return names

    port = a.bind_to_random_port("tcp://127.0.0.1")
    b.connect(f"tcp://127.0.0.1:{port}")
    assert until("a", "HANDSHAKE_SUCCEEDED") == ["LISTENING", "ACCEPTED", "HANDSHAKE_SUCCEEDED"]
    assert until("b", "HANDSHAKE_SUCCEEDED") == ["CONNECT_DELAYED", "CONNECTED",
                                                 "HANDSHAKE_SUCCEEDED"]
    a.close(0)
    assert "DISCONNECTED" in until("b", "CONNECT_RETRIED")
    assert until("a", "MONITOR_STOPPED")
    b.disable_monitor()
    until("b", "MONITOR_STOPPED")
    for s in sockets.values():
        s.close(0)
    assert number(z, new("PAIR").monitor, "tcp://127.0.0.1:*") == z.EPROTONOSUPPORT


def test_errors(z):
    assert str(z.Again()) == "Resource temporarily unavailable"
    assert z.Again().errno == z.EAGAIN and z.ContextTerminated().errno == z.ETERM
    assert (str(z.ZMQError(z.EFSM)), z.ZMQError(5, "hi").strerror) == (z.strerror(z.EFSM), "hi")
    assert isinstance(z.InterruptedSystemCall(), InterruptedError)
    assert "4.9" in str(z.ZMQVersionError("4.9"))
