"""Each public call of a socket against close(), term() and fork(), and against the same socket's
calls in other threads: no call hangs or crashes, and no part of a message is lost.

MQCORE_ROUNDS: more random interleavings.
"""

import functools
import os
import random
import sys
import threading
from collections import Counter

import pytest
from interleave import attempted, forked, held_elsewhere, rounds

import mqcore.zmq as zmq

ROUNDS = int(os.environ.get("MQCORE_ROUNDS", "8"))
NOW = zmq.DONTWAIT


class Things:
    """Two sockets of one context that are joined."""

    def __init__(self, first, second):
        self.context = zmq.Context()
        self.a, self.b = self.context.socket(first), self.context.socket(second)
        for one in (self.a, self.b):
            one.linger = 0
            one.rcvtimeo = one.sndtimeo = 20
        self.a.bind("inproc://a")
        self.b.connect("inproc://a")

    def either(self):
        return self.a if random.random() < 0.5 else self.b


CALLS = {
    "send": lambda t: t.either().send(b"x"),
    "send large": lambda t: t.either().send(bytes(70_000), copy=False),
    "send tracked": lambda t: t.either().send(zmq.Frame(bytes(100), copy=False, track=True)),
    "send a piece": lambda t: t.either().send(b"x", zmq.SNDMORE | NOW),
    "send_multipart": lambda t: t.either().send_multipart([b"a", b"b", b"c"], NOW),
    "recv": lambda t: t.either().recv(),
    "recv a frame": lambda t: t.either().recv(copy=False).bytes,
    "recv_multipart": lambda t: t.either().recv_multipart(copy=False),
    "recv_into": lambda t: t.either().recv_into(bytearray(8), flags=NOW),
    "poll": lambda t: t.either().poll(1),
    "Poller": lambda t: zmq.zmq_poll([(t.a, zmq.POLLIN), (t.b, zmq.POLLOUT)], 1),
    "EVENTS": lambda t: t.either().events,
    "FD": lambda t: t.either().fd,
    "RCVMORE": lambda t: t.either().rcvmore,
    "options": lambda t: (t.either().set(zmq.SNDHWM, 10), t.either().get(zmq.LINGER)),
    "bind": lambda t: t.either().bind_to_random_port("tcp://127.0.0.1"),
    "connect": lambda t: t.either().connect("tcp://127.0.0.1:9"),
    "disconnect": lambda t: t.either().disconnect("tcp://127.0.0.1:9"),
    "last endpoint": lambda t: t.either().last_endpoint,
    "monitor": lambda t: t.either().get_monitor_socket().close(0),
    "disable_monitor": lambda t: t.either().disable_monitor(),
    "shadow": lambda t: zmq.Socket.shadow(t.either().underlying).closed,
    "repr": lambda t: (repr(t.a), repr(t.context), t.a.closed),
    "socket": lambda t: t.context.socket(zmq.PAIR).close(0),
}


def close_both(things):
    things.a.close(0)
    things.b.close(0)
    things.context.destroy(0)


def terminate(things):
    """term() waits for the sockets, which another thread closes."""
    closer = threading.Timer(0.02, lambda: (things.a.close(0), things.b.close(0)))
    closer.start()
    things.context.destroy(0)
    closer.join()


def fork(things):
    """The child uses what it inherited, which must fail there, and the parent goes on."""
    def child():
        attempted([functools.partial(call, things) for call in CALLS.values()],
                  (zmq.ZMQError, RuntimeError, AttributeError))
        zmq.Context.instance().term()
        things.context.term()
        things.context.destroy(0)
    forked(child)
    close_both(things)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("end", [close_both, terminate, fork], ids=lambda end: end.__name__)
@pytest.mark.parametrize("kinds", [(zmq.PAIR, zmq.PAIR), (zmq.DEALER, zmq.ROUTER),
                                   (zmq.PUB, zmq.SUB), (zmq.REQ, zmq.REP)],
                         ids=["pair", "dealer-router", "pub-sub", "req-rep"])
def test_every_call_against_the_end(kinds, end, seed):
    # RuntimeError: an option of a context that is terminated; AttributeError: an option by name
    rounds(lambda: Things(*kinds), CALLS, end,
           (zmq.ZMQError, zmq.ZMQBindError, RuntimeError, AttributeError),
           range(seed, seed + ROUNDS))


@pytest.fixture
def hurried():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def pair():
    with zmq.Context() as context, context.socket(zmq.PUSH) as a, context.socket(zmq.PULL) as b:
        a.bind("inproc://pieces")
        b.connect("inproc://pieces")
        yield a, b


