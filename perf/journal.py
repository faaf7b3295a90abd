"""Figures of the journal, each beside its reference: append, write, read, memory.

    journal.py [--only NAME ...] [--row TEXT] [--rounds N] [--quick] [--even-if-busy]
               [--disk PATH] [--name NAME] [--folder PATH]

append  a device takes what a PULL socket receives into a journal (fsync="interval"), until the
        last message is durable; beside the same socket read by recv_batch
write   messages appended one by one and closed; beside `dd bs=1M conv=fdatasync` of as many bytes
read    a journal in the page cache as Arrow, its CRCs verified, every page of every buffer
        touched; beside np.copyto from maps of the same files into an array as large as a file
memory  what a process that reads a long journal as Arrow holds at most, from /proc/self/status
        after each batch: RssAnon (its own), RssShmem, and RssFile, which is page cache that it
        has mapped and the libraries' code

--disk is the folder of the journals. Each round writes each file anew, after a sync of the whole
system, except for `read` and `memory`. The written data is random; `dd` writes zeros.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from figures import Reach, main_of, row
from pairs import Case, run_pair, size_name
from rows import Row
from versus import calibrated

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
REACH = {
    "append": Reach(ratio=0.5, figure=1.5e6),
    "write": Reach(ratio=0.7),
    "read": Reach(ratio=0.6),
    "memory": Reach(figure=200, less=True),
}


# -- append ----------------------------------------------------------------------------------------


@functools.cache
def messages_for(case: Case, seconds: float) -> int:
    return calibrated("mqcore", case, seconds)


def received(transport: str, size: int, calls: str, place: Path, seconds: float) -> dict:
    """One way, by recv_batch or by a device into a journal; the source is the same."""
    os.environ["TMPDIR"] = str(place)  # the other process puts its journal there
    case = Case("thr", transport, size, calls, "free")
    found = run_pair("mqcore", case, messages_for(case, seconds))
    return {"value": found["value"], "CPU us a message": found["cpu"] * 1e6,
            "sender": found.get("sender", 0.0)}  # fmt: skip


# -- write -----------------------------------------------------------------------------------------


def emptied(place: Path) -> Path:
    """A folder for one measurement, and nothing left to write by the system."""
    folder = place / "write"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    os.sync()
    return folder


def written(place: Path, size: int, total: int) -> dict:
    from mqcore import journal

    folder = emptied(place)
    several = [os.urandom(size) for _ in range(max(1, min(64, 16 * MIB // size)))]
    began = time.perf_counter()
    with journal.open(folder, "a", topic="perf") as log:
        for i in range(total // size):
            log.append(several[i % len(several)])
    took = time.perf_counter() - began
    shutil.rmtree(folder)
    return {"value": total / took / 1e6, "messages/s": total / size / took}


def dd(place: Path, total: int) -> dict:
    file = emptied(place) / "dd"
    command = ["dd", "if=/dev/zero", f"of={file}", "bs=1M", f"count={total // MIB}",
               "conv=fdatasync", "status=none"]  # fmt: skip
    began = time.perf_counter()
    subprocess.run(command, check=True)
    took = time.perf_counter() - began
    file.unlink()
    return {"value": total / took / 1e6}


# -- read ------------------------------------------------------------------------------------------


@functools.cache
def filled(place: Path, size: int, total: int) -> Path:
    """A journal of `total` bytes of messages, read once."""
    import numpy as np

    from mqcore import journal

    folder = place / f"read{size}-{total}"
    several = 16 * MIB // size
    data = np.random.default_rng(1).integers(0, 256, several * size, np.uint8)
    ends = np.arange(several + 1) * size
    with journal.open(folder, "a", topic="perf") as log:
        for _ in range(total // len(data)):
            log.append_batch(data, ends)
    read_back(folder, True)
    return folder


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.mqj"))


def read_back(folder: Path, verify: bool) -> int:
    """Every page of every buffer is touched; one array's batches are gone when the next ones come,
    as a program that works through a journal lets them go."""
    import numpy as np

    from mqcore import journal

    touched = 0
    with journal.open(folder, topic="perf", verify=verify) as log:
        for records in log.batches():
            for column in records.to_arrow().columns:
                for buffer in column.buffers():
                    if buffer is not None:
                        touched += int(np.frombuffer(buffer, np.uint8)[::4096].sum())
    return touched


def arrow(place: Path, size: int, total: int) -> dict:
    folder = filled(place, size, total)
    stored = sum(path.stat().st_size for path in files(folder))

    def rate(verify: bool) -> float:
        began = time.perf_counter()
        read_back(folder, verify)
        return stored / (time.perf_counter() - began) / 1e6

    return {"value": rate(True), "unverified": rate(False)}


def copyto(place: Path, size: int, total: int) -> dict:
    import numpy as np

    found = files(filled(place, size, total))
    to = np.ones(max(path.stat().st_size for path in found), np.uint8)
    stored, began = 0, time.perf_counter()
    for path in found:
        mapped = np.memmap(path, np.uint8, "r")
        np.copyto(to[: len(mapped)], mapped)
        stored += len(mapped)
        del mapped
    return {"value": stored / (time.perf_counter() - began) / 1e6}


# -- memory ----------------------------------------------------------------------------------------

KINDS = ("RssAnon", "RssShmem", "RssFile")
HOLDS = """import json, sys
import numpy, pyarrow
from mqcore import journal

def resident():
    with open("/proc/self/status") as lines:
        status = dict(line.split(":", 1) for line in lines)
    return [int(status[kind].split()[0]) for kind in sys.argv[2:]]

most = before = resident()
with journal.open(sys.argv[1], topic="perf") as log:
    for records in log.batches():
        value = records.to_arrow().column("value").buffers()[2]
        numpy.frombuffer(value, numpy.uint8)[::4096].sum()
        most = list(map(max, resident(), most))
print(json.dumps([before, most]))
"""


def held(place: Path, total: int) -> dict:
    """At most, in MB; the interpreter and its libraries are in it, and stand beside it."""
    folder = filled(place, KIB, total)
    command = [sys.executable, "-c", HOLDS, folder, *KINDS]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    found = {}
    for kind, before, most in zip(KINDS, *json.loads(done.stdout), strict=True):
        found |= {f"{kind} MB": most * KIB / 1e6, f"{kind} MB before": before * KIB / 1e6}
    return {"value": found["RssAnon MB"] + found["RssShmem MB"], **found}


# -- rows ------------------------------------------------------------------------------------------


def rows(quick: bool, place: Path) -> list[Row]:
    part = functools.partial
    seconds, total, long = (0.05, 32 * MIB, 64 * MIB) if quick else (1.0, GIB, 4 * GIB)
    return [
        *(row(f"append from a socket, {transport}, {size_name(size)}", "/s", "append",
              part(received, transport, size, "journal", place, seconds), "recv_batch",
              part(received, transport, size, "batch", place, seconds), at=size)
          for transport in ("tcp", "inproc") for size in (16, KIB)),
        *(row(f"write, {size_name(size)}", "MB/s", "write", part(written, place, size, total),
              "dd", part(dd, place, total), at=size)
          for size in (KIB, 64 * KIB, MIB)),
        *(row(f"read as Arrow, {size_name(size)}", "MB/s", "read", part(arrow, place, size, total),
              "np.copyto", part(copyto, place, size, total), at=size)
          for size in (100, KIB, 64 * KIB)),
        row(f"memory, a reader of {size_name(long)}", "MB", "memory", part(held, place, long),
            less=True, rounds=1),
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main_of(__doc__, "journal", rows, REACH))
