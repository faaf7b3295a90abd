"""proxy(), proxy_steerable(), monitored_queue() and device(): messages of one socket go to another,
and back, until the context is terminated.

Where mqcore's own device can take the two sockets, it moves the messages in the data plane; other
pairs, and monitored queues, are moved here one message at a time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import mqcore as mq
from mqcore.api.device import Device
from mqcore.base.waits import Event, Released
from mqcore.zmq.constants import Errno, Flag, PollEvent, SocketType
from mqcore.zmq.error import Again, ContextTerminated, ZMQError
from mqcore.zmq.poller import Poller

LOOK = 50  # ms between looks whether a device in the data plane has ended
IN_HAND = 1.0  # seconds for what a device in the data plane holds when it is ended
TURN = 5  # ms between looks at a proxy's control socket
POLLIN, DONTWAIT = PollEvent.POLLIN, Flag.DONTWAIT
#: types whose messages mqcore's device moves, front and back in any order
NATIVE = frozenset({
    frozenset({SocketType.ROUTER, SocketType.DEALER}),
    frozenset({SocketType.PULL, SocketType.PUSH}),
    frozenset({SocketType.XSUB, SocketType.XPUB}),
})
#: and copies that it makes; it does not wait for a capture that has no space, as libzmq does
CAPTURES = (None, SocketType.PUB)


class Native:
    """mqcore's device over the two sockets."""

    def __init__(self, front: Any, back: Any, capture: Any) -> None:
        self._ends = (front, back)
        try:
            self.device = Device(front._open(), back._open(),
                                    None if capture is None else capture._open())
        except mq.Error as error:
            raise front._failed(error) from error

    def step(self, ms: int) -> None:
        """Let it run for so long; raises what it ended with."""
        try:
            self.device.wait_stopped(ms / 1000)
        except mq.WaitTimeout:
            pass
        except mq.Error as error:
            raise self._ends[0]._failed(error) from error
        else:
            self._ends[0]._shared.refuse()
            self._ends[1]._shared.refuse()
            raise ContextTerminated

    def pause(self) -> None:
        self.device.pause()

    def resume(self) -> None:
        self.device.resume()

    def counts(self) -> tuple[int, ...]:
        """Messages and bytes: front received, front sent, back received, back sent."""
        stats = self.device.stats()
        forth, back = (stats.forth, stats.forth_bytes), (stats.back, stats.back_bytes)
        return (*forth, *back, *back, *forth)

    def end(self) -> None:
        """The sockets are the program's again."""
        core = self.device._core
        core.stop()
        with Released():
            self.device._thread.join()
        core.finish(IN_HAND)
        core.release()


class Moved:
    """The same, one message at a time. copy(way, parts): told of each, way 0 is front to back."""

    def __init__(self, front: Any, back: Any, copy: Callable[[int, list[bytes]], Any] | None,
                 swap: bool = False, poller: Any = None) -> None:
        self._ends = (front, back)
        self._copy = copy
        self._swap = swap  # both ROUTER: the second part names the receiver
        self._counts = [0] * 8
        self._poller = Poller() if poller is None else poller
        self._paused = False
        for end in dict.fromkeys((front, back)):
            if end.type not in (SocketType.PUSH, SocketType.PUB, SocketType.RADIO):
                self._poller.register(end, POLLIN)

    def step(self, ms: int) -> None:
        if self._paused:
            Event().wait(ms / 1000)
            for end in self._ends:
                end._shared.refuse()
            return
        ready = dict(self._poller.poll(ms))
        for way, (source, to) in enumerate((self._ends, self._ends[::-1])):
            if source in ready and (way == 0 or source is not to):
                self._move(way, source, to)

    def _move(self, way: int, source: Any, to: Any) -> None:
        for _ in range(100):  # a burst, then the other side
            try:
                parts = source.recv_multipart(DONTWAIT)
            except Again:
                return
            if self._swap:
                parts[:2] = parts[1::-1]
            if self._copy is not None:
                self._copy(way, parts)
            to.send_multipart(parts)
            size = sum(map(len, parts))
            for at, number in ((4 * way, 1), (4 * way + 1, size), (6 - 4 * way, 1),
                               (7 - 4 * way, size)):
                self._counts[at] += number

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False

    def counts(self) -> tuple[int, ...]:
        return tuple(self._counts)

    def end(self) -> None:
        """Nothing is in hand between two steps."""


def _mover(front: Any, back: Any, capture: Any) -> Native | Moved:
    kinds = frozenset({front.type, back.type})
    if kinds in NATIVE and getattr(capture, "type", None) in CAPTURES:
        return Native(front, back, capture)
    if capture is None:
        return Moved(front, back, None)

    def copy(way: int, parts: list[bytes]) -> None:
        capture.send_multipart(parts)

    return Moved(front, back, copy)


def proxy(frontend: Any, backend: Any, capture: Any = None) -> int:
    """Messages of each go to the other, and a copy to `capture`. It ends with the context
    (ContextTerminated), or with an exception in this thread."""
    mover = _mover(frontend, backend, capture)
    try:
        while True:
            mover.step(LOOK)
    finally:
        mover.end()


def proxy_steerable(frontend: Any, backend: Any, capture: Any = None, control: Any = None) -> int:
    """proxy() that obeys PAUSE, RESUME, TERMINATE and STATISTICS of the `control` socket. TERMINATE
    makes it return 0; the answer to STATISTICS is eight numbers of eight bytes."""
    if control is None:
        return proxy(frontend, backend, capture)
    mover = _mover(frontend, backend, capture)
    try:
        while True:
            mover.step(TURN)
            if not control.poll(0):
                continue
            word = control.recv()
            if word == b"TERMINATE":
                if control.type == SocketType.REP:
                    control.send(b"")
                return 0
            _obey(mover, control, word)
    finally:
        mover.end()


def _obey(mover: Native | Moved, control: Any, word: bytes) -> None:
    if word == b"STATISTICS":
        control.send_multipart([struct.pack("=Q", number) for number in mover.counts()])
        return
    if word == b"PAUSE":
        mover.pause()
    elif word == b"RESUME":
        mover.resume()
    else:
        raise ZMQError(Errno.EINVAL)
    if control.type == SocketType.REP:
        control.send(b"")


def monitored_queue(in_socket: Any, out_socket: Any, mon_socket: Any, in_prefix: bytes = b"in",
                    out_prefix: bytes = b"out") -> int:
    """proxy() that sends a copy of each message to `mon_socket`, behind a part that says which way
    it went. Two ROUTERs exchange the first two parts."""
    for prefix in (in_prefix, out_prefix):
        if not isinstance(prefix, bytes):
            raise TypeError(f"a prefix is bytes, not {type(prefix).__name__}")
    prefixes = (in_prefix, out_prefix)

    def copy(way: int, parts: list[bytes]) -> None:
        mon_socket.send_multipart([prefixes[way], *parts])

    swap = in_socket.type == out_socket.type == SocketType.ROUTER
    mover = Moved(in_socket, out_socket, copy, swap)
    while True:
        mover.step(LOOK)


def device(device_type: int, frontend: Any, backend: Any) -> int:
    """proxy(), by its old name."""
    return proxy(frontend, backend)
