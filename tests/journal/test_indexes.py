"""The index beside a segment that is complete: readers begin near what they look for."""

import os
import random
import subprocess
import sys

import pytest
from journal_case import segment_files
from waiting import until

from mqcore import journal
from mqcore.journal.store import indexing
from mqcore.journal.store.scan import HEADER_SIZE
from mqcore.journal.store.segment import Segment
from mqcore.journal.store.sparse import index_file, load_index

BLOCK = 64 << 10
SIZE = 1000
N = 6000        # messages: some 6 MiB, in about a hundred blocks


def begin(where, **options):
    """A segment with an index, and one that another block is in."""
    log = journal.open(where, "a", block_bytes=BLOCK, **options)
    for i in range(N):
        log.append(b"%d" % i + bytes(SIZE), time=i)
    log.rotate()
    log.append(b"%d" % N, time=N)
    return log


@pytest.fixture
def where(memory):
    """One segment with an index."""
    with begin(memory):
        until(index_file(segment_files(memory)[0]).exists)
    return memory


def first_segment(where):
    return Segment(segment_files(where)[0].parent, 0, indexes={})


def loaded(where):
    """The positions that the index tells; only the first one without an index."""
    found = first_segment(where)
    found.close()
    return found.index.positions


def number(message):
    return int(message.split(b"\0")[0])


def check(where):
    """Offsets and times are found wherever they are."""
    for offset in (0, 1, N // 3, N - 1, N, *random.sample(range(N), 20)):
        with journal.open(where) as reader:
            assert reader.at(offset) == offset
            assert number(reader.read(offset).to_list()[0]) == offset
        with journal.open(where) as reader:
            assert number(reader.read(offset).to_list()[0]) == offset


def test_what_it_tells(where):
    positions = loaded(where)
    assert len(positions) >= 4 and positions == sorted(positions)
    found = first_segment(where)
    for offset, high in zip(found.index.offsets[1:], found.index.highs[1:], strict=True):
        assert high == (offset - 1) * 1_000_000
        assert found.find(offset, found.size()).next == offset
    found.close()
    check(where)


def test_a_reader_passes_over_what_is_before(where):
    found = first_segment(where)
    size = found.size()
    near = found.find(N - 1, size)
    found.close()
    index_file(found.path).unlink()
    found = first_segment(where)
    assert near.blocks < found.find(N - 1, size).blocks + 100 and near.pos > size // 2
    found.close()


def test_every_damaged_byte_is_noticed(where):
    path = index_file(segment_files(where)[0])
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << random.randrange(8)])
                         + whole[at + 1:])
        assert loaded(where) == [512]
    for size in (0, 1, 40, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert loaded(where) == [512]
    check(where)


@pytest.mark.parametrize("what", ["folder", "pipe", "other"])
def test_something_else_in_its_place(where, tmp_path, what):
    path = index_file(segment_files(where)[0])
    path.unlink()
    if what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    else:
        with begin(tmp_path):
            other = index_file(segment_files(tmp_path)[0])
            until(other.exists)
        path.write_bytes(other.read_bytes())
    assert loaded(where) == [512]
    check(where)


def test_small_segments_have_none(tmp_path):
    with journal.open(tmp_path, "a") as log:
        for _ in range(3):
            log.append(b"x")
            log.rotate()
    assert {path.suffix for path in segment_files(tmp_path)[0].parent.glob("0*")} == {".mqj"}


def test_a_repair_forgets_it(where):
    """What is written anew lies elsewhere, with the same salt."""
    path = segment_files(where)[0]
    with open(path, "r+b") as file:
        file.seek(300_000)
        file.write(b"x" * 100)
    assert len(journal.verify(where).findings) == 1
    journal.repair(where)
    assert not index_file(path).exists()
    assert journal.verify(where).findings == []
    with journal.open(where) as reader:
        assert number(reader.read(N - 1).to_list()[0]) == N - 1


def test_it_goes_with_its_segment(memory):
    with begin(memory, retain_bytes=1 << 20) as log:
        log.rotate()
        until(lambda: not list(memory.glob(f"*/*/{0:020d}.*")))


def test_a_disk_that_is_full(memory, monkeypatch):
    """The writer goes on without."""
    def full(*_):
        raise OSError(28, os.strerror(28))
    tried = []
    monkeypatch.setattr(indexing, "save_index", lambda *a: (tried.append(a), full()))
    with begin(memory) as log:
        until(lambda: tried)
        log.commit()
        assert log.error is None
    check(memory)
    assert not list(memory.glob("*/*/*.index"))


def test_a_writer_that_is_closed_at_once(memory):
    """The next one does it."""
    begin(memory).close()
    with journal.open(memory, "a") as log:
        log.rotate()
        until(index_file(segment_files(memory)[0]).exists)


def test_more_rows_than_it_may_have(where, monkeypatch):
    monkeypatch.setattr("mqcore.journal.store.sparse.MOST", 3)
    path = segment_files(where)[0]
    index_file(path).unlink()
    indexing.index_ended(path.parent, 0)
    assert load_index(path, 0, 0) is None
    assert 1 < len(loaded(where)) <= 3
    check(where)


def test_a_killed_writer_leaves_nothing_for_good(where):
    half = segment_files(where)[0].with_name(f".{0:020d}.index")
    half.write_bytes(b"half")
    with journal.open(where, "a") as log:
        log.append(b"x")
        log.rotate()
        until(lambda: not half.exists())
    assert len(loaded(where)) > 1


def test_a_process_of_its_own(where):
    """As an operator would: no state of this process helps."""
    done = subprocess.run([sys.executable, "-c", """
import sys
from mqcore import journal
with journal.open(sys.argv[1]) as reader:
    print(reader.at(4000.0), reader.read(5000).first, len(reader._segment.index.positions) > 3)
""", where], capture_output=True, text=True, check=True)
    assert done.stdout == "4000 5000 True\n"


def test_the_last_segment_may_become_longer(where):
    """One whose successor was lost: the index is of fewer bytes, and is passed over."""
    last = segment_files(where)[1]
    last.unlink()
    (last.parent / "durable").unlink()
    with journal.open(where, "a") as log:
        assert log.next == N
        log.append(b"%d" % N, time=N)
    assert loaded(where) == [512]
    check(where)


@pytest.mark.parametrize("indexed", [True, False])
def test_what_is_durable_without_its_file_and_beside_damage(where, indexed):
    """Everything in front of the last segment is, though no block that was passed says so."""
    (where / "default" / "0" / "durable").unlink()
    complete, last = segment_files(where)
    raw = last.read_bytes()
    last.write_bytes(raw[:HEADER_SIZE] + b"\xff" * 200 + raw[HEADER_SIZE + 200:])
    if not indexed:
        index_file(complete).unlink()
    for offset in (0, 1, N // 3, N // 2, N - 1):
        with journal.open(where) as reader:
            assert number(reader.read(offset, max_bytes=1).to_list()[0]) == offset
