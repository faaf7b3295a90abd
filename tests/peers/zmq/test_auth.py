"""PLAIN, CURVE and ZAP: each end of either module, and handlers that the program wrote itself."""

import asyncio
import contextlib
import importlib
import os
import struct
import sys
import threading
from types import SimpleNamespace

import pytest
from zmqerrno import number

import mqcore as mq
import mqcore.zmq as ours
from mqcore.testing import until
from mqcore.zmq import zap

ZAP = "inproc://zeromq.zap.01"
SERVER, CLIENT, OTHER = (mq.security.curve_keypair() for _ in range(3))
KEY, RAW = CLIENT.public.encode(), mq.security.z85_decode(CLIENT.public)
FAILED = 0x800 | 0x2000 | 0x4000  # HANDSHAKE_FAILED_*


def curve_server(keys=SERVER, **more):
    return {"curve_secretkey": keys.secret.encode(), "curve_server": True, **more}


def curve_client(keys=CLIENT, server=SERVER):
    return {"curve_publickey": keys.public.encode(), "curve_secretkey": keys.secret.encode(),
            "curve_serverkey": server.public.encode()}


def plain_client(user=b"ann", password=b"pw"):
    return {"plain_username": user, "plain_password": password}


@contextlib.contextmanager
def failing(z, s):
    """-> what the monitor tells first of handshakes that failed: event, value."""
    found = []
    with s.get_monitor_socket(FAILED) as told:
        yield found
        assert told.poll(5000)
        found += struct.unpack("=Hi", told.recv_multipart()[0])
        s.disable_monitor()


@pytest.fixture
def handler(make):
    """handler(module, answer): a thread that answers each request with answer(request), a list of
    parts, or not at all where that is None. -> its requests, and what ends it."""
    ends = []

    def begin(z, answer, kind="ROUTER"):
        asked = []
        s = make(z, kind)
        s.bind(ZAP)
        stop = threading.Event()

        def run():
            while not stop.is_set():
                if not s.poll(20):
                    continue
                parts = s.recv_multipart()
                head, request = (parts[:2], parts[2:]) if kind == "ROUTER" else ([], parts)
                asked.append(request)
                said = answer(request)
                if said is not None:
                    s.send_multipart([*head, *said])
            s.close(0)
        thread = threading.Thread(target=run)
        thread.start()

        def end():
            stop.set()
            thread.join()
        ends.append(end)
        return asked, end
    yield begin
    for end in ends:
        end()


@pytest.fixture
def part_of():
    return lambda module, name: importlib.import_module(f"{module.__name__}.{name}")


def say(status=b"200", user=b"", metadata=b"", text=b"text"):
    return lambda request: [b"1.0", request[1], status, text, user, metadata]


# -- who comes in ----------------------------------------------------------------------------------


@pytest.fixture
def meet(make, sides):
    """meet(server's options, client's): the server's first message as a frame."""
    def run(a, b, url="tcp://127.0.0.1:*", kinds=("PULL", "PUSH")):
        server, client = make(sides.a, kinds[0], **a), make(sides.b, kinds[1], **b)
        server.bind(url)
        where = server.get_string(sides.a.LAST_ENDPOINT)
        client.connect(where)
        client.send(b"hello")
        return server.recv(copy=False)
    return run


@pytest.fixture
def refused(make, sides):
    """refused(server's options, client's): what the monitors of both tell; or the server's alone,
    since a client that is not told a status may not notice (libzmq's does not always)."""
    def run(a, b, both=True):
        server, client = make(sides.a, "PULL", **a), make(sides.b, "PUSH", **b)
        server.bind("tcp://127.0.0.1:*")
        theirs = failing(sides.b, client) if both else contextlib.nullcontext([])
        with failing(sides.a, server) as mine, theirs as told:
            client.connect(server.get_string(sides.a.LAST_ENDPOINT))
        client.close()
        server.close()
        return [mine, told] if both else mine
    return run


REFUSED = [[0x4000, 400]] * 2


