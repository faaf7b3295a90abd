"""Patterns of plug-ins, as sockets: the generic class, compatible peers, what goes wrong."""

import contextlib
import gc
import signal
import threading
import time

import pytest
from rawzmtp import RawPeer
from waiting import until

import mqcore as mq
from mqcore.spi import registry
from mqcore.spi.python.pattern import WAIT, Drop, Pattern


class Feeder(Pattern):
    """Each message to the peer with the fewest so far; talks to every PULL."""

    abi = 1
    name = "feeder"
    zmtp, number, peers = "PUSH", 8, ("pull",)
    sends = waits = reroutes = True
    options = (("only", "bytes", b"", "takes nothing that starts otherwise"),)

    def route(self, parts):
        if self.only and parts.head(len(self.only)) != self.only:
            raise mq.UsageError(f"only {self.only!r}")
        peer = min(self.live, key=lambda p: p.data or 0, default=WAIT)
        if peer is not None and peer.has_room(parts):
            peer.data = (peer.data or 0) + 1
        return peer


class Yes(Pattern):
    """Both ways, with its own kind and `no` only."""

    abi = 1
    name = "yes"
    zmtp, peers = "YES", ("yes", "no")
    sends = receives = waits = replies = True

    def route(self, parts):
        return self.live[0] if self.live else WAIT


class No(Yes):
    """The same under another name, which does not know its own kind."""

    name = "no"
    zmtp, peers = "NO", ("yes", "absent")


class Local(Yes):
    """ZMTP does not know it."""

    name = "local"
    zmtp, peers = "", ("local",)


@contextlib.contextmanager
def lent(*classes):
    from mqcore.api.patterns import CLASSES

    with contextlib.ExitStack() as stack:
        for cls in classes:
            stack.enter_context(registry.lend("pattern", cls, "the test"))
        yield
    for cls in classes:
        CLASSES.pop(cls.name, None)


@pytest.fixture(autouse=True)
def patterns():
    with lent(Feeder, Yes, No, Local):
        yield


@pytest.fixture
def having():
    """having(route=...): the name of a pattern with these members."""
    with contextlib.ExitStack() as stack:
        made = []

        def having(base=Yes, **members):
            made.append(type("Made", (base,), {"name": f"made{len(made)}", **members}))
            stack.enter_context(lent(made[-1]))
            return made[-1].name

        yield having


# -- the generic class ---------------------------------------------------------------------------

def test_it_is_a_socket_like_others(linked):
    pull, feeder = linked("pull", "feeder")
    assert isinstance(feeder, mq.Socket) and type(feeder).__name__ == "Feeder"
    assert feeder.pattern == "feeder" and type(feeder).__doc__.startswith("Each message")
    feeder.send(b"a")
    feeder.send_parts([b"b", b"c" * 100])
    feeder.send_many([b"d", [b"e", b"f"]])
    assert [pull.recv(timeout=5) for _ in range(4)] == [b"a", b"b" + b"c" * 100, b"d", b"ef"]
    with pytest.raises(mq.UsageError, match="a feeder socket cannot recv"):
        feeder.recv(timeout=0)
    with pytest.raises(mq.UsageError, match="a feeder socket cannot recv"):
        feeder.recv_msg(timeout=0)
    assert feeder.stats().sent == 4 and feeder.peers()[0].pattern == "pull"
    assert "A feeder socket: 4 sent" in feeder.explain() and "recv()" not in feeder.explain()
    assert mq.poll([(feeder, mq.Ready.WRITE)], timeout=0) == [(feeder, mq.Ready.WRITE)]


def test_loops_and_iteration(linked, loop):
    a, b = linked("yes", "yes")

    async def main():
        await a.asend(b"1")
        await a.asend(b"2")
        got = []
        async for body in b:
            got.append(body)
            if len(got) == 2:
                break
        with pytest.raises(mq.RecvTimeout):
            await b.arecv(timeout=0.01)
        return got

    assert loop.run(main) == [b"1", b"2"]


