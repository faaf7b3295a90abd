"""What the tests know of the processes that run libnorm."""

import os
import time
from pathlib import Path


def all_of(url):
    """Those that run libnorm for this address: {the process: its parent}."""
    port = url.rpartition(":")[2]
    found = {}
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes()
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if folder.name.isdigit() and b"mqcore_norm_process" in words \
                and f'"port": {port}'.encode() in words:
            found[int(folder.name)] = parent
    return found


def workers(url):
    """The processes with libnorm, without those that watch over them."""
    found = all_of(url)
    return [pid for pid, parent in found.items() if parent in found]


def load(pid, seconds=1.0):
    """The share of a core that a process takes, in the next while."""
    def taken():
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    before, began = taken(), time.monotonic()
    time.sleep(seconds)
    return (taken() - before) / (time.monotonic() - began)
