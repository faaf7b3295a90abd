"""Poller, select and zmq_poll that let other greenlets run while they wait."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import gevent

import mqcore as mq
from mqcore.zmq.borrowed import lend
from mqcore.zmq.green.hub import READ, WRITE, Wakers, sleep
from mqcore.zmq.poller import (
    POLLERR,
    POLLIN,
    POLLOUT,
    _failed,
    entries,
    merged,
    selected,
    to_wait_for,
)
from mqcore.zmq.poller import Poller as SyncPoller
from mqcore.zmq.socket import Socket


def zmq_poll(sockets: Iterable[tuple[Any, int]], timeout: int = -1) -> list[tuple[Any, int]]:
    """Which of [(socket, mask)] are ready: [(socket, events)]. timeout: milliseconds, negative for
    ever; 0 lets others run once."""
    asked = entries(sockets)
    rest = [entry for entry in asked if not isinstance(entry[0], Socket)]
    files = [(polled, (READ if mask & (POLLIN | POLLERR) else 0) | (WRITE if mask & POLLOUT else 0))
             for _, mask, polled in rest]
    plain: dict[int, Wakers] = {}  # of sockets that are not ours: for this call
    limit = None if timeout is None or timeout < 0 else time.monotonic() + int(timeout) / 1000
    if timeout == 0:
        gevent.sleep(0)
    try:
        while True:
            changes = [(one, core, core._change()) for one, _, core in asked
                       if isinstance(one, Socket)]
            try:
                result = merged(asked, mq.poll(to_wait_for(rest), 0) if rest else [])
            except mq.Error as error:
                raise _failed(rest, error) from error
            if result or (limit is not None and time.monotonic() >= limit):
                return result
            sleep([(_wakers(one, plain).here(core), seen) for one, core, seen in changes], files,
                  limit)
    finally:
        for wakers in plain.values():
            wakers.end()


def _wakers(socket: Any, plain: dict[int, Wakers]) -> Wakers:
    own = socket.__dict__.get("_wakers")
    return own if own is not None else plain.setdefault(id(socket), Wakers())


class Poller(SyncPoller):
    """zmq.Poller for gevent."""

    def poll(self, timeout: int | None = None) -> list[tuple[Any, int]]:
        """zmq.Poller.poll()."""
        return zmq_poll(self.sockets, -1 if timeout is None or timeout < 0 else int(timeout))


def select(rlist: list[Any], wlist: list[Any], xlist: list[Any], timeout: float | None = None
           ) -> tuple[list[Any], list[Any], list[Any]]:
    """zmq.select()."""
    return selected(zmq_poll, rlist, wlist, xlist, timeout)


__getattr__ = lend(__name__)
