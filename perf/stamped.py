"""Ends whose messages carry the time at which they were to be sent (CLOCK_MONOTONIC, which all
processes share), so that the receiver knows how long each was on its way.

    stamped.py LIBRARY sink  --url URL --plan RATE:SECONDS[,...] [--size N]
    stamped.py LIBRARY pace  --url URL --plan RATE:SECONDS[,...] [--size N]
    stamped.py LIBRARY drain --url URL --count N [--size N] reads when told, not before
    stamped.py LIBRARY hoard --url URL --count N [--size N] sends all, and one more when told

A piece of a plan may be RATE:SECONDS:BURST: so many messages are due at a time, then a pause.
`sink` and `drain` listen and print their URL. `pace` sends by an absolute schedule: a message that
is sent late, because the one before it took long, is late by the stamp too. Otherwise a library
that stalls would be measured by the few messages that it let out meanwhile.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import struct
import sys
import time
from array import array
from typing import NamedTuple

from beside import sharp_sleep
from candidates import known, load
from libraries import die_with_parent
from timing import bodies, percentiles

STAMP = struct.Struct("<q")
END = -1  # instead of a stamp
LEAD_NS = 20_000_000  # from being told to the first message
LATE_NS = 300_000_000  # do not wait for a load that the candidate cannot carry


class Piece(NamedTuple):
    """Of a plan: so many messages a second, for so long, so many of them at a time."""

    rate: float
    seconds: float
    burst: float = 1

    @property
    def total(self) -> int:
        return max(20, int(self.rate * self.seconds))


def plan_of(text: str) -> list[Piece]:
    return [Piece(*map(float, piece.split(":"))) for piece in text.split(",")]


def say(line: str) -> None:
    print(line, flush=True)


def fillings(size: int):
    """What stands behind the stamps, different from one message to the next."""
    return itertools.cycle([body[STAMP.size :] for body in bodies(size)])


def schedule(plan: list[Piece], start: int):
    for piece in plan:
        gap, burst = 1e9 / piece.rate, int(piece.burst)
        for i in range(piece.total):
            yield start + int(i // burst * burst * gap)
        start += int(piece.total * gap)


def pace(lib, o: argparse.Namespace) -> dict:
    """Sleeps until a message is due, and sends all that are: a loop that waits awake would take
    a core from the libraries' own threads."""
    sharp_sleep()
    send_by(lib.connect("push", o.url).send, o.plan, fillings(o.size))
    return {}


def send_by(send, plan: list[Piece], rest) -> None:
    clock, pack = time.monotonic_ns, STAMP.pack
    start = clock() + LEAD_NS
    for due in schedule(plan, start):
        left = due - clock()
        if left > 0:
            time.sleep(left / 1e9)
        elif left < -LATE_NS:
            break
        send(pack(due) + next(rest))
    send(pack(END) + next(rest))


def sink(lib, o: argparse.Namespace) -> dict:
    s, url = lib.bind("pull", o.url)
    say(url)
    delays = collect(s.recv)
    cpu = time.process_time()  # without what follows
    return {"pieces": list(pieces(o.plan, delays)), "count": len(delays), "cpu": cpu}


def collect(recv, ignored: int = END) -> array:
    """How long each message was on its way, until the last one."""
    clock, unpack, delays = time.monotonic_ns, STAMP.unpack_from, array("q")
    keep = delays.append
    while True:
        body = recv()
        now = clock()
        stamp = unpack(body)[0]
        if stamp == END:
            return delays
        if stamp != ignored:
            keep(now - stamp)


def pieces(plan: list[Piece], delays: array):
    """By piece of the plan: messages arrive in order. A load was carried if its last messages were
    not later than a twentieth of the time that the piece took, and none is missing."""
    at = 0
    for piece in plan:
        some = delays[at : at + piece.total]
        at += piece.total
        if not some:
            yield {"carried": False}
            continue
        tail = sorted(some[-max(1, len(some) // 20) :])
        limit = piece.seconds * 1e9 / 20
        carried = len(some) == piece.total and tail[len(tail) // 2] < limit
        found = percentiles([delay / 1e9 for delay in some])
        yield {**found, "max": max(some) / 1e9, "carried": carried}


def hoard(lib, o: argparse.Namespace) -> dict:
    s = lib.connect("push", o.url)
    send, rest, pack = s.send, fillings(o.size), STAMP.pack
    start = time.monotonic_ns()
    for i in range(o.count):
        send(pack(i) + next(rest))
    seconds = (time.monotonic_ns() - start) / 1e9
    say("queued")
    sys.stdin.readline()
    send(pack(time.monotonic_ns()) + next(rest))
    return {"seconds": seconds}


def drain(lib, o: argparse.Namespace) -> dict:
    s, url = lib.bind("pull", o.url)
    say(url)
    sys.stdin.readline()
    recv, start = s.recv, time.monotonic_ns()
    recv()
    first = time.monotonic_ns()
    for _ in range(o.count - 1):
        recv()
    last = time.monotonic_ns()
    stamp = STAMP.unpack_from(recv())[0]
    probe = time.monotonic_ns() - stamp
    return {"first": (first - start) / 1e9, "drain": (last - start) / 1e9, "probe": probe / 1e9}


ROLES = {"pace": pace, "sink": sink, "hoard": hoard, "drain": drain}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("library", type=known)
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("--url", required=True)
    parser.add_argument("--plan", type=plan_of)
    parser.add_argument("--count", type=int)
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--cpu", type=int)
    options = parser.parse_args()
    die_with_parent()
    if options.cpu is not None:
        os.sched_setaffinity(0, {options.cpu})
    library = load(options.library, options.size)
    cpu = time.process_time()
    result = ROLES[options.role](library, options)
    if options.role in ("pace", "hoard"):  # what is still to be written is, until it is all there
        say("done")
        sys.stdin.read()
    result["cpu"] = result.get("cpu", time.process_time()) - cpu
    say(json.dumps(result))
    os._exit(0)


if __name__ == "__main__":
    main()
