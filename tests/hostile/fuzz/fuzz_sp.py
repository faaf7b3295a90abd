"""A fuzz target of SP's codec. Takes any bytes, raises AssertionError if a rule breaks.

sp      a header byte chooses protocol, framing and limit. Whole, in pieces, copied, read directly:
        the same parts, status and reason; no memory left, never more than the bytes justify; what
        was decoded, encoded again, is the same bytes
"""

from fuzz_mutate import main
from mqcore.testing.native.probe import Probe

KINDS = [(0x51, 0x50), (0x11, 0x11), (0x31, 0x30), (0x30, 0x31), (0x63, 0x62), (0x10, 0x10)]
LIMITS = [-1, -1, 0, 60, 1000]


def make(kind, typed, limit=-1):
    ours, theirs = kind
    return Probe("", (), codec="sp-ipc" if typed else "sp", sp=ours, sp_peer=theirs,
                 words=ours in (0x30, 0x31, 0x63), hops=ours == 0x11, max_message_size=limit)


def header(number):
    return b"\0SP\0" + number.to_bytes(2, "big") + b"\0\0"


def frame(payload, typed=False):
    return b"\x01" * typed + len(payload).to_bytes(8, "big") + payload


def decode(kind, typed, limit, text, step, copy=False, direct=False):
    probe = make(kind, typed, limit)
    probe.start()
    status, parts, hops, at = "need_data", [], [], 0
    while status == "need_data" and at < len(text):    # the handshake
        chunk = text[at:at + step]
        status, used, said = probe.feed(chunk)
        assert not said and used <= len(chunk)
        at += used
    if status == "need_data":
        return status, probe.reason, parts, hops
    if status == "done":
        status = "need_data"
    while status == "need_data" and at < len(text):
        chunk = text[at:at + step]
        at += len(chunk)
        if direct:
            chunk = chunk[probe.fill(chunk):]
        status, more = probe.decode(chunk, copy=copy, cap=1 + step % 7)
        parts += more
        hops += probe.hops
        assert probe.memory[1] <= (1 << 20) + 2 * at
    assert status in ("need_data", "protocol")
    assert probe.memory[0] <= 1                # the body under way
    return status, probe.reason, parts, hops


def again(kind, typed, text, parts, hops):
    """Say whole messages as they were understood: the bytes they came as."""
    out, message, whole = make(kind, typed), [], []
    out.start()
    for (flags, body), n in zip(parts, hops, strict=True):
        assert flags in (0, 1)
        message.append(body)
        if not flags:
            if kind[0] == 0x11 and not n:      # what nobody has passed on: one more than we can say
                return
            out.put(*message, hops=max(n - 1, 0))
            whole.append(message)
            message = []
    said = out.wire()
    assert text[8:8 + len(said)] == said, (text, said)
    assert out.dropped == (0, 0) and out.memory[0] == 0


def traffic(data):
    head, text = data[:1].ljust(1, b"\0")[0], data[1:]
    kind, typed = KINDS[head % len(KINDS)], bool(head & 64)
    limit = LIMITS[(head >> 3) % len(LIMITS)]
    whole = decode(kind, typed, limit, text, len(text) or 1)
    assert decode(kind, typed, limit, text, 1) == whole
    assert decode(kind, typed, limit, text, 2 + (head >> 4), copy=True) == whole
    assert decode(kind, typed, limit, text, 64 + head, direct=True) == whole
    again(kind, typed, text, *whole[2:])


def seeds():
    """What mutants come from: each kind of payload, over both framings; and headers alone."""
    ends = [b"", b"body", b"x" * 57, b"y" * 3000]
    fronts = {1: [b"\0\0\0\1", b"\0\0\0\xff", b"\0\0\1\0", b"\0\0"]}
    for i in (2, 3, 4):
        fronts[i] = [b"\x80\0\0\1", b"\0\0\0\7\x12\x34\x56\x78\x80\0\0\2", b"\0\0\0\1", b"abc",
                     bytes(4 * 255) + b"\x80\0\0\3"]
    out = []
    for i, (_, theirs) in enumerate(KINDS):
        for typed in (0, 64):
            first = next(n for n in range(64) if (n + typed) % len(KINDS) == i and n >> 3 == 0)
            rows = [frame(front + end, bool(typed))
                    for front in fronts.get(i, [b""]) for end in ends]
            out += [bytes([first + typed]) + header(theirs) + row for row in rows]
            out.append(bytes([first + typed]) + header(theirs) + b"".join(rows[:4]))
        out.append(bytes([i]) + header(0x42))
    return [*out, b"\0\xff\0\0\0\0\0\0\0\1\x7f", b"\0GET / HTTP/1.1\r\n", b"\0\x16\x03\x01"]


if __name__ == "__main__":
    main({"sp": traffic}, {"sp": seeds()})
