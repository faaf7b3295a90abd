"""Writes vectors.json anew from journal_reference.py: by hand, for a new version."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import journal_reference as ref  # noqa: E402
import pyarrow  # noqa: E402
from journal_case import from_json, packing  # noqa: E402

HEAD = {"first": 0, "created": 1700000000000000, "journal": bytes(range(16)).hex(),
        "salt": "0123456789abcdef", "partition": 0, "topic": "default"}
ONE = {"time": 1700000000000001, "value": b"hello".hex()}
EVERYTHING = [
    {"time": 3, "value": b"a".hex()},
    {"time": 1, "value": "", "key": ""},
    {"time": 2, "value": b"ccc".hex(), "key": b"key".hex(),
     "headers": [["name", b"value".hex()], ["\u00e9", ""]]},
    {"time": -1, "value": (b"d" * 65).hex(), "stamp": [2**64 - 1, 7, 1700000000000000]},
]
MANY = [{"time": 5 + i, "value": (b"flight %d from JFK to SFO" % i).hex(), "key": b"JFK".hex()}
        for i in range(12)]
TOMBSTONES = [
    {"time": 1, "value": b"a".hex(), "key": b"k".hex()},
    *[{"time": 2 + i, "value": None, "key": (b"k%d" % i).hex()} for i in range(7)],
    {"time": 9, "value": ""},
    {"time": 10, "value": None, "key": "", "headers": [["why", b"gone".hex()]],
     "stamp": [7, 1, 5]},
    {"time": 11, "value": b"last".hex()},
]
SPARSE = [{**message, "place": place} for message, place in zip(
    TOMBSTONES, [0, 1, 2, 5, 6, 7, 8, 9, 300, 70000, 70001], strict=True)]
LIVES = [{"time": 1, "value": b"a".hex(), "stamp": [7, 40, 1]},
         {"time": 2, "value": b"b".hex(), "stamp": [7, 41, 2], "life": 3},
         {"time": 3, "value": b"none".hex()},
         *[{"time": 4 + i, "value": None, "key": b"k".hex(), "stamp": [7, i, 4],
            "life": 2**32 - 1 - i} for i in range(20)]]
CASES = [
    ("one message", HEAD, [{"durable": 0, "messages": [ONE]}], False),
    ("two blocks and a checkpoint", {**HEAD, "first": 41, "topic": "prices", "partition": 2},
     [{"durable": 41, "messages": [ONE, ONE]}, {"durable": 43, "messages": [ONE]}], True),
    ("all columns", HEAD, [{"durable": 0, "messages": EVERYTHING}], True),
    ("zstd, and a plain block", {**HEAD, "version": 2},
     [{"durable": 0, "messages": MANY, "codec": "zstd"}, {"durable": 0, "messages": [ONE]}], True),
    ("lz4", {**HEAD, "version": 2}, [{"durable": 0, "messages": EVERYTHING, "codec": "lz4"}], True),
    ("tombstones, and a block without", {**HEAD, "version": 2},
     [{"durable": 0, "messages": TOMBSTONES}, {"durable": 0, "messages": [ONE]}], True),
    ("tombstones, zstd", {**HEAD, "version": 2},
     [{"durable": 0, "messages": TOMBSTONES * 3, "codec": "zstd"}], True),
    ("sparse, and a block behind it", {**HEAD, "first": 41, "version": 2},
     [{"durable": 41, "messages": SPARSE}, {"durable": 70043, "messages": [ONE]}], True),
    ("sparse, lz4", {**HEAD, "version": 2},
     [{"durable": 0, "messages": SPARSE, "codec": "lz4"}], True),
    ("lives, and a block without", {**HEAD, "version": 2},
     [{"durable": 0, "messages": LIVES}, {"durable": 0, "messages": EVERYTHING}], True),
    ("lives, sparse, zstd", {**HEAD, "version": 2},
     [{"durable": 0, "messages": [{**m, "place": 2 * i} for i, m in enumerate(LIVES)],
       "codec": "zstd"}], True),
]


def compressed(block, messages):
    """Adds what the codec makes of the columns, which differs between its versions."""
    name = {"zstd": "zstd", "lz4": "lz4_raw"}[block["codec"]]
    columns = ref.block(0, 0, 0, messages)[128:]
    block["packed"] = pyarrow.compress(columns, name, asbytes=True).hex()


def main():
    vectors = []
    for name, head, blocks, marked in CASES:
        salt = int(head["salt"], 16)
        raw = ref.segment_header(head["first"], head["created"], bytes.fromhex(head["journal"]),
                                 salt, head["partition"], head["topic"].encode(),
                                 head.get("version", 1))
        offset, times = head["first"], []
        for block in blocks:
            messages = [from_json(m) for m in block["messages"]]
            if "codec" in block:
                compressed(block, messages)
            raw += ref.block(offset, block["durable"], salt, messages, *packing(block))
            offset += messages[-1].get("place", len(messages) - 1) + 1
            times += [m["time"] for m in messages]
        if marked:
            raw += ref.checkpoint(offset, salt, min(times), max(times))
        vectors.append({"name": name, "segment": head, "blocks": blocks, "checkpoint": marked,
                        "bytes": raw.hex()})
    (Path(__file__).parent / "vectors.json").write_text(json.dumps(vectors, indent=1) + "\n")


if __name__ == "__main__":
    main()