def test_answers(linked):
    a, b = linked("yes", "yes")
    a.send(b"question")
    b.recv_msg(timeout=5).reply(b"answer")
    assert a.recv(timeout=5) == b"answer"


def test_options_of_its_own(ctx):
    feeder = ctx.socket("feeder", only=b"x", connect="inproc://nobody")
    assert feeder.only == b"x"
    feeder.only = b"y"
    feeder.close(0)
    with pytest.raises(mq.OptionError, match="unknown option 'colour'"):
        ctx.socket("feeder", colour=1)
    for refused in ({"conflate": True}, {"on_full": "disconnect"}):
        with pytest.raises(mq.OptionError, match="feeder"):
            ctx.socket("feeder", **refused)
    assert mq.Context(conflate=True).socket("feeder").close()


def test_the_class_has_a_name_of_words(having, ctx):
    name = having(name="two_words")
    assert name == "two_words" and type(ctx.socket(name)).__name__ == "TwoWords"


# -- who talks to whom -----------------------------------------------------------------------------

def test_it_is_what_it_announces(linked_at):
    """`pull` knows nothing of it, on either side of either wire."""
    for address in ("tcp://127.0.0.1:0", "inproc://fits"):
        for server, client in (("pull", "feeder"), ("feeder", "pull")):
            a, b = linked_at(address, server, client)
            sender, receiver = (b, a) if client == "feeder" else (a, b)
            sender.send(b"x")
            assert receiver.recv(timeout=5) == b"x"
            a.close(0), b.close(0)


@pytest.mark.parametrize(("server", "client", "fits"), [
    ("yes", "yes", True), ("yes", "no", True), ("no", "yes", True), ("no", "no", False),
    ("yes", "pull", False), ("push", "yes", False), ("feeder", "yes", False),
    ("feeder", "push", False)])
def test_both_sides_must_agree(ctx, url, server, client, fits):
    a = ctx.socket(server, bind=url)
    b = ctx.socket(client, reconnect_stop=["handshake"])
    if fits:
        b.connect(a.endpoints[0], wait=5)
    else:
        with pytest.raises(mq.HandshakeFailed, match="fit|talk"):
            b.connect(a.endpoints[0], wait=5)


def test_a_peer_that_is_not_installed_goes_by_its_name(ctx):
    no = ctx.socket("no", bind="tcp://127.0.0.1:0")
    with RawPeer.connect(no.endpoints[0].url) as peer:
        peer.shake("ABSENT")
        no.send(b"hello", timeout=5)
        assert peer.parts() == [b"hello"]


def test_peers_older_than_names_are_refused(ctx):
    """ZMTP 2.0 and 1.0 know numbers, or nothing."""
    yes = ctx.socket("yes", bind="tcp://127.0.0.1:0")
    with yes.events() as events:
        for greeting, version in ((b"\xff\0\0\0\0\0\0\0\1\x7f\1\0", "2.0"), (b"\1\0", "1.0")):
            with RawPeer.connect(yes.endpoints[0].url) as peer:
                peer.say(greeting)
                assert peer.ended()
            while (event := events.get(5)).kind != "HandshakeFailed":
                pass
            assert event.reason == f"the peer speaks ZMTP {version}, which does not know the " \
                                   "pattern YES"


def test_without_a_type_it_stays_in_the_process(ctx, linked_at):
    with pytest.raises(mq.NotSupported, match="a local socket cannot use tcp.*inproc"):
        ctx.socket("local", bind="tcp://127.0.0.1:0")
    a, b = linked_at("inproc://local", "local", "local")
    a.send(b"x")
    assert b.recv(timeout=5) == b"x"


# -- what goes wrong -------------------------------------------------------------------------------

def test_a_pattern_refuses_a_message(ctx):
    pull = ctx.socket("pull", bind="inproc://only")
    feeder = ctx.socket("feeder", connect="inproc://only", only=b"x")
    feeder.wait_peers(1, 5)
    with pytest.raises(mq.UsageError, match="only b'x'"):
        feeder.send(b"no")
    feeder.send(b"x!")
    assert pull.recv(timeout=5) == b"x!" and feeder.stats().sent == 1