def test_curve_and_its_authenticator(meet, refused, make, sides, part_of, tmp_path):
    mq.security.save_certificate(tmp_path / "client.key", CLIENT)
    auth = part_of(sides.a, "auth.thread").ThreadAuthenticator(make.context(sides.a))
    auth.start()
    try:
        auth.configure_curve(domain="*", location=str(tmp_path))
        frame = meet(curve_server(), curve_client(), kinds=("REP", "REQ"))
        assert (frame.bytes, frame.get("User-Id")) == (b"hello", CLIENT.public)
        assert refused(curve_server(), curve_client(OTHER)) == REFUSED
        auth.configure_curve(domain="*", location="*")
        meet(curve_server(), curve_client(OTHER))
        auth.deny("127.0.0.1")
        assert refused(curve_server(), curve_client()) == REFUSED
    finally:
        auth.stop()
    if sides.a is ours:   # libzmq may still ask the handler that is gone, and wait for ever
        assert meet(curve_server(), curve_client()).bytes == b"hello"


def test_plain_and_its_authenticator(meet, refused, make, sides, part_of):
    server = {"plain_server": True, "zap_domain": b"lab"}
    auth = part_of(sides.a, "auth.thread").ThreadAuthenticator(make.context(sides.a))
    auth.start()
    try:
        auth.configure_plain(domain="lab", passwords={"ann": "pw"})
        assert meet(server, plain_client()).get("User-Id") == "ann"
        for wrong in (plain_client(b"bob"), plain_client(password=b"PW")):
            assert refused(server, wrong) == REFUSED
        auth.allow("192.0.2.1")
        assert refused(server, plain_client()) == REFUSED
        assert auth.is_alive()
    finally:
        auth.stop()
    assert not auth.is_alive()


@pytest.mark.parametrize("server, client, event, value", [
    ({"plain_server": True}, plain_client(), 0x800, 14),            # nobody to ask
    ({"zap_domain": b"x", "zap_enforce_domain": 1}, {}, 0x800, 14),
    (curve_server(zap_domain=b"x", zap_enforce_domain=1), curve_client(), 0x800, 14),
    (curve_server(), curve_client(server=OTHER), 0x2000, 0x11000001),
    (curve_server(), plain_client(), 0x2000, 0x11000002),
    ({}, plain_client(), 0x2000, 0x11000002),
], ids=range(6))
def test_who_is_refused_without_being_asked(refused, server, client, event, value):
    assert refused(server, client, both=False) == [event, value]


def test_domains(meet, handler, sides, tmp_path):
    """NULL asks if it has a domain, and what a handler knows of the peer reaches its messages."""
    known = b"\5Hello\0\0\0\5World"
    asked, _ = handler(sides.a, say(user=b"me", metadata=known), "REP")
    frame = meet({"zap_domain": b"lab", "identity": b"us"}, {})
    assert (frame.get("User-Id"), frame.get("Hello")) == ("me", "World")
    meet({}, {})
    assert asked == [[b"1.0", asked[0][1], b"lab", b"127.0.0.1", b"us", b"NULL"]]
    meet({"plain_server": 1}, plain_client(), url=f"ipc://{tmp_path}/s")
    who = asked[1][3].decode().split(":")
    assert who[0] == "localhost" and [part.isdigit() for part in who[1:]] == [True] * 3
    assert asked[1][4:] == [b"", b"PLAIN", b"ann", b"pw"]
    meet(curve_server(), curve_client())
    assert asked[2][4:] == [b"", b"CURVE", RAW]


@pytest.mark.parametrize("a, b", [({}, {}), (curve_server(), curve_client())],
                         ids=["null", "curve"])
def test_who_comes_in_without_a_handler(meet, a, b):
    for more in ({}, {"zap_domain": b"lab"}, {"zap_enforce_domain": True}):
        meet({**a, **more}, b)


