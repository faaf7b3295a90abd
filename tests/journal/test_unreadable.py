"""Sectors that the disk cannot read: an error that names the block, never the process's end."""

import os
import shutil
import struct
import subprocess

import pytest
from journal_case import contents, segment_files
from programs import run

from mqcore import journal
from mqcore.journal.store.segment import Segment

N, BLOCK = 400, 64 << 10


def filled(where):
    """Blocks of 64 KiB; the n-th message begins with its number. The segment's path."""
    with journal.open(where, "a", fsync="never", block_bytes=BLOCK) as writer:
        writer.append_many([b"%06d" % i * 1000 for i in range(N)])
    [path] = segment_files(where)
    return path


CUT = """
import os, sys
from mqcore import journal
from mqcore.journal.store.segment import Segment
where, verify = sys.argv[1], sys.argv[2] == "True"
size = Segment.size
was = {}
def stale(self):        # what a page behind the end is to a map, an unreadable sector is, too
    was.setdefault(self.path, size(self))
    return was[self.path]
Segment.size = stale
reader = journal.open(where, verify=verify)
end = reader.end
os.truncate(sys.argv[3], 900_000)
seen = 0
try:
    for records in reader.batches(0, end, max_bytes=1):
        seen += sum(len(bytes(row)) > 0 for row in records)
except journal.JournalCorrupt as error:
    print("corrupt", error.offset == seen, error.fault)
print(seen)
"""


@pytest.mark.parametrize("verify", [True, False])
def test_a_page_that_is_not_there_is_a_fault(tmp_path, verify):
    path = filled(tmp_path)
    status, out, err = run("-c", CUT, tmp_path, verify, path)
    assert status == 0, err
    first, seen = out.decode().splitlines()
    assert first == "corrupt True the disk cannot read it (an input/output error)"
    assert 0 < int(seen) < N


def test_small_blocks_share_their_pages(tmp_path):
    """What was read ahead for one block is not read again for the next, nor missed."""
    with journal.open(tmp_path, "a", fsync="always") as writer:
        for i in range(2000):
            writer.append(b"%d" % i)
    with journal.open(tmp_path) as reader:
        assert [int(m) for records in reader.batches() for m in records.to_list()] \
            == list(range(2000))
        for offset in (1999, 0, 1000, 999):
            assert reader.read(offset, max_bytes=1).to_list() == [b"%d" % offset]


# -- a device that ends early ----------------------------------------------------------------------

def system(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode:
        pytest.skip(f"{command[0]}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


class Disk:
    """A file system in a file, by way of a loop device."""

    def __init__(self, folder):
        self.image, self.mounted, self.loop = folder / "image", folder / "mounted", None
        self.mounted.mkdir()
        with open(self.image, "wb") as file:
            file.truncate(64 << 20)
        system("mkfs.ext4", "-q", "-F", "-b", "4096", "-O", "^has_journal", self.image)

    def mount(self, until=None):
        """until: what lies behind this byte cannot be read."""
        self.loop = system("losetup", "-f", "--show", self.image)
        if until is not None:
            os.truncate(self.image, until)
        system("mount", self.loop, self.mounted)

    def unmount(self):
        for command in (("umount", self.mounted), ("losetup", "-d", self.loop)):
            if self.loop is not None:
                subprocess.run(command, capture_output=True, timeout=60)
        self.loop = None


@pytest.fixture
def disk(tmp_path):
    if os.geteuid() or not all(map(shutil.which, ("losetup", "mkfs.ext4", "mount"))):
        pytest.skip("needs root and a loop device")
    made = Disk(tmp_path)
    try:
        made.mount()
        yield made
    finally:
        made.unmount()


def places_of(path):
    """The block of the device that each block of the file is in: FIBMAP."""
    import fcntl

    with open(path, "rb") as file:
        return [struct.unpack("i", fcntl.ioctl(file, 1, struct.pack("i", i)))[0]
                for i in range(os.path.getsize(path) // 4096)]


CALLS = {
    "read": "for r in journal.open(where).batches(): seen += len(r)",
    "unverified": "for r in journal.open(where, verify=False).batches(): "
                  "seen += sum(map(bool, r.to_list()))",
    "verify": "seen = len(journal.verify(where).findings)",
    "append": "journal.open(where, 'a').close()",
    "repair": "journal.repair(where)\n"
              "for r in journal.open(where).batches(gaps='skip'): seen += len(r)",
    "serve": """
import mqcore
with journal.open(sys.argv[2], 'a', topic='well') as writer:
    writer.append(b"1")
with journal.serve(where, 'inproc://x'), journal.serve(sys.argv[2], 'inproc://y'):
    try:
        for r in journal.open('inproc://x', timeout=20).batches():
            pass
    except journal.JournalCorrupt as error:
        assert "the disk cannot read it" in str(error)
        seen = len(journal.open('inproc://y', topic='well').read(0))
""",
}


@pytest.mark.parametrize("call", CALLS)
def test_a_sector_that_cannot_be_read(disk, tmp_path, call):
    """Of a segment's middle."""
    (disk.mounted / "front").write_bytes(bytes(30 << 20))
    os.sync()
    path = filled(disk.mounted / "j")
    os.sync()
    places = places_of(path)
    bad = len(places) * 3 // 4
    if max(places[:bad]) >= places[bad]:
        pytest.skip("the file does not lie in order")
    disk.unmount()
    disk.mount(until=places[bad] * 4096)
    begin = "import sys\nfrom mqcore import journal\nwhere, seen = sys.argv[1], 0\n"
    status, out, err = run("-c", f"{begin}{CALLS[call]}\nprint(seen)", disk.mounted / "j",
                           tmp_path / "well")
    assert status >= 0, (status, err)
    if call in ("read", "unverified", "append"):
        assert status == 1 and "JournalCorrupt" in err and "the disk cannot read it" in err
    else:
        assert status == 0, err
        assert int(out.split()[-1]) > 0


def test_a_header_that_cannot_be_read(tmp_path, monkeypatch):
    """Its blocks are read by what they tell of the salt, and a repair keeps them all."""
    path = filled(tmp_path)
    real = os.pread

    def fails(fd, n, at):
        if at < 512 and os.readlink(f"/proc/self/fd/{fd}") == str(path):
            raise OSError(5, "Input/output error")
        return real(fd, n, at)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", fails)
        with pytest.raises(journal.JournalCorrupt, match="cannot read the segment's header"):
            Segment(path.parent, 0)
        [finding] = journal.verify(tmp_path).findings
        assert (finding.position, finding.lost) == (0, 0)
        journal.repair(tmp_path)
    assert [m[:6] for m in contents(tmp_path)] == [b"%06d" % i for i in range(N)]
