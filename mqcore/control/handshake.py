"""Handshake: the steps of a connection before it carries messages.

A generator yields "read" or "write" when it must wait for its descriptor, and returns its result.
`pass_filters` below is the one for the handshakes of filters; for a message engine it is the
transport's own `open`. It runs on the control thread, in small steps, until it succeeds, fails or
times out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from mqcore.base.native import socket
from mqcore.control.loop import ControlLoop, Timer
from mqcore.spi.filter import Refused

PIECE = 64 * 1024


class Handshake:
    """Calls `on_done(result)` or `on_failed(error, fatal)` once, on the control thread. `error` is
    Refused (`fatal`: the peer does not fit), OSError, or any error of a plug-in. The caller keeps
    the descriptor."""

    def __init__(self, loop: ControlLoop, sock: socket.socket, steps: Generator[str, None, Any],
                 timeout: float | None, on_done: Callable[[Any], None],
                 on_failed: Callable[[BaseException, bool], None]) -> None:
        self.loop = loop
        self.sock = sock
        self.sessions: list[Any] = []  # filters that it ends
        self._steps = steps
        self._over = False
        self._timeout = timeout
        self._on_done = on_done
        self._on_failed = on_failed
        self._timer: Timer | None = None
        self._waits = ""

    def start(self) -> None:
        """Runs on the control thread."""
        if self._timeout:
            self._timer = self.loop.call_at(self.loop.clock() + self._timeout, self._too_late)
        self._step()

    def stop(self) -> None:
        """Runs on the control thread. No callback runs afterwards. Idempotent."""
        if self._over:
            return
        self._end(lambda: None)
        self._steps.close()

    def _rest(self) -> None:
        if self._waits:
            self.loop.remove(self.sock.fileno())
            self._waits = ""

    def _step(self) -> None:
        if self._over:
            return
        try:
            wants = next(self._steps)
        except StopIteration as end:
            made = end.value  # the except clause forgets its name
            self._end(lambda: self._on_done(made))
        except Exception as error:  # any error of a plug-in
            # Bind the error to no other name, which would outlive this clause. The error refers to
            # this frame, the frame would refer to the error, and the results of the steps would
            # wait for the garbage collector.
            self._end(partial(self._on_failed, error, isinstance(error, Refused)))
        else:
            if wants != self._waits:
                self._rest()
                watch = self.loop.add_writer if wants == "write" else self.loop.add_reader
                watch(self.sock.fileno(), self._step)
                self._waits = wants

    def _too_late(self) -> None:
        if not self._over:
            self._steps.close()
            error = TimeoutError(f"the handshake was not complete after {self._timeout:g} s")
            self._end(partial(self._on_failed, error, False))

    def _end(self, tell: Callable[[], None]) -> None:
        self._over = True
        self._rest()
        if self._timer is not None:
            self._timer.cancel()
        tell()


class Climb:
    """The handshakes of a chain of filters, innermost first. Bytes in, bytes out; no I/O."""

    def __init__(self, sessions: list[Any]) -> None:
        self.chain = sessions[::-1]  # the innermost first
        self.out = bytearray()  # for the descriptor
        self.left = b""  # data for the layer above all filters
        self._at = 0  # the filter whose handshake is running
        self.chain[0].start()
        self._say(0)
        self._advance(b"")

    @property
    def done(self) -> bool:
        return self._at == len(self.chain)

    def _say(self, i: int) -> None:
        """Pass the output of filter i through the filters below it."""
        data = self.chain[i].outgoing()
        for below in self.chain[:i][::-1]:
            if not data:
                return
            below.send(data)
            data = below.outgoing()
        self.out += data

    def _take(self, i: int, data: bytes) -> bytes:
        plain = self.chain[i].receive(data)
        self._say(i)
        if self.chain[i].ended:
            raise Refused("the peer ended the connection during the handshake")
        return bytes(plain)

    def feed(self, data: bytes) -> None:
        """Process bytes of the descriptor. Raises Refused; `out` may then hold a final message."""
        for i in range(min(self._at + 1, len(self.chain))):
            if data:
                data = self._take(i, data)
        self._advance(data)

    def last_words(self) -> bytes:
        """After Refused: what the filters still want to send to the peer."""
        self._say(min(self._at, len(self.chain) - 1))
        return bytes(self.out)

    def _advance(self, data: bytes) -> None:
        """Continue with the next filter whenever one is done. `data` is for that filter."""
        while not self.done and self.chain[self._at].established:
            self._at += 1
            if not self.done:
                self.chain[self._at].start()
                self._say(self._at)
                if data:
                    data = self._take(self._at, data)
        if self.done:
            self.left += data


def pass_filters(sock: socket.socket, sessions: list[Any]) -> Generator[str, None, bytes]:
    """Run the handshakes of all filters over a non-blocking socket. Returns the bytes that followed
    them. Raises Refused or OSError. The caller keeps the sessions."""
    climb = Climb(sessions)
    while True:
        yield from _flush(sock, climb.out)
        if climb.done:
            return climb.left
        try:
            data = sock.recv(PIECE)
        except BlockingIOError:
            yield "read"
            continue
        if not data:
            raise ConnectionError("the peer closed the connection during the handshake")
        try:
            climb.feed(data)
        except Refused:
            with contextlib.suppress(Exception):  # report the refusal instead
                sock.send(climb.last_words(), socket.MSG_NOSIGNAL)
            raise


def _flush(sock: socket.socket, out: bytearray) -> Generator[str, None, None]:
    while out:
        try:
            del out[:sock.send(out, socket.MSG_NOSIGNAL)]
        except BlockingIOError:
            yield "write"
