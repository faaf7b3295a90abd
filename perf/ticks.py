"""An event loop at work: what a saturated receive leaves to the other tasks of its loop.

    ticks.py LIBRARY --loop asyncio|uvloop|trio [--seconds X] [--alone]

One task receives from a peer that writes without pause (crowd.py, the same for every candidate); a
second one wants to run every millisecond, and notes how late it was, by an absolute schedule; a
third one again and again starts a receive on a quiet socket, cancels it, and notes how long that
took to end. Prints its URL, then JSON. `--alone`: without the first task.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import os
import time

from asyncs import ASYNC, settled
from candidates import known, load, parse
from libraries import die_with_parent
from pairs import side
from rows import Row
from timing import percentiles

LOOPS = ("asyncio", "uvloop", "trio")
TAKE_PART = {"mqcore": LOOPS, "pyzmq": ("asyncio", "uvloop")}  # pyzmq knows no trio
TCP = "tcp://127.0.0.1:0"
TICK = 0.001
PAUSE = 0.005  # between two cancellations
PENDING = 0.001  # a receive waits so long before it is cancelled
WARM = 1000
GRACE = 0.2  # seconds
clock = time.perf_counter


class Work:
    """What the three tasks share."""

    def __init__(self, seconds: float):
        self.seconds, self.got, self.over = seconds, 0, False
        self.late: list[float] = []
        self.cancelled: list[float] = []

    def begin(self) -> None:
        self.start = clock()
        self.end = self.start + self.seconds

    def result(self) -> dict:
        took, late = clock() - self.start, percentiles(self.late)
        found = {
            "value": late["p99"] * 1e6,
            "p50 us": late["p50"] * 1e6,
            "latest us": self.late[-1] * 1e6,
            "received k/s": self.got / took / 1e3,
        }
        if not self.cancelled:
            return {**found, "mark": "other tasks starve"}
        gone = percentiles(self.cancelled)
        return {**found, "cancelled after us": gone["p50"] * 1e6,
                "at most us": self.cancelled[-1] * 1e6}  # fmt: skip


async def consume(s, work: Work) -> None:
    """Ends by itself if no other task gets a turn."""
    async for _ in messages(s):
        work.got += 1
        if work.over or (work.got % 1000 == 0 and clock() > work.end + GRACE):
            break


def messages(s):
    """As the library's users write it."""
    return s if hasattr(s, "__aiter__") else received(s)


async def received(s):
    while True:
        yield await s.recv()


async def tick(sleep, work: Work) -> None:
    """Ticks that were missed are late too, each by its own due time."""
    due = work.start
    while due < work.end:
        due += TICK
        left = due - clock()
        if left > 0:
            await sleep(left)
        work.late.append(clock() - due)
    work.over = True


class OnAsyncio:
    sleep = staticmethod(asyncio.sleep)

    @staticmethod
    async def cancel(recv, work: Work) -> None:
        while not work.over:
            task = asyncio.ensure_future(recv())
            await asyncio.sleep(PENDING)
            before = clock()
            task.cancel()
            await asyncio.wait([task])
            work.cancelled.append(clock() - before)
            await asyncio.sleep(PAUSE)

    @staticmethod
    async def together(*tasks) -> None:
        await asyncio.gather(*tasks)


class OnTrio:
    @staticmethod
    async def sleep(seconds: float) -> None:
        import trio

        await trio.sleep(seconds)

    @staticmethod
    async def cancel(recv, work: Work) -> None:
        import trio

        while not work.over:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(recv)
                await trio.sleep(PENDING)
                before = clock()
                nursery.cancel_scope.cancel()
            work.cancelled.append(clock() - before)
            await trio.sleep(PAUSE)

    @staticmethod
    async def together(*tasks) -> None:
        import trio

        async with trio.open_nursery() as nursery:
            for task in tasks:
                nursery.start_soon(functools.partial(lambda one: one, task))


async def opened(name: str):
    """The socket that is written to, one that is not, and how each receives."""
    lib = load(name, 16, ASYNC)
    if parse(name).library == "mqcore":
        busy, quiet = lib.mq.socket("pull"), lib.mq.socket("pull")
        end = await busy.abind(TCP)
        await quiet.abind(TCP)
        return busy, end.url, quiet.arecv
    busy, url = await lib.bind("pull", TCP)
    quiet, _ = await lib.bind("pull", TCP)

    async def recv():
        return await settled(quiet.recv())

    return busy, url, recv


async def run(o: argparse.Namespace) -> None:
    on = OnTrio if o.loop == "trio" else OnAsyncio
    s, url, recv_quiet = await opened(o.library)
    print(url, flush=True)
    recv = getattr(s, "arecv", None) or s.recv
    for _ in range(0 if o.alone else WARM):
        await recv()
    work = Work(o.seconds)
    work.begin()
    others = [tick(on.sleep, work), on.cancel(recv_quiet, work)]
    await on.together(*others, *([] if o.alone else [consume(s, work)]))
    print(json.dumps(work.result()), flush=True)
    os._exit(0)


def lateness(loop: str, library: str, seconds: float) -> dict:
    from many import crowd

    with side("ticks.py", library, "--loop", loop, "--seconds", seconds) as t:
        with crowd("push", t.line(), 1):
            return json.loads(t.line())


def cancellation(loop: str, library: str, seconds: float) -> dict:
    with side("ticks.py", library, "--loop", loop, "--seconds", seconds, "--alone") as t:
        t.line()
        found = json.loads(t.line())
    return {"value": found["cancelled after us"], "at most us": found["at most us"]}


def takes(loop: str, library: str) -> bool:
    return loop in TAKE_PART.get(parse(library).library, ())


def rows(quick: bool) -> list[Row]:
    loops = LOOPS[:1] if quick else LOOPS
    found = [
        Row(f"1 ms ticks beside a saturated receive, {loop}", "us late p99", True,
            functools.partial(lateness, loop), functools.partial(takes, loop), 3, "ticks")
        for loop in loops
    ]  # fmt: skip
    return found + [
        Row(f"a pending receive is cancelled, {loop}", "us", True,
            functools.partial(cancellation, loop), functools.partial(takes, loop), 3, "cancel")
        for loop in loops
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("library", type=known)
    parser.add_argument("--loop", choices=LOOPS, required=True)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--alone", action="store_true", help="no receive that saturates the loop")
    options = parser.parse_args()
    die_with_parent()
    if options.loop == "trio":
        import trio

        trio.run(run, options)
    elif options.loop == "uvloop":
        import uvloop

        uvloop.run(run(options))
    else:
        asyncio.run(run(options))


if __name__ == "__main__":
    main()
