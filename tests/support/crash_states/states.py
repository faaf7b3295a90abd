"""What a disk may hold after a power cut between two operations of a recording."""

import hashlib
import os
import shutil
from dataclasses import dataclass, field

PAGE = 4096
SECTOR = 512


@dataclass
class Change:
    """Of names: (folder, name, inode or None if the name goes), which persist together."""

    names: tuple
    text: str


@dataclass
class Disk:
    """versions: of each file, since its last fsync, oldest first. names: of each folder, as the
    last fsync left them. pending: changes of names that no fsync has made durable."""

    root: int
    versions: dict = field(default_factory=dict)
    names: dict = field(default_factory=dict)
    pending: list = field(default_factory=list)

    @classmethod
    def of(cls, recording):
        disk = cls(recording.root)
        disk.names[recording.root] = {}
        for folder, name, number, data in recording.tree:
            disk.names[folder][name] = number
            if data is None:
                disk.names[number] = {}
            else:
                disk.versions[number] = [data]
        return disk

    def apply(self, op):
        """What record.c has seen elsewhere on the same file system is passed over."""
        if op.kind in "CDLU" and op.a in self.names:
            self._change(op)
        elif op.kind == "N" and op.a in self.names:
            self.pending.append(Change(((op.a, op.name, None), (op.b, op.other, op.n)), str(op)))
        elif op.kind == "S" and op.a in self.versions:
            del self.versions[op.a][:-1]
        elif op.kind == "S" and op.a in self.names:
            self._sync_folder(op.a)
        elif op.kind in "WT" and op.a in self.versions:
            self._write(op)

    def _change(self, op):
        if op.kind == "C":
            self.versions[op.b] = [b""]
        elif op.kind == "D":
            self.names[op.b] = {}
        number = None if op.kind == "U" else op.b
        self.pending.append(Change(((op.a, op.name, number),), str(op)))

    def _write(self, op):
        now = self.versions[op.a][-1]
        if op.kind == "T":
            fresh = now[:op.n].ljust(op.n, b"\0")
        else:
            fresh = now[:op.n].ljust(op.n, b"\0") + op.data + now[op.n + len(op.data):]
        if fresh != now:
            self.versions[op.a].append(fresh)

    def _sync_folder(self, folder):
        """And, of other folders, what came before a rename out of them or into them."""
        wanted, last = {folder}, len(self.pending)
        forced = set()
        for at in range(last - 1, -1, -1):
            touched = {home for home, _, _ in self.pending[at].names}
            if touched & wanted:
                wanted |= touched
                forced.add(at)
        for at in sorted(forced):
            settle(self.names, self.pending[at])
        self.pending = [change for at, change in enumerate(self.pending) if at not in forced]

    def unsynced(self):
        """The inodes of files of which some versions may be on the disk."""
        return sorted(number for number, found in self.versions.items() if len(found) > 1)


def settle(names, change):
    for folder, name, number in change.names:
        if number is None:
            names[folder].pop(name, None)
        else:
            names[folder][name] = number


# -- choices ---------------------------------------------------------------------------------------


def choices(disk, rng, some):
    """(which of the pending changes persist, how each file is), first those that are always taken,
    then `some` more by chance."""
    every = range(len(disk.pending))
    for data in ("new", "old", "zeros", "short"):
        yield frozenset(every), data
        yield frozenset(), data
    for at in every:
        for data in ("new", "old"):
            yield frozenset([at]), data             # one before all others, or behind them
            yield frozenset(every) - {at}, data
            yield frozenset(range(at)), data
    for _ in range(some):
        yield frozenset(at for at in every if rng.random() < 0.5), \
            rng.choice(("new", "old", "mixed", "mixed", "mixed"))


def tree_of(disk, chosen, data, rng):
    """{path: bytes, or None for a folder, or the path that it is another name of}"""
    names = {folder: dict(found) for folder, found in disk.names.items()}
    for at in sorted(chosen):
        settle(names, disk.pending[at])
    tree, seen = {}, {}
    waiting = [("", disk.root)]
    while waiting:
        path, folder = waiting.pop()
        for name, number in sorted(names[folder].items()):
            below = f"{path}{name}"
            if number in names:
                tree[below] = None
                waiting.append((f"{below}/", number))
            elif number in seen:
                tree[below] = seen[number]
            else:
                seen[number] = below
                tree[below] = content(disk.versions[number], data, rng)
    return tree


def content(versions, how, rng):
    new, old = versions[-1], versions[0]
    if how == "new" or new == old and len(versions) == 1:
        return new
    if how == "old":
        return old
    if how == "zeros":          # the size is on the disk, and none of the bytes
        return old[:len(new)].ljust(len(new), b"\0")
    if how == "short":
        return new[:rng.randint(min(len(old), len(new)), len(new))]
    size = len(rng.choice(versions))
    if rng.random() < 0.2:
        low = min(map(len, versions))
        size = rng.randint(low, max(low, size))
    pages = []
    for start in range(0, size, PAGE):
        page = rng.choice(versions)[start:start + PAGE].ljust(PAGE, b"\0")
        if rng.random() < 0.2:
            torn = rng.randrange(PAGE // SECTOR) * SECTOR
            page = page[:torn] + rng.choice(versions)[start + torn:start + PAGE]
        pages.append(page.ljust(PAGE, b"\0"))
    return b"".join(pages)[:size]


def digest(tree, marks):
    found = hashlib.blake2b(repr(marks).encode(), digest_size=16)
    for path in sorted(tree):
        found.update(f"{path}\0".encode())
        what = tree[path]
        found.update(b"\1" if what is None else f"={what}".encode() if isinstance(what, str)
                     else b"%d:" % len(what) + what)
    return found.digest()


def build(tree, where):
    shutil.rmtree(where, ignore_errors=True)
    os.mkdir(where)
    for path in sorted(tree):
        what = tree[path]
        if what is None:
            os.mkdir(f"{where}/{path}")
        elif isinstance(what, bytes):
            with open(f"{where}/{path}", "wb", buffering=0) as file:
                file.write(what)
    for path, what in tree.items():
        if isinstance(what, str):
            os.link(f"{where}/{what}", f"{where}/{path}")
