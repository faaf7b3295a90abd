"""Whole sockets with a libzmq peer: what the engine does with the poller's edges."""

import threading

import pytest

import mqcore as mq

zmq = pytest.importorskip("zmq")


@pytest.fixture
def context():
    with mq.Context(recv_timeout=20, send_timeout=20) as context:
        yield context


@pytest.fixture
def peers():
    """Makes libzmq sockets; closes them."""
    made = []
    with zmq.Context() as context:
        def peer(kind):
            made.append(context.socket(kind))
            made[-1].rcvtimeo = made[-1].sndtimeo = 20_000
            return made[-1]
        yield peer
        for one in made:
            one.close(0)


class Beside(threading.Thread):
    """Runs fn beside the test; join() raises what it raised."""

    def __init__(self, fn):
        super().__init__(daemon=True)
        self.fn, self.error = fn, None
        self.start()

    def run(self):
        try:
            self.fn()
        except BaseException as error:
            self.error = error

    def join(self, timeout=60):
        super().join(timeout)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error


def body(i):
    return b"%d " % i + b"x" * (i % 3000)


def test_pull_from_libzmq(context, peers):
    count = 20_000
    with context.socket("pull") as pull:
        push = peers(zmq.PUSH)
        push.connect(str(pull.bind("tcp://127.0.0.1:0")))
        writer = Beside(lambda: [push.send(body(i)) for i in range(count)])
        for i in range(count):
            assert bytes(pull.recv()) == body(i)
        writer.join()


def test_push_to_a_slow_libzmq(context, peers):
    """The kernel's buffers fill, so that room must be announced, again and again."""
    count = 20_000
    pull = peers(zmq.PULL)
    pull.rcvhwm = 10
    port = pull.bind_to_random_port("tcp://127.0.0.1")
    with context.socket("push") as push:
        push.connect(f"tcp://127.0.0.1:{port}")
        writer = Beside(lambda: [push.send(body(i)) for i in range(count)])
        for i in range(count):
            assert pull.recv() == body(i)
        writer.join()


def test_large_messages_both_ways(context, peers):
    big = b"z" * 10_000_000
    rep = peers(zmq.REP)
    port = rep.bind_to_random_port("tcp://127.0.0.1")
    with context.socket("req") as req:
        req.connect(f"tcp://127.0.0.1:{port}")
        echo = Beside(lambda: rep.send(rep.recv()))
        req.send(big)
        assert bytes(req.recv()) == big
        echo.join()


def test_requests_and_replies(context, peers):
    count = 1000
    with context.socket("req") as req, context.socket("rep") as rep:
        url = str(rep.bind("tcp://127.0.0.1:0"))
        req.connect(url)
        other = peers(zmq.REQ)
        other.connect(url)
        echo = Beside(lambda: [rep.send(rep.recv()) for _ in range(2 * count)])
        for i in range(count):
            req.send(b"%d" % i)
            other.send(b"o%d" % i)
            assert bytes(req.recv()) == b"%d" % i
            assert other.recv() == b"o%d" % i
        echo.join()


def test_several_threads_receive_from_one_socket(context, peers):
    count, threads = 3000, 3
    got = []
    with context.socket("pull") as pull:
        url = str(pull.bind("tcp://127.0.0.1:0"))

        def take():
            while (data := bytes(pull.recv())) != b"end":
                got.append(data)
        takers = [Beside(take) for _ in range(threads)]
        pushes = [peers(zmq.PUSH) for _ in range(2)]
        for push in pushes:
            push.connect(url)
        for i in range(count):
            for j, push in enumerate(pushes):
                push.send(b"%d %d" % (j, i))
        for _ in range(threads):
            pushes[0].send(b"end")
        # the other's messages may come after the ends
        for taker in takers:
            taker.join()
        while len(got) < 2 * count:
            got.append(bytes(pull.recv()))
    assert len(set(got)) == 2 * count


def test_peers_come_and_go_under_a_leader(context, peers):
    """Each engine dies while a call sleeps on the socket's set or has just left it."""
    with context.socket("pull") as pull:
        url = str(pull.bind("tcp://127.0.0.1:0"))
        for i in range(60):
            push = peers(zmq.PUSH)
            push.connect(url)
            push.send(b"%d" % i)
            assert bytes(pull.recv()) == b"%d" % i
            push.close()


def test_a_device(context, peers):
    """It sleeps on a set over two sockets' sets, which the I/O thread does not watch meanwhile."""
    count = 500
    front, back = context.socket("router"), context.socket("dealer")
    req, rep = peers(zmq.REQ), peers(zmq.REP)
    req.connect(str(front.bind("tcp://127.0.0.1:0")))
    rep.connect(str(back.bind("tcp://127.0.0.1:0")))
    with mq.device(front, back) as device:
        echo = Beside(lambda: [rep.send(rep.recv()) for _ in range(count)])
        for i in range(count):
            req.send(b"%d" % i)
            assert req.recv() == b"%d" % i
        echo.join()
        assert (device.stats().forth, device.stats().back) == (count, count)
