"""Frames in: any chunking gives the same parts, memory follows the bytes that came, commands."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mqcore.testing.native.probe import CANCEL, MORE, SUBSCRIBE

VERSIONS = [(3, 1), (3, 0), (2, 0), (1, 0)]


def frame(body, more=0, version=(3, 1)):
    if version == (1, 0):
        size = len(body) + 1
        head = bytes([size]) if size < 255 else b"\xff" + size.to_bytes(8, "big")
        return head + bytes([more]) + body
    if len(body) <= 255:
        return bytes([more, len(body)]) + body
    return bytes([more | 2]) + len(body).to_bytes(8, "big") + body


def command(body):
    return bytes([4, len(body)]) + body if len(body) < 256 else (
        b"\x06" + len(body).to_bytes(8, "big") + body)


def decode(probe, *chunks, **how):
    parts = []
    for chunk in chunks:
        status, more = probe.decode(chunk, **how)
        parts += more
    return status, parts


@pytest.mark.parametrize("name,parts", [
    ("zmtp31_frame_empty", [(0, b"")]),
    ("zmtp31_frame_small", [(0, b"hello")]),
    ("zmtp31_frame_255", [(0, b"\xaa" * 255)]),
    ("zmtp31_frame_256", [(0, b"\xbb" * 256)]),
    ("zmtp31_frame_multi3", [(1, b"A"), (1, b""), (0, b"CC")]),
    ("zmtp31_req_send", [(1, b""), (0, b"ping")]),
    ("zmtp31_req_reply", [(1, b""), (0, b"pong")]),
    ("zmtp31_req_correlate_first", [(1, b"\xf3\x41\xb1\xae"), (1, b""), (0, b"one")]),
    ("zmtp31_rep_request_envelope", [(1, b"hop1"), (1, b"hop2"), (1, b""), (0, b"q")]),
    ("zmtp31_subscribe_initial", [(SUBSCRIBE, b""), (SUBSCRIBE, b"topic")]),
    ("zmtp31_subscribe_a", [(SUBSCRIBE, b"a")]),
    ("zmtp31_cancel_a", [(CANCEL, b"a")]),
    ("zmtp31_subscribe_250", [(SUBSCRIBE, b"L" * 250)]),
    ("zmtp30_subscribe_msg", [(0, b"\1topic")]),
    ("zmtp31_xsub_raw_sub", [(0, b"\1top")]),
    ("zmtp31_ping", []),
    ("zmtp31_pong_answer", []),
])
def test_captured(peer, vectors, name, parts):
    for copy in (False, True):
        assert peer().decode(vectors[name], copy=copy) == ("need_data", parts)
    assert decode(peer(), *(bytes([b]) for b in vectors[name])) == ("need_data", parts)


@pytest.mark.parametrize("version,name,parts", [
    ((2, 0), "zmtp20_frames", [(1, b"x"), (0, b"y")]),
    ((1, 0), "zmtp10_frames", [(1, b"x"), (0, b"yy"), (0, b"\xdd" * 300)]),
    ((1, 0), "zmtp10_sub_subscription", [(0, b"\1tt")]),
    ((1, 0), "zmtp10_pub_phantom_subscribe_all", [(0, b"anything")]),
])
def test_captured_of_old_peers(peer, vectors, version, name, parts):
    assert peer(version).decode(vectors[name]) == ("need_data", parts)
    assert decode(peer(version), *(bytes([b]) for b in vectors[name])) == ("need_data", parts)


def test_long_form_and_reserved_bits(peer):
    assert peer().decode(b"\x02" + (4).to_bytes(8, "big") + b"tiny") == (
        "need_data", [(0, b"tiny")])
    assert peer().decode(bytes.fromhex("f8027273")) == ("need_data", [(0, b"rs")])
    assert peer((1, 0)).decode(b"\xff" + (5).to_bytes(8, "big") + b"\xf0tiny") == (
        "need_data", [(0, b"tiny")])
    # the command bit means nothing to a 2.0 peer
    assert peer((2, 0)).decode(b"\x04\x01x") == ("need_data", [(0, b"x")])


BODIES = [b"", b"a", b"b" * 55, b"c" * 56, b"d" * 57, b"e" * 255, b"f" * 256, b"g" * 700]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("copy", [False, True])
def test_split_everywhere(peer, version, copy):
    text = b"".join(frame(body, 1, version) for body in BODIES) + frame(b"end", 0, version)
    if version >= (3, 0):
        text += command(b"\x09SUBSCRIBE" + b"t" * 60) + command(b"\x04PING\0\1ctx")
    expected = [(MORE, body) for body in BODIES] + [(0, b"end")]
    expected += [(SUBSCRIBE, b"t" * 60)] if version >= (3, 0) else []
    for at in range(len(text) + 1):
        ours = peer(version)
        assert decode(ours, text[:at], text[at:], copy=copy, cap=3) == ("need_data", expected)
    assert decode(peer(version), *(bytes([b]) for b in text), copy=copy) == ("need_data", expected)
    assert ours.memory[0] == 0


@settings(deadline=None)
@given(st.data())
def test_random_chunks(peer_factory, data):
    version = data.draw(st.sampled_from(VERSIONS))
    sizes = st.one_of(st.integers(0, 70), st.integers(240, 300), st.integers(0, 20000))
    bodies = [bytes([i % 251]) * n for i, n in enumerate(data.draw(st.lists(sizes, max_size=12)))]
    text = b"".join(frame(body, i % 3 == 0, version) for i, body in enumerate(bodies))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=20)))
    chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    ours = peer_factory(version)
    parts = []
    for chunk in chunks:
        if data.draw(st.booleans()):
            chunk = chunk[ours.fill(chunk):]
        status, more = ours.decode(chunk, copy=data.draw(st.booleans()),
                                   cap=data.draw(st.integers(1, 5)))
        assert status == "need_data"
        parts += more
    assert parts == [(int(i % 3 == 0), body) for i, body in enumerate(bodies)]
    assert ours.memory[:2] == (0, 0)


@pytest.fixture(scope="module")
def peer_factory():
    """Not the `peer` fixture: this one outlives an example."""
    return _make_peer


def _make_peer(version):
    from mqcore.testing.native.probe import Probe
    ours = Probe()
    ours.start()
    signature = bytes.fromhex("ff00000000000000017f")
    text = {
        (3, 1): signature + b"\3\1NULL" + bytes(48) + b"\x04\x06\x05READY",
        (3, 0): signature + b"\3\0NULL" + bytes(48) + b"\x04\x06\x05READY",
        (2, 0): signature + b"\1\0\0\0",
        (1, 0): b"\1\0",
    }[version]
    assert ours.feed(text)[0] == "done"
    return ours


# -- memory ---------------------------------------------------------------------------------------

def test_an_announced_gigabyte_costs_a_megabyte(peer):
    ours = peer()
    head = b"\x02" + (1 << 30).to_bytes(8, "big")
    assert ours.decode(head + b"little") == ("need_data", [])
    assert ours.memory[1] <= 1 << 20
    assert ours.room == (1 << 20) - 6
    del ours


def test_memory_follows_the_bytes(peer):
    ours, size = peer(), 10_000_000
    ours.decode(b"\x02" + size.to_bytes(8, "big"))
    chunk, got = bytes(range(256)) * 256, 0
    while got < size - 8192:
        took = ours.fill(chunk[:min(65536, size - got)])
        assert took > 0
        got += took
        assert ours.memory[1] <= max(1 << 20, 2 * got) and ours.memory[1] <= size
    if got < size:
        assert ours.room == 0                  # a small rest comes with what follows it
        rest = size - got
        status, parts = ours.decode(bytes(rest) + frame(b"next"))
    else:
        status, parts = ours.decode(frame(b"next"))
    assert [(f, len(b)) for f, b in parts] == [(0, size), (0, 4)]
    assert parts[0][1][:65536] == chunk and ours.memory[0] == 0


def test_a_size_that_came_whole_is_believed(peer):
    ours, size = peer(), 3 << 20
    ours.decode(b"\x02" + size.to_bytes(8, "big"))
    while ours.fill(bytes(1 << 20)):
        pass
    assert [len(b) for _, b in ours.decode()[1]] == [size]
    ours.decode(b"\x02" + size.to_bytes(8, "big"))
    assert ours.room == size
    while ours.fill(bytes(1 << 20)):
        pass
    ours.decode(b"\x02" + (1 << 30).to_bytes(8, "big"))
    assert ours.room == size                   # no more than that, whatever is announced


def test_filled_body_comes_with_the_next_decode(peer):
    ours = peer()
    ours.decode(frame(b"z" * 20000)[:100])
    assert ours.room == 20000 - 91
    assert ours.fill(b"z" * 30000) == 20000 - 91
    assert ours.room == 0
    assert ours.decode() == ("need_data", [(0, b"z" * 20000)])


def test_a_steady_stream_allocates_nothing(peer):
    ours = peer()
    text = b"".join(frame(bytes([i % 256]) * 100) for i in range(1000))
    ours.decode(text[:50_003])
    ours.decode(text[50_003:])
    before = ours.memory[2]
    for _ in range(10):
        ours.decode(text[:50_003])
        ours.decode(text[50_003:])
    assert ours.memory[2] - before == 20       # the probe's own two inputs, nothing else


# -- limits ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("limit", [0, 5, 100, 300])
def test_max_message_size(peer, version, limit):
    ours = peer(version, max_message_size=limit)
    good = frame(b"x" * limit, 1, version)
    assert ours.decode(good + good) == ("need_data", [(1, b"x" * limit)] * 2)
    status, parts = ours.decode(good + frame(b"x" * (limit + 1), 0, version))
    assert (status, parts) == ("protocol", [(1, b"x" * limit)])
    assert ours.reason == (
        f"the peer announced a part of {limit + 1} bytes, the limit is {limit}")


def test_limit_is_checked_before_the_body_comes(peer):
    ours = peer(max_message_size=1000)
    assert ours.decode(b"\x02" + (1001).to_bytes(8, "big"))[0] == "protocol"
    assert ours.memory[0] == 0


@pytest.mark.parametrize("size", [1 << 63, (1 << 64) - 1])
def test_absurd_lengths(peer, size):
    ours = peer()
    assert decode(ours, *(bytes([b]) for b in b"\x02" + size.to_bytes(8, "big")))[0] == "protocol"
    assert "2^63" in ours.reason
    ours = peer((1, 0))
    if size + 1 < 1 << 64:
        assert ours.decode(b"\xff" + (size + 1).to_bytes(8, "big") + b"\0")[0] == "protocol"


def test_the_longest_length_is_believed_but_costs_little(peer):
    ours = peer()
    assert ours.decode(b"\x02" + ((1 << 63) - 1).to_bytes(8, "big") + b"x") == ("need_data", [])
    assert ours.memory[:2] == (1, 1 << 20)


@pytest.mark.parametrize("text", [b"\0\0", b"\xff" + bytes(9)])
def test_10_length_0(peer, text):
    ours = peer((1, 0))
    assert ours.decode(text)[0] == "protocol"
    assert ours.reason == "the peer sent a frame of length 0"


# -- commands -------------------------------------------------------------------------------------

def test_ping_is_answered(peer, vectors):
    for ping, pong in (("zmtp31_ping_ctx", "zmtp31_pong_ctx"),
                       ("zmtp31_ping_ctx20", "zmtp31_pong_ctx16"),
                       ("zmtp31_ping", "zmtp31_pong_answer")):
        for chunks in ([vectors[ping]], [bytes([b]) for b in vectors[ping]]):
            ours = peer()
            assert decode(ours, *chunks) == ("need_data", [])
            assert ours.control == vectors[pong]
            assert ours.heartbeats == (1, 0, 2500 if ping == "zmtp31_ping" else 0)


def test_pong_is_counted(peer, vectors):
    ours = peer()
    ours.decode(vectors["zmtp31_pong_answer"] * 3)
    assert ours.heartbeats == (0, 3, 0) and ours.control == b""


def test_longest_ttl(peer):
    ours = peer()
    ours.decode(command(b"\x04PING\xff\xff"))
    assert ours.heartbeats[2] == 6553500


def test_short_ping_is_refused(peer):
    ours = peer()
    assert ours.decode(command(b"\x04PING\0"))[0] == "protocol"
    assert ours.control == b"" and "PING" in ours.reason


def test_who_does_not_read_its_pongs_gets_no_more(peer):
    ours = peer()
    for _ in range(10):
        ours.decode(command(b"\x04PING\0\0" + b"x" * 16) * 1000)
    assert len(ours.control) < 70_000
    assert ours.heartbeats[0] == 10_000


@pytest.mark.parametrize("text", [
    command(b"\x05READY\x0bSocket-Type\0\0\0\x03PUB"), command(b"\x08WHATEVERxx"), command(b""),
    command(b"\x09AB"), command(b"\x05ERROR\x03400"), command(b"\x09subscribex"),
    command(b"\x04JOINgroup"), command(b"\x08WHATEVER" + b"x" * 5000),
])
def test_ignored_commands(peer, text):
    for at in range(min(len(text), 40)):
        ours = peer()
        assert decode(ours, frame(b"a", 1) + text[:at], text[at:] + frame(b"ok")) == (
            "need_data", [(1, b"a"), (0, b"ok")])
        assert ours.control == b"" and ours.memory[0] == 0


def test_ping_between_parts(peer):
    ours = peer()
    assert ours.decode(frame(b"a", 1) + command(b"\x04PING\0\0") + frame(b"b"))[1] == [
        (1, b"a"), (0, b"b")]


def test_subscription_between_parts_is_refused(peer):
    for version in ((3, 0), (3, 1)):
        ours = peer(version)
        assert ours.decode(frame(b"a", 1) + command(b"\x09SUBSCRIBEx"))[0] == "protocol"
        assert "middle" in ours.reason


def test_commands_may_exceed_the_message_limit(peer):
    ours = peer(max_message_size=4)
    assert ours.decode(command(b"\x09SUBSCRIBE" + b"t" * 50)) == (
        "need_data", [(SUBSCRIBE, b"t" * 50)])
    assert ours.decode(b"\x06" + (65537).to_bytes(8, "big"))[0] == "protocol"


def test_unversioned_peer_of_a_publisher_is_subscribed_to_all(peer):
    for pattern, parts in (("PUB", [(SUBSCRIBE, b"")]), ("XPUB", [(SUBSCRIBE, b"")]), ("PUSH", [])):
        ours = peer((1, 0), pattern)
        assert ours.decode() == ("need_data", parts)
        assert ours.decode() == ("need_data", [])
    assert peer((2, 0), "PUB").decode() == ("need_data", [])


def test_full_output_is_called_again(peer):
    text = frame(b"a") * 7 + frame(b"b" * 100) * 3
    for cap in range(1, 12):
        assert peer().decode(text, cap=cap) == (
            "need_data", [(0, b"a")] * 7 + [(0, b"b" * 100)] * 3)