def test_a_message_that_waited_stays_and_the_failure_is_told(ctx, caplog):
    """Nobody calls when it goes out at last: an event, a line in the log, and it is kept."""
    feeder = ctx.socket("feeder", connect="inproc://later")
    feeder.send(b"waits")
    with feeder.events() as events:
        feeder.only = b"x"
        pull = ctx.socket("pull", bind="inproc://later")
        while (event := events.get(5)).kind != "PatternFailed":
            pass
        assert "route() raised UsageError: only b'x'" in event.reason
        until(lambda: "the pattern feeder failed: route() raised UsageError" in caplog.text)
        assert feeder.stats().waiting == 1
    feeder.only = b""
    feeder.send(b"next")
    assert [pull.recv(timeout=5) for _ in range(2)] == [b"waits", b"next"]


def test_no_socket_is_called_from_inside(ctx, having):
    """Its own or another: the lock is held, so it would wait for ever."""
    found = []

    def route(self, parts):
        calls = (lambda: sock.send(b"again"), lambda: sock.recv(timeout=0), lambda: sock.stats(),
                 lambda: sock.close(), lambda: ctx.close(), lambda: other.stats(),
                 lambda: other.close(), lambda: mq.poll([sock], timeout=0),
                 lambda: sock.wait_peers(1, 0), lambda: sock.explain())
        for call in calls:
            try:
                call()
                found.append(None)
            except Exception as error:
                found.append(type(error))
        return self.live[0]

    other = ctx.socket("pair", bind="inproc://other")
    sock = ctx.socket(having(route=route), bind="inproc://self")
    far = ctx.socket("no", connect="inproc://self")
    sock.wait_peers(1, 5)
    sock.send(b"x")
    assert far.recv(timeout=5) == b"x"
    assert found == [mq.StateError] * 10


# -- threads, signals, the collector ---------------------------------------------------------------

def laborious(self, n=30):
    """Work that lets the interpreter switch threads and wants to collect."""
    knots = [[] for _ in range(n)]
    for knot in knots:
        knot.append(knot)
    return len(knots)


def busy_pattern(having):
    def route(self, parts):
        laborious(self)
        return next((p for p in self.live if p.has_room(parts)), WAIT)

    def accept(self, peer, parts):
        laborious(self)
        return parts[-1] != b"never" or Drop("unexpected")

    return having(route=route, accept=accept, pick=lambda self, ready: ready[laborious(self) % 1],
                  attach=lambda self, peer: laborious(self) > 0,
                  hangup=lambda self, peer: laborious(self) and None,
                  detach=lambda self, peer: laborious(self) and None)


@pytest.mark.parametrize("io_threads", [1, 3])
def test_threads_that_send_receive_look_and_reconnect(having, io_threads):
    """All at once on two sockets, while I/O threads add and remove peers: no call waits for ever,
    no message is lost or comes twice."""
    each, senders = 300, 3
    name = busy_pattern(having)
    old = gc.get_threshold()
    gc.set_threshold(50)
    try:
        with mq.Context(io_threads=io_threads, linger=0) as ctx:
            a = ctx.socket(name, bind="tcp://127.0.0.1:0", send_hwm=5)
            b = ctx.socket(name, connect=a.endpoints[0], recv_hwm=5)
            a.wait_peers(1, 10)
            got, done = [], threading.Event()

            def send(k):
                for i in range(each):
                    a.send(b"%d.%d" % (k, i), timeout=60)
                    if i % 50 == 0:
                        a.send(b"never", timeout=60)

            def recv():
                while len(got) < each * senders:
                    try:
                        got.append(b.recv(timeout=0.05))
                    except mq.RecvTimeout:
                        pass

            def look():
                while not done.is_set():
                    a.stats(), a.explain(), mq.poll([b, (a, mq.Ready.WRITE)], timeout=0.001)

            def come_and_go():
                while not done.is_set():
                    with ctx.socket("no", connect=a.endpoints[0], recv_hwm=1) as passing:
                        passing.send(b"x", timeout=10)

            work = [threading.Thread(target=send, args=(k,)) for k in range(senders)]
            work += [threading.Thread(target=recv) for _ in range(2)]
            rest = [threading.Thread(target=look), threading.Thread(target=come_and_go)]
            for thread in work + rest[:1]:
                thread.start()
            for thread in work:
                thread.join()
            assert sorted(got) == sorted(b"%d.%d" % (k, i) for k in range(senders)
                                         for i in range(each))
            rest[1].start()
            time.sleep(0.1)
            done.set()
            for thread in rest:
                thread.join()
            assert a.stats().sent == sum(p.offered for p in a.stats().peers.values())
    finally:
        gc.set_threshold(*old)


