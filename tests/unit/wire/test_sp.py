"""SP over streams: captured bytes both ways, any chunking, words and envelopes, what is refused,
and what is given back of a broken link."""

import pytest
from mqcore.testing.native.probe import CANCEL, SUBSCRIBE, Probe

NUMBERS = {"pair0": 0x10, "pair1": 0x11, "pub0": 0x20, "sub0": 0x21, "req0": 0x30, "rep0": 0x31,
           "push0": 0x50, "pull0": 0x51, "surveyor0": 0x62, "respondent0": 0x63, "bus0": 0x70}
PEERS = {0x20: 0x21, 0x30: 0x31, 0x50: 0x51, 0x62: 0x63}
PEERS |= {theirs: ours for ours, theirs in PEERS.items()} | {n: n for n in (0x10, 0x11, 0x70)}
ID, HOP = b"\x80\0\0\x2a", b"\0\0\0\0\x07"


def header(number):
    return b"\0SP\0" + number.to_bytes(2, "big") + b"\0\0"


def frame(payload, typed=False):
    return b"\x01" * typed + len(payload).to_bytes(8, "big") + payload


def make(kind, codec="sp", **more):
    """A codec of that protocol, before its handshake."""
    number = NUMBERS[kind]
    return Probe("", (), codec=codec, sp=number, sp_peer=PEERS[number], number=-1,
                 words=number in (0x30, 0x31, 0x62, 0x63), hops=number == 0x11, **more)


def ready(kind, codec="sp", **more):
    probe = make(kind, codec, **more)
    assert probe.start() == header(NUMBERS[kind])
    assert probe.feed(header(PEERS[NUMBERS[kind]])) == ("done", 8, b"")
    return probe


def flagged(*parts):
    return [(int(i < len(parts) - 1), part) for i, part in enumerate(parts)]


# -- captured bytes --------------------------------------------------------------------------------

def test_headers(vectors):
    """Of every protocol, from every library; ours is the same, and said once."""
    names = [name for name in vectors if "_hdr_" in name]
    assert len(names) > 30
    for name in names:
        number = NUMBERS.get(name.split("_")[2], 0x50)
        assert vectors[name] == header(number)
        ours = make(next(kind for kind, n in NUMBERS.items() if n == PEERS[number]))
        assert ours.start(listening=True) == header(PEERS[number])
        assert ours.start() == b""
        for byte in vectors[name][:-1]:
            assert ours.feed(bytes([byte])) == ("need_data", 1, b"")
        assert ours.feed(vectors[name][-1:] + b"more") == ("done", 1, b"")
        assert ours.peer["version"] == (0, 0)
        assert NUMBERS[ours.peer["pattern"].lower().rstrip("01") +
                       ("1" if number == 0x11 else "0")] == number


MESSAGES = [            # captured, who says it, the parts, the hops
    ("sp_push_msg", "push0", [b"work"]), ("sp_push_empty", "push0", [b""]),
    ("sp_pull_msg", "push0", [b"item"]), ("sp_pub_msg", "pub0", [b"topic:1"]),
    ("sp_pair0_msg", "pair0", [b"p0"]), ("sp_pair1_msg", "pair1", [b"p1"]),
    ("sp_pair1_in", "pair1", [b"yo"]), ("sp_pair1_poly_reply", "pair1", [b"to-A"]),
    ("sp_bus_msg", "bus0", [b"all"]),
    ("sp_req_request", "req0", [b"\xfd\x27\xb5\x6a", b"", b"question"]),
    ("sp_req_request2", "req0", [b"\xfd\x27\xb5\x6b", b"", b"q2"]),
    ("sp_req_reply_in", "rep0", [b"\xfd\x27\xb5\x6a", b"", b"answer"]),
    ("sp_rep_request_in", "req0", [ID, b"", b"ask"]), ("sp_rep_reply", "rep0", [ID, b"", b"ok"]),
    ("sp_rep_backtrace_in", "req0",
     [HOP, b"\0\x12\x34\x56\x78", b"\x80\0\0\x01", b"", b"deep"]),
    ("sp_rep_backtrace_out", "rep0",
     [HOP, b"\0\x12\x34\x56\x78", b"\x80\0\0\x01", b"", b"up"]),
    ("sp_survey", "surveyor0", [b"\x81\x0b\xb3\xdc", b"", b"who?"]),
    ("sp_survey_response_in", "respondent0", [b"\x81\x0b\xb3\xdc", b"", b"me"]),
    ("sp_respondent_in", "surveyor0", [b"\x80\0\x01\x02", b"", b"survey"]),
    ("sp_respondent_out", "respondent0", [b"\x80\0\x01\x02", b"", b"vote"]),
    ("sp_device_forward_rep0", "req0",
     [b"\0\x10\x16\xaa\xab", b"\x80\0\0\x05", b"", b"dev"]),
    ("sp_device_back_rep0", "rep0", [b"\x80\0\0\x05", b"", b"rsp"]),
    ("sp_device_forward_respondent0", "surveyor0",
     [b"\0\x10\x16\xaa\xad", b"\x80\0\0\x06", b"", b"dev"]),
    ("sp_device_back_respondent0", "respondent0", [b"\x80\0\0\x06", b"", b"rsp"]),
    ("sp_device_forward_pair1", "pair1", [b"x"]), ("sp_tls_msg", "push0", [b"tls!"]),
]
for cat in ("nngcat", "nanocat"):
    MESSAGES += [(f"{cat}_msg_{kind}", kind, [b"hello"])
                 for kind in ("pair0", "pub0", "push0")]
    MESSAGES += [(f"{cat}_msg_{kind}", kind, [b"\x80\0\0\x11", b"", b"reply"])
                 for kind in ("rep0", "respondent0")]
