"""What threads of one process gain from a Python without the GIL.

    python perf/free_threaded.py PYTHON [PYTHON ...] [--threads 2] [--seconds 1] [--rounds 5]
                                   [--transport inproc] [--size 16]

PYTHON: interpreters that have mqcore, the first as the base of the ratios; with "@gil" behind it, a
free-threaded one that runs with the GIL switched on. To make two:

    python tools/free_threaded.py --only environment --gil      .venv-3.13/bin/python
    python tools/free_threaded.py --only environment            .venv-3.13t/bin/python

Each thread has a Push and a Pull of its own, sends a burst of messages and receives it, again and
again. The figures are messages a second of all threads together, the best of the rounds, since what
else the machine does can only lower them; the interpreters take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from itertools import product
from typing import Any

BURST = 200
WARM = 0.2  # seconds before anything is counted
TRANSPORTS, SIZES = ("inproc", "tcp"), (16, 1024)


# -- the measured process --------------------------------------------------------------------------


def move(push: Any, pull: Any, body: bytes, start: threading.Barrier, seconds: float,
         counts: list[int]) -> None:
    send, recv, turns, clock = push.send, pull.recv, range(BURST), time.perf_counter
    end = clock() + WARM
    while clock() < end:
        for _ in turns:
            send(body)
        for _ in turns:
            recv()
    start.wait()
    count, end = 0, clock() + seconds
    while clock() < end:
        for _ in turns:
            send(body)
        for _ in turns:
            recv()
        count += BURST
    counts.append(count)


def measure(transport: str, size: int, threads: int, seconds: float) -> None:
    import mqcore as mq

    start, counts, running = threading.Barrier(threads), [], []
    with mq.Context(linger=0) as context:
        for number in range(threads):
            where = f"inproc://{number}" if transport == "inproc" else "tcp://127.0.0.1:0"
            pull = context.socket("pull", bind=where)
            push = context.socket("push", connect=pull.endpoints[0].url)
            push.wait_peers(1, 10)
            running.append(threading.Thread(
                target=move, args=(push, pull, bytes(size), start, seconds, counts)))
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    print(json.dumps({"rate": sum(counts) / seconds, "gil": gil}))


# -- the comparison --------------------------------------------------------------------------------


def run(python: str, *words: object) -> dict[str, Any]:
    path, _, gil = python.partition("@")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    if gil:
        environment["PYTHON_GIL"] = "1"
    answer = subprocess.run([path, __file__, "--child", *map(str, words)], env=environment,
                            capture_output=True, text=True, check=False)
    if answer.returncode:
        sys.exit(answer.stderr)
    return json.loads(answer.stdout)  # type: ignore[no-any-return]


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        transport, size, threads, seconds = sys.argv[2:]
        measure(transport, int(size), int(threads), float(seconds))
        return
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pythons", nargs="+", metavar="PYTHON")
    parser.add_argument("--threads", type=int, default=min(os.cpu_count() or 1, 2))
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--transport", action="append", choices=TRANSPORTS)
    parser.add_argument("--size", action="append", type=int)
    options = parser.parse_args()
    print(f"{'':28}" + "".join(f"{name[-28:]:>30}" for name in options.pythons))
    for transport, size in product(options.transport or TRANSPORTS, options.size or SIZES):
        best: dict[tuple[str, int], float] = {}
        for threads in (1, options.threads):
            rates: dict[str, list[float]] = {name: [] for name in options.pythons}
            locked = {}
            for _ in range(options.rounds):
                for name in options.pythons:
                    found = run(name, transport, size, threads, options.seconds)
                    rates[name].append(found["rate"])
                    locked[name] = found["gil"]
            base = max(rates[options.pythons[0]])
            cells = []
            for name in options.pythons:
                best[name, threads] = rate = max(rates[name])
                cells.append(f"{rate:12,.0f}/s {'GIL' if locked[name] else 'free':>5}"
                             f" {rate / base:6.2f} x")
            print(f"{transport:7}{size:6} B {threads:3} thread{'s' * (threads > 1):2}  "
                  + " ".join(f"{cell:>29}" for cell in cells), flush=True)
        gains = (f"{best[name, options.threads] / best[name, 1]:.2f} x"
                 for name in options.pythons)
        print(f"{'':10}{options.threads} threads against one  "
              + " ".join(f"{gain:>29}" for gain in gains), flush=True)


if __name__ == "__main__":
    main()
