"""A signal handler may call the library in the middle of any of its calls on the same thread.
Nothing waits for a lock that the interrupted call holds, and no wake-up is lost between the look
and the wait.

Each test tries a sample of the lines, another one each run; MQCORE_ROUNDS=1 tries all.
"""

import contextlib
import os
import signal
import threading

import pytest
from lock_order import GRAPH
from strikes import at_each_line

import mqcore as mq
from mqcore import journal, zmq
from mqcore.api import context as api_context
from mqcore.api import event_stream, poller, running
from mqcore.control import closing, endpoint, endpoints, hub, loop, workers
from mqcore.journal import flusher, reader, writer
from mqcore.journal.server import connection, server
from mqcore.journal.store import notify
from mqcore.testing import until
from mqcore.zmq import home

LATE = 0.02     # seconds of rest, after which another thread ends what the handler did not
ENOUGH = 30     # lines: fewer mean that a call was not traced


def quietly(call, *errors):
    def quiet():
        with contextlib.suppress(*errors):
            call()
    return quiet


# -- event streams ---------------------------------------------------------------------------------

@pytest.mark.parametrize("end", ["stream", "socket", "context"])
def test_a_handler_ends_the_stream_that_is_read(end, seed):
    """Between the look whether it has ended and the wait, too: nothing would end that wait."""
    def scene():
        context = mq.Context(linger=0)
        sock = context.socket("pair", bind="inproc://struck")
        stream = sock.events()
        ends = {"stream": stream.close, "socket": sock.close, "context": context.close}

        def read():
            for _ in stream:
                pass
            sock.close()
            context.close()

        return read, ends[end]

    assert at_each_line([event_stream], scene, seed, LATE) > 15


def test_a_handler_binds_while_an_event_is_added(ctx, seed):
    """The control thread emits events of its own meanwhile."""
    socks = []

    def scene():
        sock = ctx.socket("pair")
        socks.append(sock)
        stream = sock.events()

        def handler():
            far = ctx.socket("pair", connect=sock.bind("tcp://127.0.0.1:0").url)
            far.wait_peers(1, 10)
            far.close(0)
            sock.close(0)
            stream.close()
        return quietly(lambda: (sock.bind("tcp://127.0.0.1:0"), stream.get(0)), mq.Error), handler
    assert at_each_line([event_stream], scene, seed) > 10


# -- the control thread ----------------------------------------------------------------------------

def test_a_handler_stops_the_loop_that_is_called(seed):
    made = []

    def scene():
        control = loop.ControlLoop()
        control.start()
        made.append(control)

        def calls():
            control.call(len, "")
            control.wake()
            control.call_wait(len, "")
            control.stop()
        return calls, control.stop
    assert at_each_line([loop], scene, seed) > ENOUGH
    assert not any(control.running for control in made)


@pytest.mark.parametrize("calls", [False, True], ids=["stop", "call-stop"])
def test_a_handler_stops_the_loop_that_starts(calls, seed):
    made = []

    def scene():
        control = loop.ControlLoop()
        made.append(control)

        def start():
            control.start()
            control.stop()

        def handler():
            control.call_wait(len, "")
            control.stop()
        return start, handler if calls else control.stop
    assert at_each_line([loop], scene, seed) > 15
    assert not any(control.running or control._wakeup for control in made)


def test_a_handler_calls_the_loop_that_answers(seed):
    """The answer to the interrupted call comes while the handler waits for its own."""
    control = loop.ControlLoop()
    control.start()
    try:
        assert at_each_line([loop], lambda: (
            lambda: control.call_wait(len, ""), lambda: control.call_wait(len, "")), seed) > 15
    finally:
        control.stop()


def test_a_handler_stops_the_loop_whose_workers_start(seed):
    """The control thread wants workers, too, and the handler waits for that thread."""
    def scene():
        control = loop.ControlLoop()
        control.start()

        def calls():
            control.authenticate(len, lambda *_: None)
            control.stop()

        def handler():
            control.call_wait(control.authenticate, len, lambda *_: None)
            control.stop()
        return calls, handler
    assert at_each_line([loop, workers], scene, seed) > ENOUGH


@pytest.mark.parametrize("closes", [False, True], ids=["opens", "closes"])
def test_a_handler_uses_the_context_whose_threads_start(closes, seed, monkeypatch):
    """There is one set of threads, and close() ends it."""
    monkeypatch.setattr(api_context, "MADE", 0.01)      # it waits for the interrupted socket()
    before = set(threading.enumerate())

    def scene():
        context = mq.Context(linger=0)
        gone = mq.ContextClosed, mq.SocketClosed

        def call():
            with contextlib.suppress(*gone):
                context.socket("push").close()
            context.close()

        def handler():
            with contextlib.suppress(*gone):
                context.socket("pull").close()
            if closes:
                context.close()
        return call, handler
    assert at_each_line([hub], scene, seed) > ENOUGH
    until(lambda: set(threading.enumerate()) <= before)


