"""The WebSocket filter without I/O: addresses, the upgrade, origins, and who is turned away."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mqcore.transports.ws import websocket

from mqcore.errors import OptionError, UsageError
from mqcore.spi.filter import Refused

REQUEST = (b"GET %b HTTP/1.1\r\nHost: 127.0.0.1:5555\r\nUpgrade: websocket\r\n"
           b"Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
           b"Sec-WebSocket-Protocol: %b\r\nSec-WebSocket-Version: 13\r\n%b\r\n")


def open_session(role, address="127.0.0.1:5555", **options):
    session = websocket.open(websocket.split(address, role)[1], role, options)
    session.start()
    return session


def request(path=b"/", offers=b"ZWS2.0/NULL,ZWS2.0", more=b""):
    return REQUEST % (path, offers, more)


def refused(session, data):
    with pytest.raises(Refused) as caught:
        session.receive(data)
    return str(caught.value), session.outgoing()


# -- addresses -------------------------------------------------------------------------------------

@pytest.mark.parametrize("address,below,path,host", [
    ("127.0.0.1:5555", "127.0.0.1:5555", "", "127.0.0.1:5555"),
    ("127.0.0.1:5555/", "127.0.0.1:5555", "/", "127.0.0.1:5555"),
    ("*:0/a/b", "*:0", "/a/b", "*:0"),
    ("[::1]:80/x", "[::1]:80", "/x", "[::1]:80"),
    ("[fe80::1%eth0]:80/x", "[fe80::1%eth0]:80", "/x", "[fe80::1]:80"),
    ("eth0;example.org:80/x", "eth0;example.org:80", "/x", "example.org:80"),
    ("/run/a.sock", "/run/a.sock", "", "localhost"),
    ("/run/a.sock:/x/y", "/run/a.sock", "/x/y", "localhost"),
    ("@name:/x", "@name", "/x", "localhost"),
])
def test_addresses(address, below, path, host):
    assert websocket.split(address, "connect") == (below, (path, host))
    assert websocket.join(below, websocket.split(address, "connect")[1]) == address


def test_origins_are_checked_early():
    for good in (None, "", "*", "null", "https://example.org http://127.0.0.1:8000"):
        websocket.check(None, "bind", {"origin": good})
    for bad in ("example.org", "https://example.org/", "//x", "https://"):
        with pytest.raises(OptionError, match="is not an origin"):
            websocket.check(None, "bind", {"origin": bad})


def test_one_subprotocol_only():
    with pytest.raises(OptionError, match="does not fit"):
        websocket.check(None, "bind", {"subprotocol": "ZWS1.0"})
    assert b"Protocol: ZWS2.0\r\n" in open_session("connect", subprotocol="ZWS2.0").outgoing()
    session = open_session("bind", subprotocol="ZWS2.0")
    session.receive(request())
    assert session.codec == "zws-bare"
    assert "needed: ZWS2.0" in refused(open_session("bind", subprotocol="ZWS2.0"),
                                         request(offers=b"ZWS2.0/NULL"))[0]


# -- SP --------------------------------------------------------------------------------------------

@pytest.mark.parametrize("number,bound,connected", [
    (0x10, "pair", "pair"), (0x11, "pair1", "pair1"), (0x20, "pub", "sub"), (0x21, "sub", "pub"),
    (0x30, "req", "rep"), (0x31, "rep", "req"), (0x50, "push", "pull"), (0x51, "pull", "push"),
    (0x62, "surveyor", "respondent"), (0x63, "respondent", "surveyor"), (0x70, "bus", "bus"),
])
def test_the_listeners_name_is_the_subprotocol(number, bound, connected):
    facts = {"pattern.sp": number, "pattern.zmtp": "", "wire": None}
    for ours in (open_session("bind", **facts),
                 open_session("bind", **{**facts, "pattern.zmtp": "X"})):
        ours.receive(request(offers=f"{bound}.SP.nanomsg.org".encode()))
        assert ours.codec == "sp-ws"
        assert f"Protocol: {bound}.SP.nanomsg.org\r\n".encode() in ours.outgoing()
    for more in ({}, {"pattern.zmtp": "X", "wire": "sp"},
                 {"pattern.zmtp": "X", "subprotocol": f"{connected}.sp.nanomsg.org"}):
        said = open_session("connect", **{**facts, **more}).outgoing()
        assert f"Protocol: {connected}.sp.nanomsg.org\r\n".encode() in said


def test_which_families_meet():
    both = {"pattern.sp": 0x31, "pattern.zmtp": "REP"}
    assert b"Protocol: ZWS2.0/NULL, ZWS2.0\r\n" in open_session("connect", **both).outgoing()
    for wire, offers in (("zmtp", b"rep.sp.nanomsg.org"), ("sp", b"ZWS2.0"),
                         (None, b"req.sp.nanomsg.org")):
        reason, answer = refused(open_session("bind", wire=wire, **both), request(offers=offers))
        assert "needed:" in reason and answer.startswith(b"HTTP/1.1 400 ")
    with pytest.raises(OptionError, match="choose from rep.sp"):
        websocket.check(None, "bind", {**both, "wire": "sp", "subprotocol": "ZWS2.0"})
    with pytest.raises(UsageError, match="no name"):
        websocket.check(None, "bind", {"pattern.sp": 0x99, "pattern.zmtp": ""})


def test_a_request_without_a_path():
    """nng 1.11 writes none if its URL has none."""
    session = open_session("bind")
    session.receive(request().replace(b"GET / ", b"GET  "))
    assert session.established and session.facts()["ws-path"] == b"/"


# -- the upgrade -----------------------------------------------------------------------------------

def test_example_of_the_rfc():
    """RFC 6455, section 1.3: that key has this answer."""
    session = open_session("bind", "127.0.0.1:5555/chat")
    data = request(b"/chat")
    assert session.receive(data + b"left") == b"left"
    assert session.established and session.transparent and session.codec == "zws"
    assert session.outgoing() == (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"
        b"Sec-WebSocket-Protocol: ZWS2.0/NULL\r\n\r\n")
    assert session.facts()["ws-path"] == b"/chat"


def test_our_request_is_as_libzmq_reads_it():
    lines = open_session("connect", "127.0.0.1:5555/a b").outgoing().split(b"\r\n")
    assert lines[0] == b"GET /a%20b HTTP/1.1"
    assert b"Sec-WebSocket-Protocol: ZWS2.0/NULL, ZWS2.0" in lines
    assert b"Host: 127.0.0.1:5555" in lines and b"Connection: Upgrade" in lines
    assert not any(line.startswith((b"Origin", b"Sec-WebSocket-Extensions")) for line in lines)
    lines = open_session("connect", origin="https://example.org").outgoing().split(b"\r\n")
    assert b"Origin: https://example.org" in lines


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_both_sides_in_any_chunks(data):
    ours, theirs = open_session("bind"), open_session("connect")
    left = {}
    for side, text in ((ours, None), (theirs, None)):
        text = (theirs if side is ours else ours).outgoing() + b"tail"
        cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
        left[side] = b"".join(side.receive(text[a:b]) for a, b in
                              zip([0, *cuts], [*cuts, len(text)], strict=True) if a < b)
    assert left == {ours: b"tail", theirs: b"tail"}
    assert ours.codec == theirs.codec == "zws"


@pytest.mark.parametrize("offers,codec", [
    (b"ZWS2.0", "zws-bare"), (b"ZWS2.0,ZWS2.0/NULL", "zws-bare"),
    (b"ZWS2.0/CURVE, ZWS2.0/NULL", "zws"),
])
def test_the_first_offer_that_fits(offers, codec):
    session = open_session("bind")
    session.receive(request(offers=offers))
    assert session.codec == codec


def test_nothing_is_compressed():
    session = open_session("bind")
    session.receive(request(more=b"Sec-WebSocket-Extensions: permessage-deflate\r\n"))
    assert b"Extensions" not in session.outgoing()


# -- paths and origins -----------------------------------------------------------------------------

@pytest.mark.parametrize("address,path,fits", [
    ("h:1", b"/", True), ("h:1/", b"/", True), ("h:1/x", b"/x", True),
    ("h:1/x", b"/x?token=1", True),
    ("h:1/x?token=1", b"/x?token=1", True), ("h:1/\u00e4", b"/%C3%A4", True),
    ("h:1/x", b"/", False), ("h:1", b"/x", False), ("h:1/x?token=1", b"/x?token=2", False),
])
def test_a_listener_serves_its_own_path(address, path, fits):
    session = open_session("bind", address)
    if fits:
        session.receive(request(path))
        assert session.established
    else:
        reason, answer = refused(session, request(path))
        assert "path" in reason and answer.startswith(b"HTTP/1.1 404 ")
        assert answer.endswith(f"\r\n\r\n{reason}\n".encode())


@pytest.mark.parametrize("allowed,origin,fits", [
    (None, None, True), (None, b"http://127.0.0.1:5555", True),
    (None, b"http://evil.example", False),
    (None, b"http://127.0.0.1:8000", False), (None, b"null", False), ("null", b"null", True),
    ("*", b"http://evil.example", True),
    ("http://a.example http://b.example", b"http://b.example", True),
    ("http://a.example", b"http://127.0.0.1:5555", False), ("http://a.example", None, True),
    ("http://a.example", b"https://a.example", False),
])
def test_origins(allowed, origin, fits):
    session = open_session("bind", origin=allowed)
    data = request(more=b"Origin: " + origin + b"\r\n" if origin else b"")
    if fits:
        session.receive(data)
        assert session.facts().get("ws-origin") == origin
    else:
        reason, answer = refused(session, data)
        assert "origin" in reason and answer.startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize("bound,host,fits", [
    ("127.0.0.1:5555", "127.0.0.1:5555", True), ("127.0.0.1:5555", "localhost:5555", True),
    ("[::1]:5555", "[::1]:5555", True), ("localhost:5555", "app.localhost:5555", True),
    ("127.0.0.1:5555", "rebound.example:5555", False), ("127.0.0.1:5555", "10.0.0.7:5555", False),
    ("[::1]:5555", "rebound.example", False), ("localhost:5555", "localhost.evil.example", False),
    ("*:5555", "app.example:5555", True), ("10.0.0.7:5555", "app.example:5555", True),
    ("/run/a.sock", "app.example", True),
])
def test_names_that_were_made_to_resolve_to_loopback(bound, host, fits):
    """DNS rebinding: Origin and Host agree, and both are the page's own."""
    options = {"origin": None, "subprotocol": None, "wire": None}
    session = websocket.open(websocket.split(bound, "bind")[1], "bind", options)
    session.start()
    data = request(more=b"Origin: http://%s\r\n" % host.encode()).replace(
        b"Host: 127.0.0.1:5555", b"Host: " + host.encode())
    assert b"Host: " + host.encode() in data
    if fits:
        session.receive(data)
        assert session.established
    else:
        assert "origin" in refused(session, data)[0]


