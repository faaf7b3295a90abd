"""The bytes of a segment: the vectors of FORMAT.md, the writer against them, and CRC-32C."""

import json
import struct
from pathlib import Path

import journal_reference as ref
import pytest
from hypothesis import given
from hypothesis import strategies as st
from journal_case import contents, from_json, packing, segment_files

from mqcore import journal
from mqcore.journal.store.scan import parse_segment

VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text())


@pytest.mark.parametrize(("data", "crc"), [
    (b"", 0), (b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E), (bytes(range(31, -1, -1)), 0x113FDB5C)])
def test_crc_of_rfc_3720(data, crc):
    assert journal.checksum(data) == crc == ref.crc32c(data)
    assert journal.checksum(data, portable=True) == crc


@pytest.mark.parametrize("size", [1, 7, 8, 9, 255, 767, 768, 769, 12287, 12288, 12289, 40000])
def test_crc_of_every_path(size, rng):
    data = rng.randbytes(size)
    whole = journal.checksum(data, portable=True)
    assert journal.checksum(data) == whole
    cut = rng.randrange(size + 1)
    assert journal.checksum(data[cut:], journal.checksum(data[:cut])) == whole
    if size < 1000:
        assert ref.crc32c(data) == whole


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v["name"])
def test_vector(vector, tmp_path):
    """The second opinion makes these bytes, and the reader understands them."""
    head = vector["segment"]
    salt = int(head["salt"], 16)
    raw = ref.segment_header(head["first"], head["created"], bytes.fromhex(head["journal"]), salt,
                             head["partition"], head["topic"].encode(), head.get("version", 1))
    offset = head["first"]
    messages, offsets = [], []
    for part in vector["blocks"]:
        these = [from_json(m) for m in part["messages"]]
        raw += ref.block(offset, part["durable"], salt, these, *packing(part))
        offsets += [offset + m.get("place", i) for i, m in enumerate(these)]
        offset = offsets[-1] + 1
        messages += these
    if vector["checkpoint"]:
        times = [m["time"] for m in messages]
        raw += ref.checkpoint(offset, salt, min(times), max(times))
    assert raw.hex() == vector["bytes"]
    folder = tmp_path / head["topic"] / str(head["partition"])
    folder.mkdir(parents=True)
    (folder / f"{head['first']:020d}.mqj").write_bytes(raw)
    with journal.open(tmp_path, topic=head["topic"], partition=head["partition"],
                      durable=False) as reader:
        assert (reader.first, reader.end) == (head["first"], offset)
        records = reader.read(head["first"])
        assert records.to_list() == [m["value"] for m in messages]
        assert records._microseconds.tolist() == [m["time"] for m in messages]
        assert records.times.tolist() == [m["time"] / 1e6 for m in messages]
        for i, m in enumerate(messages):
            assert records.offset(i) == offsets[i]
            assert records.key(i) == m.get("key")
            assert records.headers(i) == m.get("headers", [])
            if "stamp" in m:
                assert (records.producers[i], records.sequences[i],
                        records._optional("sent")[i]) == m["stamp"]
                assert records.sent[i] == m["stamp"][2] / 1e6
            assert (0 if records.lives is None else records.lives[i]) == m.get("life", 0)


def test_writer_writes_what_the_page_says(tmp_path):
    """Byte for byte, but for the clock and the random salt, which are read back."""
    with journal.open(tmp_path, "a", topic="t", partition=3, fsync="never", stamps=True) as writer:
        writer.append(b"plain", time=1.5)
        writer.append(b"keyed", time=1.25, key=b"k")
        writer.append(b"", time=2.0, headers=[("a", b"1"), ("name", b"")])
        writer.append(journal.stamp(9, 4, 3.0) + b"stamped", time=4.0)
        writer.flush()
        writer.append(b"second", time=0.5)
    [path] = segment_files(tmp_path, "t", 3)
    raw = path.read_bytes()
    head = parse_segment(raw[:512])
    first = [{"time": 1500000, "value": b"plain"},
             {"time": 1250000, "value": b"keyed", "key": b"k"},
             {"time": 2000000, "value": b"", "headers": [("a", b"1"), ("name", b"")]},
             {"time": 4000000, "value": b"stamped", "stamp": (9, 4, 3000000)}]
    assert raw == (
        ref.segment_header(0, head.created, head.journal, head.salt, 3, b"t")
        + ref.block(0, 0, head.salt, first)
        + ref.block(4, 0, head.salt, [{"time": 500000, "value": b"second"}])
        + ref.checkpoint(5, head.salt, 500000, 4000000))


MESSAGE = st.fixed_dictionaries(
    {"value": st.binary(max_size=40), "time": st.integers(-10**12, 10**12)},
    optional={"key": st.binary(max_size=9),
              "headers": st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=5)),
                                  max_size=3)})


@given(st.lists(st.lists(MESSAGE, min_size=1, max_size=12), min_size=1, max_size=4))
def test_everything_comes_back(tmp_path_factory, blocks):
    where = tmp_path_factory.mktemp("j")
    with journal.open(where, "a", fsync="never") as writer:
        for messages in blocks:
            for m in messages:
                writer.append(m["value"], time=m["time"] / 1e6, key=m.get("key"),
                              headers=m.get("headers", ()))
            writer.flush()
    flat = [m for messages in blocks for m in messages]
    with journal.open(where) as reader:
        records = reader.read(0)        # small blocks, put together
        assert len(records) == len(flat)
        assert records.to_list() == [m["value"] for m in flat]
        assert [records.key(i) for i in range(len(flat))] == [m.get("key") for m in flat]
        assert [records.headers(i) for i in range(len(flat))] == \
            [list(m.get("headers", ())) for m in flat]
    assert contents(where) == [m["value"] for m in flat]


def test_stamp_bytes():
    raw = journal.stamp(0x1122, 5, 1.000001)
    assert raw == b"MQS1" + bytes(4) + struct.pack("<QQq", 0x1122, 5, 1000001)
    assert journal.read_stamp(raw + b"body") == (0x1122, 5, 1.000001)
    raw = journal.stamp(0x1122, 5, 1.000001, key=b"JFK", life=9)
    assert raw == b"MQS2" + struct.pack("<IQQqII", 3, 0x1122, 5, 1000001, 9, 0) + b"JFK"
    assert raw == ref.stamp(0x1122, 5, 1000001, b"JFK", 9)
    assert journal.read_stamp(raw + b"body") == (0x1122, 5, 1.000001)
    assert (journal.read_life(raw + b"body"), journal.read_key(raw + b"body")) == (9, b"JFK")
    for cut in (raw[:-1], raw[:39], raw[:36] + b"\1" + raw[37:], b"MQS3" + raw[4:]):
        assert journal.read_stamp(cut) is journal.read_key(cut) is None
        assert journal.read_life(cut) == 0
    assert journal.read_life(ref.stamp(1, 2, 3)) == 0
    raw = journal.stamp(0x1122, 5, 1.000001)
    assert journal.read_stamp(raw[:31]) is None and journal.read_stamp(b"x" * 40) is None


def test_partition_of_a_key():
    assert journal.partition_of_key(b"123456789", 1000) == 0xE3069283 % 1000
