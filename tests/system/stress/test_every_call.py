"""Eight threads make every public call on sockets, contexts, pollers and journals that they share,
while others close these: no crash, no hang, no error but mqcore's own, and the accounts are exact.

It says most on a Python without the GIL (`make test-free-threaded`), where the threads really run
side by side. MQCORE_ROUNDS: rounds of each kind.
"""

import asyncio
import contextlib
import os
import random
import threading
import time

import numpy
import pytest
from interleave import one_round

import mqcore as mq
from mqcore import journal
from mqcore.devices.mover import DeviceCore

ROUNDS = int(os.environ.get("MQCORE_ROUNDS", "3"))
THREADS, MOST = 8, 60
SHORT = 0.004  # seconds, of every wait
PATTERNS = [("push", "pull"), ("pub", "sub"), ("req", "rep"), ("dealer", "router"),
            ("pair", "pair"), ("surveyor", "respondent"), ("bus", "bus"), ("radio", "dish"),
            ("client", "server"), ("pair1", "pair1"), ("xpub", "xsub")]
TRANSPORTS = ["inproc://every-call", "tcp://127.0.0.1:0", "ipc://*"]
SMALL, MIDDLE, LARGE = b"x" * 20, b"y" * 3000, b"z" * 300_000


class Sockets:
    """Two joined sockets of one context, a poller, and what threads leave for each other."""

    def __init__(self, left, right, where):
        self.context = mq.Context(linger=0, send_timeout=SHORT, recv_timeout=SHORT, reconnect=0.01)
        self.a, self.b = self.context.socket(left), self.context.socket(right)
        self.where = self.a.bind(where).url
        self.b.connect(self.where)
        for sock in (self.a, self.b):
            if isinstance(sock, mq.Sub):
                sock.subscribe(b"")
            if isinstance(sock, mq.Dish):
                sock.join("")
        self.poller = mq.Poller()
        self.messages = []

    def any(self):
        return self.a if random.random() < 0.5 else self.b

    def body(self):
        return random.choice((SMALL, SMALL, MIDDLE, LARGE))


def asynchronously(call):
    def run(things):
        async def main():
            await call(things)
        asyncio.run(main())
    return run


async def at_once(things):
    sock = things.any()
    await asyncio.gather(*(sock.arecv() for _ in range(3)), sock.asend(SMALL),
                         return_exceptions=True)


def take(things):
    things.messages.append(things.any().recv_msg())
    del things.messages[:-8]


def look_at(message):
    return message.peer, message.body, bytes(message), len(message), message.topic, repr(message)


def reply(things):
    for message in list(things.messages):
        look_at(message)
        message.reply(SMALL, timeout=SHORT)


def pinned(things):
    sent = things.any().send_ref(bytearray(things.body()))
    with contextlib.suppress(mq.WaitTimeout):
        sent.wait_done(SHORT)


def batch(things):
    data = numpy.zeros(1000, numpy.uint8)
    things.any().send_batch(data, numpy.arange(0, 1001, 100))


def in_context(things):
    for sock in (things.a, things.b):
        if not hasattr(sock, "context"):
            continue
        with sock.new_context() as line:
            if hasattr(line, "subscribe"):
                line.subscribe(b"x")
                line.topics
            elif hasattr(line, "request"):
                line.request(SMALL, timeout=SHORT)
            line.recv(timeout=SHORT)


def ask(things):
    for sock in (things.a, things.b):
        if hasattr(sock, "request"):
            sock.request(SMALL, timeout=SHORT)
        if hasattr(sock, "survey"):
            list(sock.survey(SMALL, deadline=SHORT))


def subscribe(things):
    for sock in (things.a, things.b):
        if isinstance(sock, (mq.Sub, mq.Dish)):
            on, off = (sock.subscribe, sock.unsubscribe) if isinstance(sock, mq.Sub) else (
                sock.join, sock.leave)
            on("topic")
            sock.topics if isinstance(sock, mq.Sub) else sock.groups
            off("topic")


def with_poller(things):
    sock = things.any()
    with contextlib.suppress(KeyError):
        random.choice((things.poller.register, things.poller.unregister))(sock)
    things.poller.poll(SHORT)


def iterate(things):
    for _, message in zip(range(2), things.any().messages(), strict=False):
        look_at(message)


def device(things):
    """It owns a socket for a moment: calls of others fail meanwhile. (A whole device closes it.)"""
    with things.context.socket("push", bind="inproc://device") as back:
        moving = DeviceCore(things.a, back)
        thread = threading.Thread(target=moving.run)
        thread.start()
        moving.counters()
        moving.stop()
        thread.join()
        moving.finish(0)
        moving.release()


