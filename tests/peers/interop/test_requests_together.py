"""Requests of one Req that are under way at once, towards pyzmq's ROUTER and DEALER workers behind
it, and pynng's Rep0."""

import asyncio
import threading

import pynng
import pytest
import zmq

from mqcore.testing.traffic import laws

LIMIT = 60
AT_ONCE = 30


@pytest.fixture(params=["threads", "tasks"])
def ask_all(request):
    """ask_all(req, bodies): all answers, in order; asked at once."""
    def tasks(req, bodies):
        async def main():
            return await asyncio.gather(*(req.arequest(body) for body in bodies))
        return asyncio.run(main())

    def threads(req, bodies):
        got = [None] * len(bodies)

        def one(i):
            got[i] = req.request(bodies[i])
        running = [threading.Thread(target=one, args=(i,)) for i in range(len(bodies))]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        return got
    return {"tasks": tasks, "threads": threads}[request.param]


BODIES = [b"%d" % i for i in range(AT_ONCE)]
ANSWERS = [b"re " + body for body in BODIES]


def test_a_router_of_libzmq_holds_them_all_and_answers_backwards(ctx, zsock, zurl, ask_all):
    z = zsock("ROUTER", bind="tcp://127.0.0.1:*")
    req = ctx.socket("req", connect=zurl(z), recv_timeout=LIMIT)

    def serve():
        for message in reversed([z.recv_multipart() for _ in BODIES]):
            z.send_multipart([*message[:-1], b"re " + message[-1]])

    serving = threading.Thread(target=serve)
    serving.start()
    assert ask_all(req, BODIES) == ANSWERS
    serving.join()
    laws(req)


def test_workers_behind_a_broker_of_libzmq_share_them(ctx, zctx, zsock, zurl, ask_all):
    """ROUTER and DEALER with three REPs: each gets an envelope of two parts and gives it back."""
    front, back = zsock("ROUTER", bind="tcp://127.0.0.1:*"), zsock("DEALER",
                                                                  bind="tcp://127.0.0.1:*")
    req = ctx.socket("req", connect=zurl(front), recv_timeout=LIMIT)
    stop = threading.Event()

    def broker():
        poller = zmq.Poller()
        poller.register(front, zmq.POLLIN)
        poller.register(back, zmq.POLLIN)
        while not stop.is_set():
            for one, _ in poller.poll(20):
                (back if one is front else front).send_multipart(one.recv_multipart())

    def work(z):
        while not stop.is_set():
            if z.poll(20):
                z.send(b"re " + z.recv())

    workers = [zsock("REP", connect=zurl(back)) for _ in range(3)]
    threads = [threading.Thread(target=broker),
               *(threading.Thread(target=work, args=(z,)) for z in workers)]
    for thread in threads:
        thread.start()
    try:
        assert ask_all(req, BODIES) == ANSWERS
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    laws(req)


def test_contexts_of_nng_hold_them_all_and_answer_backwards(ctx, ask_all):
    with pynng.Rep0(listen="tcp://127.0.0.1:0", recv_timeout=LIMIT * 1000) as s:
        port = int.from_bytes(s.listeners[0].local_address.port.to_bytes(2, "little"), "big")
        req = ctx.socket("req", connect=f"tcp://127.0.0.1:{port}", wire="sp", recv_timeout=LIMIT)

        def serve():
            held = []
            for _ in BODIES:
                context = s.new_context()
                held.append((context, context.recv()))
            for context, body in reversed(held):
                context.send(b"re " + body)
                context.close()

        serving = threading.Thread(target=serve)
        serving.start()
        assert ask_all(req, BODIES) == ANSWERS
        serving.join()
    laws(req)


def test_a_lone_request_has_no_number_and_those_beside_it_have(ctx, zsock, zurl):
    z = zsock("ROUTER", bind="tcp://127.0.0.1:*")
    req = ctx.socket("req", connect=zurl(z), recv_timeout=LIMIT)

    async def main():
        return await asyncio.gather(req.arequest(b"first"), req.arequest(b"second"))

    def serve(n):
        messages = [z.recv_multipart() for _ in range(n)]
        for message in messages:
            z.send_multipart([*message[:-1], b"re " + message[-1]])
        shapes.append(sorted((message[-1], len(message)) for message in messages))

    shapes = []
    for n, ask in ((1, lambda: req.request(b"first")), (2, lambda: asyncio.run(main())),
                   (1, lambda: req.request(b"first"))):
        serving = threading.Thread(target=serve, args=(n,))
        serving.start()
        ask()
        serving.join()
    assert shapes == [[(b"first", 3)], [(b"first", 3), (b"second", 4)], [(b"first", 3)]]


def test_a_late_answer_without_a_number_is_nobodys(ctx, zsock, zurl):
    """The lone request is given up while others are under way: its link stays, for their sake."""
    z = zsock("ROUTER", bind="tcp://127.0.0.1:*")
    req = ctx.socket("req", connect=zurl(z), recv_timeout=LIMIT)
    req.wait_peers(1, LIMIT)                     # so that the first goes out while it is alone
    both_here, gone = threading.Event(), threading.Event()
    lengths = []

    def serve():
        first, beside = z.recv_multipart(), z.recv_multipart()
        both_here.set()
        gone.wait(LIMIT)
        z.send_multipart([*first[:-1], b"late"])
        z.send_multipart([*beside[:-1], b"re beside"])
        after = z.recv_multipart()
        z.send_multipart([*first[:-1], b"late"])
        z.send_multipart([*after[:-1], b"re after"])
        lengths.extend(map(len, (first, beside, after)))

    async def main():
        first = asyncio.ensure_future(req.arequest(b"first"))
        await asyncio.sleep(0)
        beside = asyncio.ensure_future(req.arequest(b"beside"))
        while not both_here.is_set():
            await asyncio.sleep(0.001)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        gone.set()
        assert await beside == b"re beside"
        assert await req.arequest(b"after") == b"re after"

    serving = threading.Thread(target=serve)
    serving.start()
    asyncio.run(main())
    serving.join()
    assert lengths == [3, 4, 4]                  # numbered from now on: "late" answers none of them
    assert req.stats().reconnects == 0
    laws(req)
    [peer] = req.stats().peers.values()
    assert peer.dropped_in == {"late_answer": 2}
