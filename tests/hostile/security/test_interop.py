"""PLAIN and CURVE with libzmq, both roles: who is right talks, who is wrong learns why."""

import contextlib

import pytest
import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils.monitor import recv_monitor_message

import mqcore as mq
from mqcore.security import ANY, Curve, KeyPair, Plain, save_certificate

SIZES = (0, 1, 22, 23, 24, 56, 57, 222, 223, 5000, 300_000, 3_000_000)


def zsocket(zctx, kind, server_keys, client_keys=None, login=None):
    """A client if it has keys or a login of its own, else a server."""
    s = zctx.socket(kind)
    s.linger, s.rcvtimeo, s.sndtimeo = 0, 10_000, 10_000
    if login:
        s.plain_username, s.plain_password = login
    elif client_keys:
        s.curve_serverkey = server_keys.public.encode()
        s.curve_publickey = client_keys.public.encode()
        s.curve_secretkey = client_keys.secret.encode()
    elif server_keys:
        s.curve_server = True
        s.curve_secretkey = server_keys.secret.encode()
    else:
        s.plain_server = True
    return s


@contextlib.contextmanager
def refused(s):
    """libzmq is told so, by the number of ZAP."""
    with s.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH) as events:
        yield
        assert events.poll(10_000)
        assert recv_monitor_message(events)["value"] == 400
        s.disable_monitor()


def url_of(s):
    return s.last_endpoint.decode()


def talk(client, server):
    for size in SIZES:
        client.send(b"q" * size)
        assert server.recv() == b"q" * size
        server.send(b"a" * size)
        assert client.recv() == b"a" * size


def test_curve_to_libzmq(ctx, zctx, where, server_keys, client_keys):
    with zsocket(zctx, zmq.REP, server_keys) as server:
        server.bind(where.replace(":0", ":*"))
        with mq.Req(context=ctx, connect=url_of(server), security=Curve(
                server_keys.public, secret_key=client_keys.secret)) as client:
            talk(client, server)
            (peer,) = client.peers()
            assert peer.user == server_keys.public and peer.metadata["mechanism"] == b"CURVE"


def test_curve_from_libzmq(ctx, zctx, where, server_keys, client_keys):
    with mq.Rep(context=ctx, security=Curve(secret_key=server_keys.secret, allow={
            client_keys.public: "ann"})) as server:
        with zsocket(zctx, zmq.REQ, server_keys, client_keys) as client:
            client.connect(server.bind(where).url)
            talk(client, server)
            assert [peer.user for peer in server.peers()] == ["ann"]


def test_curve_messages_in_parts_and_subscriptions(ctx, zctx, server_keys, client_keys):
    with mq.XPub(context=ctx, security=Curve(
            secret_key=server_keys.secret, allow=ANY)) as pub:
        with zsocket(zctx, zmq.SUB, server_keys, client_keys) as sub:
            sub.subscribe(b"a")
            sub.connect(pub.bind("tcp://127.0.0.1:0").url)
            assert pub.recv() == b"\1a"
            for i in range(300):
                pub.send_parts([b"a%d" % i, b"", b"x" * i])
                pub.send_parts([b"b", b"nobody wants it"])
            for i in range(300):
                assert sub.recv_multipart() == [b"a%d" % i, b"", b"x" * i]
    with zsocket(zctx, zmq.XPUB, server_keys) as pub:
        pub.bind("tcp://127.0.0.1:*")
        with mq.Sub(context=ctx, topics="a", connect=url_of(pub), security=Curve(
                server_keys.public, secret_key=client_keys.secret)) as sub:
            assert pub.recv() == b"\1a"
            pub.send_multipart([b"a", b"1", b"2"])
            assert sub.recv_parts() == [b"a", b"1", b"2"]


def test_curve_heartbeats_among_traffic(ctx, zctx, server_keys, client_keys):
    """What is said between messages keeps its place: the counts on the wire only grow."""
    with mq.Pull(context=ctx, heartbeat=0.002, security=Curve(
            secret_key=server_keys.secret, allow=ANY)) as pull:
        with zsocket(zctx, zmq.PUSH, server_keys, client_keys) as push:
            push.heartbeat_ivl, push.heartbeat_timeout = 2, 60_000
            push.connect(pull.bind("tcp://127.0.0.1:0").url)
            for i in range(3000):
                push.send(b"%d" % i)
            assert [pull.recv() for _ in range(3000)] == [b"%d" % i for i in range(3000)]
            with zsocket(zctx, zmq.PAIR, server_keys) as there:
                there.heartbeat_ivl, there.heartbeat_timeout = 2, 60_000
                there.bind("tcp://127.0.0.1:*")
                with mq.Pair(context=ctx, connect=url_of(there), heartbeat=0.002,
                             security=Curve(server_keys.public)) as here:
                    for i in range(2000):
                        here.send(b"%d" % i * (i % 7))
                        there.send(b"%d" % i)
                        assert there.recv() == b"%d" % i * (i % 7)
                        assert here.recv() == b"%d" % i
                    assert here.stats().broken_peers == 0 and len(here.peers()) == 1