MESSAGES += [("nngcat_msg_pair1", "pair1", [b"hello"]), ("nanocat_msg_bus0", "bus0", [b"hello"])]


def test_captured_messages_both_ways(vectors):
    for name, kind, parts in MESSAGES:
        text = vectors[name]
        hops = text[11] if kind == "pair1" else 0
        theirs = next(k for k, n in NUMBERS.items() if n == PEERS[NUMBERS[kind]])
        ours = ready(theirs)
        assert ours.decode(text) == ("need_data", flagged(*parts)), name
        assert ours.hops[-1] == hops
        said = ready(kind)
        said.put(*parts, hops=max(hops - 1, 0))
        assert said.wire() == text, name


def test_captured_ids_of_the_cats(vectors):
    for name in ("nngcat_msg_req0", "nanocat_msg_req0", "nngcat_msg_surveyor0",
                 "nanocat_msg_surveyor0"):
        ours = ready("rep0" if "req" in name else "respondent0")
        text = vectors[name]
        assert ours.decode(text) == ("need_data", flagged(text[8:12], b"", b"hello"))


def test_captured_over_unix_sockets(vectors):
    assert vectors["sp_ipc_hdr"] == header(0x50) and not vectors["sp_sub_sends_nothing"]
    for text, body in ((vectors["sp_ipc_msg"], b"ipc!"), (vectors["nngcat_ipc_msg"][8:], b"hello"),
                       (vectors["nanocat_ipc_msg"][8:], b"hello")):
        assert ready("pull0", "sp-ipc").decode(text) == ("need_data", flagged(body))
        ours = ready("push0", "sp-ipc")
        ours.put(body)
        assert ours.wire() == text


# -- any chunking ----------------------------------------------------------------------------------

BODIES = [b"", b"a", b"x" * 56, b"y" * 57, b"z" * 3000, b"", b"s" * 16, b"t" * 9000]


def stream(kind, typed=False):
    """Bytes that such a one gets, and the parts that they are."""
    front, parts = b"", []
    if kind == "pair1":
        front = b"\0\0\0\x03"
    if kind in ("rep0", "req0"):
        front = HOP[1:] + ID
        parts = [(1, HOP), (1, ID), (1, b"")]
    return (b"".join(frame(front + body, typed) for body in BODIES),
            [part for body in BODIES for part in [*parts, (0, body)]])


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("kind, codec", [("pull0", "sp"), ("pull0", "sp-ipc"), ("pair1", "sp"),
                                         ("rep0", "sp"), ("req0", "sp-ipc")])
def test_any_chunking(kind, codec, copy, rng):
    text, parts = stream(kind, codec == "sp-ipc")
    for cap in (64, 1):
        for sizes in ([1], [2, 3], [len(text)], [rng.randint(1, 200) for _ in range(50)]):
            ours = ready(kind, codec)
            got, hops, at, i = [], [], 0, 0
            while at < len(text):
                size = sizes[i % len(sizes)]
                status, more = ours.decode(text[at:at + size], copy=copy, cap=cap)
                assert status == "need_data"
                got += more
                hops += ours.hops
                at += size
                i += 1
            assert got == parts
            assert set(hops) == {3 if kind == "pair1" else 0}
            del more
            assert ours.memory[0] == 0


