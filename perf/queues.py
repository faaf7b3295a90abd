"""Work queues beside beanstalkd and Redis Streams: one producer, four consumers, durable.

    queues.py [--size N ...] [--batch N ...] [--jobs N] [--rounds N] [--quick] [--json FILE]

Every figure is jobs a second, from the producer's first put to the last acknowledgment of all
consumers. Each end is a process with one connection. Servers run as children of this program, with
a temporary folder and a port of the loopback interface, and are stopped after their round. The
candidates take turns within each round, and ratios are taken round by round.

durability  mqcore: fsync="interval", answers after write(2), fsync every 0.1 s. beanstalkd: -b,
            answers after write(2), fsync every 0.05 s (its default). Redis: appendonly,
            appendfsync everysec. All three survive the death of their process.
batch       jobs of one call, the same for all. mqcore: put_many, get_many, ack_many. Redis:
            pipelines of XADD; XREADGROUP COUNT and XACK. beanstalkd has no commands in bulk:
            `beanstalkd` is its Python client greenstalk, a round trip a command;
            `beanstalkd-piped` writes many commands to the socket at once, as no client does.
            With 1, each put, get and ack is confirmed by the server before the next.

It needs the programs beanstalkd and redis-server, and the packages greenstalk and redis. What is
missing is left out, and named.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from libraries import die_with_parent

CONSUMERS = 4
IDLE = 1.0  # seconds without a job after which a consumer ends
START = 20.0
CANDIDATES = ("mqcore", "beanstalkd", "beanstalkd-piped", "redis")
NEEDS = {
    "mqcore": (None, "msgspec"),
    "beanstalkd": ("beanstalkd", "greenstalk"),
    "beanstalkd-piped": ("beanstalkd", None),
    "redis": ("redis-server", "redis"),
}
GOAL = 5.0


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def missing(candidate: str) -> str | None:
    program, package = NEEDS[candidate]
    if program and not shutil.which(program):
        return f"the program {program} is missing"
    if package and importlib.util.find_spec(package) is None:
        return f"the package {package} is missing"
    return None


# -- servers ---------------------------------------------------------------------------------------


def command(candidate: str, port: int, folder: str) -> list[str]:
    if candidate == "mqcore":
        return [sys.executable, __file__, "serve", "--port", str(port), "--folder", folder]
    if candidate == "redis":
        return ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", folder,
                "--save", "", "--appendonly", "yes", "--appendfsync", "everysec",
                "--daemonize", "no"]  # fmt: skip
    return ["beanstalkd", "-l", "127.0.0.1", "-p", str(port), "-b", folder]


@contextlib.contextmanager
def server(candidate: str):
    """Its port, while it runs."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="mqcore-queues-") as folder:
        process = subprocess.Popen(command(candidate, port, folder), stdout=subprocess.DEVNULL)
        try:
            until_open(port, process)
            yield port
        finally:
            process.terminate()
            process.wait()


def until_open(port: int, process: subprocess.Popen) -> None:
    end = time.monotonic() + START
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.02)
    raise SystemExit(f"{list(process.args)[0]!s} does not listen at port {port}")


def serve(o: argparse.Namespace) -> None:
    from mqcore import journal

    with journal.serve_queues(o.folder, f"tcp://127.0.0.1:{o.port}") as running:
        running.wait_stopped()


# -- ends ------------------------------------------------------------------------------------------


class Mqcore:
    def __init__(self, port: int) -> None:
        from mqcore import journal

        self.queue = journal.queue(f"tcp://127.0.0.1:{port}", "bench")
        self.queue.stats()

    def put(self, bodies: list[bytes]) -> None:
        if len(bodies) == 1:
            self.queue.put(bodies[0])
        else:
            self.queue.put_many(bodies)

    def take(self, most: int) -> int:
        """Get and acknowledge; how many."""
        from mqcore import RecvTimeout

        try:
            jobs = self.queue.get_many(most, timeout=IDLE)
        except RecvTimeout:
            return 0
        self.queue.ack_many(jobs)
        return len(jobs)


