"""tls+tcp:// over real connections: what passes, refusals and their reasons, how it ends."""

import os
import shutil
import socket as pysocket
import ssl
import subprocess

import pytest
from certificates import Pair
from waiting import until

from mqcore.errors import HandshakeFailed, OptionError

GREETING = bytes.fromhex("ff00000000000000017f 0301") + b"NULL".ljust(20, b"\0") + bytes(32)


def ready(pattern: bytes) -> bytes:
    body = b"\x05READY\x0bSocket-Type" + len(pattern).to_bytes(4, "big") + pattern
    return bytes((4, len(body))) + body


@pytest.fixture
def served(ctx, authority):
    """A pull that listens, with the server's certificate and whatever else is given."""
    def serve(below="tcp://127.0.0.1:0", pattern="pull", **options):
        pull = ctx.socket(pattern)
        given = {**authority.server, **options}
        return pull, pull.bind(f"tls+{below}", **given).url.replace("127.0.0.1", "localhost")
    return serve


def reasons(socket, url, **options) -> str:
    """Why a connection there fails."""
    endpoint = socket.connect(url, reconnect=None, **options)
    with pytest.raises(HandshakeFailed) as caught:
        endpoint.wait_ready(10)
    return caught.value.reason


def heard(socket):
    """The reasons of failed handshakes at a listener, from now on."""
    found = []
    socket._links.watchers.append(
        lambda event: found.append(event.reason) if event.kind == "HandshakeFailed" else None)
    return found


# -- what passes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("below", ["tcp", "ipc"])
def test_messages_of_all_sizes_both_ways(ctx, authority, below, tmp_path):
    where = "127.0.0.1:0" if below == "tcp" else f"{tmp_path}/s"
    one, two = ctx.socket("pair"), ctx.socket("pair")
    url = one.bind(f"tls+{below}://{where}", **authority.server).url
    two.connect(url, wait=10, **authority.ca, tls_hostname="localhost")
    for size in (0, 1, 57, 255, 256, 8192, 16384, 16385, 65536, 300_000, 5_000_000):
        for source, sink in ((one, two), (two, one)):
            parts = [os.urandom(size), b"", b"tail"]
            source.send_parts(parts, timeout=10)
            assert sink.recv_parts(timeout=20) == parts
    two.send_many(b"%d" % i for i in range(5000))
    assert [one.recv(timeout=10) for _ in range(5000)] == [b"%d" % i for i in range(5000)]


def test_mutual_and_who_the_peer_is(ctx, served, authority):
    pull, url = served(**authority.ca)
    push = ctx.socket("push", metadata={"tls-subject": "CN=root"})  # what it says is not believed
    push.connect(url, wait=10, **authority.ca, **authority.alice)
    push.send(b"hello")
    message = pull.recv_msg(timeout=10)
    peer = message.peer
    assert peer.user == "alice" and peer.metadata["tls-subject"] == b"O=Tests, CN=alice"
    assert peer.metadata["tls-version"] == b"TLSv1.3"
    server, = push.peers()
    assert server.user == "server" and b"DNS:localhost" in server.metadata["tls-names"]


def test_options_in_the_url_and_of_the_socket(ctx, authority):
    query = "&".join(f"{name}={value}" for name, value in authority.server.items())
    pull = ctx.socket("pull")
    url = pull.bind(f"tls+tcp://127.0.0.1:0?{query}").url
    assert "tls_key" not in url
    push = ctx.socket("push", **authority.ca)
    push.connect(url, wait=10)
    assert push.peers()[0].user == "server"
    with pytest.raises(OptionError, match="cannot be set in a URL"):
        push.connect(f"{url}?tls_key_password=x")
    with pytest.raises(OptionError, match="did you mean 'tls_ca'"):
        ctx.socket("push", tls_cas="x")


def test_bad_options_are_told_by_bind_and_connect(ctx, authority, tmp_path):
    socket = ctx.socket("pair")
    with pytest.raises(OptionError, match="a certificate to listen with"):
        socket.bind("tls+tcp://127.0.0.1:0")
    with pytest.raises(OptionError, match="tls_ca: cannot read"):
        socket.connect("tls+tcp://127.0.0.1:1", tls_ca=str(tmp_path / "nowhere"))
    assert not socket.endpoints


