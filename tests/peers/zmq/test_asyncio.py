"""zmq.asyncio of both modules: futures, their order, cancellation, time-outs, pollers."""

import asyncio
import contextlib
import importlib

import pytest

import mqcore.zmq as ours
from mqcore.zmq import asyncio as face

SHORT = 20  # ms


@pytest.fixture
def run(z):
    """run(program): program(zmq, context) in a loop of its own; the context ends with it."""
    face = importlib.import_module(f"{z.__name__}.asyncio")

    def runs(program):
        async def body():
            context = face.Context()
            try:
                return await asyncio.wait_for(program(z, context), 20)
            finally:
                context.destroy(0)

        return asyncio.run(body())

    return runs


@contextlib.contextmanager
def joined(z, context, first, second, url="inproc://a"):
    with context.socket(getattr(z, first)) as a, context.socket(getattr(z, second)) as b:
        a.bind(url)
        b.connect(a.last_endpoint.decode())
        yield a, b


def test_messages(run):
    async def program(z, context):
        with joined(z, context, "PAIR", "PAIR", "tcp://127.0.0.1:*") as (a, b):
            waiting = b.recv_multipart()
            assert isinstance(waiting, asyncio.Future) and not waiting.done()
            await a.send_multipart([b"a", b"b"])
            assert await waiting == [b"a", b"b"]
            await a.send(b"x", z.SNDMORE)
            await a.send(b"y")
            assert (await b.recv(), await b.recv()) == (b"x", b"y")
            await a.send_json({"a": 1})
            assert await b.recv_json() == {"a": 1}
            await a.send_string("ü")
            assert await b.recv_string() == "ü"
            await a.send_pyobj((1, 2))
            assert await b.recv_pyobj() == (1, 2)
            await a.send_serialized(5, lambda n: [b"%d" % n])
            assert await b.recv_serialized(lambda parts: int(parts[0])) == 5
            await a.send(b"frame", copy=False)
            assert (await b.recv(copy=False)).bytes == b"frame"
            a.send(b"nobody awaits this")
            assert await b.recv() == b"nobody awaits this"

    run(program)


def test_order_and_cancellation(run):
    async def program(z, context):
        with joined(z, context, "PUSH", "PULL") as (a, b):
            waiting = [b.recv() for _ in range(4)]
            await asyncio.sleep(0)
            waiting[1].cancel()
            for i in range(3):
                await a.send(b"%d" % i)
            assert [await waiting[at] for at in (0, 2, 3)] == [b"0", b"1", b"2"]
            lost = b.recv()
            lost.cancel()
            with pytest.raises(asyncio.CancelledError):
                await lost
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(b.recv(), SHORT / 1000)
            await a.send(b"kept")
            assert await b.recv() == b"kept"

    run(program)


def test_two_that_wait_for_one_socket():
    """Each as a socket of its own; and what another loop left waiting takes nothing."""
    async def leave(pull):
        pull.recv()
        await asyncio.sleep(0)

    async def take(first, second, push):
        waiting = [first.recv(), second.recv(), first.recv()]
        await asyncio.sleep(0)
        for i in range(3):
            await push.send(b"%d" % i)
        assert sorted(await asyncio.gather(*waiting)) == [b"0", b"1", b"2"]

    context = face.Context()
    with context.socket(ours.PULL) as pull, context.socket(ours.PUSH) as push:
        pull.bind("tcp://127.0.0.1:*")
        push.connect(pull.last_endpoint.decode())
        asyncio.run(leave(pull))
        for _ in range(2):
            asyncio.run(take(pull, face.Socket.shadow(pull), push))
    context.term()


def test_a_socket_that_is_opened_anew(run):
    """The routing id is told first, so a socket that has it set is another one below."""
    async def program(z, context):
        with context.socket(z.DEALER) as dealer, context.socket(z.ROUTER) as router:
            router.bind("inproc://anew")
            waiting = dealer.recv()
            await asyncio.sleep(0)
            dealer.routing_id = b"me"
            dealer.connect("inproc://anew")
            await dealer.send(b"hello")
            await router.send_multipart([*(await router.recv_multipart())[:1], b"answer"])
            assert await waiting == b"answer"

    run(program)


