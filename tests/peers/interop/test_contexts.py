"""Contexts of Req, requests sent again and given up, towards pyzmq's REP and pynng's Rep0, whose
contexts ask ours too."""

import asyncio
import threading
from contextlib import contextmanager

import pytest

import mqcore as mq
from mqcore.testing.traffic import laws

pynng = pytest.importorskip("pynng")

LIMIT = 60
CONTEXTS, EACH = 50, 20


@contextmanager
def working(fn, n=1):
    threads = [threading.Thread(target=fn) for _ in range(n)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join(LIMIT)


@pytest.fixture(params=["zmq", "nng"])
def provider(request, zsock, zurl):
    """provider(answers): the URL of a foreign REP; it echoes in a thread, or keeps silent."""
    held, stops = [], []

    def zmq_rep(answers):
        z = zsock("REP", bind="tcp://127.0.0.1:*")
        end = threading.Event()

        def work():
            while not end.is_set():
                if z.poll(20):
                    body = z.recv()
                    if answers:
                        z.send(b"re:" + body)
                    else:
                        end.wait(LIMIT)
        stops.append(end.set)
        thread = threading.Thread(target=work)
        held.append(thread)
        thread.start()
        return zurl(z)

    def nng_rep(answers):
        s = pynng.Rep0(listen="tcp://127.0.0.1:0", recv_timeout=LIMIT * 1000)
        port = s.listeners[0].local_address.port

        def work():
            try:
                while True:
                    with s.new_context() as context:
                        body = context.recv()
                        if answers:
                            context.send(b"re:" + body)
                        else:
                            end.wait(LIMIT)
            except pynng.Closed:
                pass
        end = threading.Event()
        stops.extend((s.close, end.set))
        thread = threading.Thread(target=work)
        held.append(thread)
        thread.start()
        return f"tcp://127.0.0.1:{int.from_bytes(port.to_bytes(2, 'little'), 'big')}"

    yield {"zmq": zmq_rep, "nng": nng_rep}[request.param]
    for stop in stops:
        stop()
    for thread in held:
        thread.join(LIMIT)


@pytest.fixture
def ask(request, ctx, provider):
    """ask(url, ...): a Req for that kind of provider."""
    wire = "sp" if "nng" in request.node.callspec.params["provider"] else "zmtp"

    def make(*urls, **options):
        req = ctx.socket("req", wire=wire, recv_timeout=LIMIT, reconnect=0.01, **options)
        for prio, url in enumerate(urls, 1):
            req.connect(url, prio=prio)
        req.wait_peers(len(urls), LIMIT)
        return req
    return make


def test_a_thousand_requests(ask, provider):
    req = ask(provider(True))

    async def one(i):
        async with req.new_context() as context:
            for k in range(EACH):
                question = b"%d.%d" % (i, k)
                assert await context.arequest(question) == b"re:" + question

    async def main():
        await asyncio.gather(*(one(i) for i in range(CONTEXTS)))

    asyncio.run(main())
    assert req.request(b"own") == b"re:own"
    stats = laws(req)
    assert (stats.received, stats.resent) == (CONTEXTS * EACH + 1, 0)


def test_a_silent_one_is_passed_over(ask, provider):
    req = ask(provider(False), provider(True), resend=0.05)
    with req.new_context() as context:
        assert context.request(b"a") == b"re:a"
        assert context.request(b"b") == req.request(b"b") == b"re:b"
    assert laws(req).resent >= 1


def test_given_up_requests_cost_nothing(ask, provider):
    req = ask(provider(True))
    contexts = [req.new_context() for _ in range(20)]
    for context in contexts:
        context.send(b"never mind")
    for i, context in enumerate(contexts):
        context.abandon() if i % 2 else context.send(b"%d" % i)
    for i, context in enumerate(contexts):
        if i % 2:
            with pytest.raises(mq.StateError):
                context.recv()
        else:
            assert context.recv() == b"re:%d" % i
    assert len(req.peers()) == 1 and req.stats().reconnects == 0
    laws(req)


def test_nngs_contexts_ask_ours(ctx):
    rep = ctx.socket("rep", bind="tcp://127.0.0.1:0")

    def work():
        with rep.new_context() as context:
            try:
                while True:
                    context.send(b"re:" + context.recv())
            except mq.SocketClosed:
                pass

    async def main():
        with pynng.Req0(dial=rep.endpoints[0].url, recv_timeout=LIMIT * 1000) as s:
            async def one(i):
                with s.new_context() as context:
                    for k in range(10):
                        await context.asend(b"%d.%d" % (i, k))
                        assert await context.arecv() == b"re:%d.%d" % (i, k)
            await asyncio.gather(*(one(i) for i in range(20)))

    with working(work, 3):
        asyncio.run(main())
        rep.close(0)
