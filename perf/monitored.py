"""What a monitor costs that is read once a second: throughput with it and without.

    python perf/monitored.py                    pairs of alternating rounds, and their medians
    python perf/monitored.py --pairs 20 --size 100 --transport tcp

Two processes, PUSH and PULL, make new contexts for each round, with a monitor in every other one,
and send for some seconds. A third process reads all monitors once a second.

Two ratios, with / without: `rate` is messages a second, and moves with whatever else the machine
does. `cpu` is messages per second of the two processes' CPU time, with all threads of the monitor.
`share_of_a_core` is what the monitor takes in a process that does nothing else; it hardly varies.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import mqcore as mq
from mqcore import monitor

PATIENCE = 60.0


def sink(url: str) -> None:
    """For each line, "1" with a monitor or "0", receive until the message "end"; print the count,
    messages per second and CPU time."""
    for line in sys.stdin:
        with mq.Context(monitor=line == "1\n") as context, \
                mq.Pull(bind=url, context=context) as sock:
            print(sock.endpoints[0].url, flush=True)
            count = 0
            sock.recv(timeout=PATIENCE)
            began = time.perf_counter()
            while sock.recv(timeout=PATIENCE) != b"end":
                count += 1
            print(count, count / (time.perf_counter() - began), cpu(), flush=True)


def cpu() -> float:
    """Seconds of CPU time that this process has used."""
    return time.process_time()


def source(size: str) -> None:
    """For each line, monitor (as above), address and seconds, send for so long, then "end"."""
    body = bytes(int(size))
    for line in sys.stdin:
        monitored, url, seconds = line.split()
        with mq.Context(monitor=monitored == "1") as context, \
                mq.Push(connect=url, context=context) as sock:
            sock.wait_peers(1, timeout=PATIENCE)
            end = time.perf_counter() + float(seconds)
            while time.perf_counter() < end:
                for _ in range(100):
                    sock.send(body)
            sock.send(b"end")
        print(cpu(), flush=True)


def idle(monitored: str) -> None:
    """Do nothing with two connected sockets until the input ends; print seconds of CPU time and of
    the clock."""
    with mq.Context(monitor=monitored == "1") as context, \
            mq.Pull(bind="inproc://x", context=context) as pull, \
            mq.Push(connect="inproc://x", context=context):
        pull.wait_peers(1, timeout=PATIENCE)
        print("ready", flush=True)
        before, began = cpu(), time.monotonic()
        sys.stdin.read()
        print(cpu() - before, time.monotonic() - began, flush=True)


def read() -> None:
    """Read all monitors once a second until the input ends; print how many answers came."""
    import select

    answers = 0
    with monitor.Client() as client:
        print("ready", flush=True)
        while not select.select([sys.stdin], [], [], 1.0)[0]:
            answers += len(client.snapshots())
    print(answers, flush=True)


class Role:
    """A process that runs one of the functions above."""

    def __init__(self, name: str, *args: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--role", name, *map(str, args)], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def line(self) -> str:
        return self.process.stdout.readline().strip()

    def tell(self, text: object) -> None:
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()

    def end(self) -> str:
        return self.process.communicate(timeout=PATIENCE)[0].strip()


def measure(args: argparse.Namespace, folder: str) -> tuple[list[float], list[float]]:
    """The ratios with / without of each pair of rounds: of the rates, and by CPU time."""
    used = 0.0
    url = f"ipc://{folder}/s" if args.transport == "ipc" else "tcp://127.0.0.1:0"
    receives, sends, reader = Role("sink", url), Role("source", args.size), Role("read")
    reader.line()

    def rates(on: bool) -> tuple[float, float]:
        nonlocal used
        receives.tell(int(on))
        sends.tell(f"{int(on)} {receives.line()} {args.seconds}")
        count, rate, total = map(float, receives.line().split())
        total += float(sends.line())
        spent, used = total - used, total
        return rate, count / spent

    ratios, by_cpu = [], []
    for number in range(args.pairs + 1):
        order = (False, True) if number % 2 else (True, False)
        found = {on: rates(on) for on in order}
        if number:      # the first pair warms up
            ratios.append(found[True][0] / found[False][0])
            by_cpu.append(found[True][1] / found[False][1])
            print(f"{found[False][0]:12,.0f} off {found[True][0]:12,.0f} on   "
                  f"rate {ratios[-1]:.3f}  cpu {by_cpu[-1]:.3f}", file=sys.stderr)
    answers = int(reader.end())
    sends.end()
    receives.end()
    if answers < args.pairs * args.seconds:
        raise SystemExit(f"only {answers} snapshots were read: nothing was measured")
    return ratios, by_cpu


def share(seconds: float) -> float:
    """The share of one core that a monitor takes in a process that does nothing else."""
    idles = [Role("idle", monitored) for monitored in (0, 1)]
    reader = Role("read")
    for role in (*idles, reader):
        role.line()
    time.sleep(seconds)
    used = [float.__truediv__(*map(float, role.end().split())) for role in idles]
    reader.end()
    return used[1] - used[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a round")
    parser.add_argument("--size", type=int, default=16, help="of a message, in bytes")
    parser.add_argument("--transport", choices=("ipc", "tcp"), default="ipc")
    parser.add_argument("--role", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.role:
        {"sink": sink, "source": source, "read": read, "idle": idle}[args.role[0]](*args.role[1:])
        return
    with tempfile.TemporaryDirectory(prefix="mq") as folder:
        os.environ["XDG_RUNTIME_DIR"] = folder
        measured = dict(zip(("rate", "cpu"), measure(args, folder), strict=True))
        core = share(args.pairs * args.seconds / 2)
    print(json.dumps({"pairs": args.pairs, "share_of_a_core": round(core, 5), **{
        name: {"median": round(statistics.median(ratios), 4), "least": round(min(ratios), 4),
               "most": round(max(ratios), 4)} for name, ratios in measured.items()}}))


if __name__ == "__main__":
    main()
