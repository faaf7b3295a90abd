"""A message that finds nothing in front of it never waits for a tick: both ticks are an hour here.

One tick writes what a batching sender left, the other looks whether callers still read for
themselves. Whatever arrives in these tests arrived without either.
"""

import asyncio
import os
import threading
import time

import pytest
from certificates import Authority

import mqcore as mq
import mqcore.nng as nng
import mqcore.zmq as zmq
import mqcore.zmq.asyncio
from mqcore.testing.keeper import Keeper

HOUR = 3600.0
LIMIT = 30.0
ROUNDS = 100
R = mq.Ready.READ


def without_ticks(context):
    """Before its first socket."""
    context._hub.lead_tick = context._hub.flush_tick = HOUR
    return context


@pytest.fixture
def ctx():
    context = without_ticks(Keeper(linger=0, recv_timeout=LIMIT, send_timeout=LIMIT))
    yield context
    context._hub.plane.tick_now()
    context.finish()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(params=["tcp", "ipc", "shm", "ws", "tls+tcp"])
def link(request, ctx):
    """Two sockets of these patterns, connected through each of the transports."""
    url = {"ipc": "ipc://*", "shm": "shm://*"}.get(request.param, f"{request.param}://127.0.0.1:*")
    ends = {}, {}
    if request.param.startswith("tls"):
        ca = request.getfixturevalue("certificates")
        ends = ca.server, ca.ca
    return lambda server, client: linked(ctx, server, client, url, *ends)


def linked(ctx, server, client, url="tcp://127.0.0.1:*", at=(), to=()):
    near, far = ctx.socket(server), ctx.socket(client)
    far.connect(near.bind(url, **dict(at)).url, **dict(to))
    near.wait_peers(1, LIMIT)
    far.wait_peers(1, LIMIT)
    return near, far


class Threads:
    """Echoes that end with the test."""

    def __init__(self):
        self.all = []

    def start(self, run, *args):
        def until_closed():
            try:
                while True:
                    run(*args)
            except mq.SocketClosed:
                pass

        self.all.append(threading.Thread(target=until_closed))
        self.all[-1].start()


@pytest.fixture
def threads(ctx):
    some = Threads()
    yield some
    ctx._hub.plane.tick_now()      # a socket that batches ends with a tick
    for socket in ctx.kept:
        socket.close()
    for thread in some.all:
        thread.join()


def forward(pull, push):
    push.send(pull.recv(timeout=None))


def rounds(push, pull, recv=None):
    for n in range(ROUNDS):
        push.send(b"%d" % n)
        assert (recv or pull.recv)() == b"%d" % n


def test_one_way_out_another_way_back(link, threads):
    pull, push = link("pull", "push")
    back, out = link("pull", "push")
    threads.start(forward, pull, out)
    rounds(push, back)


