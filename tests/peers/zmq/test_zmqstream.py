"""ZMQStream of both modules in tornado's loop."""

import asyncio
import importlib
import logging
import select
import threading

import pytest

import mqcore.zmq as ours

pytest.importorskip("tornado")
LIMIT = 60  # seconds that anything may take


async def until_true(condition):
    end = asyncio.get_running_loop().time() + LIMIT
    while not condition():
        assert asyncio.get_running_loop().time() < end
        await asyncio.sleep(0.001)


class Pair:
    """Two streams over a pair of sockets; `a` listens."""

    def __init__(self, z, part, context, kinds, url, options):
        self.z = z
        self.Stream = part("eventloop.zmqstream").ZMQStream
        self.sockets = [context.socket(getattr(z, kind)) for kind in kinds]
        for socket in self.sockets:
            socket.linger = 0
            for name, value in options.items():
                if name != "router_mandatory" or socket.type == z.ROUTER:
                    setattr(socket, name, value)
        self.a, self.b = map(self.Stream, self.sockets)
        self.sockets[0].bind(url)
        self.sockets[1].connect(self.sockets[0].get_string(z.LAST_ENDPOINT))
        self.log = []

    def note(self, *args):
        self.log.append(args[0] if len(args) == 1 else args)

    async def logged(self, count):
        """The first `count` things that were noted."""
        await until_true(lambda: len(self.log) >= count)
        found, self.log[:] = self.log[:], []
        return found


@pytest.fixture
def run(z, part):
    """run(program): program(pair) in a loop of its own; everything ends with it."""
    def runs(program, *kinds, url="inproc://stream", **options):
        async def body():
            context = z.Context()
            pair = Pair(z, part, context, kinds or ("PAIR", "PAIR"), url, options)
            try:
                await asyncio.wait_for(program(pair), 2 * LIMIT)
            finally:
                pair.a.close()
                pair.b.close()
                context.term()

        asyncio.run(body())

    return runs


@pytest.mark.parametrize("url", ["inproc://stream", "tcp://127.0.0.1:*"])
def test_messages(run, url):
    async def program(pair):
        a, b = pair.a, pair.b
        assert (a.receiving(), a.sending(), a.closed()) == (False, False, False)
        a.setsockopt(pair.z.LINGER, 7)
        assert a.getsockopt(pair.z.LINGER) == 7 and a.bind == pair.sockets[0].bind
        b.on_recv(pair.note)
        assert b.receiving()
        a.send(b"one")
        assert a.sending()      # it leaves with the loop
        a.send_multipart([b"a", b"b"])
        a.send_string("ü")
        a.send_unicode("x", encoding="utf-16-le")
        a.send_json({"a": 1})
        a.send_pyobj((1, 2))
        parts = await pair.logged(6)
        assert not a.sending()
        assert parts[:4] == [[b"one"], [b"a", b"b"], ["ü".encode()], [b"x\0"]]
        with pytest.raises(TypeError):
            a.send_string(b"x")
        b.on_recv_stream(lambda stream, parts: pair.note(stream is b, parts), copy=False)
        a.send_multipart([b"p", b"q"])
        same, frames = (await pair.logged(1))[0]
        assert same and [frame.bytes for frame in frames] == [b"p", b"q"]
        assert [frame.more for frame in frames] == [True, False]
        a.send(frames[1])
        assert (await pair.logged(1))[0][1][0].bytes == b"q"

    run(program, url=url)


def test_what_was_sent(run):
    async def program(pair):
        a, b = pair.a, pair.b
        a.on_send(pair.note)
        a.send(b"1")
        assert await pair.logged(1) == [([b"1"], None)]
        a.send(b"2", callback=lambda parts, status: pair.note("own", parts))
        assert await pair.logged(1) == [("own", [b"2"])]
        a.on_send_stream(lambda stream, parts, status: pair.note(stream is a, parts, status))
        a.send(bytes(100_000), copy=False, track=True)
        same, _, tracker = (await pair.logged(1))[0]
        assert same
        b.on_recv(lambda parts: pair.note(len(parts[0])))
        assert await pair.logged(3) == [1, 1, 100_000]
        await asyncio.to_thread(tracker.wait, LIMIT)
        a.stop_on_send()
        a.send(b"x")
        assert await pair.logged(1) == [1]

    run(program)


def test_stopping(run):
    """Messages stay in the socket while nobody wants them, and come when somebody does."""
    async def program(pair):
        a, b = pair.a, pair.b
        b.on_recv(pair.note)
        b.stop_on_recv()
        assert not b.receiving()
        for i in range(5):
            a.send(b"%d" % i)
        while a.sending():
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        assert pair.log == []
        b.on_recv(pair.note)
        assert await pair.logged(5) == [[b"%d" % i] for i in range(5)]

    run(program)


