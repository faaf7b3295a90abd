"""Several I/O threads share the connections of one socket."""

import itertools
import threading

import pytest
from waiting import until

import mqcore as mq


@pytest.fixture
def pull():
    with mq.Context(io_threads=4, linger=0) as context:
        yield context.socket("pull", bind="tcp://127.0.0.1:*")


@pytest.fixture
def connected():
    """n more PUSH sockets to an address, in a context of their own."""
    made = []
    with mq.Context() as context:
        def more(pull, n):
            made.extend(context.socket("push", connect=pull.endpoints[0].url) for _ in range(n))
            return made[-n:]
        yield more


def test_connections_are_spread_evenly(pull, connected):
    pushes = connected(pull, 8)
    pull.wait_peers(8, timeout=20)
    assert pull._loads() == [2, 2, 2, 2]
    for push in pushes[:3]:
        push.close()
    until(lambda: sum(pull._loads()) == 5)
    connected(pull, 3)
    pull.wait_peers(8, timeout=20)
    assert pull._loads() == [2, 2, 2, 2]


def test_everything_arrives_in_order(pull, connected):
    """From peers on all threads, to one that receives by itself and one that follows."""
    pushes = connected(pull, 8)
    n = 2000
    got = [[], []]

    def pour(me):
        for number in range(n):
            pushes[me].send(b"%d %d" % (me, number))

    def take(mine):
        while True:
            data = pull.recv(timeout=20)
            if not data:
                return
            mine.append(tuple(map(int, data.split())))

    senders = [threading.Thread(target=pour, args=(me,)) for me in range(8)]
    takers = [threading.Thread(target=take, args=(mine,)) for mine in got]
    for thread in (*senders, *takers):
        thread.start()
    for thread in senders:
        thread.join()
    until(lambda: pull.stats().received == 8 * n, 20)
    for _ in takers:
        pushes[0].send(b"")
    for thread in takers:
        thread.join()
    assert sorted(got[0] + got[1]) == [(me, k) for me in range(8) for k in range(n)]
    for mine in got:
        for me in range(8):
            numbers = [k for who, k in mine if who == me]
            assert numbers == sorted(numbers)


def test_a_blocked_receive_leads_on_all_threads(pull, connected):
    """One message at a time, each from a peer of another thread. On a busy machine an I/O thread
    may be faster than the last receive, so it goes on until none was."""
    pushes = connected(pull, 8)
    pull.wait_peers(8, timeout=20)
    rounds = itertools.count()

    def take_turns():
        round_ = next(rounds)
        for me, push in enumerate(pushes):
            push.send(b"%d %d" % (me, round_))
            assert pull.recv(timeout=20) == b"%d %d" % (me, round_)
        return round_ >= 50 and pull._watched_by() == "callers"

    until(take_turns)


def test_it_closes_under_load(pull, connected):
    pushes = connected(pull, 8)
    stop = threading.Event()

    def pour(push):
        while not stop.is_set():
            try:
                push.send(b"x" * 100, timeout=0.1)
            except mq.SendTimeout:
                pass
    threads = [threading.Thread(target=pour, args=(push,)) for push in pushes]
    for thread in threads:
        thread.start()
    assert len(pull.recv(timeout=20)) == 100
    pull.close()
    stop.set()
    for thread in threads:
        thread.join()
    assert pull.closed
