"""Each public call that moves messages or waits for them, beside a close(), a fork, a kill or an
exit. Nothing hangs or crashes, nothing is left behind, and the accounts stay exact."""

import asyncio
import os
import random
import signal
import time
import traceback

import pytest
from crew import AtWork, ends_well, in_a_fork, program

import mqcore as mq

ROUNDS = int(os.environ.get("MQCORE_END_ROUNDS", "6"))
PAIRS = [("push", "pull"), ("pub", "sub"), ("req", "rep"), ("dealer", "router"), ("pair", "pair"),
         ("xpub", "xsub"), ("radio", "dish"), ("surveyor", "respondent"), ("bus", "bus")]
WAIT = 0.002


def urls_of(left):
    if left in ("bus", "surveyor"):
        return ["tcp://127.0.0.1:0", "ipc://*", "inproc://d"]
    return ["tcp://127.0.0.1:0", "ipc://*", "inproc://d", "shm://*", "ws://127.0.0.1:0"]


class Crew(AtWork):
    """Two linked sockets of one context and one poller, and every data-plane call on them."""

    def __init__(self, context, seed, urls=None):
        self.rng = rng = random.Random(seed)
        names = rng.choice(PAIRS) if urls is None else ("dealer", "dealer")
        options = {"linger": 0, "reconnect": 0.01}
        self.socks = [context.socket(name, **options) for name in names]
        if urls is None:
            self.url = self.socks[1].bind(rng.choice(urls_of(names[0]))).url
        else:
            self.url = rng.choice(urls)
            self.socks[1].connect(self.url)
        self.socks[0].connect(self.url)
        for sock in self.socks:
            if sock.pattern == "sub":
                sock.subscribe(b"")
            if hasattr(sock, "join"):
                sock.join("g")
        self.poller = mq.Poller()
        self.calls = [getattr(self, name) for name in dir(self) if name.startswith("do_")]

    def any(self):
        return self.rng.choice(self.socks)

    def body(self):
        return bytes(self.rng.choice((0, 5, 60, 500, 20_000, 300_000)))

    def group(self, sock):
        return {"group": "g"} if sock.pattern == "radio" else {}

    def do_send(self):
        sock = self.any()
        for _ in range(self.rng.choice((1, 1, 40))):
            sock.send(self.body(), timeout=WAIT, **self.group(sock))

    def do_send_parts(self):
        self.any().send_parts([b"g", self.body()], timeout=WAIT)

    def do_send_many(self):
        sock = self.any()
        sock.send_many([b"x"] * self.rng.choice((1, 700)), timeout=WAIT, **self.group(sock))

    def do_send_batch(self):
        sock = self.any()
        sock.send_batch(b"abcdefgh", [0, 2, 2, 8], timeout=WAIT, **self.group(sock))

    def do_send_ref(self):
        sock = self.any()
        sock.send_ref(bytearray(self.body()), timeout=WAIT, **self.group(sock))

    def do_request(self):
        sock = self.any()
        if hasattr(sock, "request"):
            sock.request(b"question", timeout=WAIT)

    def do_recv(self):
        self.any().recv(timeout=WAIT)

    def do_recv_parts(self):
        self.any().recv_parts(timeout=WAIT)

    def do_recv_msg(self):
        message = self.any().recv_msg(timeout=WAIT)
        message.reply(b"answer", timeout=WAIT)

    def do_recv_into(self):
        self.any().recv_into(bytearray(100), timeout=WAIT)

    def do_recv_many(self):
        self.any().recv_many(self.rng.choice((1, 50)), timeout=WAIT)

    def do_recv_batch(self):
        self.any().recv_batch(timeout=WAIT)

    def do_poll(self):
        mq.poll([(sock, mq.Ready.READ | mq.Ready.WRITE) for sock in self.socks], WAIT)

    def do_poller(self):
        self.poller.register(self.any(), self.rng.choice(list(mq.Ready)))

    def do_poller_poll(self):
        self.poller.poll(self.rng.choice((0, WAIT)))

    def do_poller_unregister(self):
        self.poller.unregister(self.any())

    def do_own_poller(self):
        with mq.Poller() as poller:
            poller.register(self.any())
            poller.poll(WAIT)

    def do_subscribe(self):
        sock = self.any()
        if hasattr(sock, "subscribe"):
            sock.subscribe(b"x")
            sock.unsubscribe(b"x")

    def do_fileno(self):
        self.any().fileno()

    def do_look(self):
        sock = self.any()
        check(sock)
        sock.wait_peers(1, WAIT)

    def do_iterate(self):
        sock = self.any()
        sock.recv_timeout = WAIT
        for _ in sock.messages():
            break

    def do_loop(self):
        sock = self.any()
        poller = self.poller

        async def main():
            calls = [sock.arecv(timeout=WAIT), sock.arecv_msg(timeout=WAIT),
                     sock.arecv_batch(timeout=WAIT), sock.asend(b"g", timeout=WAIT),
                     sock.asend_many([b"a", b"b"], timeout=WAIT), poller.apoll(WAIT),
                     mq.apoll([sock], WAIT), sock.await_peers(1, WAIT)]
            await asyncio.gather(*self.rng.sample(calls, len(calls)), return_exceptions=True)
        asyncio.run(main())

    def work(self, until, failed):
        while not until.is_set():
            self.once(self.rng.choice(self.calls), failed)

    def once(self, call, failed):
        try:
            call()
        except (mq.Error, TimeoutError, KeyError):
            pass
        except TypeError as error:       # a pattern without this call, or this argument
            if "keyword" not in str(error) and "argument" not in str(error):
                failed.append(error)
        except BaseException as error:
            traceback.print_exc()
            failed.append(error)