class Redis:
    def __init__(self, port: int) -> None:
        import redis

        self.redis = redis.Redis(port=port)
        with contextlib.suppress(redis.ResponseError):  # another end has made it
            self.redis.xgroup_create("bench", "g", id="0", mkstream=True)

    def put(self, bodies: list[bytes]) -> None:
        if len(bodies) == 1:
            self.redis.xadd("bench", {"b": bodies[0]})
            return
        pipe = self.redis.pipeline(transaction=False)
        for body in bodies:
            pipe.xadd("bench", {"b": body})
        pipe.execute()

    def take(self, most: int) -> int:
        found: Any = self.redis.xreadgroup("g", str(os.getpid()), {"bench": ">"}, count=most,
                                      block=int(IDLE * 1000))  # fmt: skip
        if not found:
            return 0
        ids = [number for number, _ in found[0][1]]
        self.redis.xack("bench", "g", *ids)
        return len(ids)


class Beanstalkd:
    def __init__(self, port: int) -> None:
        import greenstalk

        self.timed_out = greenstalk.TimedOutError
        self.client = greenstalk.Client(("127.0.0.1", port), encoding=None)

    def put(self, bodies: list[bytes]) -> None:
        for body in bodies:
            self.client.put(body)

    def take(self, most: int) -> int:
        try:
            job = self.client.reserve(timeout=int(IDLE))
        except self.timed_out:
            return 0
        self.client.delete(job)
        return 1


