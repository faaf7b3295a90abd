"""Instructions a message, by function: what the hot path costs, told on a busy machine too.

    instructions.py [--loop python|native] [--size N] [--top N] [--transport tcp|ipc|inproc]

Runs one push and one pull socket of one process under valgrind's callgrind, twice, with different
numbers of messages; the difference, divided, is what one message costs: start and end fall out.
Times are not measured, and threads run one at a time, so waiting and the kernel are not in it.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

BURST = 500  # messages sent before they are received,
HELD = 4 << 20  # and bytes, at most
COUNTS = 10_000, 30_000
PROGRAM = """
import sys
import mqcore as mq


def main(loop, url, size, count, burst):
    pull = mq.Pull(bind=url)
    push = mq.Push(connect=pull.endpoints[0].url)
    push.wait_peers(1, 60)
    body = (bytes(range(256)) * (size // 256 + 1))[:size]
    if loop == "native":
        from mqcore.testing.native.native_bench import Loops

        out, inn = Loops(push, [body]), Loops(pull, [])
        for _ in range(count // burst):
            out.give(burst)
            inn.take(burst)
    else:
        send, recv, turns = push.send, pull.recv, range(burst)
        for _ in range(count // burst):
            for _ in turns:
                send(body)
            for _ in turns:
                recv()
    push.close(linger=0)
    pull.close(linger=0)


main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
"""
FN = re.compile(r"fn=\((\d+)\)(?: (.*))?")
MOST_SHOWN = 30


def self_costs(path: Path) -> Counter:
    """Instructions by function, of a callgrind file."""
    names: dict[str, str] = {}
    found: Counter = Counter()
    name, skip = "", False
    for line in path.read_text().splitlines():
        if match := FN.match(line):
            number, text = match.groups()
            name = names.setdefault(number, text or "?")
        elif match := re.match(r"cfn=\((\d+)\)(?: (.*))?", line):
            names.setdefault(match[1], match[2] or "?")
        elif line.startswith("calls="):
            skip = True  # the next line is what the callee took
        elif line[:1].isdigit() or line[:1] in "+-*":
            fields = line.split()
            if not skip and len(fields) > 1:
                found[name] += int(fields[1])
            skip = False
    return found


def counted(options: argparse.Namespace, count: int, folder: str) -> Counter:
    out = Path(folder, f"{count}.out")
    url = {"tcp": "tcp://127.0.0.1:0", "ipc": f"ipc://{folder}/s", "inproc": "inproc://perf"}
    burst = min(BURST, max(8, HELD // max(options.size, 1)))
    done = subprocess.run(
        [
            "valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", sys.executable, "-c",
            PROGRAM, options.loop, url[options.transport], *map(str, (options.size, count, burst)),
        ],
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        sys.exit(done.stderr)
    return self_costs(out)


def per_message(options: argparse.Namespace) -> dict[str, float]:
    few, many = COUNTS
    with tempfile.TemporaryDirectory(prefix="mqperf") as folder:
        first, second = counted(options, few, folder), counted(options, many, folder)
    return {name: (second[name] - first[name]) / (many - few) for name in second}


def readable(name: str) -> str:
    """sock.sock.sock_send for __pyx_f_6mqcore_4sock_4sock_sock_send."""
    if not name.startswith("__pyx_"):
        return name
    text = name.partition("6mqcore_")[2].partition("(")[0]
    parts = []
    while match := re.match(r"(\d+)", text):
        number = int(match[1])
        start = match.end()
        parts.append(text[start : start + number])
        text = text[start + number + 1 :]
    return ".".join([*parts, text])


def table(found: dict[str, float], top: int) -> str:
    rows = sorted(found.items(), key=lambda item: -item[1])
    lines = ["| function | instructions a message |", "|---|--:|"]
    lines += [f"| {readable(name)} | {cost:.1f} |" for name, cost in rows[:top] if cost > 0.5]
    lines.append(f"| all | {sum(found.values()):.1f} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--loop", choices=("python", "native"), default="python")
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--transport", choices=("tcp", "ipc", "inproc"), default="tcp")
    parser.add_argument("--top", type=int, default=MOST_SHOWN)
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        sys.exit("valgrind is not installed")
    print(f"{options.loop} loop, {options.transport}, {options.size} B\n")
    print(table(per_message(options), options.top))
    return 0


if __name__ == "__main__":
    sys.exit(main())