@pytest.mark.parametrize("copy", [True, False])
def test_threads_that_receive_pieces_of_one_socket_lose_none(pair, hurried, copy):
    a, b = pair
    count, got = 200 * ROUNDS, Counter()
    b.rcvtimeo = 200

    def take():
        mine = []
        while True:
            try:
                mine.append(bytes(b.recv(copy=copy)))
            except zmq.Again:
                got.update(mine)
                return

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(count):
        a.send_multipart([b"%d %d" % (number, part) for part in range(3)])
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert got == Counter(b"%d %d" % (n, part) for n in range(count) for part in range(3))


def test_threads_that_send_pieces_over_one_socket_lose_none(pair, hurried):
    a, b = pair
    count, threads = 100 * ROUNDS, 4

    def give(mine):
        for number in range(count):
            a.send(b"%d %d" % (mine, number), zmq.SNDMORE)

    gang = [threading.Thread(target=give, args=(mine,)) for mine in range(threads)]
    for thread in gang:
        thread.start()
    for thread in gang:
        thread.join(60)
    a.send(b"end")
    b.rcvtimeo = 10_000
    *parts, end = b.recv_multipart()
    assert end == b"end"
    assert Counter(parts) == Counter(b"%d %d" % (mine, number) for mine in range(threads)
                                     for number in range(count))


def test_a_piece_stays_for_another_try_and_goes_with_an_error_that_ends_the_message():
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router, \
            context.socket(zmq.DEALER) as dealer:
        router.linger = dealer.linger = 0
        router.router_mandatory = 1
        dealer.routing_id = b"there"
        router.bind("inproc://mandatory")
        router.send(b"nobody", zmq.SNDMORE)
        with pytest.raises(zmq.ZMQError) as refused:
            router.send(b"lost")
        assert refused.value.errno == zmq.EHOSTUNREACH
        dealer.connect("inproc://mandatory")
        router.send(b"there", zmq.SNDMORE)      # nothing of the other message is in front of it
        router.send(b"arrives")
        dealer.rcvtimeo = 10_000
        assert dealer.recv_multipart() == [b"arrives"]
        push = context.socket(zmq.PUSH)
        push.bind("inproc://later")
        push.send(b"one", zmq.SNDMORE)
        with pytest.raises(zmq.Again):
            push.send(b"two", zmq.DONTWAIT)
        pull = context.socket(zmq.PULL)
        pull.connect("inproc://later")
        push.send(b"two")
        assert pull.recv_multipart() == [b"one", b"two"]
        push.close(0)
        pull.close(0)


def test_threads_that_share_a_frame_see_the_same_bytes(hurried):
    with zmq.Context() as context, context.socket(zmq.PAIR) as a, context.socket(zmq.PAIR) as b:
        a.bind("inproc://frames")
        b.connect("inproc://frames")
        body = os.urandom(100_000)
        for _ in range(5 * ROUNDS):
            a.send(body)
            frame, seen = b.recv(copy=False), []
            threads = [threading.Thread(target=lambda one=frame, out=seen: out.append(
                one.bytes == bytes(one.buffer) == body and len(one) == len(body)))
                for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
            assert seen == [True] * 4
            view = frame.buffer
            del frame
            assert view == body


def test_a_tracked_frame_is_done_when_its_last_user_is_gone():
    gc = zmq.utils.garbage.gc
    data = bytearray(b"x" * 100)
    frame = zmq.Frame(data, copy=False, track=True)
    tracker, other, view = frame.tracker, frame.__copy__(), frame.buffer
    assert [kept.obj for kept in gc.refs.values()] == [data]
    data[:1] = b"y"
    assert view[:2] == b"yx" and not view.readonly
    del frame
    assert not tracker.done
    del other
    assert not tracker.done and len(gc.refs) == 1
    del view
    assert tracker.done and not gc.refs
    with pytest.raises(RuntimeError):
        zmq.Frame(b"once").__init__(b"twice")


def test_a_child_forked_while_a_thread_holds_every_lock_does_not_hang():
    with zmq.Context() as context, context.socket(zmq.PAIR) as a:
        a.bind("inproc://locked")
        a.fd
        shared, home = a._shared, context._home

        def child():
            attempted([lambda: a.fd, lambda: a.subscribe(b""), lambda: a.recv(zmq.DONTWAIT),
                       lambda: a.set(zmq.LINGER, 0), a.close, context.term],
                      (zmq.ZMQError, AttributeError))
            with zmq.Context.instance() as fresh, fresh.socket(zmq.PAIR) as mine:
                mine.bind("inproc://mine")

        with held_elsewhere(shared._lock, home._changed, shared.edge._lock,
                            zmq.Context._instance_lock):
            forked(child)
