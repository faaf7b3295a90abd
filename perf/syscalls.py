"""System calls a message, one way, each side: everything that its process does, counted.

    syscalls.py [--lib NAME ...] [--size N] [--count N] [--calls plain|many]

Counts with `perf trace -s`, or, where that is not allowed, with `strace -c`, which slows each call
down and so lets more messages gather for it. Two runs of different length; the difference is what
messages cost, without the start and the end. The engine's own reads and writes alone are `writes`
and `reads` of `stats()`; what is more here is waiting and waking.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from libraries import LIBRARIES, present
from native import Program
from pairs import HERE, address

SUMMARY = re.compile(r"^\s+\w+\s+(\d+)\s+\d+\s+[\d.]+ ", re.MULTILINE)  # perf's row of one call
TOTAL = re.compile(r"^\s*100\.00\s+[\d.]+\s+\d+\s+(\d+) .*total$", re.MULTILINE)  # strace's


class Counter:
    """perf or strace, around a command."""

    def __init__(self) -> None:
        self.tool = ""
        with tempfile.TemporaryDirectory(prefix="mqperf") as folder:
            for tool in ("perf", "strace"):
                out = Path(folder, tool)
                if shutil.which(tool) and not self.tool:
                    self.tool = tool
                    try:
                        made = subprocess.run(self.around(["true"], out), capture_output=True)
                        if made.returncode or self.calls(out) == 0:
                            self.tool = ""
                    except (OSError, ValueError):
                        self.tool = ""
        if not self.tool:
            sys.exit("neither `perf trace` nor `strace` works here")

    def around(self, command: list[str], out: Path) -> list[str]:
        if self.tool == "perf":
            return ["perf", "trace", "-s", "-o", str(out), *command]
        return ["strace", "-c", "-f", "-o", str(out), *command]

    def calls(self, out: Path) -> int:
        text = out.read_text()
        if "LOST" in text:
            raise ValueError("perf lost events: count fewer messages")
        return sum(map(int, (SUMMARY if self.tool == "perf" else TOTAL).findall(text)))

    def pair(self, library: str, options: argparse.Namespace, count: int) -> tuple[int, int]:
        """Calls of the sender and of the receiver."""

        def end(role: str, url: str, out: Path) -> Program:
            command = [
                sys.executable, str(HERE / "ends.py"), library, role, "--url", url, "--size",
                str(options.size), "--count", str(count), "--calls", options.calls,
            ]  # fmt: skip
            return Program(f"{library} {role}", self.around(command, out))

        with tempfile.TemporaryDirectory(prefix="mqperf") as folder, address("tcp") as url:
            outs = Path(folder, "source"), Path(folder, "sink")
            with end("sink", url, outs[1]) as sink:
                with end("source", sink.line(), outs[0]) as source:
                    for process in (sink, source):
                        process.line()
                    for process in (sink, source):
                        process.result()
                        process.process.wait()
            return self.calls(outs[0]), self.calls(outs[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lib", action="append", choices=LIBRARIES)
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--count", type=int, default=500_000)
    parser.add_argument("--calls", default="plain", choices=("plain", "many"))
    options = parser.parse_args()
    counter = Counter()
    print(f"one way, tcp, {options.size} B, system calls a message, by {counter.tool}\n")
    print("| library | sender | receiver |\n|---|--:|--:|")
    for library in options.lib or [name for name in ("mqcore", "pyzmq", "pyomq") if present(name)]:
        short = counter.pair(library, options, options.count // 10)
        long = counter.pair(library, options, options.count)
        n = options.count - options.count // 10
        sender, receiver = ((b - a) / n for a, b in zip(short, long, strict=True))
        print(f"| {library} | {sender:.4f} | {receiver:.4f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
