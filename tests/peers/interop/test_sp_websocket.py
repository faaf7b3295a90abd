"""SP over ws:// and wss://: what is WebSocket's about it, with pynng, nngcat, nanocat and a plain
socket. Which patterns meet is in test_sp_matrix.py."""

import contextlib
import shutil
import subprocess

import pytest
from free import free_address
from nngpeer import NngError
from rawws import BINARY, CLOSE, CONTINUATION, KEY, PING, TEXT, RawWs, request, ws

import mqcore as mq

pytest.importorskip("pynng")

LIMIT = 60
MIB = 1 << 20
SIZES = (1, 56, 57, 121, 125, 126, 65535, 65536, MIB - 4, MIB - 3, MIB, MIB + 1, 16 * MIB)
ID = b"\x80\0\0\1"


def body(size):
    """Bytes that tell where they belong."""
    return (bytes(range(251)) * (size // 251 + 1))[:size]


@pytest.fixture
def ours(ctx):
    return lambda pattern, **more: ctx.socket(
        pattern, recv_timeout=LIMIT, send_timeout=LIMIT, **more)



# -- pynng -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("path", ["", "/a/b"])
@pytest.mark.parametrize("bind", [True, False], ids=["we_bind", "we_connect"])
def test_every_size_both_ways(ours, theirs, bind, path):
    s, p = ours("pair"), theirs("Pair0")
    if bind:
        p.dial(s.bind(f"ws://127.0.0.1:0{path}").url, block=True)
    else:
        url = f"ws://{free_address()}{path}"
        p.listen(url)
        s.connect(url, wire="sp", wait=LIMIT)
    s.wait_peers(1, LIMIT)
    peer, = s.peers()
    assert (peer.wire, peer.pattern) == ("sp", "pair")
    assert peer.metadata["ws-subprotocol"] == b"pair.sp.nanomsg.org"
    for n in SIZES if path else SIZES[:4]:
        data = body(n)
        s.send_parts([data[:n // 3], data[n // 3:n // 2], data[n // 2:]])   # joined
        assert p.recv() == data
        s.send(data)
        assert p.recv() == data
        p.send(data)
        assert s.recv_parts() == [data]
    assert not any(s.stats().dropped.values())


def test_one_address_for_both_families(ours, theirs):
    """ZMTP's and SP's clients at one listener; each gets what was sent in its own form."""
    pull, pub = ours("pull"), ours("pub")
    url = pull.bind("ws://127.0.0.1:0/x").url
    with RawWs.dial(url) as zmtp, ours("push", connect=url, wire="sp") as mine:
        zmtp.shake("PUSH")
        theirs("Push0", dial=url).send(b"pynng")
        zmtp.put(b"zmtp")
        mine.send_parts([b"mq", b"core"])
        assert {pull.recv() for _ in range(3)} == {b"pynng", b"zmtp", b"mqcore"}
        assert sorted(peer.wire for peer in pull.peers()) == ["sp", "sp", "zmtp/3.1"]
    url = pub.bind("ws://127.0.0.1:0/x").url
    sub = theirs("Sub0", dial=url, topics=[b"a"])
    zmtp = ours("sub", topics=[b"a"], connect=url)
    pub.wait_peers(2, LIMIT)
    pub.wait_subscribers(b"a", 2, LIMIT)
    for parts in ([b"b", b"no"], [b"a", b"yes"]):
        pub.send_parts(parts)
    assert sub.recv() == b"ayes" and zmtp.recv_parts() == [b"a", b"yes"]


def test_requests(ours, theirs):
    rep = ours("rep")
    req = theirs("Req0", dial=rep.bind("ws://127.0.0.1:0/x").url)
    for n in (1, 57, 70_000, MIB + 1):
        req.send(body(n))
        assert rep.recv() == body(n)
        rep.send_parts([b"to ", body(n)])
        assert req.recv() == b"to " + body(n)


def test_wss(ours, theirs, tmp_path):
    certificates = pytest.importorskip("certificates")
    pytest.importorskip("mqcore.transports.tls", reason="the tls filter is not installed")
    root = certificates.Pair("root", ca=True)
    shown = certificates.Pair("here", root, names=("127.0.0.1", "localhost"), role="server")
    (tmp_path / "shown.pem").write_bytes(shown.pem() + shown.key_pem())
    (tmp_path / "shown.pem").chmod(0o600)
    (tmp_path / "root.pem").write_bytes(root.pem())
    rep, req = ours("rep", wire="sp"), ours("pair", wire="sp")
    url = rep.bind("wss://127.0.0.1:0/x", tls_cert=str(tmp_path / "shown.pem")).url
    foreign = theirs("Req0", tls={"ca_string": root.pem().decode(), "server_name": "localhost"})
    foreign.dial(url.replace("127.0.0.1", "localhost"), block=True)
    for n in (1, 70_000, MIB + 1):
        foreign.send(body(n))
        assert rep.recv() == body(n)
        rep.send(body(n)[::-1])
        assert foreign.recv() == body(n)[::-1]
    pair = ours("pair", wire="sp")
    req.connect(pair.bind("wss://127.0.0.1:0/y", tls_cert=str(tmp_path / "shown.pem")).url,
                tls_ca=str(tmp_path / "root.pem"), wait=LIMIT)
    for n in SIZES[:-1]:
        req.send_parts([body(n), b"end"])
        assert pair.recv() == body(n) + b"end"


# -- the command line tools of both libraries ------------------------------------------------------

@pytest.fixture
def tool():
    running = []

    def start(name, *args):
        path = shutil.which(name)
        if path is None:
            pytest.skip(f"{name} is not installed")
        running.append(subprocess.Popen([path, *args], stdout=subprocess.PIPE))
        return running[-1]
    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("name", ["nngcat", "nanocat"])
@pytest.mark.parametrize("bind", [True, False], ids=["we_bind", "we_connect"])
def test_command_line_tools(ours, tool, name, bind):
    s = ours("pair", wire="sp")
    # nanomsg's listener refuses an address with a path
    url = s.bind("ws://127.0.0.1:0/x").url if bind else f"ws://{free_address()}"
    process = tool(name, "--pair0" if name == "nngcat" else "--pair",
                   "--connect" if bind else "--bind", url, "--data", "hello", "--raw",
                   *(["--count", "2", "--interval", "1"] if name == "nngcat" else []))
    if not bind:
        s.connect(url, reconnect=0.02, reconnect_max=0.05)
    assert s.recv() == b"hello"
    s.send_parts([b"from ", b"us"])
    assert process.stdout.read(7) == b"from us"


# -- who gets in -----------------------------------------------------------------------------------

@pytest.mark.parametrize("offers,status,more", [
    ("rep.sp.nanomsg.org", 101, {}), ("REP.SP.nanomsg.org", 101, {}), ("ZWS2.0", 101, {}),
    ("foo, rep.sp.nanomsg.org", 101, {}), ("req.sp.nanomsg.org", 400, {}), ("rep", 400, {}),
    ("ZWS2.0", 400, {"wire": "sp"}), ("rep.sp.nanomsg.org", 400, {"wire": "zmtp"}),
    ("ZWS2.0", 400, {"subprotocol": "rep.sp.nanomsg.org"}),
])
def test_subprotocols_of_a_listener(ours, offers, status, more):
    with RawWs.dial(ours("rep").bind("ws://127.0.0.1:0/x", **more).url) as peer:
        head = peer.upgrade(offers=offers)
        assert head.startswith(b"HTTP/1.1 %d " % status)
        if status == 101:
            chosen = offers.split(", ")[-1].encode()
            assert b"Sec-WebSocket-Protocol: " + chosen + b"\r\n" in head
        else:
            assert b"needed:" in head


def test_a_refusal_says_what_to_do(ours, theirs):
    url = ours("rep").bind("ws://127.0.0.1:0/x").url
    with ours("pull") as pull, pytest.raises(mq.HandshakeFailed, match="push socket that speaks"):
        pull.connect(url, wire="sp", wait=LIMIT)
    with pytest.raises(NngError):
        theirs("Pull0").dial(url, block=True)
    with pytest.raises(mq.OptionError, match="choose from rep.sp.nanomsg.org"):
        ours("req").connect(url, wire="sp", subprotocol="ZWS2.0")
    with ours("req") as req:
        req.connect(url, subprotocol="rep.sp.nanomsg.org", wait=LIMIT)
        assert [peer.wire for peer in req.peers()] == ["sp"]


# -- bad input -------------------------------------------------------------------------------------

@pytest.fixture
def rep(ours):
    s = ours("rep", wire="sp", max_message_size=1000)
    s.bind("ws://127.0.0.1:0/x")
    return s


def dial(s, subprotocol="rep.sp.nanomsg.org"):
    peer = RawWs.dial(s.endpoints[0].url)
    assert peer.upgrade(offers=subprotocol).startswith(b"HTTP/1.1 101 ")
    return peer


BAD = {
    "text": (ws(b"x", TEXT, KEY), 1003), "without a mask": (ws(ID), 1002),
    "ends before its request id": (ws(b"\0\1\2\3", key=KEY), 1002),
    "request id": (ws(b"", key=KEY), 1002),
    "of 1001 bytes, the limit is 1000": (ws(ID + bytes(997), key=KEY), 1009),
    "of 1004 bytes, the limit is 1000": (
        ws(ID + bytes(500), BINARY, KEY, fin=False) + ws(bytes(500), CONTINUATION, KEY), 1009),
    "middle of another": (
        ws(ID, BINARY, KEY, fin=False) + ws(ID, BINARY, KEY, fin=False), 1002),
}


@pytest.mark.parametrize("reason", BAD)
def test_bad_input(rep, reason):
    text, code = BAD[reason]
    events = rep.events()
    with dial(rep) as good, dial(rep) as bad:
        good.send(ID + b"first")
        assert rep.recv() == b"first"
        rep.send(b"answer")
        assert good.ws_frame() == (0x82, ID + b"answer")
        bad.say(text)
        opcode, payload = bad.ws_frame()
        assert opcode == 0x88 and payload[:2] == code.to_bytes(2, "big")
        assert reason in payload[2:].decode()
        assert bad.ended()
        while (event := events.get(LIMIT)).kind != "Disconnected":
            pass
        assert reason in event.reason
        good.send(b"\0\0\0\7" + ID + b"as ever")
        assert rep.recv() == b"as ever"
        rep.send(b"still")
        assert good.ws_frame() == (0x82, b"\0\0\0\7" + ID + b"still")


def test_control_frames_between_fragments(rep):
    with dial(rep) as peer:
        peer.send(ID[:3], fin=False)
        peer.send(b"are you there", PING)
        assert peer.ws_frame() == (0x8a, b"are you there")
        peer.send(ID[3:] + b"ha", CONTINUATION, fin=False)
        peer.send(b"lf", CONTINUATION)
        assert rep.recv() == b"half"
        peer.send(b"\x03\xe8", CLOSE)
        assert peer.ws_frame() == (0x88, b"\x03\xe8") and peer.ended()


def test_a_message_with_the_upgrade(rep):
    """Behind the request, in one piece with it: the handshake is over before the first read."""
    with RawWs.dial(rep.endpoints[0].url) as peer:
        peer.say(request(peer.path, offers="rep.sp.nanomsg.org") + ws(ID + b"early", key=KEY))
        assert rep.recv() == b"early"
        with contextlib.suppress(OSError):
            assert peer.head().startswith(b"HTTP/1.1 101 ")
