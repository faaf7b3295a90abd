"""A collector: what producers push goes into a journal, and a server lets others read it.

PULL -> device -> journal, without Python between them; the first part of a message is its topic,
its stamp and key are taken off and stored. As a process it is started by fleet.py.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import mqcore as mq
from examples.pipeline.feed import FLIGHTS, WEATHER
from examples.pipeline.processes import PATIENCE, begin, say
from mqcore import journal

PARTITIONS = 2
FLUSH = 0.05        # seconds until readers see a message, at most, and until it is durable


class Collector:
    """Running from its making to stop(). bind, serve: addresses of the PULL and of the journal
    server; port 0 takes a free one. topics: opened at once, so that readers find them. peers:
    wait until so many producers are connected. account: what it has done, as numbers, when it has
    stopped."""

    def __init__(self, where: str | os.PathLike[str], bind: str, serve: str, *,
                 topics: Sequence[str] = (FLIGHTS, WEATHER), peers: int = 0) -> None:
        self.account: dict[str, Any] = {}
        with contextlib.ExitStack() as stack:
            self.writers = stack.enter_context(
                journal.open(where, "a", topic_from="first-part", partitions=PARTITIONS,
                             stamps=True, fsync_interval=FLUSH))
            for topic in topics:
                self.writers.writer(topic)
            self.kept = self.ends()
            self.server = stack.enter_context(journal.serve(where, serve))
            self.front = stack.enter_context(mq.Pull(bind=bind))
            self.front.wait_peers(peers, timeout=PATIENCE)
            self.device = stack.enter_context(mq.device(self.front, self.writers))
            self._stack = stack.pop_all()

    @property
    def url(self) -> str:
        return str(self.front.endpoints[0].url)

    def ends(self) -> dict[str, int]:
        """How many messages each partition has had, by "topic|partition"."""
        return {f"{writer.topic}|{writer.partition}": writer.next for writer in self.writers}

    def stop(self) -> None:
        """Take no more; what was taken is durable. Raises what ended its device or its server: a
        full disk, say. Idempotent."""
        if self.account:
            return
        with self._stack:
            self.device.stop(linger=0)
            stats = self.device.stats()
            self.account = {"messages": stats.messages, "bytes": stats.bytes,
                            "refused": stats.refused, "unwritten": stats.unwritten,
                            "stored": self.ends()}
        self.server.wait_stopped(0)

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def main(arguments: Sequence[str]) -> None:
    setup, orders = begin(arguments)
    try:
        with Collector(setup["where"], setup["bind"], setup["serve"],
                       peers=setup["peers"]) as collector:
            say(url=collector.url, server=collector.server.urls[0], kept=collector.kept,
                recovered=[str(dropped) for dropped in collector.writers.recovered])
            while orders.next(0.2) is None:
                if not collector.device.running or not collector.server.running:
                    break
    except (mq.Error, OSError) as error:
        sys.exit(f"collector {setup['number']}: {error}")
    say(**collector.account)


if __name__ == "__main__":
    main(sys.argv[1:])
