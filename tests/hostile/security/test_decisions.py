"""Who may come in: tables, keys, and callables that are asked while the engine waits."""

import threading
import time

import pytest
from certificates import Authority
from rawcurve import greeting
from rawzmtp import COMMAND, GREETING, RawPeer, command, frame, prop
from waiting import until

import mqcore as mq
from mqcore.control.loop import MAX_WORKERS
from mqcore.security import ANY, AuthHandler, AuthResult, Curve, Null, Plain


@pytest.fixture
def meet(ctx, told):
    """meet(server's, client's) -> the server's peer, or the reasons of both sides."""
    def run(server_demands, client_demands, where="tcp://127.0.0.1:0"):
        with mq.Pull(context=ctx, security=server_demands) as server, \
                mq.Push(context=ctx, security=client_demands) as client:
            reasons = told(server), told(client)
            client.connect(server.bind(where).url, reconnect=None)
            if not until(lambda: server.peers() or server.stats().failed_handshakes):
                raise AssertionError("nothing happened")
            if server.peers():
                client.send(b"hello")
                assert server.recv() == b"hello"
                return server.peers()[0]
            assert server.stats().failed_handshakes == 1
            return tuple(reason() for reason in reasons)
    return run


def test_a_callable_is_told_who_asks(meet, where, server_keys, client_keys):
    asked = []

    def allow(asking):
        asked.append(asking)
        return AuthResult(user="ann", metadata={"team": b"blue"})
    peer = meet(Curve(secret_key=server_keys.secret, allow=allow, domain="lab"),
                Curve(server_keys.public, secret_key=client_keys.secret), where)
    assert peer.user == "ann" and peer.metadata == {"team": b"blue", "mechanism": b"CURVE"}
    (asking,) = asked
    assert (asking.domain, asking.mechanism, asking.key) == ("lab", "CURVE", client_keys.public)
    assert asking.address == ("127.0.0.1" if where.startswith("tcp") else asking.address)
    assert asking.username == asking.password == "" and client_keys.public not in repr(asking)
    peer = meet(Plain(allow=lambda asking: asking.password == "pw" and asking.username),
                Plain("bob", "pw"))
    assert peer.user == "bob" and peer.metadata["mechanism"] == b"PLAIN"


@pytest.mark.parametrize("answer, ours, theirs", [
    (False, "(400): allow() said no", "refused: 400"),
    (None, "(400): allow() said no", "refused: 400"),
    (AuthResult(400, "not on Sundays"), "(400): not on Sundays", "refused: 400"),
    (AuthResult(500, "the database is down"), "(500): the database", "refused: 500"),
    (AuthResult(300, "later"), "(300): later", "the peer left when it had read"),
    (7, "(500): allow() returned int", "refused: 500"),
])
@pytest.mark.parametrize("mechanism", ["CURVE", "PLAIN"])
def test_refusals_are_seen_by_both(meet, server_keys, answer, ours, theirs, mechanism):
    demands = (Curve(secret_key=server_keys.secret, allow=lambda asking: answer),
               Curve(server_keys.public))
    if mechanism == "PLAIN":
        demands = Plain(allow=lambda asking: answer), Plain("ann", "pw")
    here, there = meet(*demands)
    assert ours in here and theirs in there


def test_a_callable_that_fails(meet, caplog):
    def allow(asking):
        raise KeyError("who?")
    here, there = meet(Plain(allow=allow), Plain("ann", "pw"))
    assert "(500): allow() failed: KeyError" in here and "refused: 500" in there
    assert "KeyError" in caplog.text


def test_one_who_thinks_keeps_nobody_else_waiting(ctx):
    """A worker thread calls the callback for each peer; a waiting engine holds no thread."""
    go = threading.Event()

    def allow(asking):
        return asking.username == "quick" or go.wait(30)
    with mq.Pull(context=ctx, security=Plain(allow=allow)) as server:
        url = server.bind("tcp://127.0.0.1:0").url
        with mq.Push(context=ctx, connect=url, security=Plain("slow", "")) as slow, \
                mq.Push(context=ctx, connect=url, security=Plain("quick", "")) as quick:
            quick.send(b"1")
            assert server.recv() == b"1"
            assert not slow.peers() and len(server.peers()) == 1
            go.set()
            slow.send(b"2")
            assert server.recv() == b"2"


def test_the_handshake_ends_though_nobody_answers(ctx, told):
    go = threading.Event()
    with mq.Pull(context=ctx, handshake_timeout=0.3, security=Plain(
            allow=lambda asking: go.wait(30))) as server:
        reason = told(server)
        with mq.Push(context=ctx, connect=server.bind("tcp://127.0.0.1:0").url,
                     security=Plain("ann", "")):
            assert "the handshake was not complete" in reason()
        go.set()
    assert not ctx.sockets


