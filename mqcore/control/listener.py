"""Listener: one bound address of a socket.

Binding happens on the caller's thread, so bind() can raise, and peers can connect when it returns.
Accepting happens on the control thread, up to 64 connections per turn. When the process runs out of
descriptors, the listener reports it and pauses for 100 ms. While `full()`, it reports that and
pauses until go_on(). Waiting connections stay in the kernel's queue meanwhile, and nothing spins.
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

TURN = 64  # accepts per turn of the loop
PAUSE = 0.1  # seconds
# accept() reports the error of a connection that ended while it waited; the next one may be fine.
GONE = {errno.ECONNABORTED, errno.EPERM, errno.EPROTO, errno.ENETDOWN, errno.ENOPROTOOPT,
        errno.EHOSTDOWN, errno.ENONET, errno.EHOSTUNREACH, errno.EOPNOTSUPP, errno.ENETUNREACH,
        errno.EINTR}


class Listener:
    """`on_accept(sock, remote)` runs on the control thread. sock is non-blocking and belongs to the
    callee. If the callee raises, the listener closes the socket. A transport that accepts nothing
    (datagrams) passes its own sockets to the callee. `on_event(what, error)` reports "listening",
    "accept_paused", "accept_held", "accept_failed" and "closed". The listener calls `full()` before
    each accept(), on the control thread; when it has been true, go_on() must follow."""

    def __init__(self, loop: ControlLoop, transport: Any, where: Route | Url | str,
                 options: Mapping[str, Any],
                 on_accept: Callable[[socket.socket, str], Any],
                 on_event: Callable[[str, BaseException | None], Any] | None = None, *,
                 full: Callable[[], bool] = lambda: False, start: bool = True) -> None:
        self.loop = loop
        self.transport = transport
        self.options = options
        self.address = ""  # the actual address, in the transport's form
        self.told = False  # "listening" has been reported
        self.accepted = 0
        self.paused = 0  # how often the process ran out of descriptors
        self._on_accept = on_accept
        self._on_event = on_event
        self._full = full
        self._held: list[socket.socket] = []  # not read until go_on()
        self._timers: dict[int, Timer] = {}
        self._stopped = False
        self._listening: Listening | None = None
        self._sockets: list[socket.socket] = []
        self._route = route = Route.of(transport, where, "bind")
        route.check(options)
        self.endpoint = Endpoint(route.url.text, "bind", closer=self.stop, lock=loop.lock)
        if start:
            self.listen()
            self.accept()

    def listen(self) -> None:
        """Start listening. Call once. The kernel queues connections until accept(). A caller that
        needs the object before it listens, because Ctrl-C may interrupt at any time, creates it
        with start=False."""
        route = self._route
        try:
            self._listening = self.transport.listen(route.address, self.options)
        except AddressError as error:
            raise route.url.locate(error) from None
        self._sockets = list(self._listening.sockets)
        self.endpoint.url = route.show(self._listening.address)
        self.address = self._listening.address

    def accept(self) -> None:
        """From now on on_accept is called. Call once, after listen()."""
        try:
            self.loop.call_wait(self._start)
        except BaseException:  # including Ctrl-C during the wait
            self.stop()
            raise

    def stop(self) -> None:
        """Stop; callable from any thread. When it returns, the address is free. Idempotent."""
        self.loop.call_wait(self._stop)

    def go_on(self) -> None:
        """full() may be false again. Callable from any thread."""
        self.loop.call(self._go_on)

    # -- on the control thread ---------------------------------------------------------------------

    def _start(self) -> None:
        if self._stopped:  # by another thread, since listen()
            return
        self.told = True
        self._event("listening", None)  # before anything comes of it
        if getattr(self.transport, "accepts", True):
            for sock in self._sockets:
                self._resume(sock)
            return
        sockets, self._sockets = self._sockets, []  # each is a connection
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
            if self._full():
                self.loop.remove(sock.fileno())
                self._held.append(sock)
                self._event("accept_held", None)
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

    def _go_on(self) -> None:
        held, self._held = self._held, []
        for sock in held:
            self._resume(sock)

    def _welcome(self, peer: socket.socket) -> None:
        try:
            peer.setblocking(False)
            self.transport.tune(peer, self.options)
            remote = self.transport.names(peer)[1]
        except Exception as error:  # the peer reset the connection, or a plug-in failed
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
        """Out of descriptors or memory: pause, because the readable descriptor would spin."""
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
        self._held.clear()
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
