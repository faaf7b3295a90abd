"""An asyncio event loop on the time of a simulated network."""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from mqcore.testing.network.world import Network

IDLE_TURNS = 1_000_000  # of the loop, at one moment
T = TypeVar("T")


class VirtualSelector(selectors.EpollSelector):
    """Instead of sleeping, it lets the network's time pass, for `limit` seconds in all."""

    def __init__(self, net: Network, limit: float) -> None:
        super().__init__()
        self._net, self._limit = net, limit
        self._end = net.now + limit
        self._idle = 0  # turns since something happened

    def select(self, timeout: float | None = None) -> Any:
        net = self._net
        happened = net._settle()
        ready = super().select(0)
        if timeout is not None and timeout <= 0:
            self._idle = 0 if happened or ready else self._idle + 1
            if self._idle > IDLE_TURNS:
                self._idle = 0
                raise net._stuck(f"the tasks have run {IDLE_TURNS} times at one moment and waited "
                                 "for nothing; does one poll with sleep(0)?")
            return ready
        self._idle = 0
        left = max(0.0, self._end - net.now)
        wait = left if timeout is None else min(left, timeout)
        deadline = net._deadline(math.ceil(wait * 1e9))
        more = True
        while more and not ready:
            more = net.step(deadline)
            ready = super().select(0)
        if not ready and net.now >= self._end:
            self._end += self._limit  # for the tasks, which are cancelled now
            raise net._stuck(f"the tasks have not ended within {self._limit:g} s")
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its timers are due in virtual time, and while all tasks wait, the network moves."""

    def __init__(self, net: Network, limit: float) -> None:
        self._net = net
        super().__init__(VirtualSelector(net, limit))

    def time(self) -> float:
        return self._net.clock()


def run(net: Network, main: Coroutine[Any, Any, T], limit: float) -> T:
    """asyncio.run(main), in virtual time."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(net, limit)) as runner:
        return runner.run(main)
