"""Running our own programs in tests: as processes that always end, read line by line."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

PATIENCE = 200.0     # only a program that hangs reaches it


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONWARNINGS": "", "COLUMNS": "200", "PYTHONFAULTHANDLER": "1"}


class Program:
    """A running process; `out` and `err` are read as they come."""

    def __init__(self, *command: object, stdin: bool = False) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *map(str, command)],
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        )
        self.seen = {"out": b"", "err": b""}

    def line(self, stream: str = "out", patience: float = PATIENCE) -> str:
        """The next line; what was said so far in the error if it does not come."""
        pipe = self.process.stdout if stream == "out" else self.process.stderr
        assert pipe is not None
        end = time.monotonic() + patience
        while b"\n" not in self.seen[stream]:
            left = end - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                raise AssertionError(f"no line on std{stream}: {self.seen}")
            piece = os.read(pipe.fileno(), 65536)
            if not piece:
                raise AssertionError(f"ended: {self.seen}, {self.process.stderr.read()!r}")
            self.seen[stream] += piece
        line, _, self.seen[stream] = self.seen[stream].partition(b"\n")
        return line.decode()

    def send(self, data: bytes) -> None:
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        self.process.send_signal(number)
        return self.result()

    def result(self, patience: float = PATIENCE) -> tuple[int, str, str]:
        """(status, output, error output), when it has ended by itself. If it does not, the stack of
        each of its threads in the error."""
        try:
            out, err = self.process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)
            out, err = self.process.communicate(timeout=patience)
            raise AssertionError(f"hung for {patience} s: {out!r}\n{err.decode()}") from None
        return (
            self.process.returncode,
            (self.seen["out"] + out).decode(errors="replace"),
            (self.seen["err"] + err).decode(errors="replace"),
        )

    def kill(self) -> None:
        """Asked first: a program that has started others ends them."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass


@contextmanager
def starter() -> Iterator[object]:
    """start(*command, stdin=False) -> Program; all of them are ended with the block."""
    running: list[Program] = []

    def start(*command: object, stdin: bool = False) -> Program:
        running.append(Program(*command, stdin=stdin))
        return running[-1]

    try:
        yield start
    finally:
        for program in running:
            program.kill()


def run(*command: object, stdin: bytes = b"", patience: float = PATIENCE) -> tuple[int, bytes, str]:
    """(status, output, error output) of a program that ends by itself."""
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        input=stdin,
        capture_output=True,
        timeout=patience,
        env=environment(),
    )
    return done.returncode, done.stdout, done.stderr.decode(errors="replace")


def mq(*args: object) -> Sequence[object]:
    """The command line of `mq ...`."""
    return ("-m", "mqcore", *args)
