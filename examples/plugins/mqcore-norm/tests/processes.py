"""What the tests know of the processes that run libnorm."""

import os
import time
from pathlib import Path


def all_of(url):
    """Those that run libnorm for this address: {the process: its session}."""
    port = url.rpartition(":")[2]
    found = {}
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes()
            session = int((folder / "stat").read_text().rpartition(")")[2].split()[3])
        except (OSError, ValueError, IndexError):
            continue
        if folder.name.isdigit() and b"mqcore_norm_process" in words \
                and f'"port": {port}'.encode() in words:
            found[int(folder.name)] = session
    return found


def workers(url):
    """The processes with libnorm. Those that watch over them lead the sessions."""
    found = all_of(url)
    return [pid for pid, session in found.items() if session != pid and session in found]


def supervisors(url):
    return [pid for pid, session in all_of(url).items() if session == pid]


def load(pid, seconds=1.0):
    """The share of a core that a process takes, in the next while."""
    def taken():
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    before, began = taken(), time.monotonic()
    time.sleep(seconds)
    return (taken() - before) / (time.monotonic() - began)