def test_flush(run):
    async def program(pair):
        a, b, z = pair.a, pair.b, pair.z
        a.on_send(lambda parts, status: pair.note(parts))
        for i in range(5):
            a.send(b"%d" % i)
        assert a.flush(z.POLLIN) == 0
        assert a.flush(z.POLLOUT, 2) == 2 and pair.log == [[b"0"], [b"1"]]
        assert a.flush() == 3 and not a.sending()
        pair.log.clear()
        b.on_recv(pair.note)
        assert b.flush(limit=2) == 2
        assert pair.log == [[b"0"], [b"1"]]
        assert b.flush() == 3 and b.flush() == 0
        assert await pair.logged(5) == [[b"%d" % i] for i in range(5)]

    run(program)


def test_errors_in_callbacks(run, caplog):
    """They reach the loop and the log; the stream goes on."""
    async def program(pair):
        caught = []
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: caught.append(type(context["exception"])))

        def fails(parts):
            pair.note(parts)
            raise LookupError("mine")

        pair.b.on_recv(fails)
        pair.a.send(b"1")
        await pair.logged(1)
        await asyncio.sleep(0)
        assert caught == [LookupError]
        if pair.z is ours:      # pyzmq's waits for another call of the stream's
            pair.a.send(b"2")
            await pair.logged(1)
        assert "mine" in caplog.text

        async def fails_later(parts):
            await asyncio.sleep(0)
            raise LookupError("later")

        async def runs(parts):
            await asyncio.sleep(0)
            pair.note(parts)

        caplog.clear()
        pair.b.on_recv(fails_later)
        pair.a.send(b"3")
        await until_true(lambda: "Uncaught exception in ZMQStream callback" in caplog.text)
        pair.b.on_recv(runs)
        pair.a.send(b"4")
        assert await pair.logged(1) == [[b"4"]]

    with caplog.at_level(logging.ERROR, "tornado.general"):
        run(program)


def test_what_cannot_be_sent(run):
    """Its callback gets the error, and the next message leaves."""
    async def program(pair):
        pair.a.on_recv(pair.note)
        pair.b.send(b"hello")
        who, _ = (await pair.logged(1))[0]
        pair.b.on_recv(pair.note)
        pair.a.send_multipart([b"nobody", b"x"], callback=pair.note)
        parts, error = (await pair.logged(1))[0]
        assert parts == [b"nobody", b"x"] and error.errno == pair.z.EHOSTUNREACH
        pair.a.send_multipart([who, b"y"])
        assert ([b"y"] in await pair.logged(2)) and not pair.a.sending()

    run(program, "ROUTER", "DEALER", router_mandatory=1)


def test_marks(run):
    """What cannot leave waits in the stream; nothing is lost."""
    async def program(pair):
        a, b = pair.a, pair.b
        for i in range(300):
            a.send(b"%d" % i)
        await asyncio.sleep(0.01)
        assert a.sending()
        b.on_recv(pair.note)
        assert await pair.logged(300) == [[b"%d" % i] for i in range(300)]

    run(program, "PAIR", "PAIR", sndhwm=2, rcvhwm=2)


def test_turns(run):
    """The loop's others have their turns between messages."""
    async def program(pair):
        seen = []
        for _ in range(20):
            pair.a.send(b"x")
        pair.a.flush()
        pair.b.on_recv(lambda parts: seen.append(pair.log[-1]))
        turn = 0
        while len(seen) < 20:
            turn += 1
            pair.note(turn)
            await asyncio.sleep(0)
        assert len(set(seen)) == 20

    run(program)


def test_closing(run):
    async def program(pair):
        a, b = pair.a, pair.b
        a.set_close_callback(lambda: pair.note("a"))
        a.send(b"too late")
        a.close()
        assert pair.log == ["a"] and a.closed() and a.socket is None and pair.sockets[0].closed
        a.close()
        for call in (lambda: a.send(b"x"), lambda: a.on_recv(print), a.flush, a.stop_on_recv):
            with pytest.raises(OSError, match="Stream is closed"):
                call()
        assert not a.receiving()
        assert not b.closed()

    run(program)


def test_closed_in_a_callback(run):
    async def program(pair):
        pair.b.on_recv(lambda parts: pair.note(parts) or pair.b.close())
        pair.a.send(b"1")
        pair.a.send(b"2")
        assert await pair.logged(1) == [[b"1"]]
        assert pair.b.closed()
        await asyncio.sleep(0.01)
        assert pair.log == []

    run(program)


@pytest.mark.filterwarnings("ignore:Unregistering FD:UserWarning")
def test_closed_behind_it(run):
    """Somebody closes the socket, not the stream."""
    async def program(pair):
        pair.b.set_close_callback(lambda: pair.note("closed"))
        pair.sockets[1].close()
        with pytest.raises(pair.z.ZMQError) as caught:
            pair.b.send(b"x")
        assert caught.value.errno == pair.z.ENOTSOCK
        assert pair.b.closed() and pair.log == ["closed"]

    run(program)


