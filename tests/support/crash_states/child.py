"""The child that is recorded. Each run is a process of its own, forked from this one, so that it
can be killed at a point and another one goes on."""

import base64
import ctypes
import json
import os
import random
import shutil
import sys
import traceback
from pathlib import Path

from crash_states.recording import Op, recordings
from crash_states.scenarios import SCENARIOS

KILLED = 99             # the exit status of record.c


class Marks:
    def __init__(self, library):
        self._record = ctypes.CDLL(library)

    def __call__(self, kind, value=None):
        self._record.crash_mark(json.dumps([kind, value]).encode())

    def exit_at(self, number):
        self._record.crash_exit_at(ctypes.c_long(number))


def tree(root):
    """Of a folder: (inode of the folder, name, inode, bytes in base64 or None)."""
    rows = []
    for where, folders, files in os.walk(root):
        home = os.stat(where).st_ino
        rows += [(home, name, os.stat(os.path.join(where, name)).st_ino, None) for name in folders]
        for name in files:
            path = Path(where, name)
            data = base64.b64encode(path.read_bytes()).decode()
            rows.append((home, name, path.stat().st_ino, data))
    return rows


def apart(call, *args):
    """Run it in a process of its own; whether it came to its end."""
    pid = os.fork()
    if pid == 0:
        try:
            call(*args)
            sys.stderr.flush()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status not in (0, KILLED):
        sys.exit(f"a run ended with {status}")
    return status == 0


def run(scenario, where, seed, kill, mark):
    """It, and if it was killed, what goes on after it."""
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir()
    apart(scenario.prepare, where, random.Random(seed))
    mark("begin", {"scenario": scenario.name, "seed": seed, "kill": kill,
                   "root": where.stat().st_ino, "tree": tree(where)})

    def first():
        if kill:
            mark.exit_at(kill)
        scenario.run(where, mark, random.Random(seed))

    if not apart(first):
        mark("killed")
        apart(scenario.again, where, mark, random.Random(seed))
    mark("end")


def points_of(recording, kills, rng):
    """In front of which operations it is killed: half of them are fsyncs of folders in which
    something has just got or lost a name, since a process that goes on sees that."""
    kinds = [step.kind for step in recording.steps if isinstance(step, Op)]
    every = range(1, len(kinds) + 1)
    if kills is None:
        return every
    named = [at for at in every[1:] if kinds[at - 1] == "S" and kinds[at - 2] in "CDLUN"]
    some = set(rng.sample(named, min(len(named), (kills + rng.randint(0, 1)) // 2)))
    others = [at for at in every if at not in some]
    return sorted(some | set(rng.sample(others, min(len(others), kills - len(some)))))


def main():
    root, how, log = Path(sys.argv[1]), json.loads(sys.argv[2]), Path(os.environ["CRASH_LOG"])
    mark = Marks(how["library"])
    for name in how["names"]:
        scenario, seed, begun = SCENARIOS[name], how["seed"], log.stat().st_size
        run(scenario, root / name, seed, 0, mark)
        [whole] = recordings(log, begun)
        for kill in points_of(whole, how["kills"], random.Random(f"{seed} {name}")):
            run(scenario, root / name, seed, kill, mark)


if __name__ == "__main__":
    main()