def test_a_large_body_is_read_in_place():
    ours = ready("rep0")
    text = frame(ID + b"L" * 100_000)
    assert ours.decode(text[:20]) == ("need_data", flagged(ID, b"", b"")[:2])
    assert ours.room
    at = 20
    while n := ours.fill(text[at:]):
        at += n
    assert ours.decode(text[at:]) == ("need_data", [(0, b"L" * 100_000)])


def test_memory_is_not_given_for_promises():
    ours = ready("pull0")
    assert ours.decode((1 << 40).to_bytes(8, "big") + b"x" * 100) == ("need_data", [])
    assert ours.memory[1] < 2 << 20


# -- out -------------------------------------------------------------------------------------------

def test_parts_are_joined():
    ours = ready("push0")
    ours.put(b"a", b"", b"b" * 60, b"c" * 20_000, b"d")
    ours.put(b"small")
    ours.put(b"x", b"y")
    assert ours.wire() == (frame(b"a" + b"b" * 60 + b"c" * 20_000 + b"d") + frame(b"small") +
                           frame(b"xy"))
    ours = ready("rep0")
    ours.put(HOP, ID, b"", b"one", b"", b"two")
    assert ours.wire() == frame(HOP[1:] + ID + b"onetwo")
    ours = ready("pair1")
    ours.put(b"one", b"two", hops=255)        # it cannot count further; the peer drops it
    assert ours.wire() == frame(b"\0\0\0\xffonetwo")


def test_subscriptions_are_not_said():
    ours = ready("sub0")
    ours.put(b"a", flags=SUBSCRIBE)
    ours.put(b"a", flags=CANCEL)
    assert ours.encode() == (2, 2) and ours.account["total"] == 0
    assert ours.encode_one(b"a", SUBSCRIBE) and ours.account["total"] == 0
    assert ours.dropped == (0, 0)


def test_one_part_at_a_time():
    """As a lane that conflates gives them."""
    ours = ready("pub0", "sp-ipc")
    assert ours.encode_one(b"newest")
    assert b"".join(ours.gather()) == frame(b"newest", True)


@pytest.mark.parametrize("size, count", [(1000, 1500), (17_000, 100)])
def test_a_message_larger_than_a_batch_continues(size, count):
    """Its length is said once, whatever follows in later batches; nothing of it is taken back."""
    ours = ready("push0")
    parts = [bytes([i & 255]) * size for i in range(count)]
    ours.put(b"first")
    ours.put(*parts)
    ours.put(b"last", b"one")
    text, batches, messages = b"", 0, 0
    while True:
        messages += ours.encode()[0]
        total = ours.account["total"]
        if not total:
            break
        batches += 1
        chunk = b"".join(ours.gather())
        assert len(chunk) == total
        text += chunk
        if batches == 2:
            assert ours.account["open"] and ours.account["half"] and ours.unsent() == []
        ours.advance(total)
        ours.reset()
    assert batches > 2 and messages == 3
    assert text == frame(b"first") + frame(b"".join(parts)) + frame(b"lastone")


OUT = {
    "push0": [[b"one"], [b"A", b"", b"C" * 60], [b"x" * 300], [b"y" * 17_000], [b""],
              [b"h", b"z" * 16_400, b"w" * 16_500, b"t"], [b"end"]],
    "rep0": [[ID, b"", b"one"], [HOP, HOP, ID, b"", b"two"], [ID, b"", b"a", b"", b"b" * 17_000],
             [ID, b"", b""]],
    "req0": [[ID, b"", b"one"], [b"client", b"", b"odd"], [b"", b"none"], [HOP, ID, b"", b"z"]],
    "pair1": [[b"one"], [b"y" * 17_000], [b"a", b"b"], [b""]],
}


@pytest.mark.parametrize("kind", OUT)
def test_account_and_give_back_at_every_offset(kind):
    """With the parts and the envelopes as they were."""
    ours = ready(kind)
    ends = []
    for parts in OUT[kind]:
        ours.put(*parts, hops=2)
        ours.encode()
        ends.append(ours.account["total"])
    text = b"".join(ours.gather())
    near = {end + d for end in [0, *ends] for d in range(-40, 100)}
    sent = 0
    for at in (i for i in range(ends[-1] + 1) if i in near or i % 997 == 0):
        account = ours.advance(at - sent)
        sent = at
        assert account["done"] == sum(end <= at for end in ends)
        assert account["half"] == (at not in [0, *ends]) and not account["cut"]
        assert b"".join(ours.gather()) == text[at:]
        left = [parts for parts, start in zip(OUT[kind], [0, *ends], strict=False) if start >= at]
        assert ours.unsent() == [part for parts in left for part in flagged(*parts)]
        assert kind != "pair1" or set(ours.hops) <= {2}
    ours.reset()
    assert ours.unsent() == []


