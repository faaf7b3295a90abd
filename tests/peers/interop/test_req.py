"""REQ towards pyzmq REP and ROUTER: answers that come late, twice, never, after a reconnect, from a
stranger; with and without correlate. After each of them a new request gets its own answer.

What a server sees: without correlate an abandoned request costs the link, so the next one comes
over a new connection; with correlate the link stays.
"""

import asyncio
import threading

import pytest
from child import Child
from rawzmtp import RawListener, message
from waiting import until

import mqcore as mq

LIMIT = 60
FAST = {"reconnect": 0.01, "reconnect_max": 0.05}

both = pytest.mark.parametrize("correlate", [False, True], ids=["plain", "correlate"])


@pytest.fixture
def ask(ctx):
    def make(url, **options):
        return ctx.socket("req", connect=url, **{**FAST, "recv_timeout": LIMIT,
                                                 "send_timeout": LIMIT, **options})
    return make


@pytest.fixture
def router(zsock, zurl):
    z = zsock("ROUTER", bind="tcp://127.0.0.1:*")
    return z, zurl(z)


def take(z):
    """(envelope, body) of the next request at a pyzmq ROUTER."""
    parts = z.recv_multipart()
    return parts[:-1], parts[-1]


def next_one_works(s, z):
    """A request that is answered at once, with its own answer."""
    got = []
    t = threading.Thread(target=lambda: got.append(s.request(b"next")))
    t.start()
    envelope, body = take(z)
    while body != b"next":
        envelope, body = take(z)
    z.send_multipart([*envelope, b"answer to next"])
    t.join()
    assert got == [b"answer to next"]


def timed_out(s):
    s.send(b"first")
    with pytest.raises(mq.RecvTimeout):
        s.recv(timeout=0.05)
    s._abandon()


def request_timed_out(s):
    with pytest.raises(mq.RecvTimeout):
        s.request(b"first", timeout=0.1)


def cancelled(s):
    async def main():
        task = asyncio.ensure_future(s.arequest(b"first"))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    asyncio.run(main())


def superseded(s):
    s.send(b"first")
    s.send(b"second")
    with pytest.raises(mq.RecvTimeout):
        s.recv(timeout=0.02)


WAYS = [request_timed_out, cancelled, superseded]
ways = pytest.mark.parametrize("give_up", WAYS)


@both
@ways
@pytest.mark.parametrize("when", ["before", "between", "never"])
def test_a_late_answer_of_a_router(ask, router, correlate, give_up, when):
    """It comes before the next request, between it and its answer, or never."""
    z, url = router
    s = ask(url, correlate=correlate)
    s.wait_peers(1, LIMIT)
    z.poll(0)
    give_up(s)
    envelope, body = take(z)
    assert body == b"first" and len(envelope) == (3 if correlate else 2)
    if when == "before":
        z.send_multipart([*envelope, b"late"])
    got = []
    t = threading.Thread(target=lambda: got.append(s.request(b"next")))
    t.start()
    new, body = take(z)
    while body != b"next":
        new, body = take(z)
    if when == "between":
        z.send_multipart([*envelope, b"late"])
    z.send_multipart([*new, b"answer"])
    t.join()
    assert got == [b"answer"]
    assert (new[0] == envelope[0]) == correlate   # the same link or another
    next_one_works(s, z)


@both
def test_answers_that_come_twice(ask, router, correlate):
    z, url = router
    s = ask(url, correlate=correlate)
    for n in range(20):
        s.send(b"%d" % n)
        envelope, body = take(z)
        assert body == b"%d" % n
        for _ in range(3):
            z.send_multipart([*envelope, b"re %d" % n])
        assert s.recv() == b"re %d" % n
        if not correlate:
            # without ids only the time can tell: what has come before the next request is dropped
            until(lambda n=n: next(iter(s.stats().peers.values())).read == 3 * (n + 1))
    next_one_works(s, z)
    assert sum(p.dropped_in.get("late_answer", 0) for p in s.stats().peers.values()) >= 38