def test_nobody_says_himself_who_he_is(make):
    server = make(ours, "PULL")
    server.bind("tcp://127.0.0.1:*")
    with mq.Push(context=make.context(ours)._home.context(),
                 connect=server.get_string(ours.LAST_ENDPOINT),
                 metadata={"User-Id": b"root", "Hello": b"World"}) as client:
        client.send(b"x")
        frame = server.recv(copy=False)
    assert frame.get("Hello") == "World"
    assert number(ours, frame.get, "User-Id") == ours.EINVAL


# -- handlers that misbehave -----------------------------------------------------------------------


@pytest.mark.parametrize("answer, event, value", [
    (say(b"300"), 0x4000, 300), (say(b"400"), 0x4000, 400), (say(b"500"), 0x4000, 500),
    (lambda request: [b"rubbish"], 0x2000, 0x20000001),
    (lambda request: [*say()(request), b"more"], 0x2000, 0x20000001),
    (lambda request: [b"2.0", *say()(request)[1:]], 0x2000, 0x20000003),
    (lambda request: [b"1.0", b"99", *say()(request)[2:]], 0x2000, 0x20000002),
    (lambda request: [b"1.0", b"?", *say()(request)[2:]], 0x2000, 0x20000002),
    (lambda request: [b"1.0", b"", *say()(request)[2:]], 0x2000, 0x20000002),
    (say(b"201"), 0x2000, 0x20000004), (say(b"20"), 0x2000, 0x20000004),
    (say(metadata=b"\5Hello\0\0\0\5Wor"), 0x2000, 0x20000005),
], ids=range(12))
@pytest.mark.parametrize("kind", ["REP", "ROUTER"])
def test_answers(z, make, handler, answer, event, value, kind):
    """Whatever it says, the next one is judged as well."""
    answers = [answer]
    handler(z, lambda request: (answers.pop() if answers else say())(request), kind)
    server = make(z, "PULL", plain_server=True)
    server.bind("tcp://127.0.0.1:*")
    with failing(z, server) as told:
        make(z, "PUSH", **plain_client()).connect(server.last_endpoint)
    assert told == [event, value]
    client = make(z, "PUSH", **plain_client())
    client.connect(server.last_endpoint)
    client.send(b"hello")
    assert server.recv() == b"hello"


def reasons(s):
    stream = s._open().events()
    return lambda: next(event.reason for event in stream if event.kind == "HandshakeFailed")


def test_a_handler_that_thinks_keeps_nobody_else_waiting(make, handler):
    slow, kept = [], []

    def answer(request):
        if request[6] == b"slow":
            slow.append(request)
            return None
        return say(user=b"quick")(request)
    handler(ours, answer)
    server = make(ours, "PULL", plain_server=True, handshake_ivl=400)
    server.bind("tcp://127.0.0.1:*")
    reason = reasons(server)
    for user in (b"slow", b"slow", b"quick"):
        kept.append(make(ours, "PUSH", **plain_client(user)))
        kept[-1].connect(server.last_endpoint)
    kept[-1].send(b"hello")
    assert server.recv(copy=False).get("User-Id") == "quick"
    assert "the handshake was not complete" in reason()
    assert until(lambda: len(slow) >= 2)


def test_a_handler_that_leaves(make, handler):
    """Who waits for it is refused at once, and the next handler is asked."""
    asked, end = handler(ours, lambda request: None)
    server = make(ours, "PULL", plain_server=True)
    server.bind("tcp://127.0.0.1:*")
    reason = reasons(server)
    client = make(ours, "PUSH", reconnect_ivl=10, **plain_client())
    with failing(ours, server) as told:
        client.connect(server.last_endpoint)
        assert until(lambda: asked)
        end()
    assert told == [0x800, 14] and "the ZAP handler left before it answered" in reason()
    assert "no ZAP handler is bound" in reason()
    handler(ours, say(user=b"ann"))
    client.send(b"hello")
    assert server.recv(copy=False).get("User-Id") == "ann"
    assert server._open().stats().failed_handshakes >= 2