def test_limits(run):
    async def program(z, context):
        with context.socket(z.PULL) as pull, context.socket(z.PUSH) as push:
            pull.rcvtimeo = push.sndtimeo = SHORT
            port = pull.bind_to_random_port("tcp://127.0.0.1")
            with pytest.raises(z.Again):
                await pull.recv()
            with pytest.raises(z.Again):
                await push.send(b"nobody")
            with pytest.raises(z.Again):
                await pull.recv(z.NOBLOCK)
            push.sndtimeo = -1
            if z is ours:       # pyzmq's future wakes up with the socket's next call only
                waits = push.send(b"sent when somebody comes")
                await asyncio.sleep(0)
                assert not waits.done()
            push.connect(f"tcp://127.0.0.1:{port}")
            await (waits if z is ours else push.send(b"sent when somebody comes"))
            pull.rcvtimeo = 5000
            assert await pull.recv() == b"sent when somebody comes"
            if z is ours:       # pyzmq's waits for ever
                with pytest.raises(z.ZMQError) as caught:
                    await push.recv()
                assert caught.value.errno == z.ENOTSUP

    run(program)


def test_polling(run):
    async def program(z, context):
        from_name = importlib.import_module(f"{z.__name__}.asyncio")
        with joined(z, context, "PAIR", "PAIR") as (a, b):
            assert await b.poll(SHORT) == 0
            poller = from_name.Poller()
            poller.register(a, z.POLLIN)
            poller.register(b, z.POLLIN)
            assert await poller.poll(SHORT) == []
            later = poller.poll()
            await a.send(b"x")
            assert await later == [(b, z.POLLIN)]
            assert await b.poll(1000, z.POLLIN | z.POLLOUT) == z.POLLIN | z.POLLOUT
            assert (b.poll(0).result(), a.poll(0).result()) == (z.POLLIN, 0)
            waiting = a.poll(20_000)
            a.close()
            with pytest.raises(asyncio.CancelledError):
                await waiting

    run(program)


def test_tasks_ask_at_once(run):
    async def program(z, context):
        with context.socket(z.ROUTER) as router:
            port = router.bind_to_random_port("tcp://127.0.0.1")

            async def serve():
                while True:
                    who, *_, body = await router.recv_multipart()
                    await router.send_multipart([who, b"", body * 2])

            async def ask(number):
                with context.socket(z.REQ) as req:
                    req.connect(f"tcp://127.0.0.1:{port}")
                    for turn in range(5):
                        await req.send(b"%d.%d;" % (number, turn))
                        assert await req.recv() == b"%d.%d;" % (number, turn) * 2

            server = asyncio.ensure_future(serve())
            await asyncio.gather(*map(ask, range(8)))
            server.cancel()
            with pytest.raises(asyncio.CancelledError):
                await server

    run(program)


def test_shadows_and_closing(run):
    async def program(z, context):
        sync = z.Context.shadow(context.underlying)
        with sync.socket(z.PULL) as pull, context.socket(z.PUSH) as push:
            pull.bind("inproc://shadow")
            push.connect("inproc://shadow")
            other = importlib.import_module(
                f"{z.__name__}.asyncio").Socket.shadow(pull.underlying)
            waiting = other.recv()
            await push.send(b"x")
            assert await waiting == b"x"
            left = context.socket(z.PULL)
            left.bind("inproc://left")
            waiting = left.recv()
            left.close(0)
            with pytest.raises(asyncio.CancelledError):
                await waiting

    run(program)


def test_monitor(run):
    async def program(z, context):
        recv = importlib.import_module(f"{z.__name__}.utils.monitor").recv_monitor_message
        with context.socket(z.PULL) as pull, pull.get_monitor_socket() as monitor:
            pull.bind("tcp://127.0.0.1:*")
            assert (await recv(monitor))["event"] == z.EVENT_LISTENING
            pull.disable_monitor()

    run(program)
