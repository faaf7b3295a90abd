"""Segment files that somebody has played with: an error or the messages, never a crash."""

import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from journal_case import numbered, segment_files
from journal_reference import crc32c

from mqcore import journal
from mqcore.journal.errors import JournalError

pytestmark = pytest.mark.usefixtures("nobody_writes")


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    import random
    where = tmp_path_factory.mktemp("fuzz")
    with journal.open(where, "a", stamps=True, fsync="never") as writer:
        for i, message in enumerate(numbered(0, 30, random.Random(1))):
            writer.append(message, key=b"k" * (i % 3) if i % 2 else None,
                          headers=[("name", b"v")] * (i % 4))
            if i % 10 == 9:
                writer.append(journal.stamp(1, i) + b"x")
                writer.flush()
    [path] = segment_files(where)
    return path.read_bytes()


def look_at_everything(where):
    """What a program may do with a journal; messages read."""
    count = 0
    with journal.open(where) as reader:
        _ = reader.first, reader.end, reader.at(1e9)
        for records in reader.batches():
            records.to_list()
            records.to_arrow(["key", "value", "headers", "producer", "sent"]).validate(full=True)
            for i in range(len(records)):
                records.key(i)
                records.headers(i)
            count += len(records)
    return count


def survives(memory, raw):
    folder = Path(tempfile.mkdtemp(dir=memory))
    where = folder / "default" / "0"
    where.mkdir(parents=True)
    path = where / f"{0:020d}.mqj"
    path.write_bytes(raw)
    for use in (look_at_everything, lambda f: journal.store.recovery.verify(where),
                lambda f: journal.open(f, "a").close()):
        try:
            use(folder)
        except (JournalError, ValueError):      # pyarrow's ArrowInvalid is a ValueError
            pass
    return folder


def test_the_original_is_good(memory, original):
    pytest.importorskip("pyarrow")
    assert look_at_everything(survives(memory, original)) == 33


@given(data=st.data())
def test_flipped_bytes(original, memory, data):
    raw = bytearray(original)
    for at in data.draw(st.lists(st.integers(0, len(raw) - 1), min_size=1, max_size=8)):
        raw[at] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(raw)) | st.just(len(raw)))
    survives(memory, bytes(raw[:cut]))


@given(data=st.data())
def test_lies_with_good_checksums(original, memory, data):
    """Whoever writes the file can make its CRCs fit; sizes and offsets may say anything."""
    raw = bytearray(original)
    salt = raw[48:56]
    at = 512
    size = struct.unpack_from("<Q", raw, at + 16)[0]
    for _ in range(data.draw(st.integers(1, 4))):
        where = data.draw(st.integers(8, 95) | st.integers(128, size - 4))
        value = data.draw(st.sampled_from((0, 1, 2, 64, 255, 2**31 - 1, 2**31, 2**32 - 1)))
        raw[at + where:at + where + 4] = struct.pack("<I", value)
    raw[at + 56:at + 60] = struct.pack("<I", crc32c(raw[at + 128:at + size]))
    raw[at + 4:at + 8] = struct.pack("<I", crc32c(bytes(salt) + raw[at + 8:at + 128]))
    survives(memory, bytes(raw))


@given(st.binary(max_size=2000))
def test_anything(memory, raw):
    survives(memory, raw)


def test_a_message_that_looks_like_a_block_is_none(tmp_path, original):
    """A block of another segment, stored as a message: its salt is not ours."""
    with journal.open(tmp_path, "a", fsync="never") as writer:
        writer.append(b"first")
        writer.commit()
        writer.append(bytes(64) * 3 + original[512:])
        writer.flush()
        path = segment_files(tmp_path)[0]
        raw = bytearray(path.read_bytes())
        shown = (path.parent / "durable").read_bytes()
    raw[raw.index(b"first") + 400] ^= 1         # in the second block's header or columns
    path.write_bytes(raw)
    (path.parent / "durable").write_bytes(shown)        # as a power cut leaves it
    with journal.open(tmp_path, "a") as writer:
        assert writer.next == 1 and len(writer.recovered) == 1
