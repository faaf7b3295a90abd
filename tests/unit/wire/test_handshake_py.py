"""The Python handshake: the same answers as the native one, and a mechanism of one's own."""

import pytest
from handshake import Handshake, Mechanism, Null, Refused, Us
from handshake.mechanism import (
    command,
    pack_properties,
    split_command,
    unpack_properties,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from mqcore.testing.native.probe import Probe

SIGNATURE = bytes.fromhex("ff00000000000000017f")
US = {"routing_id": b"me", "number": 5}


def both():
    native = Probe("DEALER", ("REP", "DEALER", "ROUTER"), announce_id=True, **US)
    ours = [(b"Socket-Type", b"DEALER"), (b"Identity", b"me")]
    return native, Handshake(Us("DEALER", ("REP", "DEALER", "ROUTER"), **US), Null(ours))


def run_native(probe, text, step, listening):
    said, status, at = probe.start(listening), "need_data", 0
    while status == "need_data" and at < len(text):
        status, used, answer = probe.feed(text[at:at + step])
        said, at = said + answer, at + used
    peer = probe.peer
    facts = (peer["version"], peer["pattern"], peer["routing_id"]) if status == "done" else None
    return status, probe.reason, facts, at if status == "done" else None, said


def run_python(shake, text, step, listening):
    said, at = shake.start(listening), 0
    try:
        while not shake.done and at < len(text):
            used, answer = shake.feed(text[at:at + step])
            said, at = said + answer, at + used
    except Refused as refused:
        return "protocol", str(refused)[:95], None, None, said
    if not shake.done:
        return "need_data", None, None, None, said
    peer = shake.peer
    return "done", None, (peer.version, peer.pattern, peer.routing_id), at, said


def same(text, step=1, listening=False):
    native, python = both()
    one = run_native(native, text, step, listening)
    other = run_python(python, text, step, listening)
    if one[0] == "protocol":                   # the Python one raises, and so drops its last answer
        assert one[4].startswith(other[4])
        one, other = one[:4], other[:4]
    assert one == other
    return one


def new(version=(3, 1), mechanism=b"NULL", tail=b""):
    return SIGNATURE + bytes(version) + mechanism.ljust(20, b"\0") + bytes(32) + tail


def ready(*items, name=b"READY"):
    body = command(name, pack_properties(items))
    return b"\x06" + len(body).to_bytes(8, "big") + body


ROUTER = (b"Socket-Type", b"ROUTER")


@pytest.mark.parametrize("text,status", [
    (new(tail=ready(ROUTER) + b"\0\1x"), "done"), (new((3, 0), tail=ready(ROUTER)), "done"),
    (new((4, 2), tail=ready()), "done"), (new(tail=ready(ROUTER, (b"IDENTITY", b"abc"))), "done"),
    (SIGNATURE + b"\1\6\0\3abcX", "done"), (SIGNATURE + b"\0\6\4\0abcX", "done"),
    (b"\4\0abcX", "done"), (b"\xff" + bytes(7) + b"\3\0xyz", "done"), (b"\1\0", "done"),
    (SIGNATURE + b"\1\6\2" + (300).to_bytes(8, "big") + b"i" * 300, "done"),
    (SIGNATURE + b"\1\2", "protocol"), (b"\xff" + bytes(9), "protocol"), (b"\0SP\0", "protocol"),
    (b"GET ", "protocol"), (b"\x16\3\1", "protocol"), (b"SSH-", "protocol"), (b"zz", "protocol"),
    (new(mechanism=b"PLAIN"), "protocol"), (new(mechanism=b""), "protocol"),
    (new(mechanism=b"A\0B"), "protocol"), (new(tail=ready((b"Socket-Type", b"PUB"))), "protocol"),
    (new(tail=ready(ROUTER, name=b"ready")), "protocol"), (new(tail=b"\4\0"), "protocol"),
    (new(tail=b"\4\x0a\5ERROR\x03400"), "protocol"),
    (new(tail=b"\6" + b"\0" * 5 + b"\7" * 3), "protocol"),
    (new(tail=b"\4\x07\5READYx"), "protocol"), (SIGNATURE, "need_data"), (b"", "need_data"),
])
@pytest.mark.parametrize("listening", [False, True])
def test_same_as_native(text, status, listening):
    for step in (1, 5, len(text) or 1):
        assert same(text, step, listening)[0] == status


@settings(deadline=None, max_examples=200)
@given(st.sampled_from([b"", SIGNATURE, SIGNATURE + b"\1", SIGNATURE + b"\0", new(),
                        new(tail=b"\4"), new(tail=b"\4\x10\5READY")]),
       st.binary(max_size=100), st.integers(1, 9), st.booleans())
def test_same_as_native_for_any_bytes(head, tail, step, listening):
    same(head + tail, step, listening)


def test_properties():
    items = [(b"Socket-Type", b"PUB"), (b"", b""), (b"X-a", b"1"), (b"x-A", b"2")]
    assert unpack_properties(pack_properties(items)) == items
    null = Null()
    null.command(command(b"READY", pack_properties(items)))
    assert null.done and null.properties == {"socket-type": b"PUB", "": b"", "x-a": b"1"}
    packed = pack_properties(items)
    whole = {len(pack_properties(items[:n])) for n in range(5)}
    for cut in range(len(packed)):
        if cut not in whole:
            with pytest.raises(Refused):
                unpack_properties(packed[:cut])


def test_split_command():
    assert split_command(b"\5READYab") == (b"READY", b"ab")
    assert split_command(b"\5READY") == (b"READY", b"")
    for body in (b"", b"\6READY", b"\0x"):
        assert split_command(body)[0] == b""


class Secret(Mechanism):
    """A mechanism as somebody else would write one: two steps with roles, and frames wrapped."""

    name = b"SECRET"
    wraps = True

    def __init__(self, properties, server):
        super().__init__(properties)
        self.server = server

    def start(self):
        return [] if self.server else [command(b"HELLO", b"sesame")]

    def command(self, body):
        name, data = split_command(body)
        if self.server and name == b"HELLO":
            if data != b"sesame":
                raise Refused("wrong word")
            return [command(b"WELCOME", pack_properties(self.ours))]
        if not self.server and name == b"WELCOME":
            self.theirs, self.done = unpack_properties(data), True
            return [command(b"INITIATE", pack_properties(self.ours))]
        if self.server and name == b"INITIATE":
            self.theirs, self.done = unpack_properties(data), True
            return []
        raise Refused("out of turn")

    def wrap(self, flags, body):
        return 0, bytes(b ^ 1 for b in bytes([flags]) + body)

    def unwrap(self, flags, body):
        plain = bytes(b ^ 1 for b in body)
        return plain[0], plain[1:]


def test_a_mechanism_of_ones_own():
    server = Handshake(Us("REP", ("REQ",)), Secret([(b"Socket-Type", b"REP")], True))
    client = Handshake(Us("REQ", ("REP",)), Secret([(b"Socket-Type", b"REQ")], False))
    wires = [client.start(), server.start(listening=True)]
    while any(wires):
        for i, side in enumerate((server, client)):
            text, wires[i] = wires[i], b""
            used, answer = side.feed(text)
            assert used == len(text)
            wires[1 - i] += answer
    assert server.done and client.done
    assert (server.peer.pattern, client.peer.pattern) == ("REQ", "REP")
    assert server.peer.mechanism == "SECRET"
    assert server.mechanism.unwrap(*client.mechanism.wrap(1, b"abc")) == (1, b"abc")


def test_old_peers_are_refused_where_security_is_on():
    for text in (b"\1\0", SIGNATURE + b"\1\3", SIGNATURE + b"\0\3"):
        server = Handshake(Us("REP", ("REQ",)), Secret([], True))
        server.start()
        with pytest.raises(Refused, match="knows no SECRET mechanism"):
            server.feed(text)


def test_null_refuses_another_mechanism():
    _, python = both()
    with pytest.raises(Refused, match="the peer wants mechanism CURVE, this socket uses NULL"):
        python.feed(new(mechanism=b"CURVE"))