@both
def test_a_rep_that_answers_late(ask, zsock, zurl, correlate):
    """A REP answers the old request first: it has no choice. Ours takes only the new answer."""
    z = zsock("REP", bind="tcp://127.0.0.1:*")
    s = ask(zurl(z), correlate=correlate)
    for n in range(5):
        with pytest.raises(mq.RecvTimeout):
            s.request(b"old %d" % n, timeout=0.05)
        got = []
        t = threading.Thread(target=lambda n=n, got=got: got.append(s.request(b"new %d" % n)))
        t.start()
        body = b""
        while body != b"new %d" % n:
            body = z.recv()
            z.send(b"re " + body)
        t.join()
        assert got == [b"re new %d" % n]


@both
def test_the_server_is_killed_with_the_request(ask, tmp_path, correlate):
    url = f"ipc://{tmp_path}/s"
    with Child("zmq", "REP", bind=url) as child:
        s = ask(url, correlate=correlate)
        s.send(b"first")
        assert child.recv() == [b"first"]
        child.kill()
        with pytest.raises(mq.PeerGone):
            s.recv()
    with Child("zmq", "REP", bind=url) as child:
        child.start("echo", n=2)
        assert s.request(b"again") == b"again"
        assert s.request([b"and", b"again"]) == b"andagain"


@both
def test_the_server_is_killed_with_an_abandoned_request(ask, tmp_path, correlate):
    url = f"ipc://{tmp_path}/s"
    s = ask(url, correlate=correlate)
    with Child("zmq", "REP", bind=url) as child:
        s.send(b"first")
        assert child.recv() == [b"first"]   # a request that is given up earlier may not be sent
        with pytest.raises(mq.RecvTimeout):
            s.recv(timeout=0.05)
        s._abandon()
    with Child("zmq", "REP", bind=url) as child:
        child.start("echo", n=1)
        assert s.request(b"again") == b"again"


@both
def test_a_request_before_the_server_is_there(ask, tmp_path, correlate):
    url = f"ipc://{tmp_path}/s"
    s = ask(url, correlate=correlate)
    with pytest.raises(mq.RecvTimeout):
        s.request(b"first", timeout=0.05)
    with pytest.raises(mq.StateError):
        s.recv()
    s.send(b"second")
    s.send(b"third")
    with Child("zmq", "REP", bind=url) as child:
        assert child.recv() == [b"third"]       # the others were given up before anybody took them
        child.send(b"re third")
        assert s.recv() == b"re third"
        assert child.recv(0.05) is None
    assert s.stats().dropped == {"cancelled": 2}


@both
def test_two_servers_of_which_one_never_answers(ask, zsock, zurl, ctx, correlate):
    deaf = zsock("ROUTER", bind="tcp://127.0.0.1:*")
    with Child("zmq", "REP", bind="tcp://127.0.0.1:*") as child:
        child.start("echo", n=None)
        s = ask(zurl(deaf), correlate=correlate)
        s.connect(child.url)
        s.wait_peers(2, LIMIT)
        answers = n = 0
        while answers < 8:      # on a busy machine the one that answers may be late as well
            n += 1
            try:
                assert s.request(b"%d" % n, timeout=0.1) == b"%d" % n
                answers += 1
            except mq.RecvTimeout:
                pass


@both
def test_a_routing_id_survives_the_new_link(ask, router, correlate):
    """libzmq's ROUTER needs handover for that: without it a second link with the same id stays deaf
    if it comes before the ROUTER has noticed the end of the first."""
    z, url = router
    z.router_handover = 1
    s = ask(url, routing_id=b"me", correlate=correlate)
    stop = threading.Event()

    def server():
        while not stop.is_set():
            if z.poll(5):
                envelope, body = take(z)
                assert envelope[0] == b"me"
                if body != b"old":
                    z.send_multipart([*envelope, b"re " + body])

    serving = threading.Thread(target=server)
    serving.start()
    try:
        for n in range(3):
            with pytest.raises(mq.RecvTimeout):
                s.request(b"old", timeout=0.05)
            assert s.request(b"%d" % n) == b"re %d" % n
    finally:
        stop.set()
        serving.join()