def test_closing_while_somebody_is_asked(ctx):
    asked, go = threading.Event(), threading.Event()

    def allow(asking):
        asked.set()
        return go.wait(30)
    server = mq.Pull(context=ctx, security=Plain(allow=allow))
    with mq.Push(context=ctx, connect=server.bind("tcp://127.0.0.1:0").url,
                 security=Plain("ann", "")):
        assert asked.wait(10)
        started = time.monotonic()
        server.close()
        go.set()                      # the answer finds nobody
        assert time.monotonic() - started < 10


def test_who_does_not_wait_for_the_answer(ctx, told):
    go = threading.Event()
    with mq.Pull(context=ctx, security=Plain(allow=lambda asking: go.wait(30))) as server:
        reason = told(server)
        with RawPeer.connect(server.bind("tcp://127.0.0.1:0").url) as raw:
            raw.say(greeting(b"PLAIN"))
            raw.hear(64)
            raw.say(command(b"HELLO", b"\3ann\2pw")
                    + frame(b"\x08INITIATE" + prop(b"Socket-Type", b"PUSH"), COMMAND))
            assert reason() == "the peer went on before it was answered"
        go.set()


def test_who_has_left_is_not_asked_about(ctx):
    """A crowd that asks and goes takes no more of allow= than what it is at just then."""
    go, asked = threading.Event(), []

    def allow(asking):
        asked.append(asking.username)
        return go.wait(30)
    with mq.Pull(context=ctx, security=Plain(allow=allow)) as server:
        url = server.bind("tcp://127.0.0.1:0").url
        crowd = [RawPeer.connect(url) for _ in range(3 * MAX_WORKERS)]
        for raw in crowd:
            raw.say(greeting(b"PLAIN") + command(b"HELLO", b"\5crowd\2pw"))
        until(lambda: len(asked) == MAX_WORKERS)
        for raw in crowd:
            raw.close()
        until(lambda: server.stats().failed_handshakes == len(crowd))
        with mq.Push(context=ctx, connect=url, security=Plain("ann", "pw")) as client:
            client.send(b"in earnest")
            go.set()
            assert server.recv() == b"in earnest"
    assert asked == MAX_WORKERS * ["crowd"] + ["ann"]


@pytest.mark.parametrize("hello", [
    b"\5HELLO", b"\5HELLO\3ann", b"\5HELLO\3ann\3pw", b"\5HELLO\3ann\2pw!", b"\5HELLO\xff\2pw",
    b"\5READY\3ann\2pw", b"\5hello\3ann\2pw", b"", b"\x08INITIATE",
])
def test_wrong_plain(ctx, told, hello):
    with mq.Pull(context=ctx, security=Plain(allow={"ann": "pw"})) as server:
        reason = told(server)
        with RawPeer.connect(server.bind("tcp://127.0.0.1:0").url) as raw:
            raw.say(greeting(b"PLAIN") + frame(hello, COMMAND))
            assert "HELLO" in reason()
            assert raw.ended()


def test_both_the_same(meet):
    here, there = meet(Plain("ann", ""), Plain("bob", ""))
    assert "a client too" in here and "a client too" in there
    here, there = meet(Plain(allow={}), Plain(allow={}))
    assert "a server too" in here and "a server too" in there


def test_an_endpoint_has_its_own(ctx, server_keys):
    with mq.Pull(context=ctx) as server, mq.Push(context=ctx) as client:
        sealed = server.bind("tcp://127.0.0.1:0",
                             security=Curve(secret_key=server_keys.secret, allow=ANY)).url
        bare = server.bind("tcp://127.0.0.1:0").url
        client.connect(bare)
        client.connect(sealed, security=Curve(server_keys.public))
        client.wait_peers(2)
        assert sorted(peer.metadata.get("mechanism", b"") for peer in client.peers()) == [
            b"", b"CURVE"]


def test_conflated_and_sealed(ctx, server_keys):
    with mq.Pull(context=ctx, conflate=True, security=Curve(
            secret_key=server_keys.secret, allow=ANY)) as server:
        with mq.Push(context=ctx, conflate=True, connect=server.bind("tcp://127.0.0.1:0").url,
                     security=Curve(server_keys.public), heartbeat=0.005) as client:
            for i in range(500):
                client.send(b"%d" % i)
            assert until(lambda: server.recv() == b"499")


def test_where_it_cannot_be(ctx, server_keys):
    demands = Curve(secret_key=server_keys.secret, allow=ANY)
    for pattern, url, kind, word in (
            (mq.Bus, "tcp://127.0.0.1:0", mq.OptionError, "SP has no mechanism"),
            (mq.Pair, "shm:///tmp/mqcore-none", mq.NotSupported, "is not a stream"),
            (mq.Pair, "ws://127.0.0.1:0/", mq.NotSupported, "WebSocket")):
        with pattern(context=ctx, security=demands) as sock, pytest.raises(kind, match=word):
            sock.bind(url)
    with pytest.raises(mq.OptionError, match="wire='sp'|SP has no mechanism"):
        mq.Pair(context=ctx, security=demands, bind="tcp://127.0.0.1:0", wire="sp")
    with pytest.raises(mq.OptionError, match=r"Null\(\), Plain\(\) or Curve\(\)"):
        mq.Pair(context=ctx, security="CURVE")
    with mq.Pair(context=ctx, security=demands, bind="inproc://sealed") as one, \
            mq.Pair(context=ctx, security=Null(), connect="inproc://sealed") as two:
        one.send(b"x")                # one process: there is nobody in between
        assert two.recv() == b"x"


