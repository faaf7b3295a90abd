"""Many peers: fan-out, fan-in, fairness, devices, idle connections, subscriptions; side by side.

    many.py [--what fan-out|fan-in|io-threads|quiet|device|connections|subscriptions] [--row TEXT]
            [--lib mqcore --lib pyzmq ...] [--rounds N] [--seconds X] [--quick] [--even-if-busy]
            [--name NAME] [--folder PATH]

The candidate is one end, alone in its process; the other is a crowd of plain sockets (crowd.py),
the same for all. A device is a third process between two ends of its library. Nothing is pinned:
on one core, a library with a thread of its own would fight with its caller for it.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable

import versus
from candidates import parse
from pairs import Case, Process, cores, side, trip_result
from rows import Row, Unfit, main_of

ZMTP = ("mqcore", "pyzmq", "pyomq")
# pyomq got nothing to us in this row; whose fault it is, is open
TAKE_PART = {"subscriptions": ("mqcore", "pyzmq"), "io-threads": ("mqcore",)}
IO_CORES = 16
LONG = 120.0
QUICK = ("through a device, one way", "fan-out to 10,", "fan-in from 100,", "99 quiet")


def jain(shares: list[float]) -> float:
    """1: everybody has the same; 1/n: one has everything."""
    squares = sum(x * x for x in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 0.0


def hub(library: str, role: str, size: int = 16, seconds: float = 1.0) -> Process:
    return side("hub.py", library, role, "--size", size, "--seconds", seconds)


def crowd(role: str, url: str, peers: int, size: int = 16, seconds: float = 1.0) -> Process:
    return Process(
        "crowd.py", role, "--url", url, "--peers", peers, "--size", size, "--seconds", seconds
    )


def fan_out(peers: int, size: int, library: str, seconds: float) -> dict:
    with hub(library, "pub", size) as h, crowd("subscribe", h.line(), peers, size, seconds) as c:
        c.line()
        there, here = h.result(), c.result()
    rate = sum(here["rates"])
    return {"value": rate, "Jain's index": jain(here["rates"]), "calls of send/s": there["sent"],
            "CPU s per million": there["cpu"] / rate * 1e6}  # fmt: skip


def fan_in(peers: int, size: int, library: str, seconds: float) -> dict:
    with hub(library, "pull", size, seconds) as h, crowd("push", h.line(), peers, size) as c:
        h.line()
        c.result()
        found = h.result()
    shares = found["shares"] + [0] * (peers - len(found["shares"]))
    return {"value": found["value"], "Jain's index": jain(shares),
            "CPU s per million": found["cpu"] / found["value"] * 1e6}  # fmt: skip


def io_threads(peers: int, threads: int, size: int, library: str, seconds: float) -> dict:
    """How many times as much the connections of one socket bring with so many I/O threads."""
    if len(cores()) < IO_CORES:
        raise Unfit(f"not measured: it needs {IO_CORES} cores")
    one, all_ = (gathered(library, seconds, peers, n, size) for n in (1, threads))
    return {"value": all_["value"] / one["value"], "with one /s": one["value"],
            "CPU s per million": all_["cpu"] / all_["value"] * 1e6}  # fmt: skip


def gathered(library: str, seconds: float, peers: int, threads: int, size: int) -> dict:
    """Each peer a process of its own: one for all would be the limit."""
    with contextlib.ExitStack() as stack:
        h = stack.enter_context(
            side("hub.py", library, "gather", "--seconds", seconds, "--io-threads", threads)
        )
        url = h.line()
        crowds = [stack.enter_context(crowd("push", url, 1, size)) for _ in range(peers)]
        h.line()
        for c in crowds:
            c.result()
        return h.result()


def quiet(peers: int, library: str, seconds: float) -> dict:
    """What a flooding peer costs those that say little: their p99 with it and without."""
    alone = quiet_p99(library, seconds, peers)
    beside = quiet_p99(library, seconds, peers, flooders=1)
    return {"value": beside * 1e6, "without it": alone * 1e6, "times": beside / alone}


def quiet_p99(library: str, seconds: float, peers: int, flooders: int = 0) -> float:
    with hub(library, "delays", 16, seconds) as h:
        url = h.line()
        with crowd("quiet", url, peers) as c, crowd("push", url, flooders) as f:
            h.line()
            c.result()
            f.result()
            return h.result()["p99"]


def connections(peers: int, library: str, seconds: float) -> dict:
    with hub(library, "idle") as h, crowd("idle", h.line(), peers) as c:
        c.line(LONG)
        h.tell("connected")
        h.line(LONG)
        there, here = h.result(LONG), c.result(LONG)
    return {"value": there["bytes"] / peers, "connections/s": peers / here["seconds"]}


def subscriptions(number: int, library: str, seconds: float) -> dict:
    with hub(library, "topics", seconds=seconds) as h, crowd("topics", h.line(), number) as c:
        c.line(LONG)
        h.tell("subscribed")
        h.line(LONG)
        there, here = h.result(LONG), c.result(LONG)
    return {"value": there["match"] * 1e9, "ns of CPU": there["match_cpu"] * 1e9,
            "subscribe ms": here["seconds"] * 1e3, "MiB": there["bytes"] / (1 << 20)}  # fmt: skip


def device(kind: str, size: int, library: str, seconds: float) -> dict:
    """Both ends connect to the device; how many messages is found as for pairs, once."""
    first = versus.FIRST[kind]
    found = through(library, kind, size, first if seconds > 0.05 else first // 10)
    if seconds > 0.05:
        count = max(first, int(first * seconds / found["seconds"]))
        found = through(library, kind, size, count)
    if kind == "lat":
        return {"value": found["value"] * 1e6, "p99 us": found["p99"] * 1e6,
                "CPU s per million": found["cpu"] * 1e6}  # fmt: skip
    return {"value": found["count"] / found["seconds"], "CPU s per million": found["cpu"] * 1e6}


def through(library: str, kind: str, size: int, count: int) -> dict:
    case = Case(kind, "tcp", size)
    listens, connects = ("echo", "ask") if kind == "lat" else ("sink", "source")
    common = ("--size", case.size, "--count", count)
    with side("hub.py", library, "broker" if kind == "lat" else "forward") as d:
        front, back = d.line().split()
        with side("ends.py", library, listens, "--dial", "--url", back, *common) as first:
            first.line()
            with side("ends.py", library, connects, "--url", front, *common) as second:
                for process in (first, second):
                    process.line(LONG)
                here, there = first.result(), second.result()
        cpu = (here["cpu"] + there["cpu"] + d.result()["cpu"]) / count
    return trip_result(there, cpu) if kind == "lat" else {**here, "count": count, "cpu": cpu}


def takes(what: str, library: str) -> bool:
    return parse(library).library in TAKE_PART.get(what, ZMTP)


def rows(quick: bool) -> list[Row]:
    """Ordered by weight: with little time, the last ones are missing."""

    def row(what: str, name: str, unit: str, run: Callable, *detail: object, less=True, rounds=5):
        return Row(name, unit, less, functools.partial(run, *detail),
                   functools.partial(takes, what), rounds, what)  # fmt: skip

    few, faster = "bytes a connection", {"less": False}
    found = [
        row("device", "through a device, one way, 128 B", "/s", device, "thr", 128, **faster),
        row("device", "through a device, round trip, 128 B", "us", device, "lat", 128),
        *(
            row("fan-out", f"fan-out to {n}, {size} B", "deliveries/s", fan_out, n, size, **faster)
            for n, size in ((1, 16), (10, 16), (100, 16), (100, 1024))
        ),
        *(
            row("fan-in", f"fan-in from {n:,}, 16 B", "/s", fan_in, n, 16, rounds=rounds, **faster)
            for n, rounds in ((100, 5), (1, 3), (4000, 3))
        ),
        row("io-threads", "8 peers, 1 KiB, 4 I/O threads to 1", "times", io_threads, 8, 4, 1024,
            **faster),
        row("quiet", "99 quiet peers beside a flooding one", "us p99", quiet, 99, rounds=3),
        *(
            row("connections", f"{n:,} idle connections, memory", few, connections, n, rounds=3)
            for n in (1, 1000, 10_000)
        ),
        *(
            row("subscriptions", f"{n:,} subscriptions, no match", "ns", subscriptions, n,
                rounds=rounds)
            for n, rounds in ((10, 3), (10_000, 3), (1_000_000, 1))
        ),
    ]  # fmt: skip
    return [r for r in found if r.name.startswith(QUICK)] if quick else found


if __name__ == "__main__":
    sys.exit(main_of(__doc__, "many", rows))