def test_a_handler_that_never_looks(make):
    """What waits for it has a limit; who is beyond it is refused at once."""
    make(ours, "REP", rcvhwm=5).bind(ZAP)
    home = make.context(ours)._home
    verdicts = []

    def ask():
        for _ in range(1500):
            assert home.ask([b""] * 6, verdicts.append)
    home.context()._hub.loop.call_wait(ask)
    assert 0 < len(verdicts) <= 500
    assert {(verdict.status, verdict.text) for verdict in verdicts} == {(300, zap.BUSY)}
    make.sockets.pop().close()
    assert until(lambda: len(verdicts) == 1500) and verdicts[-1].text == zap.LEFT
    assert not home.ask([b""] * 6, verdicts.append)


def test_no_handler(make):
    """A socket of another kind at its address is none; and what is not answered is counted."""
    make(ours, "PAIR").bind(ZAP)
    server = make(ours, "PULL", plain_server=True)
    server.bind("tcp://127.0.0.1:*")
    reason = reasons(server)
    make(ours, "PUSH", **plain_client()).connect(server.last_endpoint)
    assert "no ZAP handler is bound" in reason()
    assert server._open().stats().failed_handshakes >= 1


def test_ipc_filters(make, tmp_path):
    for name, mine in (("uid", os.getuid()), ("gid", os.getgid()), ("pid", os.getpid())):
        url = f"ipc://{tmp_path}/{name}"
        server, client = make(ours, "PULL"), make(ours, "PUSH", reconnect_ivl=10)
        setattr(server, f"ipc_filter_{name}", mine + 1)
        server.bind(url)
        reason = reasons(server)
        client.connect(url)
        assert "IPC_FILTER" in reason()
        server.unbind(url)
        setattr(server, f"ipc_filter_{name}", mine)
        server.bind(url)
        client.send(b"hello")
        assert server.recv() == b"hello"


# -- zmq.auth --------------------------------------------------------------------------------------


@pytest.fixture
def judged(z, part, new):
    """judged(authenticator, *request) -> status, text, user."""
    auth = part("auth").Authenticator(new.context())
    sent = []
    auth.zap_socket = SimpleNamespace(send_multipart=sent.append, close=lambda: None)

    def ask(*parts):
        asyncio.run(auth.handle_zap_message([b"1.0", b"7", *parts]))
        (reply,) = sent
        del sent[:]
        assert (reply[0], reply[1], reply[5]) == (b"1.0", b"7", b"")
        return tuple(reply[2:5])
    return auth, ask


def test_rules(judged, tmp_path):
    auth, ask = judged
    plain, curve = (b"", b"PLAIN", b"ann", b"pw"), (b"", b"CURVE", RAW)
    ok = (b"200", b"OK")
    assert ask(b"", b"h", b"", b"NULL") == (*ok, b"anonymous")
    assert ask(b"", b"h", *plain)[0] == ask(b"", b"h", *curve)[0] == b"400"
    assert ask(b"", b"h", b"", b"OTHER")[0] == ask(b"", b"h", b"", b"PLAIN", b"x")[0] == b"400"
    auth.configure_plain(passwords={"ann": "pw"})
    assert ask(b"", b"h", *plain) == (*ok, b"ann")
    assert ask(b"lab", b"h", *plain)[0] == b"400"
    mq.security.save_certificate(tmp_path / "a.key", CLIENT)
    auth.configure_curve(location=tmp_path)
    assert ask(b"", b"h", *curve) == (*ok, KEY)
    assert ask(b"lab", b"h", *curve)[0] == ask(b"", b"h", b"", b"CURVE", b"0" * 32)[0] == b"400"
    auth.configure_curve(location="*")
    assert ask(b"", b"h", b"", b"CURVE", b"0" * 32)[0] == b"200"
    auth.allow("h")
    with pytest.raises(ValueError, match="not both"):
        auth.deny("i")
    assert ask(b"", b"h", *plain)[0] == b"200"
    assert ask(b"", b"i", *plain)[0] == ask(b"", b"i", b"", b"NULL")[0] == b"400"


