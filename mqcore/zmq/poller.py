"""Poller, select and zmq_poll: waiting for several sockets and descriptors."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from typing import Any

import mqcore as mq
from mqcore.api.poll import Asked, Sets, await_mixed, wait_mixed
from mqcore.binding.poll_set import PollSet
from mqcore.zmq.calls import look
from mqcore.zmq.constants import Errno, PollEvent
from mqcore.zmq.error import ZMQError
from mqcore.zmq.socket import Socket

POLLIN, POLLOUT, POLLERR = int(PollEvent.POLLIN), int(PollEvent.POLLOUT), int(PollEvent.POLLERR)
BITS = tuple(range(8))
READY = tuple(mq.Ready(mask) for mask in range(8))  # READ, WRITE and ERROR have pyzmq's bits


def ready_of(mask: int) -> mq.Ready:
    """pyzmq's bits as mqcore's."""
    return READY[int(mask) & (POLLIN | POLLOUT | POLLERR)]


def entries(sockets: Iterable[tuple[Any, int]]) -> list[tuple[Any, int, Any]]:
    """(the object to report, the mask, the object that mqcore polls) of each. A file is reported by
    its number."""
    found: list[tuple[Any, int, Any]] = []
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


_sets = Sets(Socket, None, POLLIN, lambda socket: socket._open())


def limit_of(timeout: int | None) -> float | None:
    """The moment on the monotonic clock; None: for ever, 0: now."""
    if timeout is None or timeout < 0:
        return None
    return time.monotonic() + int(timeout) / 1000 if timeout else 0.0


def zmq_poll(sockets: Iterable[tuple[Any, int]], timeout: int = -1) -> list[tuple[Any, int]]:
    """Which of [(socket, mask)] are ready: [(socket, events)]. timeout: milliseconds, negative for
    ever."""
    items: Any = sockets if type(sockets) is list else list(sockets)
    if len(items) == 1 and isinstance(items[0][0], Socket):
        one, mask = items[0]
        if one.closed:
            raise ZMQError(Errno.ENOTSOCK)
        events = Socket.poll(one, timeout, mask)
        return [(one, events)] if events else []
    kept = _sets.find(items)
    if kept is None:
        ready, others = look(items)
        if not others and (ready or timeout == 0 and not _sets.again(items)):
            if not ready:
                for one, _ in items:
                    one._open()._look_beside()
            return ready
        asked = entries(items)
        try:
            kept = _sets.make(items)
        except mq.Error as error:
            raise _failed(asked, error) from error
    some, rest = kept
    try:
        return waited(some, [(index, File(*item)) for index, item in rest], limit_of(timeout))
    finally:
        some.release()


class File(Asked):
    """A descriptor, or what has one, in a poll. Its number is reported."""

    def __init__(self, one: Any, mask: int) -> None:
        if not isinstance(one, int) and not hasattr(one, "fileno"):
            raise TypeError("Socket must be a 0MQ socket, an integer fd or have a fileno() "
                            f"method: {one!r}")
        super().__init__((one, ready_of(mask)))
        self.obj = self.fd

    def answer(self, bits: int) -> int:
        return super().answer(bits) if self.want else 0


def waited(some: PollSet, files: list[tuple[int, File]], limit: float | None
           ) -> list[tuple[Any, int]]:
    """PollSet.poll(), with files beside the sockets."""
    try:
        return wait_mixed(some, files, limit, BITS) if files else some.poll(limit)
    except mq.Error as error:
        raise _translated(some, error) from error


async def awaited(some: PollSet, files: list[tuple[int, File]], limit: float | None
                  ) -> list[tuple[Any, int]]:
    """The same under asyncio."""
    try:
        return await await_mixed(some, files, limit, BITS)
    except mq.Error as error:
        raise _translated(some, error) from error


def _translated(some: PollSet, error: mq.Error) -> ZMQError:
    if isinstance(some.culprit, Socket):
        return some.culprit._failed(error)
    return ZMQError(Errno.EINVAL)


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
    """Sockets and descriptors to wait for, and what for. A poll costs what is ready, not what is
    registered."""

    sockets: list[tuple[Any, int]]

    def __init__(self) -> None:
        self.sockets = []
        self._map: dict[Any, int] = {}
        # what poll() keeps from one call to the next
        self._set: PollSet | None = None
        self._known: list[tuple[Any, int]] = []  # what is in the set, or in _files
        self._places: dict[Any, Any] = {}
        self._files: dict[Any, tuple[int, int]] = {}
        self._ranks = itertools.count()

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
            self._follow(socket, int(flags))
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
        self._follow(socket, 0)

    def poll(self, timeout: int | None = None) -> list[tuple[Any, int]]:
        """[(socket, events)] of those that are ready; empty when `timeout` milliseconds are over.
        None or negative: for ever."""
        timeout = -1 if timeout is None or timeout < 0 else int(timeout)
        some = self._claimed()
        if some is None:  # another thread polls
            return zmq_poll(self.sockets, timeout)
        try:
            return waited(some, self._asked(), limit_of(timeout))
        finally:
            some.release()

    # -- what is kept ------------------------------------------------------------------------------

    def _claimed(self) -> PollSet | None:
        """The set of what is registered; None: another call uses it."""
        some = self._set
        if some is None or not some.usable or self._known != self.sockets:
            some = self._filled()
        return some if some.claim() else None

    def _filled(self) -> PollSet:
        self._set, self._known, self._places, self._files = None, [], {}, {}
        made = PollSet(Socket, spare=True)
        for socket, flags in self.sockets:
            self._place(made, socket, int(flags))
        self._set, self._known = made, list(self.sockets)
        return made

    def _place(self, some: PollSet, socket: Any, flags: int) -> None:
        rank = next(self._ranks)
        if isinstance(socket, Socket):
            if socket.closed:
                raise ZMQError(Errno.ENOTSOCK)
            core = socket._open()
            try:
                self._places[socket] = some.add(rank, socket, core, flags)
            except mq.Error as error:
                raise socket._failed(error) from error
        else:
            self._files[socket] = rank, flags

    def _follow(self, socket: Any, flags: int) -> None:
        """A change of what is registered, for the set. If it fails, the next poll makes another."""
        some, self._set = self._set, None
        if some is None or not some.usable:
            return
        try:
            place = self._places.get(socket)
            if place is None and (flags == 0 or socket in self._files):
                rank, _ = self._files.pop(socket)
                if flags:
                    self._files[socket] = rank, flags
            elif flags == 0:
                some.remove(self._places.pop(socket))
            elif place is not None:
                some.modify(place, flags)
            else:
                self._place(some, socket, flags)
        except (mq.Error, ZMQError, KeyError):
            return
        self._set, self._known = some, list(self.sockets)

    def _asked(self) -> list[tuple[int, File]]:
        return [(rank, File(one, flags)) for one, (rank, flags) in self._files.items()]


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