def test_new_connections_see_renewed_files(ctx, authority, tmp_path):
    files = Pair("first", authority.root, ("localhost",), "server").save(tmp_path, "server")
    pull = ctx.socket("pull")
    url = pull.bind("tls+tcp://127.0.0.1:0", **files).url.replace("127.0.0.1", "localhost")
    users = []
    for name in ("first", "second"):
        if name == "second":
            Pair(name, authority.root, ("localhost",), "server").save(tmp_path, "server")
        push = ctx.socket("push")
        push.connect(url, wait=10, **authority.ca)
        users += [peer.user for peer in push.peers()]
    pull.wait_peers(2, 10)
    assert users == ["first", "second"]


# -- who is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize("server,client,there,here", [
    ("expired", "ca", "has expired: renew it at the server", "our certificate, or that of its CA,"),
    ("alone", "ca", "is self-signed and not trusted", "does not trust the CA of our"),
    ("elsewhere", "ca", "genuine, but not for 'localhost'", "refuses our certificate"),
    ("server", "other_ca", "comes from an untrusted CA", "does not trust the CA of our"),
])
def test_servers_that_are_refused(ctx, served, authority, server, client, there, here):
    pull, url = served(**getattr(authority, server))
    said = heard(pull)
    assert there in reasons(ctx.socket("push"), url, **getattr(authority, client))
    assert here in until(lambda: said)[0]


@pytest.mark.parametrize("client,there,here", [
    (None, "the client showed no certificate", "the server requires a certificate from us"),
    ("lapsed", "the client's certificate, or that of its CA, has expired", "has expired"),
    ("mallory", "the client's certificate is self-signed", "does not trust the CA of our"),
])
def test_clients_that_are_refused(ctx, served, authority, client, there, here):
    """The client's handshake is over before the refusal arrives; the client still reports it."""
    pull, url = served(**authority.ca)
    said = heard(pull)
    mine = {} if client is None else getattr(authority, client)
    assert here in reasons(ctx.socket("push"), url, **authority.ca, **mine)
    assert there in until(lambda: said)[0]
    good = ctx.socket("push")
    good.connect(url, wait=10, **authority.ca, **authority.alice)


def test_a_plain_peer_at_a_tls_listener(ctx, served):
    pull, url = served()
    said = heard(pull)
    assert "the peer speaks TLS, not ZMTP: put tls+ before" in reasons(
        ctx.socket("push"), url.removeprefix("tls+"))
    assert "the peer speaks ZMTP without TLS" in until(lambda: said)[0]


def test_a_tls_peer_at_a_plain_listener(ctx, authority):
    pull = ctx.socket("pull")
    url = pull.bind("tcp://127.0.0.1:0").url
    said = heard(pull)
    reason = reasons(ctx.socket("push"), f"tls+{url}", **authority.ca)
    assert "the peer closed the connection during the handshake" in reason
    assert "the peer speaks TLS, not ZMTP or SP: put tls+ before" in until(lambda: said)[0]


def test_half_open_handshakes_end_and_hold_up_nobody(ctx, served, authority):
    pull, url = served(handshake_timeout=0.5)
    said = heard(pull)
    port = int(url.rpartition(":")[2])
    with pysocket.create_connection(("127.0.0.1", port)) as silent, \
            pysocket.create_connection(("127.0.0.1", port)) as slow:
        slow.sendall(b"\x16\x03\x01\x02\x00\x01")  # the first bytes of a ClientHello
        push = ctx.socket("push")
        push.connect(url, wait=10, **authority.ca)
        push.send(b"meanwhile")
        assert pull.recv(timeout=10) == b"meanwhile"
        for one in (silent, slow):
            one.settimeout(10)
            assert one.recv(100) == b""
    assert until(lambda: len(said) == 2 and said) == [
        "the handshake was not complete after 0.5 s"] * 2


# -- ends ------------------------------------------------------------------------------------------


def test_close_delivers_what_was_written(ctx, served, authority):
    pull, url = served()
    push = ctx.socket("push")
    push.connect(url, wait=10, **authority.ca)
    for i in range(300):
        push.send(i.to_bytes(4, "big") * 5000, timeout=10)
    report = push.close(linger=20)
    assert report.written == 300 and not report.undelivered
    assert [pull.recv(timeout=10)[:4] for i in range(300)] == [
        i.to_bytes(4, "big") for i in range(300)]


@pytest.mark.parametrize("how,reason", [
    ("unwrap", "the peer ended the connection"),
    ("cut", "the peer closed the connection without ending its stream: it was cut off")])
