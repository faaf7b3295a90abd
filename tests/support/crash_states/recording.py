"""The log of record.c as recordings: the folder as it was at first, then operations and marks."""

import base64
import json
import os
import struct
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from preload import shared_library

HERE = Path(__file__).parent
HEAD = struct.Struct("<6Q")
NAMES = {"C": "create", "D": "mkdir", "L": "link", "U": "unlink", "N": "rename", "W": "write",
         "T": "truncate", "S": "sync", "X": "strange"}


@dataclass(frozen=True)
class Op:
    """kind: see NAMES. a, b: inodes. n: an offset or a size. name: in the folder a; other: in b."""

    kind: str
    a: int
    b: int = 0
    n: int = 0
    name: str = ""
    other: str = ""
    data: bytes = b""

    def __str__(self):
        what = f"{NAMES[self.kind]} {self.a}"
        if self.kind in "CDLUNX":
            what += f" {self.name!r}" + (f" -> {self.b} {self.other!r}" if self.other else "")
        return what + (f" {len(self.data)} bytes at {self.n}" if self.data else "")


@dataclass
class Recording:
    """One run of a scenario. tree: (inode of the folder, name, inode, bytes or None) of what was
    there, durable. steps: operations, and marks as [kind, value]. kill: the operation in front of
    which it was killed; 0: it was not. killed: the step from which on the next process ran."""

    scenario: str
    seed: int
    kill: int
    root: int
    tree: list
    steps: list = field(default_factory=list)
    killed: int = 0


def record(names, seed, kills, folder):
    """Recordings of these scenarios. kills: at how many points each of them is killed, by the seed;
    None: in front of each operation. folder: an empty one in memory; the library is compiled
    beside it, once."""
    library = str(folder.parent / "record.so")
    if not os.path.exists(library):
        shared_library(HERE / "record.c", library)
    log = folder / "log"
    inside = folder / "inside"
    inside.mkdir()
    env = {**os.environ, "LD_PRELOAD": library, "CRASH_ROOT": str(inside), "CRASH_LOG": str(log),
           "PYTHONPATH": os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])}
    how = json.dumps({"names": names, "seed": seed, "kills": kills, "library": library})
    done = subprocess.run([sys.executable, "-m", "crash_states.child", inside, how], env=env,
                          capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr[-4000:]
    return list(recordings(log))


def recordings(log, start=0):
    """Those from a byte of the log on."""
    found = None
    for what in steps(log, start):
        if isinstance(what, Op):
            assert what.kind != "X", f"the recorder does not understand {what.name}"
            if found is not None:
                found.steps.append(what)
            continue
        kind, value = what
        if kind == "begin":
            found = Recording(**value)
            found.tree = [(folder, name, number, None if data is None else base64.b64decode(data))
                          for folder, name, number, data in found.tree]
        elif kind == "end":
            yield found
            found = None
        elif kind == "killed":
            found.killed = len(found.steps)
        elif found is not None:
            found.steps.append(what)


def steps(log, at):
    raw = log.read_bytes()
    while at < len(raw):
        kind, a, b, n, first, second = HEAD.unpack_from(raw, at)
        at += HEAD.size
        one, two = raw[at:at + first], raw[at + first:at + first + second]
        at += first + second
        kind = chr(kind)
        if kind == "M":
            yield json.loads(two)
        elif kind == "N":
            yield Op(kind, a, b, n, os.fsdecode(one), os.fsdecode(two))
        else:
            yield Op(kind, a, b, n, os.fsdecode(one), data=two)
