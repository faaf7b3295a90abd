"""Ends of unpinned.py, each a process that the scheduler places as it likes.

    unpinned_ends.py LIBRARY relay --url URL [--take URL]      receives on a PULL, sends on a PUSH
    unpinned_ends.py LIBRARY trip  --give URL --take URL       there and back over two sockets
    unpinned_ends.py LIBRARY answer --url URL --kind rep|router
    unpinned_ends.py LIBRARY ask   --give URL --kind req|dealer
    unpinned_ends.py LIBRARY polled --give URL --take URL --sockets N
    unpinned_ends.py LIBRARY shout --url URL --plan RATE:SECONDS[,...]   publishes by a schedule
    unpinned_ends.py LIBRARY pour  --give URL --plan RATE:SECONDS[,...]  sends on a DEALER
    unpinned_ends.py LIBRARY catch --url URL --plan RATE:SECONDS[,...]   receives on a ROUTER
    unpinned_ends.py LIBRARY hear  --give URL --plan RATE:SECONDS[,...]  subscribes, and measures
    unpinned_ends.py LIBRARY gather --url URL --plan RATE:SECONDS[,...]  receives in an asyncio task

Ends that bind print their URLs as the first line. Those that measure take `--seconds`; they warm
up first, and print one line of JSON. `--calls asyncio` runs `relay`, `trip` and `gather` under
asyncio.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import os
import sys
import time
from array import array

import stamped
from beside import sharp_sleep
from candidates import known, load
from libraries import die_with_parent
from timing import bodies, percentiles

WARM = 0.2  # seconds
PROBE = -2  # a stamp that only says that there is a connection
PROBES, PROBE_PAUSE = 300, 0.001


def say(line: str) -> None:
    print(line, flush=True)


def pull_and_push(lib, o):
    """The two sockets of a relay, one of which may be connected to the relay before it."""
    push, there = lib.bind("push", o.url)
    if o.take:
        return lib.connect("pull", o.take), push, there
    pull, here = lib.bind("pull", o.url)
    return pull, push, f"{here} {there}"


def relay(lib, o):
    pull, push, urls = pull_and_push(lib, o)
    say(urls)
    recv, send = pull.recv, push.send
    while True:
        send(recv())


def timed(trip, seconds: float) -> dict:
    """Round trips for so long, after some that do not count."""
    clock, found = time.perf_counter, array("d")
    body = bodies(64)[0]
    end = clock() + WARM
    while clock() < end:
        trip(body)
    end = clock() + seconds
    while (before := clock()) < end:
        trip(body)
        found.append(clock() - before)
    return {**percentiles(sorted(found)), "count": len(found)}


def trip(lib, o) -> dict:
    push, pull = lib.connect("push", o.give), lib.connect("pull", o.take)
    send, recv = push.send, pull.recv

    def there_and_back(body):
        send(body)
        recv()

    return timed(there_and_back, o.seconds)


def answer(lib, o):
    s, url = lib.bind(o.kind, o.url)
    say(url)
    if o.kind == "router":
        s = lib.parts(s)
    recv, send = s.recv, s.send
    while True:
        send(recv())


def ask(lib, o) -> dict:
    return timed(lib.trip(lib.connect(o.kind, o.give)), o.seconds)


def polled(lib, o) -> dict:
    """One of many sockets that are polled is active."""
    push, pull = lib.connect("push", o.give), lib.connect("pull", o.take)
    idle = [lib.bind("pull", "tcp://127.0.0.1:0")[0] for _ in range(o.sockets - 1)]
    send, recv, wait = push.send, pull.recv, lib.poller([*idle, pull])

    def there_and_back(body):
        send(body)
        wait()
        recv()

    return timed(there_and_back, o.seconds)


def shout(lib, o) -> dict:
    sharp_sleep()
    s, url = lib.bind("pub", o.url)
    say(url)
    sys.stdin.readline()
    rest = next(stamped.fillings(o.size))
    for _ in range(PROBES):
        s.send(stamped.STAMP.pack(PROBE) + rest)
        time.sleep(PROBE_PAUSE)
    stamped.send_by(s.send, o.plan, stamped.fillings(o.size))
    return {}


def hear(lib, o) -> dict:
    s = lib.subscribed(o.give)
    say("there")
    delays = stamped.collect(s.recv, PROBE)
    return list(stamped.pieces(o.plan, delays))[-1]


def pour(lib, o) -> dict:
    sharp_sleep()
    stamped.send_by(lib.connect("dealer", o.give).send, o.plan, stamped.fillings(o.size))
    return {}


def catch(lib, o) -> dict:
    s, url = lib.bind("router", o.url)
    say(url)
    recv = lib.parts(s).recv
    return list(stamped.pieces(o.plan, stamped.collect(lambda: recv()[-1])))[-1]


async def arelay(lib, o):
    pull, here = await settled(lib.bind("pull", o.url))
    push, there = await settled(lib.bind("push", o.url))
    say(f"{here} {there}")
    while True:
        await settled(push.send(await settled(pull.recv())))


async def settled(value):
    return await value if inspect.isawaitable(value) else value


async def atrip(lib, o) -> dict:
    push = await settled(lib.connect("push", o.give))
    pull = await settled(lib.connect("pull", o.take))
    clock, found, body = time.perf_counter, array("d"), bodies(64)[0]
    start = clock()
    while (before := clock()) < start + WARM + o.seconds:
        await settled(push.send(body))
        await settled(pull.recv())
        if before > start + WARM:
            found.append(clock() - before)
    return {**percentiles(sorted(found)), "count": len(found)}


async def agather(lib, o) -> dict:
    """A task that does nothing but receive what stamped.py sends by its schedule."""
    pull, url = await settled(lib.bind("pull", o.url))
    say(url)
    clock, unpack, delays = time.monotonic_ns, stamped.STAMP.unpack_from, array("q")
    while True:
        body = await settled(pull.recv())
        now = clock()
        stamp = unpack(body)[0]
        if stamp == stamped.END:
            return list(stamped.pieces(o.plan, delays))[-1]
        delays.append(now - stamp)


ROLES = {"relay": relay, "trip": trip, "answer": answer, "ask": ask, "polled": polled,
         "shout": shout, "hear": hear, "pour": pour, "catch": catch, "gather": None}  # fmt: skip
ASYNC = {"relay": arelay, "trip": atrip, "gather": agather}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("library", type=known)
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("--url", default="tcp://127.0.0.1:0")
    parser.add_argument("--give")
    parser.add_argument("--take")
    parser.add_argument("--kind")
    parser.add_argument("--sockets", type=int, default=1)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--plan", type=stamped.plan_of)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--calls", default="plain", choices=("plain", "asyncio"))
    o = parser.parse_args()
    die_with_parent()
    if o.calls == "asyncio":
        import asyncs

        found = asyncio.run(ASYNC[o.role](load(o.library, table=asyncs.ASYNC), o))
    else:
        found = ROLES[o.role](load(o.library, o.size), o)
    say(json.dumps(found))
    sys.stdin.read()  # what is still to be written is, until the other end has it all
    os._exit(0)


if __name__ == "__main__":
    main()