def test_give_back_of_a_message_that_has_not_all_been_encoded():
    """Its head is in the batch, the rest in the pipe continues it."""
    ours = ready("push0")
    ours.put(b"first")
    ours.put(*[b"p" * 17_000] * 100)
    ours.encode()
    assert ours.account["open"] and not ours.account["cut"]
    back = ours.unsent()
    assert back[0] == (0, b"first") and set(back[1:]) == {(1, b"p" * 17_000)}
    ours.advance(14)
    assert ours.account["cut"] and ours.unsent() == []


# -- envelopes that have no words ------------------------------------------------------------------

ODD = [[b""], [b"client", b""], [b"\0\0\0\0\x07", b""], [b"\0\x80\0\0\0", ID, b""],
       [b"x" * 60, b"y", b""], [ID, ID, b""], [b"\x01\0\0\0", b""]]


def asked(ours, *parts):
    """The id under which such a request goes out."""
    ours.put(*parts)
    text = ours.wire()
    assert len(text) == 12 + len(parts[-1]) and text[8] & 0x80, text
    return text[8:12]


@pytest.mark.parametrize("envelope", ODD)
def test_who_asks_remembers_what_cannot_be_said(envelope):
    ours = ready("req0")
    first, second = asked(ours, *envelope, b"q1"), asked(ours, b"other", b"", b"q2")
    assert first != second
    assert ours.decode(frame(first + b"answer")) == ("need_data", flagged(*envelope, b"answer"))
    assert ours.dropped == (0, 0)
    # a second answer, also one that is cut off, belongs to nothing any more
    for byte in frame(first + b"again" * 3000):
        assert ours.decode(bytes([byte])) == ("need_data", [])
    assert ours.dropped == (1, 0)
    assert ours.decode(frame(second + b"answer"))[1] == flagged(b"other", b"", b"answer")


def test_words_of_others_are_no_late_answers():
    ours = ready("req0")
    asked(ours, b"client", b"", b"q")
    for words in ([HOP, ID], [ID]):
        text = b"".join(word[-4:] for word in words)
        assert ours.decode(frame(text + b"a"))[1] == flagged(*words, b"", b"a")
    assert ours.dropped == (0, 0)


def test_a_survey_has_many_answers():
    ours = ready("surveyor0")
    number = asked(ours, b"client", b"", b"q")
    for body in (b"one", b"two"):
        assert ours.decode(frame(number + body))[1] == flagged(b"client", b"", body)


def test_only_so_many_are_remembered():
    ours = ready("req0")
    ids = []
    for i in range(65_536 + 3):
        ours.put(b"c%d" % i, b"", b"q")
        if i < 4 or i == 65_536 + 2:
            ids.append(ours.wire()[-5:-1])
        elif i % 4096 == 0:
            ours.wire()
    ours.wire()
    for number in ids[:3]:
        assert ours.decode(frame(number + b"a")) == ("need_data", [])
    assert ours.dropped == (3, 0)
    assert ours.decode(frame(ids[3] + b"a"))[1] == flagged(b"c3", b"", b"a")
    assert ours.decode(frame(ids[4] + b"a"))[1] == flagged(b"c65538", b"", b"a")


@pytest.mark.parametrize("parts", [[b"no envelope"], [ID, b"body"], [ID, b""],
                                   [b"e" * 5000, b"", b"too long to remember"]])
def test_what_nobody_can_say(parts):
    ours = ready("req0")
    ours.put(*parts)
    ours.put(ID, b"", b"fine")
    assert ours.encode()[0] == 2
    assert b"".join(ours.gather()) == frame(ID + b"fine")
    assert ours.dropped == (0, 1)


@pytest.mark.parametrize("envelope", ODD)
def test_who_answers_cannot_remember(envelope):
    ours = ready("rep0")
    ours.put(*envelope, b"answer")
    assert ours.encode() == (1, sum(map(len, envelope)) + 6)
    assert ours.account["total"] == 0 and ours.dropped == (0, 1) and ours.unsent() == []


# -- what is refused -------------------------------------------------------------------------------