class Struck(BaseException):
    pass


def test_signals_inside_a_method(having):
    """Wherever one strikes, it is raised in the main thread and the message is whole."""
    name = busy_pattern(having)
    main, stop = threading.main_thread().ident, threading.Event()
    struck, armed = 0, False

    def handler(*args):
        nonlocal armed
        if armed:
            armed = False
            raise Struck

    def strike():
        while not stop.wait(0.003):
            signal.pthread_kill(main, signal.SIGUSR1)

    old = signal.signal(signal.SIGUSR1, handler)
    thread = threading.Thread(target=strike)
    gc.disable()    # nothing may be raised in its callbacks
    with mq.Context(linger=0) as ctx:
        a = ctx.socket(name, bind="inproc://struck")
        b = ctx.socket(name, connect="inproc://struck")
        b.wait_peers(1, 5)
        thread.start()
        try:
            while struck < 100:
                try:
                    armed = True
                    b.send(b"x", timeout=5)
                    a.recv(timeout=5)
                    armed = False
                except Struck:
                    struck += 1
        finally:
            armed = False
            stop.set()
            thread.join()
            signal.signal(signal.SIGUSR1, old)
            gc.enable()
        for _ in range(b.stats().sent - a.stats().received):
            a.recv(timeout=5)
        with pytest.raises(mq.RecvTimeout):
            a.recv(timeout=0)


def test_refusing_a_peer_that_has_left_does_not_end_whoever_has_its_place_now(having):
    """The engine's slot belongs to another connection by the time that the pattern refuses."""
    inside, go = threading.Event(), threading.Event()

    def route(self, parts):
        inside.set()
        go.wait(20)
        return WAIT

    refusing = having(attach=lambda self, peer: False, route=route)
    with mq.Context() as ctx, ctx.socket(refusing, wire="zmtp") as busy, ctx.socket("pull") as pull:
        mine, its = busy.bind("tcp://127.0.0.1:0").url, pull.bind("tcp://127.0.0.1:0").url

        def send():
            with contextlib.suppress(mq.SocketClosed):
                busy.send(b"x", timeout=20)

        sender = threading.Thread(target=send)
        busy.connect("tcp://127.0.0.1:9", reconnect=None)
        sender.start()
        assert inside.wait(10)                    # its thread holds the socket's lock
        for _ in range(64):                       # a block of slots, each used once and free again
            with RawPeer.connect(mine) as peer:
                peer.shake("YES")
                peer.reset()
        engines = ctx._hub.plane.counters
        until(lambda: engines()["engines"] == 0)
        peers = []
        for _ in range(32):
            peers.append(RawPeer.connect(its))
            peers[-1].shake("PUSH")
        pull.wait_peers(32, 10)
        go.set()
        until(lambda: engines()["links"] == 32)   # the refused ones are gone
        for peer in peers:
            peer.say(bytes((0, 2)) + b"hi")
        assert [pull.recv(timeout=10) for _ in peers] == [b"hi"] * 32
        assert len(pull.peers()) == 32
        for peer in peers:
            peer.close()
        busy.close(linger=0)
        sender.join(10)
