"""Two queues over a slow link, a third as fail-over by priority.

    client -- near queue == slow link == far queue -- worker      prio 1
           \\- third queue -- worker                               prio 2

What the client sees is that every question is answered, once and with its own answer. What is lost
on the way is asked again: by the test where the socket does not do so itself, by the socket where
it is told to (`resend`).
"""

import contextlib
import threading

import pytest

import mqcore as mq
from mqcore.testing import SlowLink, until

DELAY = 0.01


class Worker:
    """A rep that says who answered."""

    def __init__(self, ctx, name, beside):
        self.name, self.done = name, []
        self.rep = ctx.socket("rep", bind="tcp://127.0.0.1:0")
        self.url = self.rep.endpoints[0].url
        beside(self.run)

    def run(self):
        with contextlib.suppress(mq.SocketClosed):
            while True:
                message = self.rep.recv_msg(timeout=None)
                self.done.append(int(bytes(message.parts[0])))
                message.reply(bytes(message.parts[0]) + b" " + self.name)


class Queue:
    """A router and a dealer with a device between, which can be ended and begun anew."""

    def __init__(self, ctx, back):
        self.ctx, self.back, self.url = ctx, back, "tcp://127.0.0.1:0"
        self.begin()

    def begin(self):
        router = self.ctx.socket("router", bind=self.url, mandatory=False)
        self.url = router.endpoints[0].url
        dealer = self.ctx.socket("dealer", connect=self.back, reconnect=0.02, reconnect_max=0.02)
        self.device = mq.device(router, dealer)

    def end(self):
        self.device.stop(linger=0)


class Client:
    """Asks one question after another; those that die with a queue again."""

    def __init__(self, ctx, urls, **options):
        self.req = ctx.socket("req", reconnect=0.02, reconnect_max=0.02, **options)
        self.events = self.req.events()
        for prio, url in enumerate(urls, 1):
            self.req.connect(url, prio=prio)
        self.req.wait_peers(len(urls), 10)
        self.asked = self.again = 0

    def ask(self):
        """Who answered the next question."""
        self.asked += 1
        while True:
            try:
                answer = self.req.request(b"%d" % self.asked, timeout=20)
            except mq.PeerGone:
                self.again += 1
                continue
            number, _, name = answer.partition(b" ")
            assert int(number) == self.asked
            return name

    def ask_until(self, name):
        """Who answered, up to and with the first one of this name."""
        found = []
        until(lambda: found.append(self.ask()) or found[-1] == name)
        return found


@pytest.fixture
def market(ctx, beside):
    """(client's URLs, workers, near queue, slow link)"""
    far_worker, third_worker = Worker(ctx, b"far", beside), Worker(ctx, b"third", beside)
    far, third = Queue(ctx, far_worker.url), Queue(ctx, third_worker.url)
    with SlowLink(far.url, delay=DELAY, rate=1e6) as link:
        near = Queue(ctx, link.url)
        until(lambda: link.connections == 1)
        yield (near.url, third.url), (far_worker, third_worker), near, link
        for queue in (near, far, third):
            queue.end()
    for worker in (far_worker, third_worker):
        worker.rep.close(0)


def test_the_near_queue_dies_and_comes_back(ctx, market):
    urls, workers, near, _ = market
    client = Client(ctx, urls)
    assert [client.ask() for _ in range(5)] == [b"far"] * 5
    near.end()
    assert [client.ask() for _ in range(20)] == [b"third"] * 20
    near.begin()
    assert client.ask_until(b"far")[-1] == b"far"
    assert [client.ask() for _ in range(5)] == [b"far"] * 5
    done = sorted(n for worker in workers for n in worker.done)
    assert set(done) == set(range(1, client.asked + 1))    # none is lost for good
    assert len(done) - client.asked <= client.again        # twice only what was asked again


@pytest.mark.parametrize("wire", ["zmtp", "sp"])
def test_under_load_the_socket_asks_again_itself(ctx, market, beside, wire):
    """The near queue dies, the link stalls: each time the third queue takes over, and hands back
    when the others are there again. No call of the client ever fails."""
    urls, (far, third), near, link = market
    client = Client(ctx, [f"{url}?wire={wire}" for url in urls], resend=0.1)
    enough, names = threading.Event(), []

    def ask():
        while not enough.is_set():
            names.append(client.ask())

    def answers(worker):
        """Wait for five more of its answers at the client, one after the other."""
        at = len(names)
        until(lambda: names[at:][-5:] == [worker.name] * 5)

    beside(ask)
    try:
        answers(far)
        near.end()
        answers(third)
        near.begin()
        answers(far)
        link.stall()
        answers(third)
        link.go()
        answers(far)
    finally:
        enough.set()
    until(lambda: len(names) == client.asked)
    assert client.again == 0
    assert set(far.done) | set(third.done) == set(range(1, client.asked + 1))
    kinds = []
    with contextlib.suppress(mq.Timeout):
        while True:
            kinds.append(client.events.get(0).kind)
    assert {"FailedOver", "FailedBack"} <= set(kinds)
