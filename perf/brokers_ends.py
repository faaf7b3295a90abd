"""One end of a measurement of brokers.py, a process of its own, told what to do line by line.

    brokers_ends.py SYSTEM put|take --url URL [--size N]
    brokers_ends.py SYSTEM serve --folder PATH          mqcore's own servers

An end prints its address when it is ready. Then it reads orders, a line of JSON each, and answers
each with a line of JSON. `take` must have its order before `put` has: it says "armed".

    {"do": "rate", "count": N}                  N messages as fast as they go
    {"do": "paced", "rate": R, "count": N}      N messages by a schedule; rate 0: all at once

A message of `paced` carries the moment at which it was due (CLOCK_MONOTONIC, which all processes
share). One that is sent late is late by its stamp as well, so a system that stalls is not measured
by the few messages that it let through meanwhile.
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
from typing import Any

from beside import sharp_sleep
from libraries import die_with_parent
from systems import SYSTEMS
from systems.system import BATCH, System
from timing import bodies, percentiles

STAMP = struct.Struct("<q")
END = -1                    # instead of a stamp
LEAD_NS = 20_000_000        # from the order to the first message
LATE_NS = 500_000_000       # a producer so far behind its schedule gives up
BEHIND_NS = 250_000_000     # and a load whose last messages are so late was not carried


def say(what: Any) -> None:
    print(what if isinstance(what, str) else json.dumps(what), flush=True)


def lists(some: list[bytes], count: int) -> Any:
    """`count` bodies, in lists of at most BATCH."""
    cycle = itertools.cycle(some)
    for left in range(count, 0, -BATCH):
        yield list(itertools.islice(cycle, min(BATCH, left)))


class Put:
    def __init__(self, system: System, size: int) -> None:
        self.system = system
        self.bodies = bodies(size)
        system.connect()

    def rate(self, order: dict[str, Any]) -> dict[str, Any]:
        """`sent`: the client has taken the last one; `ended`: it is confirmed, if it ever is."""
        send = self.system.send
        some = list(lists(self.bodies, min(order["count"], len(self.bodies) // BATCH * BATCH)))
        left = order["count"]
        began = time.monotonic()
        for body in itertools.cycle(some):
            if left < BATCH:
                break
            send(body)
            left -= BATCH
        if left:
            send(some[0][:left])
        self.system.push()
        sent = time.monotonic()
        self.system.finish()
        return {"began": began, "sent": sent, "ended": time.monotonic()}

    def paced(self, order: dict[str, Any]) -> dict[str, Any]:
        """Sleeps until a message is due, and sends all that are."""
        system, clock, pack = self.system, time.monotonic_ns, STAMP.pack
        rest = itertools.cycle([body[STAMP.size:] for body in self.bodies])
        count, gap = order["count"], 1e9 / order["rate"] if order["rate"] else 0.0
        start, at = clock() + LEAD_NS, 0
        while at < count:
            now = clock()
            due = start + int(at * gap)
            if now < due:
                system.push()
                time.sleep(max(0, due - clock()) / 1e9)
                continue
            if gap and now - due > LATE_NS:
                break
            some = []
            while at < count and len(some) < BATCH and (due := start + int(at * gap)) <= now:
                some.append(pack(due) + next(rest))
                at += 1
            system.send(some)
        system.send([pack(END) + next(rest)])
        system.push()
        system.finish()
        return {"sent": at}


class Taker:
    def __init__(self, system: System, size: int) -> None:
        self.system = system

    def rate(self, order: dict[str, Any]) -> dict[str, Any]:
        count, clock = order["count"], time.monotonic
        got, first, last = 0, 0.0, 0.0

        def take(_: Any) -> bool:
            nonlocal got, first, last
            got += 1
            if got == 1:
                first = clock()
            if got < count:
                return False
            last = clock()
            return True

        self.system.consume(take)
        return {"first": first, "last": last}

    def paced(self, order: dict[str, Any]) -> dict[str, Any]:
        clock, unpack, delays = time.monotonic_ns, STAMP.unpack_from, array("q")
        keep = delays.append

        def take(body: Any) -> bool:
            now = clock()
            stamp = unpack(body)[0]
            if stamp == END:
                return True
            keep(now - stamp)
            return False

        self.system.consume(take)
        if not delays:
            return {"carried": False}
        tail = sorted(delays[-max(1, len(delays) // 20):])
        carried = len(delays) == order["count"] and tail[len(tail) // 2] < BEHIND_NS
        return {**percentiles([delay / 1e9 for delay in delays]), "max": max(delays) / 1e9,
                "carried": carried or not order["rate"], "count": len(delays)}  # fmt: skip


def obey(end: Any, armed: bool) -> None:
    for line in sys.stdin:
        order = json.loads(line)
        if armed:
            say("armed")
        cpu = time.process_time()
        found = getattr(end, order["do"])(order)
        say({**found, "cpu": time.process_time() - cpu})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("role", choices=("put", "take", "serve"))
    parser.add_argument("--url", default="")
    parser.add_argument("--folder", default="")
    parser.add_argument("--size", type=int, default=1024)
    options = parser.parse_args()
    die_with_parent()
    kind: Any = SYSTEMS[options.system]
    if options.role == "serve":
        kind.serve(options.folder)
        return
    sharp_sleep()
    system = kind(options.url)
    if options.role == "put":
        end: Any = Put(system, options.size)
        say("ready")
    else:
        end = Taker(system, options.size)
        say(system.listen())
    obey(end, options.role == "take")
    os._exit(0)     # nothing of a client's own teardown is waited for


if __name__ == "__main__":
    main()
