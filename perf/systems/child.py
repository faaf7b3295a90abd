"""mqcore's own servers as children of the runner: brokers_ends.py in the role `serve`, which prints
an address and serves until its standard input ends."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from systems.system import Started

PROGRAM = Path(__file__).resolve().parents[1] / "brokers_ends.py"
ENDS = 10.0     # seconds for an orderly end


@contextlib.contextmanager
def running(name: str, folder: Path) -> Iterator[Started]:
    """The server of this system, while it runs."""
    process = subprocess.Popen([sys.executable, PROGRAM, name, "serve", "--folder", folder],
                               text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdin is not None
    try:
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the server of {name} has ended before it served")
        yield Started(line.strip(), process.pid)
    finally:
        process.stdin.close()
        try:
            process.wait(ENDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def until_told(url: str) -> None:
    """In the child: print the address, and wait for the end."""
    print(url, flush=True)
    sys.stdin.read()