SOCKET_CALLS = {
    "send": lambda t: t.any().send(t.body()),
    "send parts": lambda t: t.any().send_parts([SMALL, t.body()]),
    "send to": lambda t: t.any().send_to(t.any().peers()[0], SMALL),
    "send many": lambda t: t.any().send_many([SMALL, MIDDLE] * 10),
    "send batch": batch,
    "send by reference": pinned,
    "recv": lambda t: t.any().recv(),
    "recv parts": lambda t: t.any().recv_parts(),
    "recv a message": take,
    "recv into little": lambda t: t.any().recv_into(bytearray(4)),
    "recv into much": lambda t: t.any().recv_into(bytearray(400_000)),
    "recv many": lambda t: t.any().recv_many(50),
    "recv a batch": lambda t: t.any().recv_batch(50).to_list(),
    "reply": reply,
    "iterate": iterate,
    "contexts": in_context,
    "ask": ask,
    "subscribe": subscribe,
    "asend and arecv": asynchronously(at_once),
    "arecv a message": asynchronously(lambda t: t.any().arecv_msg()),
    "apoll": asynchronously(lambda t: mq.apoll([t.a, (t.b, mq.Ready.WRITE)], SHORT)),
    "poll": lambda t: mq.poll([t.a, t.b], SHORT),
    "poller": with_poller,
    "fileno": lambda t: mq.poll([t.any().fileno()], SHORT),
    "options": lambda t: (setattr(t.a, "send_hwm", random.randrange(1, 50)), t.b.send_hwm,
                          setattr(t.b, "recv_timeout", SHORT)),
    "look": lambda t: (t.a.stats(), t.b.peers(), t.a.explain(), repr(t.b), t.a.endpoints,
                       t.context.sockets),
    "events": lambda t: t.any().events(backlog=3).close(),
    "connect": lambda t: t.b.connect(t.where).close(),
    "wait for peers": lambda t: t.any().wait_peers(1, SHORT),
    "device": device,
}


def close_everything(things):
    time.sleep(random.choice((0, 0.02, 0.1)))
    calls = [things.a.close, things.b.close, things.context.close]
    random.shuffle(calls)
    for call in calls:
        call()
        time.sleep(random.choice((0, 0.001)))
    while not things.poller.closed:
        try:
            things.poller.close()
        except mq.UsageError:  # a thread is inside, for a moment
            time.sleep(0.001)


def assert_exact(sock):
    """Nothing is under way any more, so nothing may be missing."""
    accounts = sock._accounts()
    for facts in (accounts["total"], *(facts for _, facts in accounts["ended"])):
        assert facts["offered"] == facts["written"] + sum(facts["out_dropped"])
        assert facts["read"] == facts["delivered"] + sum(facts["in_dropped"])


# a socket of another pattern than the call is for; a device that was just stopped
ALLOWED = (mq.Error, AttributeError, IndexError, TimeoutError)


@pytest.mark.filterwarnings("ignore::ResourceWarning",
                            "ignore::mqcore.errors.BlockingCallWarning")
@pytest.mark.parametrize("pair", PATTERNS, ids="-".join)
def test_every_call_of_sockets_and_their_end(pair, seed):
    made = []

    def make():
        made.append(Sockets(*pair, random.choice(TRANSPORTS)))
        return made[-1]
    for each in range(seed, seed + ROUNDS):
        one_round(make, SOCKET_CALLS, close_everything, ALLOWED, each, THREADS, MOST)
        things = made.pop()
        things.messages.clear()
        for sock in (things.a, things.b):
            assert_exact(sock)


# -- journals --------------------------------------------------------------------------------------


class Journal:
    """A writer that threads share; each reads with readers of its own, and the open one follows."""

    def __init__(self, folder):
        self.folder = folder
        self.writer = journal.open(folder, "a", fsync="interval", fsync_interval=0.001,
                                   segment_bytes=1 << 16, block_bytes=1 << 12)
        self.kept = []

    def read(self):
        return journal.open(self.folder)


def append(things):
    text = random.choice((SMALL, MIDDLE))
    things.kept.append((things.writer.append(text, key=b"k", headers=[("n", b"v")]), text))


def read_all(things):
    with things.read() as reader:
        for records in reader.batches(reader.first, max_bytes=1 << 16):
            records.to_list()
            records.key(0), records.headers(0)


JOURNAL_CALLS = {
    "append": append,
    "append many": lambda t: t.writer.append_many([SMALL] * 20),
    "append a batch": lambda t: t.writer.append_batch(
        numpy.zeros(1000, numpy.uint8), numpy.arange(0, 1001, 100)),
    "commit": lambda t: t.writer.commit(),
    "flush": lambda t: t.writer.flush(),
    "rotate": lambda t: t.writer.rotate(),
    "retain": lambda t: t.writer.retain(),
    "look": lambda t: (t.writer.next, t.writer.durable, t.writer.error, repr(t.writer)),
    "read": read_all,
}


def end_of_journal(things):
    time.sleep(random.choice((0, 0.005, 0.02)))
    things.writer.close()


def test_every_call_of_a_writer_and_its_end(tmp_path, seed):
    made = []
    for each in range(seed, seed + ROUNDS):
        one_round(lambda: made.append(Journal(tmp_path / str(len(made)))) or made[-1],
                  JOURNAL_CALLS, end_of_journal, (mq.Error,), each, THREADS, MOST)
        things = made[-1]
        with things.read() as reader:
            for offset, text in things.kept:
                assert reader.read(offset)[0] == text
