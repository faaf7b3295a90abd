"""ZWS 2.0: vectors computed from RFC 6455 and RFC 45, any chunking, bad frames, batches."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mqcore.testing.native.probe import CANCEL, MORE, SUBSCRIBE, Probe
from rawws import (
    BINARY,
    CLOSE,
    CONTINUATION,
    KEY,
    PING,
    PONG,
    TEXT,
    ready,
    unws,
    ws,
)

READY = ready("PAIR")


@pytest.fixture(params=["server", "client"])
def role(request):
    """(listening, the key that frames to us have): both sides are tested alike."""
    return (True, KEY) if request.param == "server" else (False, None)


@pytest.fixture
def shaken(probe, role):
    """A probe past its READY, and how to make a frame to it."""
    def make(**more):
        ours = probe(codec="zws", **more)
        ours.start(role[0])
        assert ours.feed(ws(READY, key=role[1]))[0] == "done", ours.reason
        return ours
    return make


@pytest.fixture
def to_us(role):
    def make(payload, opcode=BINARY, fin=True):
        return ws(payload, opcode, role[1], fin)
    return make


# -- handshake ------------------------------------------------------------------------------------

def test_ready_is_the_first_message(probe, role):
    ours = probe("REQ", routing_id=b"me", codec="zws")
    said = ours.start(role[0])
    assert bool(said[1] & 128) == (not role[0])        # the client masks
    assert unws(said) == [(0x82, b"\x02\x05READY\x0bSocket-Type\0\0\0\x03REQ"
                                 b"\x08Identity\0\0\0\x02me")]
    assert ours.start(False) == b""                    # after the grace period: said already
    theirs = ws(b"\x02\x05READY\x0bSocket-Type\0\0\0\x06ROUTER", key=role[1])
    for cut in range(len(theirs)):
        again = probe("REQ", codec="zws")
        again.start(role[0])
        assert again.feed(theirs[:cut]) == ("need_data", cut, b"")
        assert again.feed(theirs[cut:] + b"more") == ("done", len(theirs) - cut, b"")
        assert again.peer["pattern"] == "ROUTER" and again.peer["version"] == (3, 1)


def test_without_mechanism_the_routing_id_is_first(probe, role):
    ours = probe("DEALER", routing_id=b"me", codec="zws-bare")
    assert unws(ours.start(role[0])) == [(0x82, b"\0me")]
    assert ours.feed(ws(b"\0you", key=role[1]))[0] == "done"
    assert ours.peer["routing_id"] == b"you" and ours.peer["pattern"] == ""
    ours = probe("DEALER", codec="zws-bare")
    assert unws(ours.start(role[0])) == [(0x82, b"\0")]
    assert ours.feed(ws(READY, key=role[1]))[0] == "protocol"
    assert "routing id" in ours.reason


def test_ready_in_pieces_with_a_ping_between(probe, role, to_us):
    ours = probe(codec="zws")
    ours.start(role[0])
    text = (to_us(READY[:1], fin=False) + to_us(b"hi", PING)
            + to_us(READY[1:9], CONTINUATION, False) + to_us(READY[9:], CONTINUATION))
    status, used, answer = ours.feed(text)
    assert (status, used) == ("done", len(text)) and unws(answer) == [(0x8a, b"hi")]


@pytest.mark.parametrize("first,reason", [
    (b"\x02\x05ERROR\x03why", "refused: why"), (b"\x02\x05HELLO", "HELLO"),
    (b"\x00data", "something else"), (b"", "empty"), (b"\x04x", "flags"),
    (b"\x02\x05READY\x0bSocket-Type\0\0\0\x03PUB", "PUB"),
    (b"\x02\x05READY\x0bSocket", "malformed"),
    (b"\x02" + bytes(70_000), "64 KiB"),
])
def test_what_is_no_ready(probe, role, to_us, first, reason):
    ours = probe(codec="zws")
    ours.start(role[0])
    status, _, answer = ours.feed(to_us(first))
    assert status == "protocol" and reason in ours.reason
    [(kind, payload)] = unws(answer)                   # our last words say why
    assert kind == 0x88 and payload[:2] == (1002).to_bytes(2, "big")
    assert payload[2:].decode() == ours.reason[:123]


# -- traffic in -----------------------------------------------------------------------------------

def test_masked_example_of_the_rfc(probe):
    """Section 5.7: "Hello" with its key; here as a binary message, its H being no flags."""
    text = bytes.fromhex("828537fa213d7f9f4d5158")
    assert ws(b"Hello", key=KEY) == text
    ours = probe(codec="zws")
    ours.start(True)
    ours.feed(ws(READY, key=KEY))
    assert ours.decode(text)[0] == "protocol" and "flags" in ours.reason
    ours = probe(codec="zws")
    ours.start(False)
    ours.feed(ws(READY))
    assert ours.decode(b"\x82\x06\x00Hello\x89\x05Hello") == ("need_data", [(0, b"Hello")])
    assert unws(ours.control) == [(0x8a, b"Hello")]    # a PONG of the same payload, masked


SIZES = [*range(200), 255, 8000, 65533, 65534, 65535, 70_000, 300_000]


@pytest.mark.parametrize("copy", [False, True])
def test_every_size_in_one_piece(shaken, to_us, copy):
    bodies = [random.Random(n).randbytes(n) for n in SIZES]
    text = b"".join(to_us(bytes([i % 2]) + body) for i, body in enumerate(bodies)) + bytes(0)
    assert shaken().decode(text, copy=copy) == (
        "need_data", [(i % 2, body) for i, body in enumerate(bodies)])


def traffic(to_us, rng, count):
    """Frames of messages, whole and in fragments, with control frames between; and the parts."""
    text, parts = [], []
    for _ in range(count):
        body = rng.randbytes(rng.choice([0, 1, 20, 56, 57, 130, 3000, 9000, 20_000]))
        flags = rng.choice([0, 0, MORE])
        payload = bytes([flags]) + body
        cuts = sorted(rng.choices(range(len(payload) + 1), k=rng.choice([0, 0, 0, 1, 3])))
        pieces = [payload[a:b] for a, b in zip([0, *cuts], [*cuts, len(payload)], strict=True)]
        for i, piece in enumerate(pieces):
            text.append(to_us(piece, BINARY if i == 0 else CONTINUATION, i == len(pieces) - 1))
            if rng.random() < 0.2:
                text.append(to_us(rng.randbytes(rng.choice([0, 5, 125])), rng.choice([PING, PONG])))
        parts.append((flags, body))
    return b"".join(text), parts


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), direct=st.booleans(), copy=st.booleans())
def test_any_chunking(seed, direct, copy):
    """As an engine reads: into a large body under way, or through a slab."""
    rng = random.Random(seed)
    key = rng.choice([None, rng.randbytes(4)])
    text, parts = traffic(lambda p, o=BINARY, f=True: ws(p, o, key, f), rng, 12)
    ours = Probe(codec="zws")
    ours.start(key is not None)
    assert ours.feed(ws(READY, key=key))[0] == "done"
    got, at = [], 0
    while at < len(text):
        if direct and ours.room:
            at += ours.fill(text[at : at + rng.choice([1, 1000, 100_000])])
            continue
        chunk = text[at : at + rng.choice([1, 1, 2, 7, 100, 5000, 100_000])]
        status, more = ours.decode(chunk, copy=copy, cap=rng.choice([1, 2, 64]))
        assert status == "need_data", ours.reason
        got += more
        at += len(chunk)
    got += ours.decode()[1]
    assert got == parts
    assert ours.memory[0] == 0


def test_control_frames_in_a_fragmented_message(shaken, to_us):
    ours = shaken()
    text = (to_us(b"\0ab", fin=False) + to_us(b"", PING) + to_us(b"", CONTINUATION, False)
            + to_us(b"x" * 125, PONG) + to_us(b"cd", CONTINUATION))
    assert ours.decode(text) == ("need_data", [(0, b"abcd")])
    assert ours.heartbeats == (1, 1, 0)
    assert unws(ours.control) == [(0x8a, b"")]


def test_commands(shaken, to_us):
    ours = shaken()
    assert ours.decode(to_us(b"\2\x09SUBSCRIBEtopic") + to_us(b"\2\x06CANCEL" + b"t" * 100)
                       + to_us(b"\0\1topic") + to_us(b"\2\x07UNKNOWN")) == (
        "need_data", [(SUBSCRIBE, b"topic"), (CANCEL, b"t" * 100), (0, b"\1topic")])
    assert ours.decode(to_us(b"\2\x04PING\0\1abc"))[0] == "need_data"
    assert unws(ours.control) == [(0x82, b"\2\x04PONGabc")]
    assert ours.decode(to_us(b"\1first") + to_us(b"\2\x09SUBSCRIBE"))[0] == "protocol"


@pytest.mark.parametrize("payload,code,text", [
    (b"", None, "closed the connection"), (b"\x03\xe8", 1000, "(1000)"),
    (b"\x03\xe9going \x01away", 1001, "(1001 going ?away)"),
])
def test_close_is_echoed(shaken, to_us, payload, code, text):
    ours = shaken()
    assert ours.decode(to_us(b"\0last") + to_us(payload, CLOSE) + b"junk") == (
        "done", [(0, b"last")])
    assert text in ours.reason
    assert unws(ours.control) == [(0x88, code.to_bytes(2, "big") if code else b"")]
    assert ours.decode(b"more") == ("done", [])
    ours = shaken()
    assert unws(ours.finish()) == [(0x88, b"\x03\xe8")]    # we were first: no echo
    assert ours.decode(to_us(b"", PING) + to_us(payload, CLOSE))[0] == "done"
    assert ours.control == b"" and ours.finish() == b""


BAD = {
    "text": (lambda f: f(b"\0x", TEXT), 1003),
    "reserved bit": (lambda f: b"\xc2" + f(b"\0")[1:], 1002),
    "unknown kind": (lambda f: f(b"\0", 3), 1002), "unknown control": (lambda f: f(b"", 11), 1002),
    "in pieces": (lambda f: f(b"", PING, False), 1002),
    "more than 125": (lambda f: f(bytes(126), PING), 1002),
    "not begun": (lambda f: f(b"x", CONTINUATION), 1002),
    "middle of another": (lambda f: f(b"\0", fin=False) + f(b"\0"), 1002),
    "empty": (lambda f: f(b""), 1002), "flags": (lambda f: f(b"\x03"), 1002),
    "half a status": (lambda f: f(b"\x03", CLOSE), 1002),
    "limit is 1000": (lambda f: f(b"\0" + bytes(1001)), 1009),
    "the limit is 1000": (
        lambda f: f(b"\0" + bytes(600), fin=False) + f(bytes(401), CONTINUATION), 1009),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_frames(shaken, to_us, name):
    make, code = BAD[name]
    text = make(to_us)
    for step in (1, len(text)):
        ours = shaken(max_message_size=1000)
        status = "need_data"
        for at in range(0, len(text), step):
            status = ours.decode(text[at : at + step])[0]
            if status != "need_data":
                break
        assert status == "protocol"
        assert {"unknown control": "unknown kind"}.get(name, name) in ours.reason
        [(kind, payload)] = unws(ours.control)
        assert (kind, payload[:2]) == (0x88, code.to_bytes(2, "big"))


def test_lengths(shaken, role):
    bit = 128 if role[0] else 0
    for head, reason in (
        (bytes([0x82, bit | 126, 0, 125]), "longer than need be"),
        (bytes([0x82, bit | 127]) + (65535).to_bytes(8, "big"), "longer than need be"),
        (bytes([0x82, bit | 127]) + (1 << 63).to_bytes(8, "big"), "2^63"),
    ):
        ours = shaken()
        assert ours.decode(head + (KEY if bit else b"") + b"\0")[0] == "protocol"
        assert reason in ours.reason
    ours = shaken()                       # announced, not sent: memory follows the bytes that came
    ours.decode(bytes([0x82, bit | 127]) + (1 << 40).to_bytes(8, "big") + (KEY if bit else b"")
                + (KEY[:1] if bit else b"\0"))
    assert ours.memory[1] <= 1 << 20


def test_the_wrong_mask(shaken, role):
    ours = shaken()
    assert ours.decode(ws(b"\0x", key=None if role[0] else KEY))[0] == "protocol"
    assert ("without a mask" if role[0] else "masked frame") in ours.reason


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400), st.booleans())
def test_junk(data, listening):
    ours = Probe(codec="zws", max_message_size=1 << 20)
    ours.start(listening)
    ours.feed(ws(READY, key=KEY if listening else None))
    whole = ours.decode(data)
    again = Probe(codec="zws", max_message_size=1 << 20)
    again.start(listening)
    again.feed(ws(READY, key=KEY if listening else None))
    status, parts = "need_data", []
    for i in range(len(data)):
        status, more = again.decode(data[i : i + 1])
        parts += more
        if status != "need_data":
            break
    assert (status, parts) == whole
    assert again.reason == ours.reason


# -- traffic out ----------------------------------------------------------------------------------

MESSAGES = [
    ([b"one"], 0), ([b"t" * 20], SUBSCRIBE), ([b"A", b"", b"C" * 60], 0), ([b"x" * 300], 0),
    ([b"u"], CANCEL), ([b"", b"y" * 16400, b"z"], 0), ([b"y" * 70_000], 0), ([b""], 0),
    ([b"w" * 130_000], 0), ([b"v" * 16384], SUBSCRIBE),
]


def frames_of(messages):
    rows = []
    for parts, flags in messages:
        lead = {0: b"", SUBSCRIBE: b"\0\1", CANCEL: b"\0\0"}[flags]
        rows += [(0x82, (lead or bytes([i < len(parts) - 1])) + part)
                 for i, part in enumerate(parts)]
    return rows


def test_frames_out(shaken, role):
    ours = shaken()
    for parts, flags in MESSAGES * 2:
        ours.put(*parts, flags=flags)
    text = ours.wire()
    assert bool(text[1] & 128) == (not role[0])
    assert unws(text) == frames_of(MESSAGES * 2)
    assert unws(ours.ping(1000)) == [(0x89, b"")]


def test_every_size_out(shaken):
    ours = shaken()
    bodies = [random.Random(n).randbytes(n) for n in SIZES]
    for body in bodies:
        ours.put(body)
    frames = []
    while len(frames) < len(bodies):
        frames += unws(ours.wire())
    assert frames == [(0x82, b"\0" + body) for body in bodies]


def test_keys_differ(shaken, role):
    ours = shaken()
    for _ in range(1000):
        ours.put(bytes(8))
    text = ours.wire()
    if role[0]:
        assert text == (b"\x82\x09" + bytes(9)) * 1000
    else:
        keys = {text[i * 15 + 2 : i * 15 + 6] for i in range(1000)}
        assert len(keys) > 990


@pytest.mark.parametrize("one", [False, True])
def test_account_and_what_is_taken_back(shaken, one):
    """At every offset that matters, as for ZMTP: the frames are walked, masked or not."""
    ours = shaken()
    ends = []
    for parts, flags in MESSAGES:
        if one:
            for i, part in enumerate(parts):
                assert ours.encode_one(part, flags or (MORE if i < len(parts) - 1 else 0))
        else:
            ours.put(*parts, flags=flags)
            ours.encode()
        ends.append(ours.account["total"])
    near = {e + d for e in [0, *ends] for d in range(-80, 100)}
    sent = 0
    for at in [at for at in range(ends[-1] + 1) if at in near or at % 4999 == 0]:
        account = ours.advance(at - sent)
        sent = at
        left = [row for row, start in zip(MESSAGES, [0, *ends], strict=False)
                if start >= at and not row[1]]
        assert account["done"] == sum(e <= at and not row[1]
                                      for row, e in zip(MESSAGES, ends, strict=True))
        assert ours.unsent() == [(int(i < len(parts) - 1), part)
                                 for parts, _ in left for i, part in enumerate(parts)]
    ours.reset()
    assert ours.memory[0] == 0


def test_small_messages_in_one_loop(shaken, role):
    ours = shaken()
    bodies = [bytes([i % 256]) * (i % 57) for i in range(1000)]
    for body in bodies:
        ours.put(body)
    assert ours.encode()[0] == 1000
    assert ours.unsent() == [(0, body) for body in bodies]
    assert unws(b"".join(ours.gather())) == [(0x82, b"\0" + body) for body in bodies]


def test_both_sides(probe):
    """Ours against ours: every size there and back."""
    server, client = probe(codec="zws"), probe(codec="zws")
    hello = client.start(False)
    assert client.feed(server.start(True))[0] == "done"
    assert server.feed(hello)[0] == "done"
    for a, b in ((client, server), (server, client)):
        for n in SIZES:
            a.put(bytes([n % 251]) * n, b"end")
        assert b.decode(a.wire()) == ("need_data", [
            part for n in SIZES for part in ((1, bytes([n % 251]) * n), (0, b"end"))])
