"""The messaging side of a run: collectors and producers as processes, started, paced and ended.

The producers share a clock, and besides each has leave to send up to an event time only: `skew`
beyond what has arrived of all of them, as readers of the journals see it. So no message is in a
journal while another one that is older by more than `skew` is not yet, however busy the machine is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from examples.pipeline.arrivals import PATIENCE, Arrivals
from examples.pipeline.feed import DAY, HOUR, PRODUCERS
from examples.pipeline.pace import Pace
from examples.pipeline.processes import Worker

SKEW = 5 * DAY      # seconds of event time
LOOK = 0.02         # seconds between two looks at the journals
HEAD = 0.3          # seconds between the order to start and the start
LOOPBACK = "tcp://127.0.0.1:0"


class Fleet:
    """Two collectors with journals below `out`, and the producers of the feed. `with` ends them
    all, whatever happens, by their process ids.

    ready(), feed(), finish(), stop(), in this order; each raises WorkerFailed when a process is no
    more. patience: seconds that a lost message holds up the others.
    """

    def __init__(self, out: Path, pace: Pace, *, skew: int = SKEW,
                 patience: float = PATIENCE) -> None:
        self.out = out
        self.pace = pace
        self.skew = skew
        self.folders = [out / f"collector-{i}" for i in range(2)]
        self.arrivals = Arrivals(self.folders, patience)
        self.collectors: list[Worker] = []
        self.producers: dict[int, Worker] = {}
        self.urls: list[str] = []           # of the collectors
        self.servers: list[str] = []        # of their journal servers
        self.accounts: list[dict[str, Any]] = []        # of the producers, when they have finished
        self.stored: list[dict[str, Any]] = []          # of the collectors, when they have stopped
        self.started = self.fed = 0.0       # seconds since the epoch: of feed()'s start and end
        self._upto: dict[int, Any] = {}     # by producer: how many rows are of hours before each
        self._sent: dict[int, int] = {}

    # -- starting --

    def __enter__(self) -> Fleet:
        try:
            for number, folder in enumerate(self.folders):
                folder.mkdir(parents=True, exist_ok=True)
                self.collectors.append(self._collector(number, LOOPBACK, LOOPBACK))
            for number in range(len(self.folders)):
                self._opened(number)
            self._start_producers()
        except BaseException:
            self.close()
            raise
        return self

    def _collector(self, number: int, bind: str, serve: str, peers: int = 0) -> Worker:
        return Worker("collector", number=number, where=str(self.folders[number]), bind=bind,
                      serve=serve, peers=peers)

    def _opened(self, number: int) -> dict[str, Any]:
        said = self.collectors[number].hear()
        self.urls[number:number + 1] = [said["url"]]
        self.servers[number:number + 1] = [said["server"]]
        return said

    def restart(self, number: int) -> dict[str, Any]:
        """A collector that was killed, again at the same addresses, with all producers; what it
        says of the journal that it found."""
        self.collectors[number].kill()
        self.collectors[number] = self._collector(number, self.urls[number], self.servers[number],
                                                  len(self.producers))
        return self._opened(number)

    def _start_producers(self) -> None:
        (self.out / "producers").mkdir(exist_ok=True)
        for number, source in PRODUCERS.items():
            first = source.first
            self.producers[number] = Worker(
                "producer", number=number, urls=[*self.urls[first:], *self.urls[:first]],
                days=self.pace.days, speed=self.pace.speed,
                account=str(self.out / "producers" / f"{number}.json"))

    def ready(self) -> int:
        """Wait until the producers have read the feed and are connected; how many rows they
        have."""
        rows = 0
        for number, producer in self.producers.items():
            said = producer.hear()
            rows += said["ready"]
            self._upto[number] = np.cumsum(said["by_hour"])
        return rows

    # -- running --

    def feed(self, tick: Callable[[], None] = lambda: None) -> None:
        """Start the clock; until every row is in the journals, or given up as lost. tick(): called
        all the time, some fifty times a second."""
        self.started = time.time() + HEAD
        for producer in self.producers.values():
            producer.tell(start=self.started)
        released = 0
        while True:
            tick()
            self._look()
            arrived = self.arrived()
            if arrived is None and len(self._sent) == len(self.producers):
                self.fed = time.time()
                return
            leave = self.pace.days.stop if arrived is None else arrived + self.skew
            if leave > released:
                released = leave
                for number in self.producers.keys() - self._sent.keys():
                    self.producers[number].tell(release=released)
            time.sleep(LOOK)

    def arrived(self) -> int | None:
        """The event time before which all rows are in the journals; None: all of them are."""
        hours = []
        for number, upto in self._upto.items():
            there = self.arrivals.prefix(number, self._sent.get(number))
            if there < upto[-1]:
                hours.append(int(np.searchsorted(upto, there, "right")))
        return self.pace.days.start + min(hours) * HOUR if hours else None

    def _look(self) -> None:
        for collector in self.collectors:
            collector.check()
        for number in self.producers.keys() - self._sent.keys():
            said = self.producers[number].heard()
            if said is not None:
                self._sent[number] = said["sent"]
        self.arrivals.poll()

    # -- ending --

    def finish(self) -> None:
        """Have the producers send their last messages, which move watermarks beyond everything,
        and end; until these are in the journals."""
        for producer in self.producers.values():
            producer.tell(finish=True)
        self.accounts = [producer.hear() for producer in self.producers.values()]
        for producer in self.producers.values():
            producer.end()
        for account in self.accounts:
            number, sent = account["producer"], account["messages"]
            while self.arrivals.prefix(number, sent) < sent:
                for collector in self.collectors:
                    collector.check()
                self.arrivals.poll()
                time.sleep(LOOK)

    def stop(self) -> None:
        """End the collectors; what they have stored is durable."""
        for collector in self.collectors:
            collector.tell(stop=True)
        self.stored = [collector.hear() for collector in self.collectors]
        for collector in self.collectors:
            collector.end()

    def close(self) -> None:
        """Nothing is left of it but files. Idempotent."""
        for worker in [*self.producers.values(), *self.collectors]:
            worker.kill()
        self.arrivals.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        return [worker.process.pid for worker in (*self.collectors, *self.producers.values())]
