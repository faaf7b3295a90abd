"""SP over WebSocket: captured frames, any chunking, bad frames, frames out, and what comes back."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mqcore.testing.native.probe import MORE, SUBSCRIBE, Probe
from rawws import BINARY, CLOSE, CONTINUATION, KEY, PING, PONG, TEXT, unws, ws

MIB = 1 << 20
KINDS = {  # own number, the peer's, and what stands before the body
    "PAIR": {"sp": 0x10, "sp_peer": 0x10}, "PAIR1": {"sp": 0x11, "sp_peer": 0x11, "hops": True},
    "REQ": {"sp": 0x30, "sp_peer": 0x31, "words": True},
    "REP": {"sp": 0x31, "sp_peer": 0x30, "words": True},
}
ID = b"\x80\0\0\1"
CAPTURED = {name: bytes.fromhex(text) for name, text in {  # nng 1.11, nngcat 1.5.2, nanocat 1.1.5
    "request of nng": "8287a0d82e251c327e84d7ab5f",
    "request to nng": "8289112233449122334579475f287e",
    "request of nngcat": "82899eafec134ac82bc4f6ca807ff1",
    "request of nanocat": "8289c9ad71b14a4b5b32a1c81ddda6",
    "answer to nng": "8207bcea50a1777372", "answer of nng": "820780000001627965",
    "answer of nanocat": "820780000001727370", "pong": "8a027070", "close": "880203e8",
}.items()}


def make(kind="PAIR", listening=True, **more):
    ours = Probe(kind, codec="sp-ws", **KINDS[kind], **more)
    assert ours.start(listening) == b""                # nothing is exchanged
    assert ours.feed(b"") == ("done", 0, b"")
    return ours


@pytest.fixture(params=["server", "client"])
def role(request):
    """(listening, the key that frames to us have): both sides are tested alike."""
    return (True, KEY) if request.param == "server" else (False, None)


@pytest.fixture
def shaken(role):
    return lambda kind="PAIR", **more: make(kind, role[0], **more)


@pytest.fixture
def to_us(role):
    return lambda payload, opcode=BINARY, fin=True: ws(payload, opcode, role[1], fin)


# -- facts ----------------------------------------------------------------------------------------

def test_the_peer_is_known_at_once(shaken):
    for kind, peer in (("PAIR", "PAIR"), ("PAIR1", "PAIR1"), ("REQ", "REP"), ("REP", "REQ")):
        assert shaken(kind).peer["pattern"] == peer
    assert shaken().peer["version"] == (0, 0)


@pytest.mark.parametrize("name", CAPTURED)
def test_what_was_captured(name):
    frame = CAPTURED[name]
    [(_, text)] = unws(frame)
    parts = [(MORE, text[:4]), (MORE, b""), (0, text[4:])]
    if name.startswith("request"):
        assert make("REP").decode(frame) == ("need_data", parts)
    elif name.startswith("answer"):
        assert make("REQ", False).decode(frame) == ("need_data", parts)
        ours = make("REP")
        ours.put(*(part for _, part in parts))
        assert ours.wire() == frame
    else:
        ours = make()
        ours.decode(ws(text, PING if name == "pong" else CLOSE, KEY))
        assert ours.control == frame


# -- in -------------------------------------------------------------------------------------------

def traffic(kind, key, rng, count):
    """Frames of messages, whole and in fragments, with control frames between; and the parts."""
    text, parts = [], []
    for _ in range(count):
        body = rng.randbytes(rng.choice([0, 1, 20, 56, 57, 130, 3000, 9000, 20_000]))
        front, hops = b"", rng.choice([1, 7])
        if kind == "PAIR1":
            front = bytes([0, 0, 0, hops])
        elif kind == "REP":
            words = [rng.randbytes(4) for _ in range(rng.choice([0, 0, 1, 3]))]
            words = [bytes([word[0] & 127]) + word[1:] for word in words]
            front = b"".join(words) + ID
            parts += [(MORE, b"\0" + word) for word in words] + [(MORE, ID), (MORE, b"")]
        payload = front + body
        cuts = sorted(rng.choices(range(len(payload) + 1), k=rng.choice([0, 0, 0, 1, 3])))
        cuts += rng.choice([[], [], [min(2, len(payload))]])
        cuts.sort()
        pieces = [payload[a:b] for a, b in zip([0, *cuts], [*cuts, len(payload)], strict=True)]
        for i, piece in enumerate(pieces):
            text.append(ws(piece, BINARY if i == 0 else CONTINUATION, key, i == len(pieces) - 1))
            if rng.random() < 0.2:
                text.append(ws(rng.randbytes(rng.choice([0, 5, 125])), rng.choice([PING, PONG]),
                               key))
        parts.append((0, body))
    return b"".join(text), parts


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), kind=st.sampled_from(["PAIR", "PAIR1", "REP"]),
       direct=st.booleans(), copy=st.booleans())
def test_any_chunking(seed, kind, direct, copy):
    """As an engine reads: into a large body under way, or through a slab."""
    rng = random.Random(seed)
    key = rng.choice([None, rng.randbytes(4)])
    text, parts = traffic(kind, key, rng, 12)
    ours = make(kind, key is not None)
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


def test_answers_that_nobody_waits_for(shaken, to_us):
    """Whole and in fragments, their envelope cut in the middle: passed over, the next one comes."""
    ours = shaken("REQ")
    ours.put(b"from ZMTP", b"", b"asks")
    [(_, text)] = unws(ours.wire())
    answer = text[:4] + b"answer" * 10
    put_back = [(MORE, b"from ZMTP"), (MORE, b""), (0, b"answer" * 10)]
    pieces = (to_us(answer[:2], fin=False) + to_us(answer[2:9], CONTINUATION, False)
              + to_us(b"", CONTINUATION, False) + to_us(answer[9:], CONTINUATION))
    assert ours.decode(pieces) == ("need_data", put_back)
    for late in (to_us(answer), pieces):
        assert ours.decode(late) == ("need_data", [])
        for i in range(len(late)):
            assert ours.decode(late[i:i + 1]) == ("need_data", [])
    foreign = ID + b"other" if text[:4] != ID else b"\x90\0\0\1other"
    assert ours.decode(to_us(foreign))[1][-1] == (0, b"other")
    assert ours.memory[0] == 0


BAD = {
    "text": ("PAIR", lambda f: f(b"x", TEXT), 1003),
    "reserved bit": ("PAIR", lambda f: b"\xc2" + f(b"")[1:], 1002),
    "in pieces": ("PAIR", lambda f: f(b"", PING, False), 1002),
    "not begun": ("PAIR", lambda f: f(b"x", CONTINUATION), 1002),
    "middle of another": ("PAIR", lambda f: f(b"", fin=False) + f(b""), 1002),
    "limit is 1000": ("PAIR", lambda f: f(bytes(1001)), 1009),
    "the limit is 1000": (
        "PAIR", lambda f: f(bytes(600), fin=False) + f(bytes(401), CONTINUATION), 1009),
    "of 1001 bytes, the limit": (
        "REP", lambda f: f(b"\0\1\2\3", fin=False) + f(ID + bytes(993), CONTINUATION), 1009),
    "ends before its request id": ("REP", lambda f: f(b"\0\1\2\3\x80\1\2"), 1002),
    "request id": ("REP", lambda f: f(b"", fin=False) + f(b"", CONTINUATION), 1002),
    "count of hops": ("PAIR1", lambda f: f(b"\0\0\1"), 1002),
    "more than 255 devices": ("PAIR1", lambda f: f(b"\0\0\1\1"), 1002),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_frames(shaken, to_us, name):
    kind, frames, code = BAD[name]
    text = frames(to_us)
    for step in (1, len(text)):
        ours = shaken(kind, max_message_size=1000)
        status = "need_data"
        for at in range(0, len(text), step):
            status = ours.decode(text[at : at + step])[0]
            if status != "need_data":
                break
        assert status == "protocol" and name in ours.reason
        [(first, payload)] = unws(ours.control)
        assert (first, payload[:2]) == (0x88, code.to_bytes(2, "big"))


def test_too_many_words(shaken, to_us):
    ours = shaken("REP")
    assert ours.decode(to_us(bytes(4 * 256)))[0] == "protocol" and "255" in ours.reason


def test_the_wrong_mask(shaken, role):
    ours = shaken()
    assert ours.decode(ws(b"x", key=None if role[0] else KEY))[0] == "protocol"
    assert ("without a mask" if role[0] else "masked frame") in ours.reason


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=400), st.booleans(), st.sampled_from(sorted(KINDS)))
def test_junk(data, listening, kind):
    whole = make(kind, listening, max_message_size=MIB)
    again = make(kind, listening, max_message_size=MIB)
    status, parts = "need_data", []
    for i in range(len(data)):
        status, more = again.decode(data[i : i + 1])
        parts += more
        if status != "need_data":
            break
    assert (status, parts) == whole.decode(data)
    assert again.reason == whole.reason


# -- out ------------------------------------------------------------------------------------------

MESSAGES = [
    [b"one"], [b"A", b"", b"C" * 60], [b"x" * 300], [b""], [b"", b""], [b"", b"y" * 16400, b"z"],
    [b"y" * 70_000], [b"w" * 130_000, b"", b"v" * 200_000], [b"l" * (MIB - 3)], [b"u" * 3],
    [b"h", b"m" * (MIB + 1), b""],
]


def rejoined(frames):
    """Bodies of messages; control frames must not be in the middle of a batch of them."""
    bodies, open_one = [], None
    for first, payload in frames:
        assert len(payload) <= MIB and first & 15 == (BINARY if open_one is None else CONTINUATION)
        open_one = (open_one or []) + [payload]
        if first & 128:
            bodies.append(b"".join(open_one))
            open_one = None
    assert open_one is None
    return bodies


@pytest.mark.parametrize("kind,front", [("PAIR", b""), ("PAIR1", b"\0\0\0\1"), ("REP", ID)])
def test_frames_out(shaken, role, kind, front):
    ours = shaken(kind)
    envelope = [ID, b""] if kind == "REP" else []
    for parts in MESSAGES * 2:
        ours.put(*envelope, *parts)
    frames = []
    while True:
        ours.encode()
        if not ours.account["total"]:
            break
        text = b"".join(ours.gather())                 # whole frames in each batch
        assert bool(text[1] & 128) == (not role[0])
        frames += unws(text)
        ours.reset()
    assert rejoined(frames) == [front + b"".join(parts) for parts in MESSAGES * 2]
    small = [row for row in frames if len(row[1]) < 100]
    assert all(first == 0x82 for first, _ in small[:2])
    assert ours.memory[0] == 0


def test_what_sp_cannot_say(shaken):
    ours = shaken()
    ours.put(b"topic", flags=SUBSCRIBE)
    ours.put(b"x")
    assert unws(ours.wire()) == [(0x82, b"x")]
    ours = shaken("REP")
    ours.put(b"no id")
    ours.put(b"three", b"", b"x")
    assert ours.wire() == b""


@pytest.mark.parametrize("kind", ["PAIR", "PAIR1", "REP"])
def test_account_and_what_is_taken_back(shaken, kind):
    """At every offset that matters: with the parts as they were, although they travel joined."""
    ours = shaken(kind)
    envelope = [b"\0\1\2\3\4", ID, b""] if kind == "REP" else []
    messages = [[*envelope, *parts] for parts in MESSAGES]
    ends = []
    for parts in messages:
        ours.put(*parts)
        ours.encode()
        ends.append(ours.account["total"])
    near = {e + d for e in [0, *ends] for d in range(-40, 60) if 0 <= e + d <= ends[-1]}
    sent = 0
    for at in sorted(near.union(range(0, ends[-1] + 1, 99_991))):
        account = ours.advance(at - sent)
        sent = at
        left = [row for row, start in zip(messages, [0, *ends], strict=False) if start >= at]
        assert account["done"] == sum(e <= at for e in ends)
        assert ours.unsent() == [(int(i < len(parts) - 1), part)
                                 for parts in left for i, part in enumerate(parts)]
    ours.reset()
    assert ours.memory[0] == 0


def test_a_part_that_is_cut_between_batches(shaken):
    """It comes back from the pipe, where it is still whole."""
    ours = shaken()
    large = bytes(range(256)) * (160 << 10)            # 40 MiB
    ours.put(b"head", large, b"tail")
    ours.encode()
    assert ours.account["open"] and not ours.account["half"]
    assert ours.unsent() == [(MORE, b"head")]
    frames = unws(b"".join(ours.gather()))
    ours.advance(1)
    assert ours.unsent() == [] and ours.account["cut"]
    ours.reset()
    assert ours.account["half"]                        # what is in no batch yet is lost
    frames += unws(ours.wire())
    assert rejoined(frames) == [b"head" + large + b"tail"]
    assert ours.memory[0] == 0


def test_a_lone_part_is_in_one_batch(shaken):
    """Lanes that conflate give one part at a time."""
    for size in (0, 100, MIB, 26 * MIB):
        ours = shaken("PAIR1")
        assert ours.encode_one(bytes(size))
        frames = unws(b"".join(ours.gather()))
        assert b"".join(row[1] for row in frames) == b"\0\0\0\1" + bytes(size)
        assert [bool(row[0] & 128) for row in frames] == [False] * (len(frames) - 1) + [True]
        assert ours.unsent() == [(0, bytes(size))]


def test_close_and_no_ping(shaken, to_us):
    ours = shaken()
    assert unws(ours.finish()) == [(0x88, b"\x03\xe8")]
    assert ours.decode(to_us(b"last") + to_us(b"\x03\xe8", CLOSE) + b"junk") == (
        "done", [(0, b"last")])
    assert ours.control == b"" and "(1000)" in ours.reason


def test_both_sides():
    """Ours against ours: every size there and back."""
    sizes = [0, 1, 55, 56, 57, 121, 122, 125, 126, 65531, 65532, 65535, 65536, 300_000, 3 * MIB]
    server, client = make("PAIR1"), make("PAIR1", False)
    for a, b in ((client, server), (server, client)):
        for n in sizes:
            a.put(bytes([n % 251]) * n)
        assert b.decode(a.wire()) == ("need_data", [(0, bytes([n % 251]) * n) for n in sizes])