def test_an_end_in_order_is_told_from_a_cut_off_one(ctx, served, authority, how, reason):
    pull, url = served()
    gone = []
    pull._links.watchers.append(
        lambda event: gone.append(event.reason) if event.kind == "Disconnected" else None)
    with by_hand(authority, int(url.rpartition(":")[2])) as peer:
        peer.sendall(b"\0\x05hello")
        assert pull.recv(timeout=10) == b"hello"
        if how == "unwrap":
            peer.unwrap()
        else:
            peer.shutdown(pysocket.SHUT_RDWR)  # FIN without close_notify
    assert reason in until(lambda: gone)[0]


def test_reconnects_when_the_server_comes_back(ctx, authority):
    push = ctx.socket("push")
    first = ctx.socket("pull")
    url = first.bind("tls+tcp://127.0.0.1:0", **authority.server).url
    endpoint = push.connect(url, wait=10, reconnect=0.01, reconnect_max=0.05, **authority.ca)
    first.close()
    until(lambda: endpoint.state != "connected")
    second = ctx.socket("pull")
    second.bind(url, **authority.server)
    endpoint.wait_ready(10)
    push.send(b"again")
    assert second.recv(timeout=10) == b"again"


def test_two_hundred_at_once(ctx, served, authority):
    pull, url = served()
    pushes = [ctx.socket("push") for _ in range(200)]
    for push in pushes:
        push.connect(url, **authority.ca)
    for i, push in enumerate(pushes):
        push.send(b"%d" % i, timeout=60)
    got = sorted(int(pull.recv(timeout=60)) for _ in pushes)
    assert got == list(range(200)) and len(pull.peers()) == 200


# -- other people's TLS ----------------------------------------------------------------------------


class ByHand(ssl.SSLSocket):
    """A bare ssl socket that speaks ZMTP."""

    def take(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.recv(size - len(data))
            assert more, "the peer left"
            data += more
        return data


def by_hand(authority, port: int, pattern: bytes = b"PUSH") -> ByHand:
    context = ssl.create_default_context(cafile=authority.ca["tls_ca"])
    context.sslsocket_class = ByHand
    peer = context.wrap_socket(pysocket.create_connection(("localhost", port), timeout=10),
                               server_hostname="localhost")
    assert isinstance(peer, ByHand)
    peer.sendall(GREETING + ready(pattern))
    assert peer.take(64)[:11] == GREETING[:11]
    flags, size = peer.take(2)
    assert flags == 4 and peer.take(size).startswith(b"\x05READY")
    return peer


def test_a_bare_ssl_socket(ctx, served, authority):
    router, url = served(pattern="pair")
    with by_hand(authority, int(url.rpartition(":")[2]), b"PAIR") as peer:
        for size in (1, 200, 255):
            peer.sendall(bytes((0, size)) + b"x" * size)
            assert router.recv(timeout=10) == b"x" * size
            router.send(b"y" * size)
            assert peer.take(2 + size) == bytes((0, size)) + b"y" * size


openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="the openssl command")


def exchanged(process, text: bytes, size: int) -> bytes:
    process.stdin.write(text)
    process.stdin.flush()
    return process.stdout.read(size)


@openssl
def test_openssl_s_client(ctx, served, authority):
    pull, url = served(**authority.ca)
    command = ["openssl", "s_client", "-quiet", "-connect", url.partition("://")[2],
               "-CAfile", authority.ca["tls_ca"], "-verify_return_error",
               "-cert", authority.alice["tls_cert"], "-key", authority.alice["tls_key"]]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL) as process:
        answer = exchanged(process, GREETING + ready(b"PUSH") + b"\0\x05hello", 64)
        assert answer[:11] == GREETING[:11]
        assert pull.recv_msg(timeout=10).peer.user == "alice"
        process.stdin.close()
        process.terminate()


@openssl
def test_openssl_s_server(ctx, authority):
    with pysocket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    command = ["openssl", "s_server", "-quiet", "-accept", f"127.0.0.1:{port}", "-naccept", "1",
               "-cert", authority.server["tls_cert"], "-key", authority.server["tls_key"]]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL) as process:
        push = ctx.socket("push")
        endpoint = push.connect(f"tls+tcp://localhost:{port}", reconnect=0.01, **authority.ca)
        process.stdin.write(GREETING + ready(b"PULL"))
        process.stdin.flush()
        endpoint.wait_ready(10)
        push.send(b"hello")
        wanted = 64 + len(ready(b"PUSH")) + 7
        assert process.stdout.read(wanted).endswith(b"\0\x05hello")
        process.stdin.close()
        process.terminate()
