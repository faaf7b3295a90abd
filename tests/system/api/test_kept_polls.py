"""What poll() and zmq's Poller keep from one call to the next is never seen: sockets that end, are
closed or used elsewhere, numbers of descriptors that become another file's, many pollers."""

import gc
import os
import socket
import subprocess
import sys
import threading
import weakref

import pytest

import mqcore as mq
import mqcore.zmq as zmq

R, W = mq.Ready.READ, mq.Ready.WRITE


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_poll_keeps_no_socket_alive():
    with mq.Context(linger=0) as context:
        some = [mq.Pull(bind=f"inproc://{n}", context=context) for n in range(3)]
        assert mq.poll(some, 0.001) == mq.poll(some, 0.001) == []
        gone = weakref.ref(some.pop())
        gc.collect()
        assert gone() is None or gone().closed
        assert mq.poll(some, 0.001) == []


def test_a_request_may_be_answered_after_it_was_received(linked):
    """The socket's own call changes what it may do; nothing arrives."""
    rep, req = linked("rep", "req")
    with mq.Poller() as poller:
        poller.register(rep, W)
        for wait in (poller.poll, lambda limit: mq.poll([(rep, W)], limit)):
            for _ in range(3):
                assert wait(0) == []
                req.send(b"?")
                assert mq.poll([rep], 5)
                assert wait(0) == []
                rep.recv()
                assert wait(0) == [(rep, W)]
                rep.send(b"!")
                assert req.recv() == b"!"


def test_the_number_of_a_closed_file_is_another_file(linked):
    pull, push = linked("pull", "push")
    a, b = socket.socketpair()
    number = a.fileno()
    assert mq.poll([pull, number], 0.001) == mq.poll([pull, number], 0.001) == []
    a.close()
    b.close()
    r, w = os.pipe()
    try:
        if r != number:
            os.dup2(r, number)
        os.write(w, b"x")
        assert mq.poll([pull, number], 5) == [(number, R)]
    finally:
        for fd in {r, w, number}:
            os.close(fd)


def test_more_pollers_than_places(linked):
    """Polls that are over give their places at a socket to whoever needs them."""
    pull, push = linked("pull", "push")

    def poll():
        with turn:            # more polls at once than there are places raise UsageError
            assert mq.poll([pull, push], 0.001) == []
        ready.wait()
        done.wait()

    turn, ready, done = threading.Lock(), threading.Barrier(25), threading.Event()
    threads = [threading.Thread(target=poll) for _ in range(24)]
    for thread in threads:
        thread.start()
    ready.wait()              # each thread keeps what it polled
    assert mq.poll([pull, push], 0.001) == []
    push.send(b"x")
    assert mq.poll([pull, push], 5) == [(pull, R)]
    done.set()
    for thread in threads:
        thread.join()


def test_several_threads_poll_the_same_list(linked):
    pull, push = linked("pull", "push")
    some = [pull, push]
    got = []

    def work():
        while True:
            mq.poll(some, 30)
            try:
                body = pull.recv(timeout=0)
            except mq.RecvTimeout:
                continue
            got.append(body)
            if body == b"end":
                return

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for n in range(300):
        push.send(b"%d" % n)
    for _ in threads:
        push.send(b"end")
    for thread in threads:
        thread.join()
    assert sorted(got) == sorted([b"%d" % n for n in range(300)] + [b"end"] * 4)


@pytest.fixture
def pair():
    with zmq.Context() as context:
        pull, push = context.socket(zmq.PULL), context.socket(zmq.PUSH)
        push.connect(f"tcp://127.0.0.1:{pull.bind_to_random_port('tcp://127.0.0.1')}")
        yield pull, push
        context.destroy(0)


def test_zmq_poller_follows_changes(pair):
    pull, push = pair
    a, b = socket.socketpair()
    with a, b:
        poller = zmq.Poller()
        poller.register(pull, zmq.POLLIN)
        poller.register(a, zmq.POLLIN)
        assert poller.poll(1) == poller.poll(1) == []
        push.send_multipart([b"1", b"2"])
        assert poller.poll(5000) == [(pull, zmq.POLLIN)]
        assert pull.recv() == b"1"
        assert poller.poll(0) == [(pull, zmq.POLLIN)]       # a part is left
        assert pull.recv() == b"2"
        assert poller.poll(0) == []
        b.send(b"x")
        assert poller.poll(5000) == [(a.fileno(), zmq.POLLIN)]
        poller.unregister(a)
        poller.register(push, zmq.POLLOUT)
        assert poller.poll(5000) == [(push, zmq.POLLOUT)]
        poller.modify(push, zmq.POLLIN)
        assert poller.poll(1) == []
        poller.sockets[1] = (push, zmq.POLLOUT)             # pyzmq's attribute is public
        assert poller.poll(5000) == [(push, zmq.POLLOUT)]
        poller.unregister(push)
        pull.close()
        with pytest.raises(zmq.ZMQError) as caught:
            poller.poll(5000)
        assert caught.value.errno == zmq.ENOTSOCK


def test_zmq_poll_of_a_list_with_a_socket_that_closes(pair):
    pull, push = pair
    some = [(pull, zmq.POLLIN), (push, zmq.POLLIN)]
    assert zmq.zmq_poll(some, 1) == zmq.zmq_poll(some, 1) == []
    push.send(b"x")
    assert zmq.zmq_poll(some, 5000) == [(pull, zmq.POLLIN)]
    assert zmq.select([pull], [push], [], 5) == ([pull], [push], [])
    pull.close()
    with pytest.raises(zmq.ZMQError):
        zmq.zmq_poll(some, 5000)


def test_an_option_that_opens_another_socket_inside(pair):
    _, push = pair
    with zmq.Context() as context:
        dealer, far = context.socket(zmq.DEALER), context.socket(zmq.DEALER)
        poller = zmq.Poller()
        poller.register(dealer, zmq.POLLIN)
        poller.register(far, zmq.POLLIN)
        assert poller.poll(1) == []
        dealer.setsockopt(zmq.ROUTING_ID, b"me")
        far.connect(f"tcp://127.0.0.1:{dealer.bind_to_random_port('tcp://127.0.0.1')}")
        assert poller.poll(1) == []
        far.send(b"x")
        assert poller.poll(5000) == [(dealer, zmq.POLLIN)]
        context.destroy(0)


RINGS_WHILE_LOOKED_AT = """
import mqcore as mq
from mqcore.binding.poll_set import PollSet

class Shown:
    def __init__(self, core, during):
        self._core, self._during = core, during
    def _now(self):         # asked by each poll, after the ring of this socket has been armed
        self._during()
        return 1

with mq.Context(linger=0) as context:
    both = [context.socket("pull", bind="inproc://" + name) for name in "ab"]
    polls = 0
    def change():
        if polls > 1:       # both rings were armed by the first poll
            for core in both:
                core._notify_changed()
    some = PollSet(kind=Shown)
    for index, core in enumerate(both):
        some.add(index, Shown(core, change), core, 1)
    assert some.claim()
    for polls in range(1, 20):
        assert len(some.poll(0)) == 2
    some.release()
    some.close()
"""


def test_sockets_that_change_while_they_are_looked_at():
    """A ring is on its bell's stack once, however often its socket changes within a poll: a second
    time made it its own successor, and the poll never ended. In a process of its own, since such a
    poll keeps the GIL."""
    subprocess.run([sys.executable, "-c", RINGS_WHILE_LOOKED_AT], check=True, timeout=60)
