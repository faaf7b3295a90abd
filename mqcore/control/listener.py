"""Listener: one bound address of a socket.

Binding happens in the caller's thread, so that bind() can raise and peers can connect when it
returns. Accepting happens on the control thread, until the queue is empty or 64 are in, then others
have their turn. When the process is out of descriptors the listener pauses for 100 ms and says so:
the waiting connections stay in the kernel's queue, and nothing spins or dies.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from typing import Any

from mqcore.base.native import socket
from mqcore.control.endpoint import Endpoint
from mqcore.control.loop import ControlLoop, Timer
from mqcore.control.route import Route
from mqcore.errors import AddressError
from mqcore.spi.transport import Listening
from mqcore.spi.url import Url

TURN = 64  # accepts before others have their turn
PAUSE = 0.1  # seconds
# The kernel passes on what became of one connection before we took it: it is gone, the next waits.
GONE = {errno.ECONNABORTED, errno.EPERM, errno.EPROTO, errno.ENETDOWN, errno.ENOPROTOOPT,
        errno.EHOSTDOWN, errno.ENONET, errno.EHOSTUNREACH, errno.EOPNOTSUPP, errno.ENETUNREACH,
        errno.EINTR}


class Listener:
    """`on_accept(sock, remote)` on the control thread: sock is non-blocking and now the callee's;
    if it raises, the socket is closed here. Sockets of a transport that accepts nothing (datagrams)
    are given to it themselves. `on_event(what, error)`: "listening", "accept_paused",
    "accept_failed", "closed"."""

    def __init__(self, loop: ControlLoop, transport: Any, where: Route | Url | str,
                 options: Mapping[str, Any],
                 on_accept: Callable[[socket.socket, str], Any],
                 on_event: Callable[[str, BaseException | None], Any] | None = None, *,
                 start: bool = True) -> None:
        self.loop = loop
        self.transport = transport
        self.options = options
        self.accepted = 0
        self.paused = 0  # how often descriptors ran out
        self._on_accept = on_accept
        self._on_event = on_event
        self._timers: dict[int, Timer] = {}
        self._stopped = False
        self._listening: Listening | None = None
        self._sockets: list[socket.socket] = []
        self._route = route = Route.of(transport, where, "bind")
        route.check(options)
        if start:
            self.start()

    def start(self) -> None:
        """Once. A caller that must hold the object before it listens, since Ctrl-C may strike at
        any moment, makes it with start=False."""
        route = self._route
        try:
            self._listening = self.transport.listen(route.address, self.options)
        except AddressError as error:
            raise route.url.locate(error) from None
        self._sockets = list(self._listening.sockets)
        self.endpoint = Endpoint(route.show(self._listening.address), "bind",
                                 given=route.url.text, closer=self.stop)
        self._event("listening", None)
        try:
            self.loop.call_wait(self._start)
        except BaseException:  # Ctrl-C while we waited, too
            self.stop()
            raise

    def stop(self) -> None:
        """From any thread; the address is free when it returns. Idempotent."""
        self.loop.call_wait(self._stop)

    # -- on the control thread ---------------------------------------------------------------------

    def _start(self) -> None:
        if getattr(self.transport, "accepts", True):
            for sock in self._sockets:
                self._resume(sock)
            return
        sockets, self._sockets = self._sockets, []  # each is a connection itself
        for sock in sockets:
            self.loop.call(self._welcome, sock)

    def _resume(self, sock: socket.socket) -> None:
        self._timers.pop(sock.fileno(), None)
        if not self._stopped:
            self.loop.add_reader(sock.fileno(), lambda: self._accept(sock))

    def _accept(self, sock: socket.socket) -> None:
        for _ in range(TURN):
            if self._stopped:  # on_accept may close us
                return
            try:
                peer, _ = sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in GONE:
                    continue
                self._pause(sock, error)
                return
            self._welcome(peer)

    def _welcome(self, peer: socket.socket) -> None:
        try:
            peer.setblocking(False)
            self.transport.tune(peer, self.options)
            remote = self.transport.names(peer)[1]
        except Exception as error:  # reset before we could look at it, or a plug-in's fault
            peer.close()
            self._event("accept_failed", error)
            return
        self.accepted += 1
        try:
            self._on_accept(peer, remote)
        except BaseException:
            peer.close()
            raise

    def _pause(self, sock: socket.socket, error: OSError) -> None:
        """Out of descriptors or memory. Watched, a descriptor that stays readable would spin."""
        fd = sock.fileno()
        self.paused += 1
        self.loop.remove(fd)
        self._timers[fd] = self.loop.call_at(self.loop.clock() + PAUSE, self._resume, sock)
        self._event("accept_paused", error)

    def _stop(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._listening is None:
            return
        if self._listening.release is not None:
            self._listening.release()
        for sock in self._sockets:
            self.loop.remove(sock.fileno())
            sock.close()
        self.endpoint.move("closed")
        self._event("closed", None)

    def _event(self, what: str, error: BaseException | None) -> None:
        if self._on_event is not None:
            self._on_event(what, error)
