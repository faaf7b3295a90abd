"""How long messages are on their way at given loads, and while many of them wait.

    loads.py [--what load|swell|backlog] [--lib mqcore --lib pyzmq ...] [--rounds N] [--seconds X]
             [--even-if-busy] [--name NAME] [--folder PATH]

`load`: messages are sent by an absolute schedule, and each delay is taken from the moment at which
the message was to be sent. `swell`: a low load, a high one and the low one again, without a pause.
`backlog`: a receiver that does not read, N messages to it, then one more: how long is that one on
its way behind them? The ends are stamped.py.
"""

from __future__ import annotations

import functools
import sys

from candidates import kind, varied
from pairs import address, side
from rows import Row, Unfit, main_of

LOADS = (1_000, 10_000, 50_000, 100_000, 200_000, 400_000)
QUICK_LOADS = (10_000, 200_000)
WARM = 0.1  # seconds of the same load, before what is counted
LOW, HIGH = 20_000, 400_000
BACKLOGS = (1_000, 10_000, 100_000, 1_000_000)
LONG = 60.0


def paced(library: str, size: int, plan: str) -> tuple[list[dict], float]:
    """What the receiver says of each piece, and the CPU seconds of both ends a message."""
    common = ("--size", size, "--plan", plan)
    with address("tcp") as url, side("stamped.py", library, "sink", "--url", url, *common) as there:
        with side("stamped.py", library, "pace", "--url", there.line(), *common) as here:
            here.line(LONG)
            found = there.result(LONG)
            cpu = found["cpu"] + here.result()["cpu"]
    return found["pieces"], cpu / max(1, found["count"])


def load(rate: int, size: int, library: str, seconds: float) -> dict:
    (*_, found), cpu = paced(library, size, f"{rate}:{WARM},{rate}:{seconds}")
    if "p50" not in found:
        raise Unfit("not carried: it fell 0.3 s behind at once")
    return {"value": found["p99"] * 1e6, "p50 us": found["p50"] * 1e6,
            "p99.9 us": found["p999"] * 1e6, "slowest us": found["max"] * 1e6,
            "CPU s per million": cpu * 1e6,
            "mark": "" if found["carried"] else "not carried"}  # fmt: skip


def swell(library: str, seconds: float) -> dict:
    """The value is the tail of it all at its worst; beside it what each piece was like."""
    part = seconds / 2
    plan = f"{LOW}:{WARM},{LOW}:{part},{HIGH}:{part},{LOW}:{part}"
    (_, before, high, after), cpu = paced(library, 16, plan)
    if not all("p50" in piece for piece in (before, high, after)):
        raise Unfit("not carried: it fell 0.3 s behind")
    names = {"before": before, "high": high, "after": after}
    more = {f"p50 us {name}": found["p50"] * 1e6 for name, found in names.items()}
    more |= {f"p99 us {name}": found["p99"] * 1e6 for name, found in names.items()}
    more["CPU s per million"] = cpu * 1e6
    carried = all(piece["carried"] for piece in names.values())
    return {"value": max(piece["p999"] for piece in names.values()) * 1e6, **more,
            "mark": "" if carried else "not carried"}  # fmt: skip


def backlog(count: int, library: str, seconds: float) -> dict:
    roomy = varied(library, "roomy")
    common = ("--count", count)
    with address("tcp") as url, side("stamped.py", roomy, "drain", "--url", url, *common) as there:
        with side("stamped.py", roomy, "hoard", "--url", there.line(), *common) as here:
            here.line(LONG)
            there.tell("go")
            here.tell("go")
            slow = there.result(LONG)
            here.line(LONG)
            quick = here.result()
    queued = quick["seconds"]
    return {"value": slow["probe"] * 1e3, "queued k/s": count / queued / 1e3,
            "drained k/s": count / slow["drain"] / 1e3,
            "first after ms": slow["first"] * 1e3,
            "CPU s per million": (slow["cpu"] + quick["cpu"]) / count * 1e6}  # fmt: skip


def paces(library: str) -> bool:
    return "tcp" in kind(library).transports


def holds(count: int, library: str) -> bool:
    return "roomy" in kind(library).variants and kind(library).holds >= count


def rows(quick: bool) -> list[Row]:
    return [
        *(
            Row(f"one way at {rate / 1e3:g} k/s, tcp, 16 B", "us p99", True,
                functools.partial(load, rate, 16), paces, 3, "load", rate)
            for rate in (QUICK_LOADS if quick else LOADS)
        ),
        Row(f"one way at {LOW / 1e3:g}, {HIGH / 1e3:g}, {LOW / 1e3:g} k/s, tcp, 16 B", "us p99.9",
            True, swell, paces, 3, "swell"),
        *(
            Row(f"one message behind {count:,} that wait, tcp, 16 B", "ms", True,
                functools.partial(backlog, count), functools.partial(holds, count), 3, "backlog",
                count)
            for count in (BACKLOGS[1:2] if quick else BACKLOGS)
        ),
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main_of(__doc__, "loads", rows))
