"""TLS without I/O: two sessions back to back, any chunking, and what becomes of bad peers."""

import random
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqcore.transports.tls import filter as tls
from tls_sessions import opened, options, pump, shake

from mqcore.spi.filter import Refused


def both(authority, server=None, client=None, address="localhost:5555"):
    """A client and a server that fit, unless their options say otherwise."""
    return (opened("connect", address, **(authority.ca if client is None else client)),
            opened("bind", address, **(authority.server if server is None else server)))


# -- what fits -------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["localhost:1", "127.0.0.1:1", "[::1]:1", "lo;127.0.0.1:1"])
def test_a_server_is_known_by_its_name_or_address(authority, address):
    client, server = both(authority, address=address)
    assert shake(client, server) == (b"", b"")
    assert client.established and server.established
    facts = client.facts()
    assert facts["user"] == b"server" and facts["tls-subject"] == b"O=Tests, CN=server"
    assert facts["tls-names"].startswith(b"DNS:localhost, IP Address:127.0.0.1")
    assert server.facts() == {"tls-version": b"TLSv1.3", "tls-cipher": facts["tls-cipher"],
                              "tls-subject": b"", "tls-names": b"", "user": b""}


def test_a_client_is_known_by_its_certificate(authority):
    client, server = both(authority, {**authority.server, **authority.ca},
                          {**authority.alice, **authority.ca})
    shake(client, server)
    assert server.facts()["user"] == b"alice"
    assert server.facts()["tls-names"] == b"DNS:alice.test"


@pytest.mark.parametrize("client", [
    {"tls_hostname": "elsewhere.test"}, {"tls_verify": "ca"}])
def test_a_server_under_another_name(authority, client):
    client, server = both(authority, authority.elsewhere, {**authority.ca, **client})
    shake(client, server)
    assert client.established and server.established


def test_a_certificate_can_itself_be_what_is_trusted(authority):
    client, server = both(authority, authority.alone, {"tls_ca": authority.alone["tls_cert"]})
    shake(client, server)
    assert client.facts()["user"] == b"alone"


def test_a_server_shows_the_authorities_between(authority):
    client, server = both(authority, authority.chained)
    shake(client, server)
    assert client.facts()["user"] == b"chained"


def test_no_verification_where_it_is_spelt_out(authority):
    client, server = both(authority, authority.alone, {"tls_verify": "none"})
    shake(client, server)
    assert client.established and client.facts()["user"] == b""  # nobody vouches for the name


def test_a_listener_with_a_ca_can_let_everybody_in(authority):
    client, server = both(authority, {**authority.server, **authority.ca, "tls_mutual": False})
    shake(client, server)
    assert server.established and server.facts()["user"] == b""


def test_the_oldest_version(authority):
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.load_verify_locations(authority.ca["tls_ca"])
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    client, server = both(authority, client={"tls_context": old})
    shake(client, server)
    assert client.facts()["tls-version"] == b"TLSv1.2"
    client, server = both(authority, {**authority.server, "tls_min_version": "1.3"},
                          {"tls_context": old})
    with pytest.raises(Refused, match="the client only supports TLS versions older"):
        shake(client, server)
    with pytest.raises(Refused, match="the server supports none of our TLS versions"):
        pump(client, server)


def test_the_next_handshake_with_the_same_server_is_short(authority):
    ours, theirs = tls.split("localhost:1", "connect")[1], tls.split("localhost:1", "bind")[1]
    client_options = options(**authority.ca, **authority.alice)
    server_options = options(**authority.server, **authority.ca)
    sizes = []
    for _ in range(3):
        client = tls.open(ours, "connect", client_options)
        server = tls.open(theirs, "bind", server_options)
        client.start()
        server.receive(client.outgoing())
        text = server.outgoing()
        sizes.append(len(text))
        client.receive(text)
        pump(client, server)
        assert client.established and server.established
        assert server.facts()["user"] == b"alice" and client.facts()["user"] == b"server"
        client.close()
        server.close()
    assert sizes[1] < sizes[0] / 2 and sizes[2] < sizes[0] / 2  # no certificate is sent


# -- bytes -----------------------------------------------------------------------------------------


@given(st.integers(0, 2**32), st.lists(st.tuples(st.booleans(), st.integers(0, 70_000)),
                                       max_size=8))
def test_any_chunking_carries_the_same_bytes(authority, seed, says):
    rng = random.Random(seed)
    client, server = both(authority)
    shake(client, server, rng)
    sent = {client: b"", server: b""}
    got = {client: b"", server: b""}
    for from_client, size in says:
        source, sink = (client, server) if from_client else (server, client)
        text = rng.randbytes(size)
        source.send(text)
        sent[source] += text
        if rng.random() < 0.5:
            up, down = pump(client, server, rng)
            got[client] += up
            got[server] += down
    up, down = pump(client, server, rng)
    assert got[client] + up == sent[server] and got[server] + down == sent[client]


def test_each_send_goes_out_at_once(authority):
    client, server = both(authority)
    shake(client, server)
    for text in (b"a", bytearray(b"bc"), memoryview(b"def")):
        client.send(text)
        assert server.receive(client.outgoing()) == bytes(text)


def test_the_end_in_order(authority):
    client, server = both(authority)
    shake(client, server)
    client.send(b"last words")
    client.finish()
    assert not server.ended
    assert server.receive(client.outgoing()) == b"last words" and server.ended
    server.send(b"half closed")     # the other direction goes on
    server.finish()
    assert client.receive(server.outgoing()) == b"half closed" and client.ended