def test_asynchronous_sockets(z, part):
    async def body():
        context = part("asyncio").Context()
        with context.socket(z.PULL) as pull, context.socket(z.PUSH) as push:
            pull.bind("inproc://a")
            push.connect("inproc://a")
            with pytest.warns(RuntimeWarning, match=r"zmq\.Socket"):
                stream = part("eventloop.zmqstream").ZMQStream(pull)
            got = asyncio.get_running_loop().create_future()
            stream.on_recv(got.set_result)
            await push.send(b"x")
            assert await asyncio.wait_for(got, LIMIT) == [b"x"]
            stream.close()
        context.term()

    asyncio.run(body())


def test_old_names(z, part):
    with pytest.warns(DeprecationWarning):
        loops = importlib.reload(part("eventloop.ioloop"))
    assert issubclass(loops.ZMQIOLoop, part("eventloop").IOLoop)
    future = part("eventloop.future")

    async def body():
        context = future.Context()
        with context.socket(z.PAIR) as a, context.socket(z.PAIR) as b:
            a.bind("inproc://a")
            b.connect("inproc://a")
            waiting = b.recv()
            await a.send(b"x")
            assert await waiting == b"x"
            lost = b.recv()
            lost.cancel()
            with pytest.raises(future.CancelledError):
                await lost
        context.term()

    asyncio.run(body())


# -- ours alone ------------------------------------------------------------------------------------


@pytest.fixture
def mine(run, z):
    if z is not ours:
        pytest.skip("ours alone")
    return run


def test_from_another_thread(mine):
    """The socket of a stream; pyzmq's are their loop's alone."""
    async def program(pair):
        pair.b.on_recv(pair.note)

        def send():
            for i in range(200):
                pair.sockets[0].send(b"%d" % i)

        thread = threading.Thread(target=send)
        thread.start()
        assert await pair.logged(200) == [[b"%d" % i] for i in range(200)]
        thread.join()

    mine(program, url="tcp://127.0.0.1:*")


def test_flush_keeps_what_nobody_wants(mine):
    async def program(pair):
        pair.a.send(b"x")
        assert pair.a.flush() == 1 and pair.b.flush() == 0
        pair.b.on_recv(pair.note)
        assert await pair.logged(1) == [[b"x"]]

    mine(program)


def test_told_that_it_was_closed_behind_it(mine):
    """No call of the stream's is needed, and its descriptor is nobody else's until then."""
    async def program(pair):
        pair.b.set_close_callback(lambda: pair.note("closed"))
        threading.Thread(target=pair.sockets[1].close).start()
        assert await pair.logged(1) == ["closed"]
        assert pair.b.socket is None

    mine(program)


def test_a_context_that_ends(mine):
    """One error, no busy loop."""
    async def program(pair):
        caught = []
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: caught.append(context["exception"]))
        pair.b.on_recv(pair.note)
        thread = threading.Thread(target=pair.sockets[1].context.term)
        thread.start()
        await until_true(lambda: caught)
        for _ in range(20):
            await asyncio.sleep(0)
        assert [error.errno for error in caught] == [ours.ETERM]
        pair.a.close()
        pair.b.close()
        await asyncio.to_thread(thread.join)

    mine(program)


def test_the_routing_id_after_the_stream(mine):
    """mqcore's socket is made anew below it, and below FD."""
    async def program(pair):
        router = pair.sockets[0]
        with router.context.socket(ours.DEALER) as socket:
            stream = pair.Stream(socket)
            fd = socket.FD
            socket.routing_id = b"me"
            socket.connect(router.get_string(ours.LAST_ENDPOINT))
            stream.on_recv(pair.note)
            stream.send(b"hello")
            assert await asyncio.to_thread(router.recv_multipart) == [b"me", b"hello"]
            router.send_multipart([b"me", b"1"])
            assert await pair.logged(1) == [[b"1"]]
            stream.stop_on_recv()
            assert not socket.EVENTS & ours.POLLIN
            router.send_multipart([b"me", b"2"])
            ready, _, _ = await asyncio.to_thread(select.select, [fd], [], [], LIMIT)
            assert ready and await asyncio.to_thread(socket.recv) == b"2"
            stream.close()

    mine(program, "ROUTER", "DEALER", rcvtimeo=LIMIT * 1000)


def test_a_loop_that_closes_everything(z, part):
    """The sockets, too: the context can end."""
    async def body():
        part("eventloop.zmqstream").ZMQStream(socket).on_recv(print)

    context = z.Context()
    socket = context.socket(z.PULL)
    loop = part("eventloop").IOLoop(make_current=False)
    loop.run_sync(body)
    loop.close(all_fds=True)
    assert socket.closed
    context.term()


def test_a_loop_that_is_gone(z):
    if z is not ours:
        pytest.skip("ours alone")
    from mqcore.zmq.eventloop.zmqstream import ZMQStream

    context = ours.Context()

    async def body():
        return ZMQStream(context.socket(ours.PULL))

    stream = asyncio.run(body())
    stream.close()
    assert stream.closed()
    context.term()
