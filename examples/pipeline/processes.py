"""Child processes that exchange lines of JSON with their parent and never outlive it.

A child's standard input is a pipe from its parent: it ends when the parent does, however that ends,
and then the child ends too. Ctrl-C is for the parent alone, which ends its children by their ids.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import mqcore
from mqcore.errors import Error

ROOT = Path(__file__).resolve().parents[2]     # of the repository: `examples` is found there
PATIENCE = 60.0     # seconds for an answer that takes moments


class WorkerFailed(Error):
    """A process of the pipeline ended when it should not, or does not answer."""


def search_path() -> str:
    """PYTHONPATH for child processes: they find this package and the same mqcore, wherever they
    run."""
    mine = dict.fromkeys([str(Path(mqcore.__file__).parents[1]), str(ROOT)])
    return os.pathsep.join([*mine, *filter(None, [os.environ.get("PYTHONPATH")])])


class Lines:
    """Lines of JSON from a descriptor."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._held = b""
        self.ended = False

    def next(self, timeout: float) -> dict[str, Any] | None:
        """The next one; None: there is none within so many seconds, or (`ended`) never again."""
        end = time.monotonic() + timeout
        while b"\n" not in self._held:
            if self.ended or not select.select([self._fd], [], [],
                                               max(0.0, end - time.monotonic()))[0]:
                return None
            got = os.read(self._fd, 1 << 16)
            self.ended = not got
            self._held += got
        line, _, self._held = self._held.partition(b"\n")
        said: dict[str, Any] = json.loads(line)
        return said


class Worker:
    """A child, seen by its parent: `python -m examples.pipeline.MODULE SETUP`."""

    def __init__(self, module: str, **setup: Any) -> None:
        self.name = f"{module} {setup.get('number', '')}".strip()
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.{module}", json.dumps(setup)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
            env={**os.environ, "PYTHONPATH": search_path()})
        assert self.process.stdout is not None
        self._lines = Lines(self.process.stdout.fileno())

    def tell(self, **order: Any) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(order).encode() + b"\n")
        except BrokenPipeError:
            self._failed()

    def heard(self, timeout: float = 0.0) -> dict[str, Any] | None:
        """What it says within so many seconds. WorkerFailed if it has ended."""
        said = self._lines.next(timeout)
        if said is None and self._lines.ended:
            self._failed()
        return said

    def hear(self, timeout: float = PATIENCE) -> dict[str, Any]:
        said = self.heard(timeout)
        if said is None:
            raise WorkerFailed(f"{self.name} (process {self.process.pid}) says nothing for "
                               f"{timeout:g} s", hint="is this machine very busy?")
        return said

    def check(self) -> None:
        """WorkerFailed if it has ended."""
        if self.process.poll() is not None:
            self._failed()

    def _failed(self) -> NoReturn:
        try:
            status: object = self.process.wait(5)
        except subprocess.TimeoutExpired:
            status = "not known"
        raise WorkerFailed(f"{self.name} (process {self.process.pid}) ended too early, with status "
                           f"{status}", hint="what it wrote to standard error says why")

    def end(self, timeout: float = PATIENCE) -> None:
        """Wait for its own end after its work, and let go of the pipes."""
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            pass
        self.kill()

    def kill(self) -> None:
        """At once, whatever it does. Idempotent."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:     # an order that it did not live to read
                    pass


# -- processes that others have started --

def alive() -> dict[tuple[int, int], int]:
    """The parents of all processes, by process id and start time, which tell a reused id."""
    found = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            facts = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
            if facts[0] != "Z":
                found[int(name), int(facts[19])] = int(facts[1])
    return found


def descendants(pid: int) -> list[tuple[int, int]]:
    """All processes below this one: their ids and start times."""
    found, above = [], {pid}
    there = alive()
    while above:
        below = [who for who, parent in there.items() if parent in above]
        found += below
        above = {child for child, _ in below}
    return found


def end_all(processes: Iterable[tuple[int, int]], patience: float = 5.0) -> None:
    """Wait for their end; those that are there after so many seconds are killed."""
    left = set(processes)
    end = time.monotonic() + patience
    while left := left & alive().keys():
        if time.monotonic() > end:
            for pid, _ in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


# -- the child's side --

class Orders(Lines):
    """What the parent says. The process ends when the parent has."""

    def __init__(self) -> None:
        super().__init__(sys.stdin.fileno())

    def next(self, timeout: float) -> dict[str, Any] | None:
        order = super().next(timeout)
        if self.ended:
            os._exit(1)
        return order

    def wait(self) -> dict[str, Any]:
        while True:
            order = self.next(3600.0)
            if order is not None:
                return order


def begin(arguments: Sequence[str]) -> tuple[dict[str, Any], Orders]:
    """A child's first call: its setup, and where orders come from."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    setup: dict[str, Any] = json.loads(arguments[0])
    return setup, Orders()


def say(**what: Any) -> None:
    """To the parent."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()