@pytest.mark.parametrize("text, reason", [
    (b"\xff\0\0\0\0\0\0\0\x01\x7f", "speaks ZMTP"), (b"GET / HTTP/1.1\r\n", "HTTP or WebSocket"),
    (b"\x16\x03\x01\x00", "TLS, not SP: put tls+"), (b"SSH-2.0-x", "SSH, not SP"),
    (b"\x28\xb5\x2f\xfd", "zstd, not SP"), (b"\0SP\x01\0\x50\0\0", "another version of SP"),
    (b"\0SX\0", "does not speak SP"), (b"hello", "does not speak SP"),
    (header(0x20), "is a PUB socket, which does not fit PULL"),
    (header(0x42), "is a protocol 0x42 socket"), (b"\0SP\0\0\x50\0\x01", "last two bytes"),
    (b"\0SP\0\0\x50\x01\0", "last two bytes"),
])
def test_strangers_and_misfits(text, reason):
    ours = make("pull0")
    ours.start()
    assert ours.feed(text)[0] == "protocol" and reason in ours.reason
    again = make("pull0")
    again.start()
    for byte in text:
        if again.feed(bytes([byte]))[0] == "protocol":
            break
    assert again.reason == ours.reason


@pytest.mark.parametrize("kind, codec, text, reason", [
    ("pull0", "sp", b"\x80" + bytes(7), "2^63"),
    ("pull0", "sp-ipc", b"\x02", "first byte must be 1"),
    ("rep0", "sp", frame(b"abc"), "too short for its request id"),
    ("rep0", "sp", frame(bytes(12)), "ends before its request id"),
    ("rep0", "sp", frame(bytes(4) + b"abc"), "ends before its request id"),
    ("req0", "sp", frame(b""), "too short for its request id"),
    ("respondent0", "sp", frame(bytes(255 * 4) + ID + b"x"), "more than 255 words"),
    ("pair1", "sp", frame(b"abc"), "too short for a count of hops"),
    ("pair1", "sp", frame(b"\0\0\x01\0x"), "more than 255 devices"),
])
@pytest.mark.parametrize("step", [1, 2000])
def test_malformed(kind, codec, text, reason, step):
    ours = ready(kind, codec)
    for at in range(0, len(text), step):
        status, parts = ours.decode(text[at:at + step])
        assert parts == []
        if status == "protocol":
            break
    else:
        pytest.fail("accepted")
    assert reason in ours.reason


def test_as_many_words_as_may_be():
    ours = ready("rep0")
    text = frame(HOP[1:] * 254 + ID + b"x")
    status, parts = ours.decode(text)
    assert status == "need_data" and parts == flagged(*[HOP] * 254, ID, b"", b"x")
    ours.put(*[HOP] * 254, ID, b"", b"x")
    assert ours.wire() == text


@pytest.mark.parametrize("limit", [0, 20, 100])
def test_the_announced_length_is_limited(limit):
    """Words included, as it is announced."""
    ours = ready("pull0", max_message_size=limit)
    assert ours.decode(frame(b"x" * limit) + bytes(80))[1][0] == (0, b"x" * limit)
    ours = ready("rep0", max_message_size=limit)
    assert ours.decode((limit + 1).to_bytes(8, "big"))[0] == "protocol"
    assert "the limit is" in ours.reason


# -- either wire -----------------------------------------------------------------------------------

def either(codec="either"):
    return Probe("PULL", ("PUSH",), number=7, codec=codec, sp=0x51, sp_peer=0x50)


@pytest.mark.parametrize("codec", ["either", "either-ipc"])
def test_the_first_byte_tells(codec, greeting, ready):
    ours = either(codec)
    assert ours.start(listening=True) == b""
    assert ours.feed(b"") == ("need_data", 0, b"")
    assert ours.feed(header(0x50)[:1]) == ("need_data", 1, header(0x51))
    assert ours.feed(header(0x50)[1:]) == ("done", 7, b"")
    assert ours.decode(frame(b"x", codec == "either-ipc")) == ("need_data", [(0, b"x")])
    ours = either(codec)
    ours.start(listening=True)
    text = greeting() + ready((b"Socket-Type", b"PUSH"))
    answer = b""
    for byte in text:
        status, _, said = ours.feed(bytes([byte]))
        answer += said
    assert status == "done" and answer.startswith(bytes.fromhex("ff00000000000000017f03"))
    assert ours.peer["version"] == (3, 1) and ours.peer["pattern"] == "PUSH"


def test_after_the_grace_it_speaks_zmtp(greeting, ready):
    ours = either()
    assert ours.start(listening=True) == b""
    assert ours.start() == bytes.fromhex("ff00000000000000017f")
    assert ours.feed(greeting() + ready((b"Socket-Type", b"PUSH")))[0] == "done"
    late = either()
    late.start(listening=True)
    late.start()
    assert late.feed(header(0x50))[0] == "protocol" and "was silent until" in late.reason


def test_a_stranger_to_both():
    ours = either()
    ours.start(listening=True)
    assert ours.feed(b"GET / HTTP/1.1\r\n")[0] == "protocol"
    assert "not ZMTP or SP" in ours.reason
