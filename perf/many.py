"""Many peers: fan-out, fan-in, devices, idle connections, subscriptions; side by side in rounds.

    many.py [--what fan-out|fan-in|device|connections|subscriptions] [--lib mqcore --lib pyzmq ...]
            [--rounds N] [--seconds X] [--small] [--even-if-busy] [--name NAME] [--folder PATH]

The candidate is one end, alone in its process; the other is a crowd of plain sockets (crowd.py),
the same for all. A device is a third process between two ends of its library. Nothing is pinned:
on one core, a library with a thread of its own would fight with its caller for it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import NamedTuple

import report
import versus
from candidates import parse
from pairs import Case, Process, machine, quiet_or_exit, side, trip_result

ZMTP = ("mqcore", "pyzmq", "pyomq")
# pyomq got nothing to us in this row; whose fault it is, is open
TAKE_PART = {"subscriptions": ("mqcore", "pyzmq")}
LONG = 120.0
LARGEST = ("10,000 idle connections, memory", "1,000,000 subscriptions, no match")


class Scenario(NamedTuple):
    what: str
    name: str
    unit: str
    less_is_better: bool
    detail: tuple
    rounds: int  # at most


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


def fan_out(library: str, seconds: float, peers: int, size: int) -> dict:
    with hub(library, "pub", size) as h, crowd("subscribe", h.line(), peers, size, seconds) as c:
        c.line()
        there, here = h.result(), c.result()
    rate = sum(here["rates"])
    return {"value": rate, "Jain's index": jain(here["rates"]), "calls of send/s": there["sent"],
            "CPU s per million": there["cpu"] / rate * 1e6}  # fmt: skip


def fan_in(library: str, seconds: float, peers: int, size: int) -> dict:
    with hub(library, "pull", size, seconds) as h, crowd("push", h.line(), peers, size) as c:
        h.line()
        c.result()
        found = h.result()
    shares = found["shares"] + [0] * (peers - len(found["shares"]))
    return {"value": found["value"], "Jain's index": jain(shares),
            "CPU s per million": found["cpu"] / found["value"] * 1e6}  # fmt: skip


def connections(library: str, seconds: float, peers: int) -> dict:
    with hub(library, "idle") as h, crowd("idle", h.line(), peers) as c:
        c.line(LONG)
        h.tell("connected")
        h.line(LONG)
        there, here = h.result(LONG), c.result(LONG)
    return {"value": there["bytes"] / peers, "connections/s": peers / here["seconds"]}


def subscriptions(library: str, seconds: float, number: int) -> dict:
    with hub(library, "topics", seconds=seconds) as h, crowd("topics", h.line(), number) as c:
        c.line(LONG)
        h.tell("subscribed")
        h.line(LONG)
        there, here = h.result(LONG), c.result(LONG)
    return {"value": there["match"] * 1e9, "ns of CPU": there["match_cpu"] * 1e9,
            "subscribe ms": here["seconds"] * 1e3, "MiB": there["bytes"] / (1 << 20)}  # fmt: skip


def device(library: str, seconds: float, kind: str, size: int) -> dict:
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


RUN = {
    "fan-out": fan_out,
    "fan-in": fan_in,
    "device": device,
    "connections": connections,
    "subscriptions": subscriptions,
}


def scenarios(small: bool) -> list[Scenario]:
    """Ordered by weight: with little time, the last ones are missing."""
    few = "bytes a connection"
    found = [
        Scenario("device", "through a device, one way, 128 B", "/s", False, ("thr", 128), 5),
        Scenario("device", "through a device, round trip, 128 B", "us", True, ("lat", 128), 5),
        *(
            Scenario("fan-out", f"fan-out to {n}, {size} B", "deliveries/s", False, (n, size), 5)
            for n, size in ((1, 16), (10, 16), (100, 16), (100, 1024))
        ),
        Scenario("fan-in", "fan-in from 100, 16 B", "/s", False, (100, 16), 5),
        *(
            Scenario("connections", f"{n:,} idle connections, memory", few, True, (n,), 3)
            for n in (1, 1000, 10_000)
        ),
        *(
            Scenario("subscriptions", f"{n:,} subscriptions, no match", "ns", True, (n,), rounds)
            for n, rounds in ((10, 3), (10_000, 3), (1_000_000, 1))
        ),
    ]
    return [s for s in found if s.name not in LARGEST] if small else found


def measure(scenario: Scenario, options: argparse.Namespace) -> dict[str, list[dict]]:
    taking = [
        name for name in options.lib if parse(name).library in TAKE_PART.get(scenario.what, ZMTP)
    ]
    runs: dict[str, list[dict]] = {library: [] for library in taking}
    if not taking:
        return runs
    for i in range(min(options.rounds, scenario.rounds)):
        start = i % len(taking)
        for library in taking[start:] + taking[:start]:
            if "error" in (runs[library] or [{}])[0]:
                continue
            try:
                runs[library].append(RUN[scenario.what](library, options.seconds, *scenario.detail))
            except (RuntimeError, ValueError, OSError) as error:
                print(f"  {library}: {error}", file=sys.stderr, flush=True)
                runs[library] = [{"error": str(error)}]
    return runs


def summary(runs: list[dict]) -> dict:
    if "error" in runs[0]:
        return runs[0]
    values = [run["value"] for run in runs]
    more = {key: statistics.median(run[key] for run in runs) for key in runs[0] if key != "value"}
    return {"median": statistics.median(values), "low": min(values), "high": max(values),
            "more": more}  # fmt: skip


def run_scenarios(options: argparse.Namespace, small: bool, what, until: float) -> list[dict]:
    results = []
    for scenario in scenarios(small):
        if what and scenario.what not in what:
            continue
        if time.monotonic() > until:
            print(f"{scenario.name}: no time left", file=sys.stderr, flush=True)
            continue
        print(f"{scenario.name} ...", file=sys.stderr, flush=True)
        runs = measure(scenario, options)
        found = {library: summary(some) for library, some in runs.items()}
        results.append({**scenario._asdict(), "runs": runs, "summary": found})
    return results


def main(args: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    versus.add_arguments(parser)
    parser.add_argument("--what", action="append", choices=RUN)
    parser.add_argument("--small", action="store_true", help="without the largest numbers")
    parser.add_argument("--name", default="many", help="of the files")
    options = versus.complete(parser.parse_args(args))
    about = {**machine(), **quiet_or_exit(options.even_if_busy), "rounds": options.rounds}
    results = run_scenarios(options, options.small, options.what, float("inf"))
    print(report.write(options.folder, options.name, about, {"crowds": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
