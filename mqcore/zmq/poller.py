"""Poller, select and zmq_poll: waiting for several sockets and descriptors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import mqcore as mq
from mqcore.sock.zmq_face import look
from mqcore.zmq.constants import Errno, PollEvent
from mqcore.zmq.error import ZMQError
from mqcore.zmq.socket import Socket

POLLIN, POLLOUT, POLLERR = int(PollEvent.POLLIN), int(PollEvent.POLLOUT), int(PollEvent.POLLERR)
READY = tuple(mq.Ready(mask) for mask in range(8))  # READ, WRITE and ERROR have pyzmq's bits


def ready_of(mask: int) -> mq.Ready:
    """pyzmq's bits as mqcore's."""
    return READY[int(mask) & (POLLIN | POLLOUT | POLLERR)]


def entries(sockets: Iterable[tuple[Any, int]]) -> list[tuple[Any, int, Any]]:
    """(what is told, the mask, what mqcore polls) of each. Of a file its number is told."""
    found = []
    for one, mask in sockets:
        if isinstance(one, Socket):
            if one.closed:
                raise ZMQError(Errno.ENOTSOCK)
            found.append((one, mask, one._open()))
        elif isinstance(one, int):
            found.append((one, mask, one))
        elif hasattr(one, "fileno"):
            found.append((int(one.fileno()), mask, int(one.fileno())))
        else:
            raise TypeError("Socket must be a 0MQ socket, an integer fd or have a fileno() "
                            f"method: {one!r}")
    return found


def to_wait_for(asked: list[tuple[Any, int, Any]]) -> list[Any]:
    """For mqcore's poll()."""
    return [(polled, ready_of(mask)) for _, mask, polled in asked if mask]


def zmq_poll(sockets: Iterable[tuple[Any, int]], timeout: int = -1) -> list[tuple[Any, int]]:
    """Which of [(socket, mask)] are ready: [(socket, events)]. timeout: milliseconds, negative for
    ever."""
    sockets = list(sockets)
    ready, others = look(sockets)
    if not others and (ready or timeout == 0):
        return ready
    asked = entries(sockets)
    if len(asked) == 1 and not others:
        one, mask, _ = asked[0]
        events = Socket.poll(one, timeout, mask)
        return [(one, events)] if events else []
    end = None if timeout is None or timeout < 0 else time.monotonic() + timeout / 1000
    while True:
        left = 0 if ready else None if end is None else max(0.0, end - time.monotonic())
        try:
            found = mq.poll(to_wait_for(asked), left)
        except mq.Error as error:
            raise _failed(asked, error) from error
        result = merged(asked, found)
        if result or left == 0:
            return result
        ready, _ = look(sockets)


def merged(asked: list[tuple[Any, int, Any]], found: list[tuple[Any, mq.Ready]]
           ) -> list[tuple[Any, int]]:
    """In the order asked, with what our sockets are now."""
    masks = {id(polled) if not isinstance(polled, int) else polled: ready.value
             for polled, ready in found}
    out = []
    for one, mask, polled in asked:
        if isinstance(one, Socket):
            events = one._now() & int(mask)
        else:
            events = masks.get(polled, 0) & (int(mask) | POLLERR)
        if events:
            out.append((one, events))
    return out


def _failed(asked: list[tuple[Any, int, Any]], error: mq.Error) -> ZMQError:
    for one, _, _ in asked:
        if isinstance(one, Socket):
            return one._failed(error)
    return ZMQError(Errno.EINVAL)


class Poller:
    """Sockets and descriptors to wait for, and what for."""

    sockets: list[tuple[Any, int]]

    def __init__(self) -> None:
        self.sockets = []
        self._map: dict[Any, int] = {}

    def __contains__(self, socket: Any) -> bool:
        return socket in self._map

    def register(self, socket: Any, flags: int = POLLIN | POLLOUT) -> None:
        """Wait for it, too. flags 0: no more."""
        if flags:
            if socket in self._map:
                self.sockets[self._map[socket]] = (socket, PollEvent(flags))
            else:
                self._map[socket] = len(self.sockets)
                self.sockets.append((socket, PollEvent(flags)))
        elif socket in self._map:
            self.unregister(socket)

    def modify(self, socket: Any, flags: int = POLLIN | POLLOUT) -> None:
        """Wait for something else."""
        self.register(socket, flags)

    def unregister(self, socket: Any) -> None:
        """Wait for it no more. KeyError if it is not there."""
        at = self._map.pop(socket)
        self.sockets.pop(at)
        for other, (one, _) in enumerate(self.sockets[at:], at):
            self._map[one] = other

    def poll(self, timeout: int | None = None) -> list[tuple[Any, int]]:
        """[(socket, events)] of those that are ready; empty when `timeout` milliseconds are over.
        None or negative: for ever."""
        return zmq_poll(self.sockets, -1 if timeout is None or timeout < 0 else int(timeout))


def select(rlist: list[Any], wlist: list[Any], xlist: list[Any], timeout: float | None = None
           ) -> tuple[list[Any], list[Any], list[Any]]:
    """select.select() for sockets as well. timeout: seconds."""
    return selected(zmq_poll, rlist, wlist, xlist, timeout)


def selected(poll: Callable[..., Any], rlist: list[Any], wlist: list[Any], xlist: list[Any],
             timeout: float | None) -> tuple[list[Any], list[Any], list[Any]]:
    """select() by means of this zmq_poll()."""
    wanted: dict[Any, int] = {}
    for bit, ones in ((POLLIN, rlist), (POLLOUT, wlist), (POLLERR, xlist)):
        for one in ones:
            wanted[one] = wanted.get(one, 0) | bit
    ms = -1 if timeout is None or timeout < 0 else int(timeout * 1000)
    found = dict(poll(list(wanted.items()), ms))

    def ready(ones: list[Any], bit: int) -> list[Any]:
        return [one for one in ones if found.get(_told(one), 0) & bit]

    return ready(rlist, POLLIN), ready(wlist, POLLOUT), ready(xlist, POLLERR)


def _told(one: Any) -> Any:
    """What zmq_poll() calls it."""
    return one if isinstance(one, (Socket, int)) else int(one.fileno())
