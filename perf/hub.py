"""The end that is measured against a crowd, and the device in a third process.

    hub.py LIBRARY pub|pull|delays|idle|topics [--size N] [--seconds X]
    hub.py mqcore gather [--io-threads N]         receives in batches, with N I/O threads
    hub.py LIBRARY forward|broker         a device: pull to push, router to dealer

Prints its URL (a device: both), reads its next steps line by line from standard input, and prints
JSON at its end.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import select
import sys
import time

from candidates import known, load
from crowd import END
from libraries import die_with_parent
from timing import endless, percentiles

TCP = "tcp://127.0.0.1:0"
DEVICES = {"forward": ("pull", "push"), "broker": ("router", "dealer")}
WARM = 20_000
QUIET_WARM = 200
LONGEST = 10.0  # seconds until the quiet ones are heard
DIFFERENT = 1 << 16


def say(line: str) -> None:
    print(line, flush=True)


def told() -> bool:
    """Has standard input ended, or is there a line?"""
    return bool(select.select([0], [], [], 0)[0])


def resident() -> int:
    """Bytes of memory that this process has for itself and really in use."""
    with open("/proc/self/smaps_rollup") as lines:
        found = {line.split(":")[0]: line.split()[1] for line in lines if line.endswith("kB\n")}
    return 1024 * sum(int(found[key]) for key in ("Private_Dirty", "Private_Clean"))


def pub(lib, o: argparse.Namespace) -> dict:
    """Publishes as fast as it can until told."""
    s, url = lib.bind("pub", TCP)
    say(url)
    texts, sent = endless(o.size), 0
    start, cpu = time.perf_counter(), time.process_time()
    while not told():
        for body in itertools.islice(texts, 256):
            s.send(body)
        sent += 256
    seconds = time.perf_counter() - start
    return {"sent": sent / seconds, "cpu": (time.process_time() - cpu) / seconds}


def gather(lib, o: argparse.Namespace) -> dict:
    """Batches for a while, so that I/O threads have more to do than the caller."""
    lib.context = lib.mq.Context(io_threads=o.io_threads)
    s, url = lib.bind("pull", TCP)
    say(url)
    count = 0
    while count < WARM:
        count += len(s.recv_batch())
    start, cpu, count = time.perf_counter(), time.process_time(), 0
    end = start + o.seconds
    while (now := time.perf_counter()) < end:
        count += len(s.recv_batch())
    cpu = (time.process_time() - cpu) / (now - start)
    say("done")
    sys.stdin.read()
    return {"value": count / (now - start), "cpu": cpu}


def pull(lib, o: argparse.Namespace) -> dict:
    """Whose message each was, for a while."""
    s, url = lib.bind("pull", TCP)
    say(url)
    recv, got = s.recv, {}
    for _ in range(WARM):
        recv()
    start, cpu, count = time.perf_counter(), time.process_time(), 0
    end = start + o.seconds
    while (now := time.perf_counter()) < end:
        for _ in range(256):
            name = recv()[:2]
            got[name] = got.get(name, 0) + 1
        count += 256
    cpu = (time.process_time() - cpu) / (now - start)
    say("done")
    sys.stdin.read()
    return {"value": count / (now - start), "cpu": cpu, "shares": list(got.values())}


def delays(lib, o: argparse.Namespace) -> dict:
    """How long the messages of the quiet peers were on their way; a flooder's begin with zeros."""
    s, url = lib.bind("pull", TCP)
    say(url)
    recv, clock, found, warm = s.recv, time.monotonic_ns, [], QUIET_WARM
    end = clock() + int(LONGEST * 1e9)
    while (now := clock()) < end:
        body = recv()
        if body[:2] == b"\0\0":
            continue
        now = clock()
        if warm:
            warm -= 1
            end = now + int(o.seconds * 1e9)
        else:
            found.append((now - int.from_bytes(body[2:10], "little")) / 1e9)
    say("done")
    sys.stdin.read()
    return percentiles(found)


def idle(lib, o: argparse.Namespace) -> dict:
    s, url = lib.bind("pull", TCP)
    before = resident()
    say(url)
    sys.stdin.readline()  # everybody is connected
    time.sleep(0.2)  # and its buffers are where they will be
    after = resident()
    say("done")
    sys.stdin.read()
    del s
    return {"bytes": after - before}


def topics(lib, o: argparse.Namespace) -> dict:
    """Publishes the last topic until the peer says it has got it: then it has got all of them."""
    s, url = lib.bind("pub", TCP)
    before = resident()
    say(url)
    while not told():
        s.send(END)
        time.sleep(0.0005)
    sys.stdin.readline()
    used, cost = resident() - before, match_cost(s, o.seconds)
    say("done")
    sys.stdin.read()
    return {"bytes": used, **cost}


def match_cost(s, seconds: float) -> dict:
    """The cost of messages without a subscriber: nothing is written, so it is the cost of matching.
    There are enough different messages that each looks up its topic in another part of memory."""
    dice, count = random.Random(7), 0
    texts = itertools.cycle([dice.randbytes(64) for _ in range(DIFFERENT)])
    start, cpu = time.perf_counter(), time.process_time()
    end = start + seconds
    while (now := time.perf_counter()) < end:
        for body in itertools.islice(texts, 256):
            s.send(body)
        count += 256
    return {"match": (now - start) / count, "match_cpu": (time.process_time() - cpu) / count}


def device(lib, o: argparse.Namespace) -> dict:
    (front, here), (back, there) = (lib.bind(kind, TCP) for kind in DEVICES[o.role])
    say(f"{here} {there}")
    cpu = time.process_time()
    if hasattr(lib, "mq"):
        lib.mq.device(front, back)
    else:
        import threading

        threading.Thread(target=lib.zmq.proxy, args=(front, back), daemon=True).start()
    sys.stdin.read()
    return {"cpu": time.process_time() - cpu}


ROLES = {
    "pub": pub,
    "pull": pull,
    "gather": gather,
    "delays": delays,
    "idle": idle,
    "topics": topics,
    "forward": device,
    "broker": device,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("library", type=known)
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--cpu", type=int)
    parser.add_argument("--io-threads", type=int, default=1)
    options = parser.parse_args()
    die_with_parent()
    if options.cpu is not None:
        os.sched_setaffinity(0, {options.cpu})
    say(json.dumps(ROLES[options.role](load(options.library), options)))
    os._exit(0)


if __name__ == "__main__":
    main()
