"""The journal's format, written once more from FORMAT.md alone: the tests' second opinion."""

import struct


def crc32c(data, crc=0):
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def padded(data):
    return data + bytes(-len(data) % 64)


def ends(items):
    at = [0]
    for item in items:
        at.append(at[-1] + len(item))
    return struct.pack(f"<{len(at)}i", *at)


def segment_header(first, created, journal, salt, partition, topic, version=1):
    rest = struct.pack("<qq16sQII256s8s184x", first, created, journal, salt, partition, len(topic),
                       topic, bytes(8))
    return b"MQJSEG\r\n" + struct.pack("<II", version, crc32c(rest)) + rest


ZSTD, LZ4, NULLS, COMPACTED, LIVES = 8, 16, 32, 64, 128


def lz4_decompressed(data):
    """One LZ4 block."""
    def length(four, at):
        if four < 15:
            return four, at
        while True:
            four += data[at]
            at += 1
            if data[at - 1] < 255:
                return four, at

    found, at = bytearray(), 0
    while True:
        token = data[at]
        literals, at = length(token >> 4, at + 1)
        found += data[at:at + literals]
        at += literals
        if at == len(data):
            return bytes(found)
        distance = int.from_bytes(data[at:at + 2], "little")
        match, at = length(token & 15, at + 2)
        for _ in range(match + 4):
            found.append(found[-distance])


def zstd_decompressed(data, size):
    """One zstd frame. The reference of zstd itself is behind pyarrow."""
    import pyarrow

    return pyarrow.decompress(data, size, codec="zstd", asbytes=True)


def bits(flags):
    found = bytearray((len(flags) + 7) // 8)
    for i, flag in enumerate(flags):
        found[i // 8] |= flag << i % 8
    return bytes(found)


def block(first, durable, salt, messages, packed=None, codec=0):
    """messages: dicts with time and value (None: a tombstone), and perhaps key, headers, stamp and
    life. In a sparse block each has a place.
    packed: the columns as compressed by codec, ZSTD or LZ4."""
    n = len(messages)
    flags, names, data, keys = 0, [], [], []
    values = [m["value"] or b"" for m in messages]
    columns = [struct.pack(f"<{n}q", *(m["time"] for m in messages)), ends(values)]
    if any(m["value"] is None for m in messages):
        flags |= NULLS
        columns.append(bits([m["value"] is not None for m in messages]))
    columns.append(b"".join(values))
    if any("key" in m for m in messages):
        flags |= 1
        keys = [m.get("key", b"") for m in messages]
        columns += [ends(keys), bits(["key" in m for m in messages]), b"".join(keys)]
    if any("headers" in m for m in messages):
        flags |= 2
        lists = [m.get("headers", []) for m in messages]
        names = [name.encode() for headers in lists for name, _ in headers]
        data = [value for headers in lists for _, value in headers]
        columns += [ends(lists), ends(names), b"".join(names), ends(data), b"".join(data)]
    if any("stamp" in m for m in messages):
        flags |= 4
        for i, code in enumerate("QQq"):
            columns.append(struct.pack(f"<{n}{code}",
                                       *(m.get("stamp", (0, 0, 0))[i] for m in messages)))
    if any(m.get("life") for m in messages):
        flags |= LIVES
        columns.append(struct.pack(f"<{n}I", *(m.get("life", 0) for m in messages)))
    span = 0
    if "place" in messages[0]:
        flags |= COMPACTED
        places = [m["place"] for m in messages]
        span = places[-1] + 1
        columns.append(struct.pack(f"<{n}I", *places))
    body = b"".join(map(padded, columns))
    if codec:
        flags |= codec
        assert body == (lz4_decompressed(packed) if codec == LZ4 else
                        zstd_decompressed(packed, len(body)))
        body = padded(packed)
    times = [m["time"] for m in messages]
    rest = struct.pack("<qQIIqqqIIQQQQQQ16x", first, 128 + len(body), n, flags, durable, min(times),
                       max(times), crc32c(body), len(names), sum(map(len, values)),
                       sum(map(len, keys)), sum(map(len, names)), sum(map(len, data)),
                       len(packed) if codec else 0, span)
    return b"MQB1" + struct.pack("<I", crc32c(struct.pack("<Q", salt) + rest)) + rest + body


def checkpoint(next, salt, low, high, flags=0):
    rest = struct.pack("<qQIIqqqIIQQQQ32x", next, 128, 0, flags, next, low, high, 0, 0, 0, 0, 0, 0)
    return b"MQB1" + struct.pack("<I", crc32c(struct.pack("<Q", salt) + rest)) + rest


def stamp(producer, sequence, sent, key=b"", life=0):
    front = struct.pack("<4sIQQq", b"MQS2" if life else b"MQS1", len(key), producer, sequence, sent)
    return front + (struct.pack("<II", life, 0) if life else b"") + key


def checksum_of(value, key=b""):
    """Of a message, in the file `producers`."""
    return crc32c(value, crc32c(key, len(key)))


def producers(journal, offset, rows, version=3):
    """rows: (producer, life, [(number, checksum), ...] ascending, offset of the highest)."""
    raw = b""
    for producer, life, numbers, where in rows:
        window = [0] * 16
        for number, _ in numbers:
            window[number % 1024 // 64] |= 1 << number % 64
        raw += struct.pack("<QQQq16Q", producer, numbers[0][0], numbers[-1][0], where, *window)
        raw += struct.pack("<II", life, 0) if version == 3 else b""
        raw += b"".join(struct.pack("<I", mark) for _, mark in numbers)
    rest = struct.pack("<16sqq", journal, offset, len(raw)) + raw
    before = crc32c(struct.pack("<I", version)) if version > 2 else 0
    return b"MQPROD\r\n" + struct.pack("<II", version, crc32c(rest, before)) + rest