def test_finish_before_the_handshake_says_nothing(authority):
    client, server = both(authority)
    server.finish()
    assert server.outgoing() == b""


# -- peers that are refused ------------------------------------------------------------------------


def refusals(client, server):
    """What each of both says, with the alerts carried across."""
    said = ["", ""]
    client.start()
    server.start()
    for _ in range(6):
        for i, (source, sink) in enumerate(((server, client), (client, server))):
            text = source.outgoing()
            try:
                if text and not said[i]:
                    sink.receive(text)
            except Refused as refused:
                said[i] = str(refused)
    return said


@pytest.mark.parametrize("server,more,client_says,server_says", [
    ("expired", {}, "the server's certificate, or that of its CA, has expired: renew it at the",
     "our certificate, or that of its CA, has expired: renew the file of tls_cert"),
    ("future", {}, "not valid yet: compare the clocks", "the client refuses our certificate"),
    ("alone", {}, "the server's certificate is self-signed and not trusted (tls_ca ",
     "the client does not trust the CA of our certificate"),
    ("elsewhere", {}, "genuine, but not for 'localhost': connect by a name that is in it, or set",
     "the client refuses our certificate: is it for the name that the client expects?"),
    ("elsewhere", {"tls_hostname": "127.0.0.1"}, "genuine, but not for the address 127.0.0.1",
     "the client refuses our certificate"),
    ("alice", {"tls_hostname": "alice.test"}, "is not issued for a server (extended key usage)",
     "our certificate is not issued for our role"),
    ("server", {"tls_ca": "other"}, "the server's certificate comes from an untrusted CA",
     "the client does not trust the CA of our certificate"),
])
def test_servers_that_are_refused(authority, server, more, client_says, server_says):
    client = {**authority.ca, **more}
    if more.get("tls_ca") == "other":
        client = authority.other_ca
    said = refusals(*both(authority, getattr(authority, server), client))
    assert client_says in said[0] and server_says in said[1]


@pytest.mark.parametrize("client,server_says,client_says", [
    (None, "the client showed no certificate: it needs tls_cert and tls_key",
     "the server requires a certificate from us: set tls_cert and tls_key"),
    ("lapsed", "the client's certificate, or that of its CA, has expired",
     "our certificate, or that of its CA, has expired"),
    ("mallory", "the client's certificate is self-signed and not trusted",
     "the server does not trust the CA of our certificate"),
    ("server", "the client's certificate is not issued for a client",
     "our certificate is not issued for our role"),
])
@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_clients_that_are_refused(authority, client, server_says, client_says, version):
    """With TLS 1.3 the client learns of it after its own handshake is over."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority.ca["tls_ca"])
    if client is not None:
        context.load_cert_chain(*getattr(authority, client).values())
    if version == "1.2":
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        if client is None:
            client_says = "the server shares no parameters with us: it may require a certificate"
    said = refusals(*both(authority, {**authority.server, **authority.ca},
                          {"tls_context": context}))
    assert server_says in said[1] and client_says in said[0]


@pytest.mark.parametrize("text,words", [
    (bytes.fromhex("ff00000000000000017f"), r"ZMTP without TLS: put tls\+ before the transp"),
    (b"GET / HTTP/1.1\r\n\r\n", "HTTP or WebSocket without TLS"),
    (b"\0SP\0\0\x50\0\0", "SP without TLS"),
    (b"\x28\xb5\x2f\xfd\x04", "zstd without TLS"),
    (b"SSH-2.0-OpenSSH", "the peer speaks SSH, not TLS"),
    (b"hello", "the peer does not speak TLS"),
])
@pytest.mark.parametrize("role", ["bind", "connect"])
def test_peers_without_tls_are_named(authority, text, words, role):
    session = opened(role, **(authority.server if role == "bind" else authority.ca))
    session.start()
    session.outgoing()
    with pytest.raises(Refused, match=words):
        session.receive(text)
    assert session.outgoing()[:2] == b"\x15\x03"  # by which the peer can name us
    with pytest.raises(Refused):
        session.receive(b"more")


@given(st.binary(min_size=1, max_size=600), st.booleans(), st.booleans())
def test_any_first_bytes_are_refused_or_waited_for(authority, text, serving, like_tls):
    session = opened("bind", **authority.server) if serving else opened("connect", **authority.ca)
    session.start()
    try:
        assert session.receive(b"\x16\x03\x01" + text if like_tls else text) == b""
    except Refused as refused:
        assert str(refused)
    assert not session.established


@given(st.integers(0, 2**32), st.integers(1, 255))
def test_a_forged_record_ends_the_stream_behind_what_came_whole(authority, place, mask):
    client, server = both(authority)
    shake(client, server)
    client.send(b"genuine")
    whole = client.outgoing()
    client.send(b"forged" * 100)
    text = bytearray(client.outgoing())
    at = place % len(text)
    text[at] ^= mask
    got, reason = b"", ""
    try:
        got = server.receive(whole + bytes(text))
        server.receive(bytes(20_000))  # a length that was forged to be longer waits for its bytes
    except Refused as refused:
        reason = str(refused)
    assert got == b"genuine" and reason
    with pytest.raises(Refused):
        server.receive(b"more")


def test_forged_handshakes_are_refused(authority, rng):
    for _ in range(200):
        client, server = both(authority)
        client.start()
        hello = bytearray(client.outgoing())
        hello[rng.randrange(5, len(hello))] ^= rng.randrange(1, 256)  # behind the record's header
        try:
            server.receive(bytes(hello))
            pump(client, server)
        except Refused:
            continue
        assert not (client.established and server.established)
