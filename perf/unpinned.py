"""Round trips and delays of unpinned ends: what a program sees on a machine of its own.

    unpinned.py [--what trip|poll|load|burst] [--lib mqcore --lib pyzmq ...] [--rounds N]
                [--seconds X] [--row TEXT ...] [--quick] [--even-if-busy] [--name NAME]
                [--folder PATH]

Every row is measured on an otherwise idle machine and beside two busy processes. The value is the
median, shown with p99 and p99.9. The ends are unpinned_ends.py.
"""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import Iterator

from candidates import kind, parse
from pairs import side
from rows import Row, Unfit, main_of

ENDS = "unpinned_ends.py"
URL = "tcp://127.0.0.1:0"
POLLED = (1, 10, 100, 500, 1000)
LOADS = (1_000, 10_000, 100_000)
WARM = 0.2  # seconds of the same load, before what is counted
LONG = 60.0
BUSY = """import os
parent = %d
while os.getppid() == parent:
    for _ in range(1000000):
        pass
"""


@contextlib.contextmanager
def two_busy(beside: bool) -> Iterator[None]:
    """Two processes of usual priority that compute, beside what is measured."""
    some = [subprocess.Popen([sys.executable, "-c", BUSY % os.getpid()])
            for _ in range(2 if beside else 0)]  # fmt: skip
    try:
        yield
    finally:
        for process in some:
            process.kill()
            process.wait()


def delays(found: dict) -> dict:
    if "p50" not in found:
        raise Unfit("not carried: it fell 0.3 s behind")
    return {"value": found["p50"] * 1e6, "p99 us": found["p99"] * 1e6,
            "p99.9 us": found["p999"] * 1e6}  # fmt: skip


def measured(library: str, role: str, seconds: float, *args: object) -> dict:
    with side(ENDS, library, role, "--seconds", seconds, *args) as near:
        return delays(near.result(LONG + 2 * seconds))


def two_sockets(role: str, beside: bool, library: str, seconds: float, *args: object) -> dict:
    with two_busy(beside), side(ENDS, library, "relay", *args) as far:
        give, take = far.line().split()
        return measured(library, role, seconds, "--give", give, "--take", take, *args)


def trip(beside: bool, library: str, seconds: float) -> dict:
    return two_sockets("trip", beside, library, seconds)


def loop(beside: bool, library: str, seconds: float) -> dict:
    return two_sockets("trip", beside, library, seconds, "--calls", "asyncio")


def chain(beside: bool, library: str, seconds: float) -> dict:
    with two_busy(beside), side(ENDS, library, "relay") as first:
        give, between = first.line().split()
        with side(ENDS, library, "relay", "--take", between) as second:
            take = second.line()
            return measured(library, "trip", seconds, "--give", give, "--take", take)


def polled(sockets: int, beside: bool, library: str, seconds: float) -> dict:
    with two_busy(beside), side(ENDS, library, "relay") as far:
        give, take = far.line().split()
        return measured(library, "polled", seconds, "--give", give, "--take", take,
                        "--sockets", sockets)  # fmt: skip


def request(kinds: tuple[str, str], beside: bool, library: str, seconds: float) -> dict:
    asks, answers = kinds
    with two_busy(beside), side(ENDS, library, "answer", "--kind", answers) as far:
        return measured(library, "ask", seconds, "--give", far.line(), "--kind", asks)


def receives(library: str) -> None:
    if parse(library).library == "pyomq":
        raise Unfit("its blocking receive sleeps on although messages wait")


def load(rate: int, beside: bool, library: str, seconds: float, size: int = 64,
         burst: int = 1) -> dict:
    receives(library)
    plan = ("--size", size, "--plan", f"{rate}:{WARM}:{burst},{rate}:{seconds}:{burst}")
    with two_busy(beside), side("stamped.py", library, "sink", "--url", URL, *plan) as far:
        with side("stamped.py", library, "pace", "--url", far.line(), *plan) as near:
            near.line(LONG)
            found = far.result(LONG)["pieces"][-1]
            near.result()
    return delays(found)


