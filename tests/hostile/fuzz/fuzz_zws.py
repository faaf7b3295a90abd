"""A fuzz target of the ZWS codec. Takes any bytes, raises AssertionError if a rule breaks.

zws     whole, in pieces, copied, read directly: the same parts, status and answers; no memory left,
        never more than the bytes justify; what was decoded, encoded again, decodes alike
"""

from fuzz_mutate import main
from mqcore.testing.native.probe import CANCEL, SUBSCRIBE, Probe
from rawws import BINARY, CLOSE, CONTINUATION, KEY, PING, PONG, TEXT, ready, unws, ws

LIMITS = [-1, -1, 0, 60, 1000]


def peer(listening, limit=-1):
    probe = Probe("PAIR", ("PAIR",), codec="zws", max_message_size=limit)
    probe.start(listening)
    assert probe.feed(ws(ready("PAIR"), key=KEY if listening else None))[0] == "done"
    return probe


def decode(listening, limit, text, step, copy=False, direct=False):
    probe = peer(listening, limit)
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
    assert status in ("need_data", "protocol", "done")
    assert probe.memory[0] <= 1                # the body under way
    return status, probe.reason, parts, unws(answers), probe.heartbeats


def again(listening, parts):
    """Encode whole messages and controls as they were understood; decode that."""
    out, back, message, expected = peer(not listening), peer(listening), [], []
    for flags, body in parts:
        message.append(body)
        if flags & 1:
            continue
        out.put(*message, flags=flags)
        if flags:                              # a subscription travels as a message
            expected.append((0, (b"\1" if flags == SUBSCRIBE else b"\0") + body))
        else:
            expected += [(int(i < len(message) - 1), part) for i, part in enumerate(message)]
        message = []
    assert back.decode(out.wire()) == ("need_data", expected)
    assert out.memory[0] == back.memory[0] == 0


def traffic(data):
    head, text = data[:1].ljust(1, b"\0")[0], data[1:]
    listening, limit = bool(head & 1), LIMITS[(head >> 1) % len(LIMITS)]
    whole = decode(listening, limit, text, len(text) or 1)
    assert decode(listening, limit, text, 1) == whole
    assert decode(listening, limit, text, 2 + (head >> 4), copy=True) == whole
    assert decode(listening, limit, text, 64 + head, direct=True) == whole
    assert all(flags in (0, 1, SUBSCRIBE, CANCEL) for flags, _ in whole[2])
    again(listening, whole[2])


def seeds():
    """What mutants come from: each kind of frame, of a client and of a server."""
    frames = [
        [(b"\0hello", BINARY, True)], [(b"\1a", BINARY, True), (b"\0b", BINARY, True)],
        [(b"\0" + bytes(200), BINARY, True)], [(b"\0" + bytes(3000), BINARY, True)],
        [(b"\0ab", BINARY, False), (b"", PING, True), (b"cd", CONTINUATION, True)],
        [(b"\0", BINARY, False), (b"", CONTINUATION, False), (b"x" * 70, CONTINUATION, True)],
        [(b"ping", PING, True), (b"pong", PONG, True), (b"\0x", BINARY, True)],
        [(b"\2\x09SUBSCRIBEtopic", BINARY, True), (b"\2\x06CANCELtopic", BINARY, True)],
        [(b"\2\x04PING\0\1context", BINARY, True), (b"\2\x04PONG", BINARY, True)],
        [(b"\0\1topic", BINARY, True), (b"\x03\xe8bye", CLOSE, True)],
        [(b"\0text", TEXT, True)], [(b"", BINARY, True)], [(b"\0", BINARY, True)] * 20,
    ]
    return [bytes([head]) + b"".join(ws(payload, opcode, key, fin) for payload, opcode, fin in rows)
            for rows in frames for head, key in ((0, None), (1, KEY), (6, None), (9, KEY))]


if __name__ == "__main__":
    main({"zws": traffic}, {"zws": seeds()})