def test_curve_wrong_key_at_libzmq(ctx, zctx, told, server_keys, client_keys, other_keys):
    with zsocket(zctx, zmq.REP, server_keys) as server:
        server.bind("tcp://127.0.0.1:*")
        with mq.Req(context=ctx, security=Curve(
                other_keys.public, secret_key=client_keys.secret)) as client:
            reason = told(client)
            client.connect(url_of(server))
            assert "server_key is probably not its public key" in reason()
            assert client.stats().failed_handshakes >= 1


def test_curve_wrong_key_from_libzmq(ctx, zctx, told, server_keys, client_keys, other_keys):
    with mq.Rep(context=ctx, security=Curve(secret_key=server_keys.secret,
                                               allow=[client_keys.public])) as server:
        reason = told(server)
        url = server.bind("tcp://127.0.0.1:0").url
        with zsocket(zctx, zmq.REQ, other_keys, client_keys) as client:
            client.connect(url)
            assert "its server_key is not our public key" in reason()
        with zsocket(zctx, zmq.REQ, server_keys, other_keys) as client:
            with refused(client):
                client.connect(url)
                assert "not among those allowed" in reason()
        assert not server.peers()


def test_plain_from_libzmq(ctx, zctx, told, where):
    with mq.Rep(context=ctx, security=Plain(allow={"ann": "secret", "bob": ""})) as server:
        reason = told(server)
        url = server.bind(where).url
        with zsocket(zctx, zmq.REQ, None, login=(b"ann", b"secret")) as client:
            client.connect(url)
            talk(client, server)
            assert [peer.user for peer in server.peers()] == ["ann"]
        for login in ((b"ann", b"Secret"), (b"bob", b"secret"), (b"eve", b"secret")):
            with zsocket(zctx, zmq.REQ, None, login=login) as client:
                with refused(client):
                    client.connect(url)
                    assert "we refused the peer (400)" in reason()


@pytest.fixture
def zap(zctx):
    handler = ThreadAuthenticator(zctx)
    handler.start()
    yield handler
    handler.stop()


def test_plain_and_curve_before_a_zap_handler(
        ctx, zctx, zap, told, where, tmp_path, server_keys, client_keys, other_keys):
    zap.configure_plain(domain="*", passwords={"ann": "secret"})
    (tmp_path / "keys").mkdir()
    save_certificate(tmp_path / "keys" / "client.key",
                        KeyPair(client_keys.public, client_keys.secret))
    zap.configure_curve(domain="*", location=str(tmp_path / "keys"))
    demands = (
        (None, Plain("ann", "secret"), Plain("ann", "guess"), "username and password"),
        (server_keys, Curve(server_keys.public, secret_key=client_keys.secret),
         Curve(server_keys.public, secret_key=other_keys.secret), "does not accept our key"))
    for keys, right, wrong, word in demands:
        with zsocket(zctx, zmq.REP, keys) as server:
            server.bind(where.replace(":0", ":*"))
            url = url_of(server)
            with mq.Req(context=ctx, connect=url, security=right) as client:
                talk(client, server)
            with mq.Req(context=ctx, security=wrong) as client:
                reason = told(client)
                client.connect(url)
                said = reason()
                assert "the peer refused: 400" in said and word in said


def test_one_side_alone_is_secure(ctx, zctx, told, server_keys, client_keys):
    """No lesser mechanism is ever agreed on."""
    with mq.Rep(context=ctx, security=Curve(
            secret_key=server_keys.secret, allow=ANY)) as server:
        reason = told(server)
        url = server.bind("tcp://127.0.0.1:0").url
        with zctx.socket(zmq.REQ) as client:
            client.connect(url)
            assert reason() == "the peer wants mechanism NULL, this socket uses CURVE"
        with zsocket(zctx, zmq.REQ, None, login=(b"a", b"b")) as client:
            client.connect(url)
            assert reason() == "the peer wants mechanism PLAIN, this socket uses CURVE"
