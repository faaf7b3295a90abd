"""request() and arequest() by many callers of one Req: side by side, each for itself."""

import asyncio
import threading
from collections import Counter

import pytest

import mqcore as mq
from mqcore.api.exchanges import AT_ONCE
from mqcore.testing import until
from mqcore.testing.traffic import laws

LIMIT = 60


@pytest.fixture
def held(linked):
    """A Req, and a Rep whose requests the test answers when it likes."""
    rep, req = linked("rep", "req", recv_timeout=LIMIT)
    return rep, req


def all_of(rep, n):
    """n requests that are waiting at the same time, none of them answered yet."""
    return {bytes(m): m for m in [rep.recv_msg(timeout=LIMIT) for _ in range(n)]}


class Asked(threading.Thread):
    """A request in a thread of its own; `got` is its answer, or what it raised."""

    def __init__(self, req, body, **options):
        super().__init__()
        self.req, self.body, self.options = req, body, options
        self.got = None
        self.start()

    def run(self):
        try:
            self.got = self.req.request(self.body, **self.options)
        except Exception as error:
            self.got = error


def test_threads_are_answered_in_any_order(held):
    rep, req = held
    threads = [Asked(req, b"%d" % i) for i in range(16)]
    requests = all_of(rep, 16)
    for i in reversed(range(16)):
        requests[b"%d" % i].reply(b"re %d" % i)
        threads[i].join()
        assert threads[i].got == b"re %d" % i
        assert all(t.is_alive() for t in threads[:i])
    laws(req)


def test_tasks_are_answered_in_any_order(held, loop):
    rep, req = held
    done = []

    async def one(i):
        assert await req.arequest([b"%d" % i], timeout=LIMIT) == b"re %d" % i
        done.append(i)

    def answer():
        requests = all_of(rep, 50)
        for i in reversed(range(50)):
            requests[b"%d" % i].reply(b"re %d" % i)
            assert until(lambda i=i: i in done)

    async def main():
        await loop.both(*[lambda i=i: one(i) for i in range(50)])

    answering = threading.Thread(target=answer)
    answering.start()
    loop.run(main)
    answering.join()
    assert done == list(reversed(range(50)))
    laws(req)


def test_tasks_of_several_loops_and_threads_ask_at_once(held):
    """Whichever event loop reads an answer, it reaches the task or thread that made the request."""
    rep, req = held
    stop = threading.Event()

    def answer():
        while not stop.is_set():
            try:
                rep.recv_msg(timeout=0.05).reply(b"re")
            except mq.RecvTimeout:
                pass

    async def tasks():
        async def one():
            for _ in range(20):
                assert await req.arequest(b"task") == b"re"
        await asyncio.gather(*(one() for _ in range(20)))

    failed = []

    def guarded(fn):
        try:
            fn()
        except Exception as error:
            failed.append(error)

    def ask():
        for _ in range(20):
            assert req.request(b"thread") == b"re"

    answering = threading.Thread(target=answer)
    answering.start()
    works = [lambda: asyncio.run(tasks()), lambda: asyncio.run(tasks()), ask, ask]
    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    answering.join()
    assert not failed
    assert laws(req).received == 840


def test_a_time_out_is_one_calls_own(held):
    rep, req = held
    others = [Asked(req, b"%d" % i) for i in range(4)]
    requests = all_of(rep, 4)
    with pytest.raises(mq.RecvTimeout, match="no answer came within 0.05 s: the peer is connected"):
        req.request(b"late", timeout=0.05)
    requests |= all_of(rep, 1)
    for body in (b"late", b"0", b"1", b"2", b"3"):
        requests[body].reply(b"re " + body)
    for thread in others:
        thread.join()
        assert thread.got == b"re " + thread.body
    assert len(req.peers()) == 1 and req.stats().reconnects == 0
    laws(req)


