"""A producer: a PUSH to all collectors, the preferred one first, the others for fail-over.

Every message is [topic, stamp and key, value]. What was sent is counted by second, for the report:
what receivers measure can be held against it. As a process it is started by fleet.py and replays
its part of the feed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import mqcore as mq
from examples.pipeline import feed
from examples.pipeline.feed import Days, Rows
from examples.pipeline.pace import Pace
from examples.pipeline.processes import Orders, begin, say
from mqcore import journal

LINGER = 60.0       # seconds for the collectors to take what is left
MOST = 256          # rows between two looks at orders


class Producer:
    """Sends messages of one producer, numbered from 0. urls: collectors, the preferred one
    first. send() blocks while all collectors are full.

    account, when it is closed, fit for JSON: messages, bytes of values, by second, and by
    connection, the oldest first. `undelivered` were given to no collector; `dropped` were cut in
    two by a broken connection.
    """

    def __init__(self, number: int, urls: Sequence[str]) -> None:
        self.number = number
        self.messages = 0
        self.account: dict[str, Any] = {}
        self.seconds: dict[int, list[int]] = {}     # epoch second: messages, bytes of values
        self.socket = mq.Push()
        for prio, url in enumerate(urls, 1):
            self.socket.connect(url, prio=prio)

    def send(self, topic: bytes, key: bytes, value: bytes) -> None:
        now = time.time()
        self.socket.send_parts(
            [topic, journal.stamp(self.number, self.messages, now, key=key), value])
        self.messages += 1
        count = self.seconds.setdefault(int(now), [0, 0])
        count[0] += 1
        count[1] += len(value)

    def close(self, linger: float = LINGER) -> None:
        """Wait so many seconds until collectors have everything. Idempotent."""
        if self.account:
            return
        report = self.socket.close(linger=linger)
        peers: list[dict[str, Any]] = [
            {"endpoint": peer.endpoint, "written": stats.written,
             "dropped": sum(stats.dropped.values())}
            for peer, stats in sorted(report.peers.items(), key=lambda item: item[0].id)]
        self.account = {
            "producer": self.number, "messages": self.messages,
            "bytes": sum(size for _, size in self.seconds.values()),
            "undelivered": report.undelivered, "unacked": report.unacked,
            "dropped": sum(report.dropped.values()) + sum(p["dropped"] for p in peers),
            "seconds": {str(at): n for at, n in self.seconds.items()}, "peers": peers}

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def replay(producer: Producer, rows: Rows, pace: Pace, orders: Orders, start: float) -> None:
    """Send the rows, each when it is due after `start` (seconds since the epoch), and none before
    the orders have released its event time."""
    topic = rows.topic.encode()
    due = start + pace.due(rows.hours)
    at = free = 0
    wait = 0.0
    while at < len(rows):
        while (order := orders.next(wait)) is not None:
            free, wait = int(np.searchsorted(rows.hours, order["release"])), 0.0
        stop = min(free, at + MOST, int(np.searchsorted(due, time.time(), "right")))
        for i in range(at, stop):
            producer.send(topic, rows.keys[i], rows.values[i])
        at = max(at, stop)
        wait = 0.0
        if at < len(rows):
            wait = 1.0 if at >= free else min(1.0, max(0.0, due[at] - time.time()))


def main(arguments: Sequence[str]) -> None:
    setup, orders = begin(arguments)
    number, days = setup["number"], Days(*setup["days"])
    rows = feed.read(number, days)
    producer = Producer(number, setup["urls"])
    producer.socket.wait_peers(len(setup["urls"]), timeout=LINGER)
    hours = (rows.hours - days.start) // feed.HOUR
    say(ready=len(rows), by_hour=np.bincount(hours, minlength=24).tolist())
    replay(producer, rows, Pace(days, setup["speed"]), orders, orders.wait()["start"])
    say(sent=producer.messages)
    while "finish" not in orders.wait():
        pass
    for key, value in feed.ends(number):
        producer.send(rows.topic.encode(), key, value)
    producer.close()
    Path(setup["account"]).write_text(json.dumps(producer.account))
    say(**producer.account)


if __name__ == "__main__":
    main(sys.argv[1:])