@pytest.mark.parametrize("modules", [[hub], [endpoints], [closing]],
                         ids=lambda modules: modules[0].__name__)
def test_a_handler_connects_while_the_hub_is_used(ctx, modules, seed):
    """A new connection needs the control thread, and that the hub's lock."""
    def scene():
        sock = ctx.socket("pair")

        def handler():
            with ctx.socket("pair") as near, ctx.socket("pair") as far:
                far.connect(near.bind("tcp://127.0.0.1:0").url)
                far.wait_peers(1, 10)
        return lambda: (sock.bind("tcp://127.0.0.1:0"), sock.close(0)), handler
    assert at_each_line(modules, scene, seed) > 10


def test_a_handler_waits_while_a_socket_closes_that_loses_its_peers(ctx, seed):
    """A handler that waits lets go of the hub's lock, and the control thread then removes
    connections from the table that the interrupted call goes through."""
    left = contextlib.ExitStack()       # of the last scene

    def scene():
        left.close()
        near = ctx.socket("pull", bind="tcp://127.0.0.1:0")
        peers = [left.enter_context(ctx.socket("push", connect=near.endpoints[0].url))
                 for _ in range(3)]
        near.wait_peers(3, 10)

        def handler():
            for peer in peers:
                peer.close(0)
            with ctx.socket("pair") as one, ctx.socket("pair") as other:
                other.connect(one.bind("tcp://127.0.0.1:0").url)
                other.wait_peers(1, 10)
        return quietly(near.close), handler
    assert at_each_line([closing], scene, seed, step=1) > ENOUGH
    left.close()


def _poll_with_a_file(sock):
    there, here = os.pipe()
    try:
        mq.poll([sock, there])
    finally:
        os.close(there)
        os.close(here)


def _poller_with_a_file(sock):
    there, here = os.pipe()
    try:
        with mq.Poller() as poller:
            poller.register(sock)
            poller.register(there, mq.Ready.READ)
            poller.poll()
    finally:
        os.close(there)
        os.close(here)


def _reply(sock):
    sock.recv()
    sock.send(b"x")


def _event(sock, start):
    stream = iter(sock.events())    # first: it has what comes from now on
    start()
    next(stream)


# the handler's pattern and call, the other thread's
WAITS = {
    "recv": ("pull", lambda sock: sock.recv(), "push", lambda sock: sock.send(b"x")),
    "send": ("push", lambda sock: sock.send(b"x"), "pull", lambda sock: sock.recv()),
    "request": ("req", lambda sock: sock.request(b"x"), "rep", _reply),
    "poll": ("pull", lambda sock: mq.poll([sock]), "push", lambda sock: sock.send(b"x")),
    "poll-two": ("pair", lambda sock: mq.poll([sock, sock]), "pair", lambda sock: sock.send(b"x")),
    "poll-file": ("pull", _poll_with_a_file, "push", lambda sock: sock.send(b"x")),
    "poller-file": ("pull", _poller_with_a_file, "push", lambda sock: sock.send(b"x")),
    "peers": ("pair", lambda sock: sock.wait_peers(), "pair", lambda sock: None),
    "event": ("pair", _event, "pair", lambda sock: None),
}


@pytest.mark.parametrize("way", WAITS)
@pytest.mark.parametrize("own", [True, False], ids=["this-context", "another-context"])
def test_a_handler_waits_while_the_hub_is_used(ctx, way, own, seed):
    """What it waits for needs another thread that connects, and this context's control thread: both
    want the lock of the call that the handler has interrupted."""
    here, wait, there, answer = WAITS[way]
    left, threads = contextlib.ExitStack(), []      # of the last scene

    def end():
        while threads:
            threads.pop().join()
        left.close()

    def scene():
        end()
        context = ctx if own else left.enter_context(mq.Context(linger=0))
        far = left.enter_context(context.socket(here))
        url = far.bind("tcp://127.0.0.1:0").url
        sock = ctx.socket("pair")

        def connect():
            with ctx.socket("pair") as first:
                first.bind("tcp://127.0.0.1:0")     # this context's lock
            near = left.enter_context(context.socket(there, connect=url))
            answer(near)

        def handler():
            threads.append(threading.Thread(target=connect))
            if wait is _event:
                wait(far, threads[0].start)
            else:
                threads[0].start()
                wait(far)
        return lambda: (sock.bind("tcp://127.0.0.1:0"), sock.close(0)), handler
    try:
        assert at_each_line([hub], scene, seed) > 10
    finally:
        end()


