"""The handshake: stages, versions, READY, and what is refused with which words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqcore.testing.native.probe import Probe

READY_OF = ["pair", "pub", "sub", "req", "rep", "dealer", "router", "pull", "push", "xpub", "xsub"]
SIGNATURE = bytes.fromhex("ff00000000000000017f")


def drive(probe, text, sizes=None):
    """Feed in pieces. All answers, the last status, and what was left."""
    answer, status, left = b"", "need_data", text
    for size in sizes or [1] * len(text):
        if not left or status != "need_data":
            break
        status, used, more = probe.feed(left[:size])
        answer += more
        left = left[used:]
    if left and status == "need_data":
        status, used, more = probe.feed(left)
        answer += more
        left = left[used:]
    return answer, status, left


def test_stages_when_connecting(probe, greeting, vectors):
    ours = probe("DEALER")
    assert ours.start() == vectors["zmtp31_sig"]
    theirs = greeting()
    for at in range(9):
        assert ours.feed(theirs[at:at + 1]) == ("need_data", 1, b"")
    assert ours.feed(theirs[9:10])[2] == vectors["zmtp31_major"]
    assert ours.feed(theirs[10:11])[2] == vectors["zmtp31_rest"]
    assert ours.feed(theirs[11:63]) == ("need_data", 52, b"")
    assert ours.feed(theirs[63:])[2] == vectors["zmtp31_ready_dealer_after_full_greeting"]


def test_listener_waits_for_the_peer(probe, vectors):
    ours = probe("PULL")
    assert ours.start(listening=True) == b""
    assert ours.feed(b"\xff") == ("need_data", 1, vectors["zmtp31_sig"])


def test_listener_speaks_after_the_grace(probe, vectors):
    ours = probe("PULL")
    ours.start(listening=True)
    assert ours.start(listening=False) == vectors["zmtp31_sig"]
    assert ours.start(listening=False) == b""
    assert ours.feed(b"\xff") == ("need_data", 1, b"")


def test_whole_greeting(probe, vectors):
    ours = probe("PUSH")
    text = ours.start() + ours.feed(vectors["zmtp31_greeting_full_null"])[2]
    assert text == vectors["ipc_greeting"] + vectors["zmtp31_ready_push"]


def test_signature_carries_the_length_of_the_routing_id(probe, vectors):
    assert probe("DEALER", routing_id=b"abcdef").start() == vectors["zmtp31_sig_with_routing_id6"]


@pytest.mark.parametrize("pattern", READY_OF)
def test_ready_of(probe, greeting, vectors, pattern):
    ours = probe(pattern.upper())
    ours.start()
    assert ours.feed(greeting())[2].endswith(vectors[f"zmtp31_ready_{pattern}"])


@pytest.mark.parametrize("pattern", ["radio", "dish"])
def test_ready_of_those_with_groups(probe, greeting, vectors, pattern):
    ours = probe(pattern.upper())
    ours.start()
    assert ours.feed(greeting())[2].endswith(vectors[f"draft_ready_{pattern}"])


def test_ready_with_identity_and_metadata(probe, greeting, vectors):
    ours = probe("ROUTER", routing_id=b"rt1")
    ours.start()
    assert ours.feed(greeting())[2].endswith(vectors["zmtp31_ready_router_identity"])
    ours = probe("DEALER", metadata=b"\x05X-app\0\0\0\x04demo")
    ours.start()
    assert ours.feed(greeting())[2].endswith(vectors["zmtp31_ready_dealer_app_metadata"])


def test_long_ready(probe, greeting, ready):
    extra = b"\x05X-app" + (300).to_bytes(4, "big") + bytes(300)
    ours = probe("PUSH", metadata=extra)
    ours.start()
    assert ours.feed(greeting())[2].endswith(ready((b"Socket-Type", b"PUSH"), extra))
    theirs = probe("PULL")
    theirs.start()
    status, used, _ = theirs.feed(greeting() + ready((b"Socket-Type", b"PUSH"), extra) + b"\0\0")
    assert status == "done" and used == 64 + 9 + 6 + 20 + len(extra)
    assert theirs.peer["metadata"].endswith(extra)


@pytest.mark.parametrize("version,taken", [
    ((3, 0), (3, 0)), ((3, 1), (3, 1)), ((3, 7), (3, 1)), ((4, 0), (3, 1)), ((2, 0), (3, 1)),
    ((255, 9), (3, 1)),
])
def test_versions(probe, greeting, ready, version, taken):
    ours = probe()
    ours.start()
    text = greeting(version) + ready((b"Socket-Type", b"PAIR"), (b"Identity", b"me"))
    assert ours.feed(text)[:2] == ("done", len(text))
    assert ours.peer == {"version": taken, "pattern": "PAIR", "mechanism": "NULL",
                         "routing_id": b"me", "metadata": text[72:]}


@pytest.mark.parametrize("one,other", [("REQ", "REP"), ("PUB", "SUB"), ("ROUTER", "DEALER")])
@pytest.mark.parametrize("listening", [0, 1])
def test_two_of_us(probe, one, other, listening):
    left, right = probe(one, routing_id=b"left"), probe(other)
    wires = [left.start(), right.start(bool(listening))]
    states = ["need_data", "need_data"]
    for _ in range(10):
        for i, side in enumerate((right, left)):
            if wires[i] and states[1 - i] == "need_data":
                status, used, answer = side.feed(wires[i])
                wires[i] = wires[i][used:]
                wires[1 - i] += answer
                states[1 - i] = status
    assert states == ["done", "done"] and wires == [b"", b""]
    assert (left.peer["pattern"], right.peer["pattern"]) == (other, one)


# -- old peers ------------------------------------------------------------------------------------

def test_20_peer(probe, vectors):
    ours = probe("PUSH")
    text = ours.start()
    status, used, answer = ours.feed(SIGNATURE + b"\x01\x07")
    assert (status, text + answer) == ("need_data", vectors["zmtp20_greeting_and_identity"])
    assert ours.feed(b"\x00\x03abc")[0] == "done"
    assert ours.peer["version"] == (2, 0)
    assert (ours.peer["pattern"], ours.peer["routing_id"]) == ("PULL", b"abc")


def test_20_peer_of_a_wrong_type(probe):
    ours = probe("PUSH")
    ours.start()
    assert ours.feed(SIGNATURE + b"\x01\x01")[0] == "protocol"
    assert ours.reason == "the peer is a PUB socket, which does not fit PUSH"


def test_unversioned_peer(probe, vectors):
    ours = probe("DEALER")
    assert ours.start() + ours.feed(b"\x01\x00")[2] == vectors["zmtp10_after_unversioned_peer"]
    assert ours.peer["version"] == (1, 0)
    ours = probe("DEALER", routing_id=b"me")
    text = ours.start()
    status, used, answer = ours.feed(b"\x04\x00abcX")
    assert (status, used) == ("done", 5)
    assert text + answer == vectors["zmtp10_with_routing_id"]
    assert ours.peer["routing_id"] == b"abc"


def test_unversioned_peer_of_a_listener(probe, vectors):
    ours = probe("DEALER", routing_id=b"me")
    ours.start(listening=True)
    assert ours.feed(b"\x01") == ("need_data", 1, b"")
    assert ours.feed(b"\x00") == ("done", 1, vectors["zmtp10_with_routing_id"])


def test_unversioned_peer_with_a_long_identity(probe):
    ours = probe("DEALER")
    ours.start()
    text = b"\xff" + (301).to_bytes(8, "big") + b"\0" + b"i" * 300
    assert drive(ours, text + b"X")[1:] == ("done", b"X")
    assert ours.peer["routing_id"] == b"i" * 300


def test_revision_0(probe, vectors):
    ours = probe("PUSH")
    text = ours.start()
    status, _, answer = ours.feed(SIGNATURE + b"\x00\x07")
    assert text + answer == vectors["zmtp_rev0_greeting"]
    assert ours.feed(b"\x01\x00")[0] == "done"
    assert ours.peer["version"] == (1, 0)


# -- what is tolerated ----------------------------------------------------------------------------

@pytest.mark.parametrize("text", [
    "as_server", "filler", "no_type", "lower", "message_frame", "more_command", "empty_name",
    "long_form", "duplicate",
])
def test_tolerated(probe, greeting, ready, text):
    head, pair = greeting(), (b"Socket-Type", b"PAIR")
    body = {
        "as_server": head[:32] + b"\1" + head[33:] + ready(pair),
        "filler": head[:33] + b"\xee" * 31 + ready(pair),
        "no_type": head + ready(),
        "lower": head + ready((b"socket-TYPE", b"PAIR")),
        "message_frame": head + ready(pair, flags=0),
        "more_command": head + ready(pair, flags=5),
        "empty_name": head + ready(pair, (b"", b"x")),
        "long_form": head + b"\x06" + (26).to_bytes(8, "big") + ready(pair)[2:],
        "duplicate": head + ready(pair, (b"Socket-Type", b"PUB")),
    }[text]
    ours = probe()
    ours.start()
    assert ours.feed(body)[:2] == ("done", len(body)), ours.reason


# -- what is refused ------------------------------------------------------------------------------

@pytest.mark.parametrize("text,at,reason", [
    (b"\0SP\0\0\x50\0\0", 4, "the peer speaks SP"),
    (b"\0\0\0\0", 2, "does not speak ZMTP"),
    (b"\0SX", 3, "does not speak ZMTP"),
    (b"GET / HTTP/1.1", 2, "HTTP"),
    (b"POST / HTTP/1.1", 2, "HTTP"),
    (b"HTTP/1.1 400 Bad Request", 2, "HTTP"),
    (b"GET /chat HTTP/1.1\r\nUpgrade: websocket", 2, "for WebSocket put ws+ before"),
    (b"\x16\x03\x01\x02\x00", 2, "TLS, not ZMTP: put tls+ before"),
    (b"\x15\x03\x03\0\x02\x02\x46", 2, "TLS, not ZMTP: put tls+ before"),
    (b"\x28\xb5\x2f\xfd\x04\x58", 2, "zstd, not ZMTP: put zstd+ before"),
    (b"SSH-2.0-x", 2, "SSH"),
    (b"hello", 2, "does not speak ZMTP"),
    (b"\xff" + b"x" * 9, 10, "does not speak ZMTP"),
])
@pytest.mark.parametrize("listening", [False, True])
def test_not_zmtp(probe, text, at, reason, listening):
    ours = probe("PULL")
    ours.start(listening)
    said = b""
    for i in range(at):
        status, _, answer = ours.feed(text[i:i + 1])
        said += answer
        assert (status == "protocol") == (i == at - 1)
    assert reason in ours.reason
    assert said == b"" or text[0] == 0xff     # nothing is said to who speaks something else


@pytest.mark.parametrize("mechanism,reason", [
    (b"PLAIN", "the peer wants mechanism PLAIN, this socket uses NULL"),
    (b"CURVE", "the peer wants mechanism CURVE, this socket uses NULL"),
    (b"null", "the peer wants mechanism null, this socket uses NULL"),
    (b"NULLx", "the peer wants mechanism NULLx, this socket uses NULL"),
    (b"N" * 20, "the peer wants mechanism NNNNNNNNNNNNNNNNNNNN, this socket uses NULL"),
    (b"NULL\0x", "the peer's greeting is malformed: no mechanism's name"),
    (b"\x80", "the peer's greeting is malformed: no mechanism's name"),
    (b"", "the peer's greeting names no mechanism"),
])
def test_mechanism(probe, greeting, mechanism, reason):
    ours = probe()
    ours.start()
    status, used, _ = ours.feed(greeting(mechanism=mechanism))
    assert (status, ours.reason) == ("protocol", reason) and used <= 32


PAIR = (b"Socket-Type", b"PAIR")


@pytest.mark.parametrize("properties,name,reason", [
    ([(b"Socket-Type", b"PUB")], b"READY", "the peer is a PUB socket, which does not fit PAIR"),
    ([(b"Socket-Type", b"NONSENSE")], b"READY", "the peer is a NONSENSE socket"),
    ([(b"Socket-Type", b"")], b"READY", "does not fit PAIR"),
    ([(b"Socket-Type", b" PAIR")], b"READY", "does not fit PAIR"),
    ([(b"Socket-Type", b"PAIR\0")], b"READY", "does not fit PAIR"),
    ([(b"Socket-Type", b"P" * 1000)], b"READY", "does not fit PAIR"),
    ([PAIR, b"x"], b"READY", "malformed"),
    ([PAIR, b"\x01a\0\0\0\x09bc"], b"READY", "malformed"),
    ([PAIR, b"\x01a\xff\xff\xff\xffbc"], b"READY", "malformed"),
    ([PAIR, b"\xff"], b"READY", "malformed"),
    ([PAIR], b"ready", "the peer sent ready instead of READY"),
    ([b"\0\0"], b"PING", "the peer sent PING instead of READY"),
    ([], b"\n\xff", "the peer sent ?? instead of READY"),
    ([b"\x03400"], b"ERROR", "the peer refused: 400"),
    ([b"\xff" + b"x" * 255], b"ERROR", "the peer refused: xxxx"),
    ([b"\x04400"], b"ERROR", "the peer sent ERROR instead of READY"),
])
def test_ready_refused(probe, greeting, ready, properties, name, reason):
    ours = probe()
    ours.start()
    assert ours.feed(greeting() + ready(*properties, name=name))[0] == "protocol"
    assert reason in ours.reason and len(ours.reason) < 96


@pytest.mark.parametrize("frame", [b"\x04\0", b"\0\0", b"\0\x05hello", b"\x04\x01\x09"])
def test_no_ready(probe, greeting, frame):
    ours = probe()
    ours.start()
    assert ours.feed(greeting() + frame)[0] == "protocol"
    assert "READY" in ours.reason


def test_too_long_a_ready(probe, greeting):
    for size, expected in ((65536, "need_data"), (65537, "protocol"), (1 << 63, "protocol")):
        ours = probe()
        ours.start()
        assert ours.feed(greeting() + b"\x06" + size.to_bytes(8, "big"))[0] == expected
    assert ours.reason == "the peer's handshake is longer than 64 KiB"


def test_10_frame_of_length_0(probe):
    ours = probe()
    ours.start()
    assert ours.feed(b"\xff" + bytes(9))[0] == "protocol"
    assert ours.reason == "the peer sent a frame of length 0"


# -- chunking -------------------------------------------------------------------------------------

@pytest.mark.parametrize("kind", ["31", "30", "20", "10", "rev0", "refused"])
def test_any_chunking(probe, greeting, ready, kind):
    text = {
        "31": greeting() + ready(PAIR, (b"Identity", b"x" * 300)),
        "30": greeting((3, 0)) + ready(PAIR),
        "20": SIGNATURE + b"\x01\x00\x00\x05hello",
        "10": b"\x06\x00hello",
        "rev0": SIGNATURE + b"\x00\x00\x06\x00hello",
        "refused": greeting() + ready((b"Socket-Type", b"PUB")),
    }[kind]

    def outcome(sizes):
        ours = probe(routing_id=b"id")
        said = ours.start()
        answer, status, left = drive(ours, text + b"tail", sizes)
        return said + answer, status, left + b"", ours.reason, ours.peer

    whole = outcome([len(text)])
    assert whole[1] == ("protocol" if kind == "refused" else "done")
    assert outcome(None) == (whole[0], whole[1], b"tail", *whole[3:])
    for at in range(1, len(text)):
        assert outcome([at, len(text) - at])[:2] == whole[:2]


@given(st.binary(max_size=200), st.booleans())
def test_never_breaks(text, marked):
    """Whatever comes, whole or in pieces: the same end."""
    text = SIGNATURE + text if marked else text

    def outcome(step):
        ours = Probe()
        said, status, at = ours.start(), "need_data", 0
        while status == "need_data" and at < len(text):
            status, used, answer = ours.feed(text[at:at + step])
            said += answer
            at += used
        return said, status, at, ours.reason

    assert outcome(1) == outcome(7) == outcome(len(text) or 1)
