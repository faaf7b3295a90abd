"""What the journal's tests share: messages that say who they are, and what a journal holds."""

import journal_reference as ref
import numpy as np

from mqcore import journal


def numbered(first, n, rng):
    """n messages of random sizes, each beginning with its number."""
    return [b"%08d" % i + bytes(rng.choice((0, 1, 7, 60, 700, 5000)) * [i % 251])
            for i in range(first, first + n)]


def arrays(messages):
    ends = np.cumsum([0, *map(len, messages)])
    return np.frombuffer(b"".join(messages), np.uint8), ends


def contents(where, **kw):
    with journal.open(where, **kw) as reader:
        return [message for records in reader.batches() for message in records.to_list()]


def told_rows(batches):
    """(value, key, headers, time, sequence) of each message; what tells tombstones agrees."""
    rows = []
    for records in batches:
        values = records.to_list()
        assert values == list(records) == [records[i] for i in range(len(records))]
        nulls = np.zeros(len(records), bool) if records.nulls is None else records.nulls
        assert nulls.tolist() == [value is None for value in values]
        assert records.to_arrow(["value"]).column(0).to_pylist() == values
        rows += [(value, records.key(i), records.headers(i), records.times[i],
                  0 if records.sequences is None else records.sequences[i])
                 for i, value in enumerate(values)]
    return rows


def segment_files(where, topic="default", partition=0):
    return sorted((where / topic / str(partition)).glob("*.mqj"))


def from_json(message):
    """A message of vectors.json as the reference takes it."""
    value = message["value"]
    found = {"time": message["time"], "value": None if value is None else bytes.fromhex(value)}
    if "key" in message:
        found["key"] = bytes.fromhex(message["key"])
    if "headers" in message:
        found["headers"] = [(name, bytes.fromhex(value)) for name, value in message["headers"]]
    if "stamp" in message:
        found["stamp"] = tuple(message["stamp"])
    for name in ("place", "life"):
        if name in message:
            found[name] = message[name]
    return found


def packing(block):
    """A block of vectors.json: its columns as they are compressed, and the reference's codec."""
    if "codec" not in block:
        return None, 0
    return bytes.fromhex(block["packed"]), {"zstd": ref.ZSTD, "lz4": ref.LZ4}[block["codec"]]


LEFT = [*range(10, 30), *range(40, 60)]


def repaired(place):
    """Six blocks of ten messages in three segments; the first and one in the middle are lost."""
    with journal.open(place, "a") as writer:
        for i in range(6):
            writer.append_many([b"%d" % (10 * i + k) for k in range(10)])
            writer.flush()
            if i in (1, 3):
                writer.rotate()
    for number, block in ((0, 0), (1, 1)):
        path = segment_files(place)[number]
        raw = bytearray(path.read_bytes())
        at = [i for i in range(512, len(raw), 64) if raw[i:i + 4] == b"MQB1"][block]
        raw[at + 150] ^= 0x40
        path.write_bytes(raw)
    assert len(journal.repair(place).kept) == 2
    return place