crew_of = Crew


def check(sock):
    """The laws at this moment, from one snapshot."""
    stats = sock.stats()
    for peer, p in stats.peers.items():
        numbers = (p.offered, p.written, p.queued_out, p.read, p.delivered, p.queued_in)
        assert min(numbers) >= 0, (peer, p)
    if sock.pattern in ("push", "dealer", "pair"):
        offered = sum(p.offered for p in stats.peers.values())
        assert stats.sent == offered + stats.waiting + sum(stats.dropped.values()), stats


@pytest.mark.filterwarnings("ignore::mqcore.errors.BlockingCallWarning")
@pytest.mark.parametrize("end", ["sockets", "context", "peer"])
def test_every_call_beside_a_close(rng, end):
    for _ in range(ROUNDS):
        with mq.Context() as context:
            crew = Crew(context, rng.random())
            with crew.at_work(4):
                time.sleep(rng.random() * 0.1)
                if end == "context":
                    context.close()
                elif end == "sockets":
                    for sock in rng.sample(crew.socks, 2):
                        sock.close()
                else:
                    crew.socks[0].close(0)
                    time.sleep(0.02)
                    crew.socks[1].close(0)
            crew.poller.close()


def in_the_child(crew):
    """Every call on the parent's sockets and poller returns, and new ones work."""
    signal.alarm(20)
    failed = []
    for call in crew.calls:
        crew.once(call, failed)
    crew.poller.close()
    for sock in crew.socks:
        sock.close()
    assert not failed, failed
    with mq.Context() as own, own.socket("pull") as pull, mq.Poller() as poller:
        push = own.socket("push", connect=pull.bind("tcp://127.0.0.1:0").url)
        poller.register(pull)
        push.send(b"x")
        assert poller.poll(10) == [(pull, mq.Ready.READ)] and pull.recv() == b"x"
        push.close()


@pytest.mark.filterwarnings("ignore::mqcore.errors.BlockingCallWarning")
def test_every_call_in_a_forked_child_returns(rng):
    """Threads of the parent may hold any lock at the moment of the fork."""
    for _ in range(ROUNDS):
        with mq.Context() as context:
            crew = Crew(context, rng.random())
            with crew.at_work(2):
                time.sleep(rng.random() * 0.05)
                in_a_fork(lambda crew=crew: in_the_child(crew))
            crew.poller.close()


@pytest.mark.filterwarnings("ignore::mqcore.errors.BlockingCallWarning")
def test_every_call_beside_peers_that_are_killed(rng):
    with mq.Context() as context:
        crew = Crew(context, rng.random())
        extra = context.socket("router", linger=0)
        urls = [extra.bind(url).url for url in ("tcp://127.0.0.1:0", "ipc://*", "shm://*")]
        crew.socks.append(extra)
        with crew.at_work(2):
            for _ in range(3):
                child = program(__file__, rng.random(), urls, "time.sleep(60)")
                try:
                    assert child.stdout.readline() == "ready\n"
                    time.sleep(rng.random() * 0.2)
                finally:
                    child.kill()
                    child.communicate()
        crew.poller.close()
        context.close(0)


@pytest.mark.parametrize("then", ["time.sleep(0.05)", "context.close()",
                                  "time.sleep(0.05); raise SystemExit(0)"])
def test_every_call_beside_the_end_of_the_program(rng, then):
    ends_well(program(__file__, rng.random(), None, then))