def test_the_first_is_given_up_without_harm_to_those_beside_it(held, loop):
    """It has no number, and giving up such a request alone would end its link."""
    rep, req = held
    requests = {}

    async def main():
        async def beside():
            while b"first" not in requests:
                await loop.sleep(0.001)
                requests.update({bytes(m): m for m in take_now()})
            got.extend(await loop.both(*[lambda i=i: req.arequest(b"%d" % i) for i in range(3)]))

        async def answer():
            while len(requests) < 4:
                await loop.sleep(0.001)
                requests.update({bytes(m): m for m in take_now()})
            here.append(True)
            while not gone:
                await loop.sleep(0.001)
            for body, request in requests.items():
                request.reply(b"re " + body)

        async def first():
            await loop.until_then_cut(lambda: bool(here), lambda: req.arequest(b"first"))
            gone.append(True)

        await loop.both(first, beside, answer)

    def take_now():
        try:
            while True:
                yield rep.recv_msg(timeout=0)
        except mq.RecvTimeout:
            pass

    got, here, gone = [], [], []
    loop.run(main)
    assert got == [b"re 0", b"re 1", b"re 2"]
    assert len(req.peers()) == 1 and req.stats().reconnects == 0
    laws(req)


def ten_that_wait_raise(error, rep, req, loop, end):
    """end() runs on a thread when ten requests have reached the replier."""
    async def one():
        with pytest.raises(error):
            await req.arequest(b"?")

    def finish():
        all_of(rep, 10)
        end()

    async def main():
        await loop.both(*[one] * 10)

    finishing = threading.Thread(target=finish)
    finishing.start()
    loop.run(main)
    finishing.join()


def test_the_peers_end_reaches_all_that_wait(ctx, loop):
    rep = ctx.socket("rep", bind="tcp://127.0.0.1:0")
    req = ctx.socket("req", connect=rep.endpoints[0].url, recv_timeout=LIMIT)
    req.wait_peers(1, LIMIT)
    ten_that_wait_raise(mq.PeerGone, rep, req, loop, lambda: rep.close(0))


def test_closing_ends_all_calls(held, loop):
    rep, req = held
    ten_that_wait_raise(mq.SocketClosed, rep, req, loop, lambda: req.close(0))


def test_no_more_than_a_bound_are_under_way_and_the_rest_come_in_order(held):
    rep, req = held
    n = AT_ONCE + 40
    served = []

    def answer():
        waiting = [rep.recv_msg(timeout=LIMIT) for _ in range(AT_ONCE)]
        with pytest.raises(mq.RecvTimeout):
            rep.recv_msg(timeout=0.05)
        for _ in range(40):                      # each end lets one more in, the first in line
            waiting.pop(0).reply(b"re")
            waiting.append(rep.recv_msg(timeout=LIMIT))
            served.append(int(bytes(waiting[-1])))
        for request in waiting:
            request.reply(b"re")

    async def main():
        assert await asyncio.gather(*(req.arequest(b"%d" % i) for i in range(n))) == [b"re"] * n

    answering = threading.Thread(target=answer)
    answering.start()
    asyncio.run(main())
    answering.join()
    assert served == list(range(AT_ONCE, n))
    laws(req)


def test_requests_without_numbers_run_one_after_another(ctx, url):
    rep = ctx.socket("rep", bind=url)
    req = ctx.socket("req", connect=rep.endpoints[0], correlate=False, recv_timeout=LIMIT)
    threads = [Asked(req, b"%d" % i) for i in range(3)]
    bodies = Counter()
    for _ in range(3):
        request = rep.recv_msg(timeout=LIMIT)
        with pytest.raises(mq.RecvTimeout):
            rep.recv_msg(timeout=0.02)
        bodies[bytes(request)] += 1
        request.reply(b"re")
    for thread in threads:
        thread.join()
        assert thread.got == b"re"
    assert set(bodies.values()) == {1} and len(bodies) == 3
    late = Asked(req, b"slow")
    rep.recv_msg(timeout=LIMIT)
    with pytest.raises(mq.RecvTimeout, match="another request was under way within 0.05 s.*corr"):
        req.request(b"next", timeout=0.05)
    req.close(0)
    late.join()
    assert isinstance(late.got, mq.SocketClosed)