@pytest.mark.parametrize("real,fits", [("127.0.0.1:5555", False), ("10.0.0.7:5555", True)])
def test_an_interface_that_is_loopback_has_loopbacks_names_only(real, fits):
    """ws://lo:5555 names no host: what counts is the address that the listener got."""
    options = {"origin": None, "subprotocol": None, "wire": None, "listen.address": real}
    session = websocket.open(websocket.split("lo:5555", "bind")[1], "bind", options)
    session.start()
    data = request(more=b"Origin: http://rebound.example:5555\r\n").replace(
        b"Host: 127.0.0.1:5555", b"Host: rebound.example:5555")
    if fits:
        session.receive(data)
        assert session.established
    else:
        assert "origin" in refused(session, data)[0]


# -- strangers -------------------------------------------------------------------------------------

@pytest.mark.parametrize("data,status,text", [
    (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 426, "plain HTTP request (GET / HTTP/1.1)"),
    (b"POST /form HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 426, "plain HTTP"),
    (request().replace(b"n: 13", b"n: 8"), 426, "version"),
    (request().replace(b"Sec-WebSocket-Key", b"X"), 400, "Sec-WebSocket-Key"),
    (request().replace(b"Connection", b"X"), 400, "Connection"),
    (request(offers=b"chat"), 400, "chat"),
    (request().replace(b"Sec-WebSocket-Protocol", b"X"), 400, "no subprotocol"),
    (b"GET \xff HTTP/1.1\r\n\r\n", 426, "GET"),
    (request().replace(b"127.0.0.1", b"xn--0"), 400, "malformed"),
    (b"GET /" + b"x" * 20_000, 431, "16 KiB"),
])
def test_http_that_does_not_fit(data, status, text):
    reason, answer = refused(open_session("bind"), data)
    assert text in reason
    assert answer.startswith(b"HTTP/1.1 %d " % status) and b"Connection: " in answer
    assert (b"Upgrade: websocket" in answer) == (status == 426)


@pytest.mark.parametrize("data,text", [
    (b"\x16\x03\x01\x02\x00", "TLS"), (b"\xff\0\0\0", "ZMTP"), (b"\0SP\0\0\x10", "SP"),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2"), (b"SSH-2.0-x", "SSH"),
    (b"\x01\x02", "does not speak HTTP"),
    (b"get / http", "does not speak HTTP"),
])
def test_what_is_no_http(data, text):
    for step in (1, len(data)):
        session = open_session("bind")
        with pytest.raises(Refused, match="WebSocket") as caught:
            for at in range(0, len(data), step):
                session.receive(data[at : at + step])
        assert text in str(caught.value)
        assert session.outgoing() == b""


@pytest.mark.parametrize("answer,text", [
    (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "HTTP 404: is the path right"),
    (b"HTTP/1.1 301 Moved\r\nLocation: wss://x/\r\nContent-Length: 0\r\n\r\n", "wss://x/"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", "HTTP 200"),
    (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
     b"Sec-WebSocket-Accept: wrong\r\n\r\n", "accept token"),
    (b"HTTP/1.1 nonsense\r\n\r\n", "malformed"), (b"\xff\0\0", "ZMTP"),
    (b"220 smtp", "does not speak HTTP"),
    (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 20_000, "16 KiB"),
])
def test_answers_that_do_not_fit(answer, text):
    session = open_session("connect")
    session.outgoing()
    assert text in refused(session, answer)[0]


def test_a_server_without_our_subprotocol():
    ours, theirs = open_session("connect"), open_session("bind")
    theirs.receive(ours.outgoing())
    answer = theirs.outgoing()
    line = b"Sec-WebSocket-Protocol: ZWS2.0/NULL\r\n"
    assert "no subprotocol" in refused(ours, answer.replace(line, b""))[0]


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=300), st.sampled_from(["bind", "connect"]))
def test_junk(data, role):
    session = open_session(role)
    start = b"GET / HTTP/1.1\r\n" if role == "bind" else b"HTTP/1.1 101 x\r\n"
    try:
        session.receive(start + data + b"\r\n\r\n")
    except Refused as refusal:
        assert str(refusal)
    assert not session.established