def test_a_handler_waits_for_a_thread_that_uses_the_poller(ctx, seed):
    """Which the call that the handler has interrupted is changing."""
    pull, push = ctx.socket("pull", bind="inproc://p"), ctx.socket("push", connect="inproc://p")
    threads = []    # of the last scene

    def scene():
        while threads:
            threads.pop().join()
        other = ctx.socket("pair")
        polled = mq.Poller()
        polled.register(pull)

        def change():
            polled.unregister(pull)
            push.send(b"x")

        def handler():
            threads.append(threading.Thread(target=change))
            threads[0].start()
            pull.recv()
            polled.close()

        def call():
            with contextlib.suppress(KeyError, mq.UsageError):   # the handler has closed it
                polled.register(other)
                polled.unregister(other)
        return call, handler
    try:
        assert at_each_line([poller], scene, seed) > 10
    finally:
        while threads:
            threads.pop().join()


# -- endpoints, devices ----------------------------------------------------------------------------

def test_a_handler_closes_the_endpoint_that_is_waited_for(ctx, seed):
    def scene():
        made = ctx.socket("push").connect("inproc://nobody")

        def wait():
            with pytest.raises(mq.SocketClosed):
                made.wait_ready()
        return wait, made.close
    assert at_each_line([endpoint], scene, seed, LATE) > 5


def test_a_handler_stops_the_device_that_is_waited_for(ctx, seed):
    def scene():
        device = mq.device(ctx.socket("pull"), ctx.socket("push"))
        return device.wait_stopped, device.stop
    assert at_each_line([running], scene, seed, LATE) > 4


# -- journals --------------------------------------------------------------------------------------

def test_a_handler_closes_the_reader_that_reads(tmp_path, seed):
    with journal.open(tmp_path, "a", topic="t") as out:
        out.append(b"x")
        out.commit()

        def scene():
            source = journal.open(tmp_path, topic="t")

            def read():
                for records in source.follow(0, timeout=0.01):
                    records.to_list()
                source.close()
            return quietly(read, mq.Error), source.close
        assert at_each_line([reader, notify], scene, seed) > ENOUGH
    assert notify._hub is None


def test_a_handler_follows_while_another_follower_ends(tmp_path, seed):
    with journal.open(tmp_path, "a", topic="t") as out:
        out.append(b"x")
        out.commit()

        def follow():
            with journal.open(tmp_path, topic="t") as source:
                with contextlib.suppress(mq.RecvTimeout):
                    next(source.follow(1, timeout=0.01))
        assert at_each_line([notify], lambda: (follow, follow), seed) > ENOUGH
    assert notify._hub is None


def test_a_handler_writes_while_another_writer_ends(tmp_path, seed):
    """Their one thread ends with the last of them, and starts anew."""
    names = iter(range(100_000))

    def write():
        with journal.open(tmp_path, "a", topic=f"t{next(names)}") as out:
            out.append(b"x")
    assert at_each_line([flusher], lambda: (write, write), seed) > 15
    assert flusher.FLUSHER._run is None


@pytest.mark.parametrize("again", ["close", "retain"])
def test_a_handler_uses_the_writer_that_is_used(tmp_path, again, seed):
    names = iter(range(10_000))

    def scene():
        out = journal.open(tmp_path, "a", topic=f"t{next(names)}",
                           retain_bytes=1 << 20)
        out.append(b"x")

        def use():
            out.retain()
            out.close()
        return quietly(use, mq.Error), quietly(getattr(out, again), mq.Error)
    assert at_each_line([writer], scene, seed) > 20


def test_a_handler_stops_the_journal_server_that_stops(ctx, tmp_path, seed):
    journal.open(tmp_path, "a", topic="t").close()

    def scene():
        serving = journal.serve(tmp_path, "inproc://journals", insecure=True, context=ctx)
        return serving.stop, serving.stop
    assert at_each_line([server], scene, seed) > 5


def test_a_handler_closes_the_remote_reader_that_asks(ctx, tmp_path, seed):
    with journal.open(tmp_path, "a", topic="t") as out:
        out.append(b"x")
        out.commit()
    with journal.serve(tmp_path, "tcp://127.0.0.1:0", context=ctx) as serving:
        def scene():
            source = journal.open(serving.urls[0], topic="t", context=ctx)
            return quietly(lambda: (source.read(0), source.close()), mq.Error), source.close
        assert at_each_line([connection], scene, seed) > ENOUGH


# -- pyzmq's interface -----------------------------------------------------------------------------

def test_a_handler_closes_the_last_socket_of_a_zmq_context_that_terminates(seed):
    """term() waits for the sockets; the last one leaves right before it does."""
    def scene():
        context = zmq.Context()
        return context.term, context.socket(zmq.PUSH).close
    assert at_each_line([home], scene, seed, LATE) > 10


def test_a_real_signal_ends_a_stream(ctx):
    sock = ctx.socket("pair")
    stream = sock.events()

    def handled(*_):
        with GRAPH.handler():
            sock.close()
    before = signal.signal(signal.SIGALRM, handled)
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)    # one just before the sleep does not end it
    try:
        assert [event.kind for event in stream] == ["Closed"]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