@pytest.mark.parametrize("waits", [False, True])
def test_providers(judged, waits):
    auth, ask = judged
    asked = []

    def now(domain, key):
        asked.append((domain, key))
        return key == KEY

    async def later(domain, key):
        await asyncio.sleep(0)
        return now(domain, key)
    auth.configure_curve_callback("*", SimpleNamespace(callback=later if waits else now))
    assert ask(b"", b"h", b"", b"CURVE", RAW) == (b"200", b"OK", KEY)
    assert ask(b"", b"h", b"", b"CURVE", b"0" * 32)[0] == b"400"
    assert asked[0] == ("*", KEY) and len(asked) == 2
    assert ask(b"lab", b"h", b"", b"CURVE", RAW)[0] == b"400"


def test_a_provider_that_fails(make, caplog):
    auth = ours.auth.Authenticator(make.context(ours))
    sent = []
    auth.zap_socket = SimpleNamespace(send_multipart=sent.append)
    auth.configure_curve_callback("*", SimpleNamespace(callback=lambda *args: 1 // 0))
    asyncio.run(auth.handle_zap_message([b"1.0", b"7", b"", b"h", b"", b"CURVE", RAW]))
    asyncio.run(auth.handle_zap_message([b"1.0", b"8"]))
    assert [reply[1:3] for reply in sent] == [[b"7", b"500"], [b"8", b"400"]]
    assert "ZeroDivisionError" in caplog.text
    with pytest.raises(ours.ZMQError, match="there is no GSSAPI"):
        auth.configure_gssapi()


def test_in_a_loop(make, sides, part_of):
    """AsyncioAuthenticator, and sockets of the same loop."""
    async def program():
        context = part_of(sides.a, "asyncio").Context()
        auth = part_of(sides.a, "auth.asyncio").AsyncioAuthenticator(context)
        auth.configure_plain(passwords={"ann": "pw"})
        auth.start()
        server = context.socket(sides.a.PULL)
        client = make(sides.b, "PUSH", **plain_client())
        try:
            server.plain_server = True
            server.bind("tcp://127.0.0.1:*")
            client.connect(server.last_endpoint)
            client.send(b"hello")
            frame = await asyncio.wait_for(server.recv(copy=False), 5)
            assert (frame.bytes, frame.get("User-Id")) == (b"hello", "ann")
        finally:
            auth.stop()
            server.close(0)
            context.term()
    asyncio.run(program())


def test_by_its_old_name(z, part):
    with pytest.warns(DeprecationWarning):
        sys.modules.pop(f"{z.__name__}.auth.ioloop", None)
        old = part("auth.ioloop").IOLoopAuthenticator
    assert issubclass(old, part("auth.asyncio").AsyncioAuthenticator)


def test_certificates(z, part, part_of, tmp_path):
    auth = part("auth")
    public, secret = auth.create_certificates(tmp_path, "ann", {"team": "blue"})
    assert (public, secret) == (f"{tmp_path}/ann.key", f"{tmp_path}/ann.key_secret")
    key, own = auth.load_certificate(secret)
    assert auth.load_certificate(public) == (key, None) and z.curve_public(own) == key
    assert auth.load_certificates(tmp_path) == {key: True}
    assert auth.create_certificates(str(tmp_path), "ann") == (public, secret)  # a new one
    assert auth.load_certificate(public)[0] != key
    other = part_of(ours, "auth")
    assert other.load_certificate(secret) == auth.load_certificate(secret)
    with pytest.raises(OSError, match="Invalid certificate file"):
        auth.load_certificate(tmp_path / "none")
    with pytest.raises(OSError, match="Invalid certificate directory"):
        auth.load_certificates(tmp_path / "none")
    (tmp_path / "bad.key").write_text("# nothing\n")
    with pytest.raises(ValueError, match="public"):
        auth.load_certificate(tmp_path / "bad.key")