@pytest.fixture
def one_core():
    """This process and the threads that it starts meanwhile."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)


def test_an_exchange_never_batches(one_core, ctx, threads):
    """On one core the answers come within microseconds. Still each send is all there is to send."""
    pull, push = linked(ctx, "pull", "push")
    back, out = linked(ctx, "pull", "push")
    threads.start(forward, pull, out)
    for _ in range(100):
        rounds(push, back)
        assert (push._accounts()["batching"], out._accounts()["batching"]) == (0, 0)


def test_a_chain_of_three(ctx, threads):
    ends = [linked(ctx, "pull", "push") for _ in range(3)]
    for (pull, _), (_, push) in zip(ends, ends[1:], strict=False):
        threads.start(forward, pull, push)
    rounds(ends[0][1], ends[2][0])


def test_several_sockets_of_a_thread(ctx, threads):
    """One thread receives on each of four in turn, and sends on another four."""
    there = [linked(ctx, "pull", "push") for _ in range(4)]
    back = [linked(ctx, "pull", "push") for _ in range(4)]

    def turn():
        for (pull, _), (_, push) in zip(there, back, strict=True):
            forward(pull, push)

    threads.start(turn)
    for _ in range(ROUNDS // 4):
        for (_, push), (pull, _) in zip(there, back, strict=True):
            push.send(b"x")
            assert pull.recv() == b"x"


def wait_once(sockets):
    return lambda: mq.poll(sockets, LIMIT)


def wait_with_poller(sockets):
    poller = mq.Poller()
    for socket in sockets:
        poller.register(socket)
    return lambda: poller.poll(LIMIT)


@pytest.mark.parametrize("many", [1, 2, 30])
@pytest.mark.parametrize("waiter", [wait_once, wait_with_poller])
def test_poll_loops(ctx, threads, waiter, many):
    pull, push = linked(ctx, "pull", "push")
    back, out = linked(ctx, "pull", "push")
    idle = [linked(ctx, "pull", "push") for _ in range(many - 1)]
    threads.start(forward, pull, out)
    wait = waiter([*(end for end, _ in idle), back])

    def recv():
        assert wait() == [(back, R)]
        return back.recv(timeout=0)

    rounds(push, back, recv)
    for end, far in idle:     # whoever was led meanwhile
        far.send(b"late")
        assert wait() == [(end, R)]
        assert end.recv(timeout=0) == b"late"
    rounds(push, back, recv)


def test_polls_between_receives(ctx, threads):
    """Receives leave the reading to callers; a poll or a poller that was there before finds what
    comes all the same."""
    pull, push = linked(ctx, "pull", "push")
    back, out = linked(ctx, "pull", "push")
    other, far = linked(ctx, "pull", "push")
    threads.start(forward, pull, out)
    waits = [wait_with_poller([other, back]), wait_once([back]), wait_once([other, back])]
    for _ in range(3):
        for wait in waits:
            rounds(push, back)
            push.send(b"polled")
            assert wait() == [(back, R)]
            assert back.recv(timeout=0) == b"polled"
        for wait in (waits[0], waits[2]):
            far.send(b"y")
            assert wait() == [(other, R)]
            assert other.recv(timeout=0) == b"y"


def again_and_again(look):
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        found = look()
        if found:
            return found
    raise AssertionError("it never came")


def test_receives_that_do_not_wait(ctx, threads):
    """After receives that waited, a loop that only looks finds what comes."""
    pull, push = linked(ctx, "pull", "push")
    back, out = linked(ctx, "pull", "push")
    threads.start(forward, pull, out)

    def recv():
        try:
            return back.recv(timeout=0)
        except mq.RecvTimeout:
            return None

    for look in (recv, lambda: mq.poll([back], 0) and back.recv(timeout=0),
                 lambda: mq.poll([push, back], 0) and back.recv(timeout=0)):
        rounds(push, back)
        push.send(b"looked for")
        assert again_and_again(look) == b"looked for"


def test_asyncio_with_many_sockets(ctx, threads):
    there = [linked(ctx, "pull", "push") for _ in range(20)]
    back = [linked(ctx, "pull", "push") for _ in range(20)]

    async def echo(pull, push):
        for _ in range(10):
            await push.asend(await pull.arecv())

    async def ask(push, pull):
        for n in range(10):
            await push.asend(b"%d" % n)
            assert await pull.arecv() == b"%d" % n

    async def main():
        async with asyncio.timeout(LIMIT):
            await asyncio.gather(
                *(echo(pull, push) for (pull, _), (_, push) in zip(there, back, strict=True)),
                *(ask(push, pull) for (_, push), (pull, _) in zip(there, back, strict=True)))

    asyncio.run(main())


@pytest.mark.parametrize("many", [1, 30])
def test_apoll(ctx, threads, many):
    pull, push = linked(ctx, "pull", "push")
    back, out = linked(ctx, "pull", "push")
    threads.start(forward, pull, out)
    some = [*(ctx.socket("pull", bind="tcp://127.0.0.1:*") for _ in range(many - 1)), back]

    async def main():
        with mq.Poller() as poller:
            for socket in some:
                poller.register(socket)
            for wait in (lambda: mq.apoll(some, LIMIT), lambda: poller.apoll(LIMIT)):
                for n in range(20):
                    await push.asend(b"%d" % n)
                    assert await wait() == [(back, R)]
                    assert back.recv(timeout=0) == b"%d" % n

    asyncio.run(main())


def test_a_sender_that_sleeps_or_computes_elsewhere(ctx):
    """A single message has left when send() returns, whatever the sender does then."""
    pull, push = linked(ctx, "pull", "push")
    got = []
    receiver = threading.Thread(target=lambda: got.extend(pull.recv() for _ in range(20)))
    receiver.start()
    for n in range(10):
        push.send(b"%d" % n)
        time.sleep(0.001)
    for n in range(10, 20):
        push.send(b"%d" % n)
        sum(range(10_000))
    end = time.monotonic() + LIMIT
    while receiver.is_alive() and time.monotonic() < end:
        sum(range(1000))       # no call of the library
    receiver.join(0)
    assert got == [b"%d" % n for n in range(20)]


def test_a_publisher_and_ten_subscribers(ctx):
    pub = ctx.socket("pub")
    url = pub.bind("tcp://127.0.0.1:*").url
    subs = [ctx.socket("sub", connect=url, topics=[b""]) for _ in range(10)]
    pub.wait_peers(10, LIMIT)
    while not all(mq.poll([sub], 0) for sub in subs):
        pub.send(b"there")
    for sub in subs:
        while mq.poll([sub], 0.05):
            assert sub.recv() == b"there"
    for n in range(ROUNDS):
        pub.send(b"%d" % n)
        assert [sub.recv() for sub in subs] == [b"%d" % n] * 10


def test_a_router_and_dealers(ctx, threads):
    router = ctx.socket("router")
    url = router.bind("tcp://127.0.0.1:*").url
    dealers = [ctx.socket("dealer", connect=url) for _ in range(3)]

    def answer():
        router.send_parts(router.recv_parts(timeout=None))

    threads.start(answer)
    for _ in range(ROUNDS // 3):
        for dealer in dealers:
            rounds_of_one(dealer)


def rounds_of_one(dealer):
    dealer.send(b"x")
    assert dealer.recv() == b"x"


def burst(push):
    """Until the socket batches, and with messages that nobody has written then."""
    n = 0
    end = time.monotonic() + LIMIT
    while not push._accounts()["batching"]:
        push.send(b"%d" % n)
        n += 1
        assert time.monotonic() < end, "it never batched"
    for _ in range(50):
        push.send(b"%d" % n)
        n += 1
    return n


@pytest.mark.parametrize("wait", [
    lambda back: back.recv(timeout=LIMIT),
    lambda back: mq.poll([back], LIMIT),
    lambda back: mq.poll([back, back], LIMIT),
    lambda back: wait_with_poller([back])(),
    lambda back: back.recv_batch(timeout=LIMIT),
    lambda back: asyncio.run(back.arecv(timeout=LIMIT)),
    lambda back: asyncio.run(mq.apoll([back], LIMIT)),
    lambda back: asyncio.run(mq.apoll([back] * 10, LIMIT)),
])
def test_what_a_thread_owes_is_written_before_it_sleeps(ctx, threads, wait):
    pull, push = linked(ctx, "pull", "push", "tcp://127.0.0.1:*")
    back, out = linked(ctx, "pull", "push")
    left = []

    def count():
        body = pull.recv(timeout=None)
        left.append(body)
        if body == b"%d" % (last - 1):
            out.send(b"all")

    last = burst(push)        # the rest is with us, not with the kernel
    threads.start(count)
    assert wait(back)
    assert left[-1] == b"%d" % (last - 1) and len(left) == last


def test_a_poller_that_finds_nothing_to_look_at_writes_what_is_owed(ctx, threads):
    pull, push = linked(ctx, "pull", "push")
    back, out = linked(ctx, "pull", "push")
    poller = mq.Poller()
    poller.register(back)
    for _ in range(3):        # armed: the next poll looks at nothing
        assert poller.poll(0.001) == []
    last = burst(push)

    def count():
        if pull.recv(timeout=None) == b"%d" % (last - 1):
            out.send(b"all")

    threads.start(count)
    assert poller.poll(LIMIT) == [(back, R)]


@pytest.mark.parametrize("poll", [None, 1, 20])
def test_through_mqcore_zmq(poll):
    context = zmq.Context()
    without_ticks(context._home.context())
    there, push, back, out = (context.socket(kind) for kind in (zmq.PULL, zmq.PUSH) * 2)
    idle = [context.socket(zmq.PULL) for _ in range((poll or 1) - 1)]
    for one, other in ((there, push), (back, out)):
        other.connect(f"tcp://127.0.0.1:{one.bind_to_random_port('tcp://127.0.0.1')}")
    for socket in (there, back):
        socket.rcvtimeo = int(1000 * LIMIT)
    for socket in idle:
        socket.bind_to_random_port("tcp://127.0.0.1")

    def echo():
        for _ in range(ROUNDS):
            out.send(there.recv())

    thread = threading.Thread(target=echo)
    thread.start()
    poller = zmq.Poller()
    for socket in (*idle, back):
        poller.register(socket, zmq.POLLIN)
    for n in range(ROUNDS):
        push.send(b"%d" % n)
        if poll:
            assert poller.poll(1000 * LIMIT) == [(back, zmq.POLLIN)]
        assert back.recv(zmq.NOBLOCK if poll else 0) == b"%d" % n
    thread.join()
    context.destroy(0)


def test_through_mqcore_zmq_asyncio():
    context = zmq.asyncio.Context()
    without_ticks(context._home.context())

    async def main():
        there, push, back, out = (context.socket(kind) for kind in (zmq.PULL, zmq.PUSH) * 2)
        for one, other in ((there, push), (back, out)):
            other.connect(f"tcp://127.0.0.1:{one.bind_to_random_port('tcp://127.0.0.1')}")
        idle = [context.socket(zmq.PULL) for _ in range(20)]
        for socket in idle:
            socket.bind_to_random_port("tcp://127.0.0.1")

        async def echo():
            for _ in range(40):
                await out.send(await there.recv())

        poller = zmq.asyncio.Poller()
        for socket in (*idle, back):
            poller.register(socket, zmq.POLLIN)
        async with asyncio.timeout(LIMIT):
            task = asyncio.ensure_future(echo())
            for n in range(40):
                await push.send(b"%d" % n)
                if n % 2:
                    assert await poller.poll(1000 * LIMIT) == [(back, zmq.POLLIN)]
                assert await back.recv() == b"%d" % n
            await task

    asyncio.run(main())
    context.destroy(0)


def test_through_mqcore_nng():
    with mq.Context.default() as context:
        without_ticks(context)
        with (nng.Pull0(listen="tcp://127.0.0.1:0", recv_timeout=30000) as there,
              nng.Pull0(listen="tcp://127.0.0.1:0", recv_timeout=30000) as back,
              nng.Push0() as push, nng.Push0() as out):
            push.dial(str(there.listeners[0].url), block=True)
            out.dial(str(back.listeners[0].url), block=True)
            thread = threading.Thread(
                target=lambda: [out.send(there.recv()) for _ in range(ROUNDS)])
            thread.start()
            for n in range(ROUNDS):
                push.send(b"%d" % n)
                assert back.recv() == b"%d" % n
            thread.join()
