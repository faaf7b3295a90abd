"""proxy(), proxy_steerable(), monitored_queue() and device(): messages of one socket go to another,
and back, until the context is terminated.

Where mqcore's own device can take the two sockets, it moves the messages in the data plane; other
pairs, and monitored queues, are moved here one message at a time. A capture never holds up the
messages, as it may in libzmq: it misses what it has no space for.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from typing import Any

import mqcore as mq
from mqcore.api.device import Device
from mqcore.base.waits import Event, Released, stay_asleep
from mqcore.zmq.constants import Errno, Flag, PollEvent, SocketType
from mqcore.zmq.error import Again, ContextTerminated, ZMQError
from mqcore.zmq.poller import Poller

LOOK = 50  # ms between looks whether a device in the data plane has ended
IN_HAND = 1.0  # seconds for what a device in the data plane holds when it is ended
TURN = 5  # ms between looks at a proxy's control socket
POLLIN, POLLOUT, DONTWAIT = int(PollEvent.POLLIN), int(PollEvent.POLLOUT), Flag.DONTWAIT
SENDERS = (SocketType.PUSH, SocketType.PUB, SocketType.RADIO)   # they receive nothing
_log = logging.getLogger("mqcore")
#: types whose messages mqcore's device moves, front and back in any order
NATIVE = frozenset({
    frozenset({SocketType.ROUTER, SocketType.DEALER}),
    frozenset({SocketType.PULL, SocketType.PUSH}),
    frozenset({SocketType.XSUB, SocketType.XPUB}),
})
#: and copies that it makes
CAPTURES = (None, SocketType.PUB, SocketType.XPUB, SocketType.PUSH, SocketType.PAIR,
            SocketType.DEALER)


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
            stay_asleep()
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
    """The same, one message at a time. A message is taken when the other side has space for it, so
    a full way does not stop the other one. copy(way, parts): told of each, way 0 is front to back;
    it must not wait."""

    def __init__(self, front: Any, back: Any, copy: Callable[[int, list[bytes]], Any] | None,
                 swap: bool = False, poller: Any = None) -> None:
        self._ends = (front, back)
        self._copy = copy
        self._swap = swap  # both ROUTER: the second part names the receiver
        self._counts = [0] * 8
        self._poller = Poller() if poller is None else poller
        self._paused = False
        ways = ((0, front, back),) if front is back else ((0, front, back), (1, back, front))
        self._ways = [Way(*way) for way in ways if way[1].type not in SENDERS]

    def step(self, ms: int) -> None:
        if self._paused:
            Event().wait(ms / 1000)
            for end in self._ends:
                end._shared.refuse()
            return
        wanted = dict.fromkeys(self._ends, 0)
        for way in self._ways:
            wanted[way.sink if way.full else way.source] |= POLLOUT if way.full else POLLIN
        for end, events in wanted.items():
            self._poller.register(end, events)      # none: it is left out
        ready = dict(self._poller.poll(ms))
        for way in self._ways:
            if ready.get(way.sink if way.full else way.source, 0) & (
                    POLLOUT if way.full else POLLIN):
                self._move(way)

    def _move(self, way: Way) -> None:
        for _ in range(100):  # a burst, then the other side
            # a REP that is both has space once it has taken a request
            way.full = way.sink is not way.source and not way.sink._now() & POLLOUT
            if way.full or not way.flush():
                return
            try:
                parts = way.source.recv_multipart(DONTWAIT)
            except Again:
                return
            if self._swap:
                parts[:2] = parts[1::-1]
            if self._copy is not None:
                self._copy(way.number, parts)
            size = sum(map(len, parts))
            for at, number in ((4 * way.number, 1), (4 * way.number + 1, size),
                               (6 - 4 * way.number, 1), (7 - 4 * way.number, size)):
                self._counts[at] += number
            way.held = parts
            way.flush()

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False

    def counts(self) -> tuple[int, ...]:
        return tuple(self._counts)

    def end(self) -> None:
        """The sockets are the program's again. Nothing is in hand, but what a sink refused that
        had just said that it has space."""
        for way in self._ways:
            if not way.flush():
                _log.warning("a proxy has ended, and its sink has no space for the last message")


class Way:
    """One direction of a proxy."""

    def __init__(self, number: int, source: Any, sink: Any) -> None:
        self.number, self.source, self.sink = number, source, sink
        self.full = False       # it waits for the sink
        self.held: list[bytes] | None = None

    def flush(self) -> bool:
        """Whether nothing is held any more."""
        if self.held is not None:
            try:
                self.sink.send_multipart(self.held, DONTWAIT)
            except Again:
                self.full = True
                return False
            self.held = None
        return True


class Tap:
    """A copy for another socket: what has no space there is left out, once with a warning."""

    def __init__(self, socket: Any, prefixes: tuple[list[bytes], list[bytes]] = ([], [])) -> None:
        self._socket = socket
        self._prefixes = prefixes
        self.missed = 0

    def __call__(self, way: int, parts: list[bytes]) -> None:
        try:
            self._socket.send_multipart([*self._prefixes[way], *parts], DONTWAIT)
        except Again:
            if not self.missed:
                _log.warning("a proxy's capture has no space: it misses messages")
            self.missed += 1


def _mover(front: Any, back: Any, capture: Any) -> Native | Moved:
    kinds = frozenset({front.type, back.type})
    if kinds in NATIVE and getattr(capture, "type", None) in CAPTURES:
        return Native(front, back, capture)
    return Moved(front, back, None if capture is None else Tap(capture))


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
                    _answer(control, [b""])
                return 0
            _obey(mover, control, word)
    finally:
        mover.end()


def _obey(mover: Native | Moved, control: Any, word: bytes) -> None:
    if word == b"STATISTICS":
        _answer(control, [struct.pack("=Q", number) for number in mover.counts()])
        return
    if word == b"PAUSE":
        mover.pause()
    elif word == b"RESUME":
        mover.resume()
    else:
        raise ZMQError(Errno.EINVAL)
    if control.type == SocketType.REP:
        _answer(control, [b""])


def _answer(control: Any, parts: list[bytes]) -> None:
    try:
        control.send_multipart(parts, DONTWAIT)
    except Again:   # no answers are read there; the next command shall come through
        _log.warning("a proxy's control socket has no space for an answer")


def monitored_queue(in_socket: Any, out_socket: Any, mon_socket: Any, in_prefix: bytes = b"in",
                    out_prefix: bytes = b"out") -> int:
    """proxy() that sends a copy of each message to `mon_socket`, behind a part that says which way
    it went. Two ROUTERs exchange the first two parts."""
    for prefix in (in_prefix, out_prefix):
        if not isinstance(prefix, bytes):
            raise TypeError(f"a prefix is bytes, not {type(prefix).__name__}")
    swap = in_socket.type == out_socket.type == SocketType.ROUTER
    mover = Moved(in_socket, out_socket, Tap(mon_socket, ([in_prefix], [out_prefix])), swap)
    while True:
        mover.step(LOOK)


def device(device_type: int, frontend: Any, backend: Any) -> int:
    """proxy(), by its old name."""
    return proxy(frontend, backend)
