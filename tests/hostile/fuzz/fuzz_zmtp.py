"""Fuzz targets of the ZMTP codec. Each takes any bytes and raises AssertionError if a rule breaks.

handshake    whole and in pieces: the same answers, status and reason; the Python handshake agrees
traffic      whole, in pieces, copied, read directly: the same parts and answers; no memory left,
             never more than the bytes justify; what was decoded, encoded again, decodes alike
"""

from fuzz_mutate import main
from handshake import Handshake, Null, Refused, Us
from mqcore.testing.native.probe import CANCEL, SUBSCRIBE, Probe

SIGNATURE = bytes.fromhex("ff00000000000000017f")
PEERS = ("REP", "DEALER", "ROUTER")
SAID = {
    (3, 1): SIGNATURE + b"\3\1NULL" + bytes(48) + b"\x04\x06\x05READY",
    (3, 0): SIGNATURE + b"\3\0NULL" + bytes(48) + b"\x04\x06\x05READY",
    (2, 0): SIGNATURE + b"\1\5\0\0",
    (1, 0): b"\1\0",
}
LIMITS = [-1, -1, 0, 60, 1000]


# -- handshake ------------------------------------------------------------------------------------

def shake_native(text, step, listening):
    probe = Probe("DEALER", PEERS, number=5, routing_id=b"me", announce_id=True)
    said, status, at = probe.start(listening), "need_data", 0
    while status == "need_data" and at < len(text):
        status, used, answer = probe.feed(text[at:at + step])
        said, at = said + answer, at + used
        assert used or status != "need_data"
    peer = probe.peer
    assert (status == "protocol") == (probe.reason is not None)
    facts = (peer["version"], peer["pattern"], peer["routing_id"]) if status == "done" else None
    return status, probe.reason, at if status == "done" else None, facts, said


def shake_python(text, listening):
    shake = Handshake(Us("DEALER", PEERS, 5, b"me"),
                      Null([(b"Socket-Type", b"DEALER"), (b"Identity", b"me")]))
    shake.start(listening)
    try:
        at, _ = shake.feed(text)
    except Refused as refused:
        return "protocol", str(refused)[:95], None, None
    if not shake.done:
        return "need_data", None, None, None
    return "done", None, at, (shake.peer.version, shake.peer.pattern, shake.peer.routing_id)


def handshake(data):
    listening, step = bool(data[:1] and data[0] & 1), 1 + (data[0] >> 1) % 11 if data else 1
    text = data[1:]
    whole = shake_native(text, len(text) or 1, listening)
    assert shake_native(text, 1, listening) == whole
    assert shake_native(text, step, listening) == whole
    assert shake_python(text, listening) == whole[:4]


# -- traffic --------------------------------------------------------------------------------------

def peer(version, limit=-1):
    probe = Probe("DEALER", PEERS, number=5, max_message_size=limit)
    probe.start()
    assert probe.feed(SAID[version])[0] == "done"
    return probe


def decode(version, limit, text, step, copy=False, direct=False):
    probe = peer(version, limit)
    status, parts, at, answers = "need_data", [], 0, b""
    while status == "need_data" and at < len(text):
        chunk = text[at:at + step]
        at += len(chunk)
        if direct:
            chunk = chunk[probe.fill(chunk):]
        status, more = probe.decode(chunk, copy=copy, cap=1 + step % 7)
        parts += more
        answers += probe.control
        assert probe.memory[1] <= (1 << 20) + 2 * at
    assert status in ("need_data", "protocol")
    outcome = status, probe.reason, parts, answers, probe.heartbeats
    assert probe.memory[0] <= 1                # the body under way
    return outcome


def again(version, parts):
    """Encode whole messages and controls as they were understood; decode that."""
    out, back, message = peer(version), peer(version), []
    expected = []
    for flags, body in parts:
        message.append(body)
        if flags & 1:
            continue
        out.put(*message, flags=flags)
        if flags and version == (3, 0):        # a subscription travels as a message there
            expected.append((0, (b"\1" if flags == SUBSCRIBE else b"\0") + body))
        else:
            expected += [(int(i < len(message) - 1) | flags, part)
                         for i, part in enumerate(message)]
        message = []
    assert back.decode(out.wire()) == ("need_data", expected)
    assert out.memory[0] == back.memory[0] == 0


def traffic(data):
    head, text = data[:1].ljust(1, b"\0")[0], data[1:]
    version = list(SAID)[head & 3]
    limit = LIMITS[(head >> 2) % len(LIMITS)]
    whole = decode(version, limit, text, len(text) or 1)
    assert decode(version, limit, text, 1) == whole
    assert decode(version, limit, text, 2 + (head >> 4), copy=True) == whole
    assert decode(version, limit, text, 64 + head, direct=True) == whole
    assert all(flags in (0, 1, SUBSCRIBE, CANCEL) for flags, _ in whole[2])
    again(version, whole[2])


TARGETS = {"handshake": handshake, "traffic": traffic}

if __name__ == "__main__":
    main(TARGETS)