class Piped:
    """beanstalkd by hand: many commands in one write, then their answers."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb", 1 << 16)

    def put(self, bodies: list[bytes]) -> None:
        self.socket.sendall(
            b"".join(b"put 100 0 60 %d\r\n%b\r\n" % (len(body), body) for body in bodies)
        )
        for _ in bodies:
            assert self.file.readline().startswith(b"INSERTED")

    def take(self, most: int) -> int:
        # the first waits, the others take what is there
        self.socket.sendall(b"reserve-with-timeout %d\r\n" % IDLE
                            + b"reserve-with-timeout 0\r\n" * (most - 1))  # fmt: skip
        ids = []
        for _ in range(most):
            line = self.file.readline().split()
            if line[0] == b"RESERVED":
                ids.append(line[1])
                self.file.read(int(line[2]) + 2)
        self.socket.sendall(b"".join(b"delete %b\r\n" % number for number in ids))
        for _ in ids:
            assert self.file.readline() == b"DELETED\r\n"
        return len(ids)


ENDS = {"mqcore": Mqcore, "redis": Redis, "beanstalkd": Beanstalkd, "beanstalkd-piped": Piped}


def put(o: argparse.Namespace) -> None:
    end = ENDS[o.candidate](o.port)
    body = os.urandom(o.size)
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    cpu = time.process_time()
    for at in range(0, o.jobs, o.batch):
        end.put([body] * min(o.batch, o.jobs - at))
    report({"began": began, "ended": time.monotonic(), "cpu": time.process_time() - cpu})


def take(o: argparse.Namespace) -> None:
    end = ENDS[o.candidate](o.port)
    print("ready", flush=True)
    count, last, quiet = 0, 0.0, 0
    cpu = time.process_time()
    while quiet < 3 or not count and quiet < 10:
        n = end.take(o.batch)
        if n:
            count += n
            last = time.monotonic()
            quiet = 0
        else:
            quiet += 1
    report({"count": count, "last": last, "cpu": time.process_time() - cpu})


def report(found: dict) -> None:
    print(json.dumps(found), flush=True)


# -- measuring -------------------------------------------------------------------------------------


def measured(candidate: str, size: int, batch: int, jobs: int) -> dict:
    """One round of one candidate."""
    with server(candidate) as port, contextlib.ExitStack() as stack:
        how = ["--candidate", candidate, "--port", str(port), "--size", str(size), "--jobs",
               str(jobs), "--batch", str(batch)]  # fmt: skip
        ends = []
        for role in ("put", *["take"] * CONSUMERS):
            end = subprocess.Popen([sys.executable, __file__, role, *how], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)  # fmt: skip
            stack.callback(end.wait)
            stack.callback(end.kill)
            ends.append(end)
        for end in ends:
            assert end.stdout.readline() == "ready\n", f"an end of {candidate} has failed"
        ends[0].stdin.write("go\n")
        ends[0].stdin.flush()
        producer, *consumers = [json.loads(end.stdout.readline()) for end in ends]
    count = sum(found["count"] for found in consumers)
    assert count == jobs, f"{candidate}: {count} of {jobs} jobs arrived"
    took = max(found["last"] for found in consumers) - producer["began"]
    ends_cpu = producer["cpu"] + sum(found["cpu"] for found in consumers)
    return {"value": jobs / took, "put": jobs / (producer["ended"] - producer["began"]),
            "client CPU us a job": ends_cpu / jobs * 1e6}  # fmt: skip


def rounds_of(candidates: list[str], size: int, batch: int, o: argparse.Namespace) -> dict:
    found: dict[str, list[dict]] = {name: [] for name in candidates}
    for number in range(o.rounds):
        turn = candidates[number % len(candidates):] + candidates[:number % len(candidates)]
        for candidate in turn:
            slow = candidate == "beanstalkd" or batch == 1
            jobs = o.jobs // 10 if slow else o.jobs
            found[candidate].append(measured(candidate, size, batch, jobs))
    return found


def show(size: int, batch: int, found: dict[str, list[dict]]) -> None:
    print(f"\n{size} B, {batch} a call: jobs/s from the first put to the last acknowledgment")
    ours = [one["value"] for one in found["mqcore"]]
    for name, rows in found.items():
        values = [one["value"] for one in rows]
        more = ""
        if name != "mqcore":
            ratios = [mine / other for mine, other in zip(ours, values, strict=True)]
            middle = statistics.median(ratios)
            goal = "" if name == "beanstalkd-piped" else \
                f"  goal {GOAL:g}: {'reached' if middle >= GOAL else 'missed'}"
            more = f"  mqcore is {middle:.2f} x ({min(ratios):.2f} to {max(ratios):.2f}){goal}"
        put = statistics.median(one["put"] for one in rows)
        print(f"  {name:17} {statistics.median(values):10,.0f}  ({min(values):,.0f} to "
              f"{max(values):,.0f}; put {put:,.0f}){more}")


def main(o: argparse.Namespace) -> None:
    candidates = []
    for name in CANDIDATES:
        why = missing(name)
        if why is None:
            candidates.append(name)
        else:
            print(f"{name} is left out: {why}")
    if "mqcore" not in candidates:
        raise SystemExit("mqcore's queues need the package msgspec")
    results = []
    for batch in o.batches:
        for size in o.sizes:
            found = rounds_of(candidates, size, batch, o)
            show(size, batch, found)
            results.append({"size": size, "batch": batch, "runs": found})
    if o.json:
        Path(o.json).write_text(json.dumps(results, indent=1))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("role", nargs="?", default="run", choices=("run", "serve", "put", "take"))
    parser.add_argument("--sizes", "--size", nargs="+", type=int, default=[16, 1024])
    parser.add_argument("--batches", "--batch", nargs="+", type=int, default=[1000, 100, 1])
    parser.add_argument("--jobs", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round of few jobs")
    parser.add_argument("--json", metavar="FILE")
    for name in ("--candidate", "--folder"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    found = parser.parse_args()
    if found.quick:
        found.jobs, found.rounds = min(found.jobs, 2000), 1
    if found.role != "run":
        found.size, found.batch = found.sizes[0], found.batches[0]
    return found


if __name__ == "__main__":
    options = arguments()
    if options.role == "run":
        main(options)
    else:
        die_with_parent()
        {"serve": serve, "put": put, "take": take}[options.role](options)