@both
def test_answers_that_are_none(ask, correlate):
    """Without the envelope, with another id, empty: each is a counted drop, the true one is
    taken."""
    with RawListener() as listener:
        s = ask(listener.url, correlate=correlate)
        with listener.accept() as peer:
            peer.shake("ROUTER")
            s.send(b"question")
            parts = peer.parts()
            assert parts[-2:] == [b"", b"question"] and len(parts) == 2 + correlate
            envelope = parts[:-1]
            wrong = [[b"no envelope"], [b"five.", b"", b"x"], [b""], [b"", b""][:1],
                     [b"1234", b"not empty", b"x"]]
            if correlate:
                wrong += [[bytes(4) if envelope[0] != bytes(4) else b"abcd", b"", b"x"], [b"",
                                                                                          b"x"]]
            for w in wrong:
                peer.say(message(*w))
            peer.say(message(*envelope, b"true"))
            assert s.recv() == b"true"
            [stats] = s.stats().peers.values()
            assert sum(stats.dropped_in.values()) == len(wrong)


@both
def test_many_threads_ask_one_socket(ask, tmp_path, correlate):
    url = f"ipc://{tmp_path}/s"
    wrong = []

    def client(s, k):
        for n in range(30):
            body = b"%d.%d" % (k, n)
            try:
                if s.request(body) != body:
                    wrong.append(body)
            except Exception as error:
                wrong.append(error)

    with Child("zmq", "REP", bind=url) as child:
        child.start("echo", n=None)
        s = ask(url, correlate=correlate)
        threads = [threading.Thread(target=client, args=(s, k)) for k in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not wrong
        assert s.stats().received == 240


@both
def test_many_threads_some_of_which_give_up(ask, router, correlate, rng):
    """Every answer that comes is the asker's own."""
    z, url = router
    s = ask(url, correlate=correlate)
    wrong = []
    stop = threading.Event()
    slow = rng.random

    def server():
        held = None
        while not stop.is_set():
            if not z.poll(20):
                continue
            envelope, body = take(z)
            what = slow()
            if held and what < 0.5:
                z.send_multipart(held)      # late
                held = None
            if what < 0.3:
                held = [*envelope, b"re " + body]
                continue
            z.send_multipart([*envelope, b"re " + body])

    def client(k):
        for n in range(10):
            body = b"%d.%d" % (k, n)
            try:
                answer = s.request(body, timeout=0.05 if n % 2 else 0.1)
                if answer != b"re " + body:
                    wrong.append((body, answer))
            except mq.RecvTimeout:
                pass
            except mq.PeerGone as error:
                wrong.append((body, error))

    threads = [threading.Thread(target=client, args=(k,)) for k in range(4)]
    serving = threading.Thread(target=server)
    serving.start()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    stop.set()
    serving.join()
    assert not wrong
    next_one_works(s, z)


def test_strict(ask, router):
    z, url = router
    s = ask(url, strict=True)
    s.send(b"1")
    with pytest.raises(mq.StateError):
        s.send(b"2")
    envelope, _ = take(z)
    z.send_multipart([*envelope, b"re 1"])
    assert s.recv() == b"re 1"
    next_one_works(s, z)


@both
def test_no_state_from_which_no_call_helps(ask, router, correlate, rng):
    """Random calls, some wrong; then one request is answered."""
    z, url = router
    s = ask(url, correlate=correlate)
    s.wait_peers(1, LIMIT)
    z.poll(0)

    def send():
        s.send(b"send", timeout=0.2)

    def recv():
        s.recv(timeout=rng.choice([0, 0.005]))

    def request():
        s.request(b"request", timeout=rng.choice([0, 0.005]))

    def arequest():
        async def main():
            await asyncio.wait_for(s.arequest(b"arequest"), 0.005)
        asyncio.run(main())

    def answer():
        if z.poll(5):
            envelope, body = take(z)
            for _ in range(rng.choice([0, 1, 1, 2])):
                z.send_multipart([*envelope, b"re " + body])

    for _ in range(10):
        for _ in range(rng.randrange(12)):
            try:
                rng.choice([send, recv, request, arequest, answer])()
            except (mq.Timeout, mq.StateError, mq.PeerGone, TimeoutError):
                pass
        next_one_works(s, z)