@pytest.mark.parametrize("mechanism", ["PLAIN", "CURVE"])
def test_inside_tls(ctx, tmp_path, server_keys, mechanism):
    authority = Authority(tmp_path)
    ours, theirs = Plain(allow={"ann": "pw"}), Plain("ann", "pw")
    if mechanism == "CURVE":
        ours = Curve(secret_key=server_keys.secret, allow=ANY)
        theirs = Curve(server_keys.public)
    with mq.Rep(context=ctx, security=ours) as rep, mq.Req(context=ctx, security=theirs) as req:
        req.connect(rep.bind("tls+tcp://127.0.0.1:0", **authority.server).url, **authority.ca)
        for size in (0, 100, 300_000):
            req.send(b"x" * size)
            assert rep.recv() == b"x" * size
            rep.send(b"y" * size)
            assert req.recv() == b"y" * size
        assert rep.peers()[0].metadata["mechanism"] == mechanism.encode()


def test_nobody_says_by_himself_how_safe_he_is(ctx):
    with mq.Pull(context=ctx) as pull:
        with RawPeer.connect(pull.bind("tcp://127.0.0.1:0").url) as raw:
            raw.say(GREETING)
            raw.hear(64)
            raw.say(command(b"READY", prop(b"Socket-Type", b"PUSH") + prop(b"Mechanism", b"CURVE")
                            + prop(b"Other", b"x")))
            pull.wait_peers(timeout=10)
            assert pull.peers()[0].metadata == {"Other": b"x"}


class Junk(AuthHandler):
    def __init__(self, *told):
        self.told = told

    def begin(self, asking, tell):
        for one in self.told:
            tell(one)


@pytest.mark.parametrize("said", [(True,), ("ann",), (7,), (3.5,)], ids=repr)
def test_an_inquiry_that_tells_no_verdict_refuses_at_once(meet, said, caplog):
    here, there = meet(Plain(allow=Junk(*said)), Plain("ann", "pw"))
    assert "(500): allow() returned a" in here
    assert "refused: 500" in there
    assert "not an AuthResult" in caplog.text


def test_an_inquiry_that_tells_twice_has_told_once(ctx):
    yes_and_no = Junk(AuthResult(), AuthResult(400))
    with mq.Pull(context=ctx, security=Plain(allow=yes_and_no)) as server, \
            mq.Push(context=ctx, connect=server.bind("tcp://127.0.0.1:0").url,
                    security=Plain("ann", "pw")) as client:
        for number in range(10):
            client.send(b"%d" % number)
            assert server.recv(timeout=10) == b"%d" % number
        assert server.stats().failed_handshakes == 0


@pytest.mark.parametrize("make,words", [
    (lambda: Plain(allow={"ann", "bob"}), "a mapping of usernames to passwords"),
    (lambda: Plain(allow=ANY), "not mqcore.security.ANY"),
    (lambda: Plain(allow=5), "not int"),
    (lambda: Plain(allow={"ann": 5}), "a password must be text or bytes, not int"),
    (lambda: Plain(5, "pw"), "a username must be text or bytes, not int"),
    (lambda: Plain("ann", None), "a password must be text or bytes, not NoneType"),
    (lambda: Null(allow=ANY), "not mqcore.security.ANY"),
    (lambda: Null(allow=5), "user ids"),
    (lambda: Null(allow={1000: 5}), "a name in allow= must be text"),
    (lambda: Null(domain=5), "domain= must be text"),
    (lambda: AuthResult(metadata={"team": "blue"}), "a mapping of str to bytes"),
    (lambda: AuthResult(metadata=[("team", b"blue")]), "a mapping of str to bytes"),
    (lambda: AuthResult(user=5), "user of an AuthResult"),
    (lambda: AuthResult(text=None), "text of an AuthResult"),
])
def test_demands_that_nobody_can_mean(make, words):
    with pytest.raises(mq.OptionError, match=words):
        make()


@pytest.mark.parametrize("allow", [5, True, 3.5], ids=repr)
def test_keys_that_nobody_can_mean(server_keys, allow):
    with pytest.raises(mq.OptionError, match="allow= must be a collection of keys"):
        Curve(secret_key=server_keys.secret, allow=allow)
    with pytest.raises(mq.OptionError, match="a name in allow= must be text"):
        Curve(secret_key=server_keys.secret, allow={server_keys.public: 5})