def gathered(rate: int, beside: bool, library: str, seconds: float) -> dict:
    """As load(), and the receiver is an asyncio task."""
    plan = ("--plan", f"{rate}:{WARM},{rate}:{seconds}")
    with two_busy(beside), side(ENDS, library, "gather", "--calls", "asyncio", *plan) as far:
        url = far.line()
        with side("stamped.py", library, "pace", "--url", url, "--size", 64, *plan) as near:
            near.line(LONG)
            found = delays(far.result(LONG))
            near.result()
    return found


def published(rate: int, subscribers: int, beside: bool, library: str, seconds: float) -> dict:
    """The median subscriber's figures: the others see the same schedule."""
    receives(library)
    plan = ("--plan", f"{rate}:{WARM},{rate}:{seconds}")
    with contextlib.ExitStack() as ends:
        ends.enter_context(two_busy(beside))
        near = ends.enter_context(side(ENDS, library, "shout", *plan))
        url = near.line()
        far = [ends.enter_context(side(ENDS, library, "hear", "--give", url, *plan))
               for _ in range(subscribers)]  # fmt: skip
        for one in far:
            one.line()
        near.tell("go")
        near.line(LONG)
        found = sorted((delays(one.result(LONG)) for one in far), key=lambda some: some["value"])
    return found[len(found) // 2]


def routed(rate: int, beside: bool, library: str, seconds: float) -> dict:
    receives(library)
    plan = ("--plan", f"{rate}:{WARM},{rate}:{seconds}")
    with two_busy(beside), side(ENDS, library, "catch", *plan) as far:
        with side(ENDS, library, "pour", "--give", far.line(), *plan) as near:
            near.line(LONG)
            return delays(far.result(LONG))


def talks(library: str) -> bool:
    return parse(library).library in ("mqcore", "alias", "pyzmq", "pyomq")


def loops(library: str) -> bool:
    return talks(library) and "asyncio" in kind(library).calls


def both(name: str, run, what: str, takes=talks, at: float = 0.0, rounds: int = 5) -> list[Row]:
    """The row on an idle machine, and the same beside two busy processes."""
    return [
        Row(f"{name}{where}, tcp, 64 B, free", "us p50", True,
            functools.partial(run, beside), takes, rounds, what, at)
        for beside, where in ((False, ""), (True, ", beside two busy processes"))
    ]  # fmt: skip


def bursts() -> list[Row]:
    """Traffic that pauses, and large messages."""
    return [
        Row("bursts of 50 each 10 ms, tcp, 64 B, free", "us p50", True,
            functools.partial(load, 5_000, False, burst=50), talks, 5, "burst"),
        Row("one way at 0.1 k/s, tcp, 256 KiB, free", "us p50", True,
            functools.partial(load, 100, False, size=256 * 1024), talks, 5, "burst"),
    ]  # fmt: skip


def rows(quick: bool) -> list[Row]:
    found = [
        *bursts(),
        *both("round trip over PUSH and PULL", trip, "trip"),
        *both("round trip, REQ and REP", functools.partial(request, ("req", "rep")), "trip"),
        *both("round trip over PUSH and PULL, asyncio", loop, "trip", loops),
    ]
    if not quick:
        found += [
            *both("round trip, DEALER and ROUTER",
                  functools.partial(request, ("dealer", "router")), "trip"),
            *both("a chain of three processes", chain, "trip"),
        ]  # fmt: skip
    for sockets in POLLED[2:3] if quick else POLLED:
        found += both(f"round trip, polling {sockets} sockets", functools.partial(polled, sockets),
                      "poll", at=sockets)  # fmt: skip
    for rate in LOADS[1:2] if quick else LOADS:
        found += both(f"one way at {rate / 1e3:g} k/s", functools.partial(load, rate), "load",
                      at=rate)  # fmt: skip
        found += both(f"one way at {rate / 1e3:g} k/s, asyncio",
                      functools.partial(gathered, rate), "load", loops, at=rate)  # fmt: skip
        if not quick:
            found += both(f"DEALER to ROUTER at {rate / 1e3:g} k/s",
                          functools.partial(routed, rate), "load", at=rate)  # fmt: skip
        for subscribers in (1,) if quick else (1, 10):
            run = functools.partial(published, rate, subscribers)
            found += both(f"PUB to {subscribers} SUB at {rate / 1e3:g} k/s", run, "load", at=rate)
    return found


if __name__ == "__main__":
    sys.exit(main_of(__doc__, "unpinned", rows))
