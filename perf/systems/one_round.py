"""One round of one system: its broker, its two ends, and all its figures."""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil
from pairs import Process

from systems import SYSTEMS

MIB = 1 << 20
START = 60.0        # seconds until an end is connected
LIMIT = 900.0       # for one figure
SAMPLE = 0.05       # seconds between two looks at the memory

MOST_TEXT = 200     # characters of an error

#: by (what, at): "rate" and "sent" at 0, "burst" and "load" at their number; or {"error": why}
Figures = dict[Any, Any]


class Usage(threading.Thread):
    """CPU of the broker, and the most memory that broker and ends have at a time."""

    def __init__(self, broker: int | None, put: int, take: int) -> None:
        super().__init__(daemon=True)
        self.who = {"broker": tree(broker), "producer": tree(put), "consumer": tree(take)}
        self.most = dict.fromkeys(self.who, 0)
        self.over = threading.Event()
        self.cpu = self.used()

    def used(self) -> float:
        """Seconds."""
        return sum(sum(one.cpu_times()[:2]) for one in self.who["broker"])

    def run(self) -> None:
        while not self.over.wait(SAMPLE):
            self.look()

    def look(self) -> None:
        for name, some in self.who.items():
            self.most[name] = max(self.most[name], sum(one.memory_info().rss for one in some))

    def stop(self) -> dict[str, float]:
        self.over.set()
        self.join()
        self.look()
        found = {f"MiB, {name}": most / MIB for name, most in self.most.items() if self.who[name]}
        if self.who["broker"]:
            found["CPU s, broker"] = self.used() - self.cpu
        return found


def tree(pid: int | None) -> list[psutil.Process]:
    if pid is None:
        return []
    one = psutil.Process(pid)
    return [one, *one.children(recursive=True)]


class Pair:
    """The two ends, while they obey."""

    def __init__(self, put: Process, take: Process, until: float) -> None:
        self.put, self.take, self.until = put, take, until

    def line(self, end: Process) -> str:
        """The next line of one of them; RuntimeError as soon as either has ended."""
        limit = min(self.until, time.monotonic() + LIMIT)
        while True:
            try:
                return end.line(1.0)
            except RuntimeError:
                for one in (self.put, self.take):
                    if one.process.poll() is not None:
                        raise RuntimeError(f"{one.name}: ended by itself") from None
                if time.monotonic() > limit:
                    raise RuntimeError(f"{end.name}: no end within its time") from None

    def do(self, what: str, **order: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        text = json.dumps({"do": what, **order})
        self.take.tell(text)
        if self.line(self.take) != "armed":
            raise RuntimeError(f"{self.take.name}: out of step")
        self.put.tell(text)
        return json.loads(self.line(self.put)), json.loads(self.line(self.take))


def rate(pair: Pair, broker: int | None, count: int, confirms: bool, found: Figures) -> None:
    usage = Usage(broker, pair.put.process.pid, pair.take.process.pid)
    usage.start()
    put, take = pair.do("rate", count=count)
    used = usage.stop()
    million = 1e6 / count
    more = {
        "end to end": count / (take["last"] - put["began"]),
        "CPU us, producer": put["cpu"] * million, "CPU us, consumer": take["cpu"] * million,
        **{name: value for name, value in used.items() if name.startswith("MiB")},
    }  # fmt: skip
    if confirms:
        more["confirmed"] = count / (put["ended"] - put["began"])
    if "CPU s, broker" in used:
        more["CPU us, broker"] = used["CPU s, broker"] * million
    received = (count - 1) / max(take["last"] - take["first"], 1e-9)
    found["rate", 0] = {"value": received, **more}
    found["sent", 0] = {"value": count / (put["sent"] - put["began"])}


def bursts(pair: Pair, sizes: list[int], found: Figures) -> None:
    for count in sizes:
        _, take = pair.do("paced", rate=0, count=count)
        found["burst", count] = {"value": take["max"] * 1e3, "p50": take["p50"] * 1e3}


def loads(pair: Pair, rates: list[int], seconds: float, found: Figures) -> None:
    """From low to high, up to the first one that it does not carry."""
    for each in sorted(rates):
        _, take = pair.do("paced", rate=each, count=max(20, int(each * seconds)))
        if "p99" not in take:
            found["load", each] = {"error": "not carried: nothing arrived"}
            return
        found["load", each] = {"value": take["p99"] * 1e6, "p50 us": take["p50"] * 1e6,
                               "p99.9 us": take["p999"] * 1e6, "slowest us": take["max"] * 1e6,
                               "mark": "" if take["carried"] else "not carried"}  # fmt: skip
        if not take["carried"]:
            return


def said(error: Exception) -> str:
    """In one line; of a broker's log, its end."""
    text = " ".join(str(error).replace("|", "/").split())
    return text if len(text) <= MOST_TEXT else f"... {text[-MOST_TEXT:]}"


def measured(name: str, o: argparse.Namespace, left: float) -> Figures:
    """All figures. What fails ends the round of this system, and is reported."""
    found: Figures = {}
    until = time.monotonic() + left
    try:
        with tempfile.TemporaryDirectory(prefix="mqcore-brokers-") as folder, \
                SYSTEMS[name].broker(Path(folder)) as started:
            url, pid = started or ("", None)
            usual = ("--size", o.size)
            with Process("brokers_ends.py", name, "take", "--url", url, *usual) as take:
                where = take.line(START)
                with Process("brokers_ends.py", name, "put", "--url", where, *usual) as put:
                    put.line(START)
                    pair = Pair(put, take, until)
                    pair.do("rate", count=max(10, min(2000, o.messages // 5)))      # warm up
                    rate(pair, pid, o.messages, SYSTEMS[name].confirms, found)
                    bursts(pair, o.bursts, found)
                    if SYSTEMS[name].loads:
                        loads(pair, o.loads, o.seconds, found)
    except (RuntimeError, AssertionError, OSError, psutil.Error) as error:
        found["error"] = said(error)
    return found
