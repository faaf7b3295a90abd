"""Shortcut: shared memory in place of tcp or ipc, between two sockets of one user on one machine
that both have `upgrade=True`.

A listener opens a shortcut beside each socket that it binds: a listener of shm, at an abstract
name made of the user and of what the socket is bound to (`local_name` in spi/transport.py). It
opens before the socket listens and closes before it does, and what it is bound to belongs to one
socket only. So a connector that finds the name would have reached the same listener. It tries
the shortcuts of each target before the target. A connection through one is a connection of shm. The
endpoint stays what it was, and the peer has the addresses of the shortcut.

A shortcut whose handshake fails says nothing of the peer, so the connector goes on to the target:
one of the two may have changed its user, or have no memory or descriptors for it.

Abstract names belong to a network namespace, as ports do. Every user may take one, so a connector
asks the kernel for the listener's user before it sends anything, and goes on to the target if that
is another one.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from mqcore import options as table
from mqcore.base.native import socket
from mqcore.control.connection import demanded
from mqcore.control.route import Route
from mqcore.errors import BindError, PluginError, UnknownTransport
from mqcore.spi import registry
from mqcore.spi.credentials import credentials, is_anybody
from mqcore.spi.transport import Listening

MEMORY = "shm"
PATIENCE = 1.0  # seconds that the listener's process may take to accept the memory
PREFIX = "@mqcore.upgrade/"
_log = logging.getLogger("mqcore")


class Shortcut(NamedTuple):
    """A target of shm that leads to the listener of another target."""

    address: str
    before: Any  # the other target


def address_of(name: str) -> str:
    return f"{PREFIX}{os.geteuid()}/{name}"


def passed(sock: socket.socket, role: str) -> bool:
    """Whether this connection came through a shortcut."""
    if sock.family != socket.AF_UNIX:
        return False
    try:
        name = sock.getpeername() if role == "connect" else sock.getsockname()
    except OSError:
        return False
    return os.fsencode(name).startswith(b"\0" + PREFIX[1:].encode())


@dataclass(frozen=True)
class Beside:
    """A stream transport, and `memory` beside it. Equal ones share their look-ups."""

    transport: Any
    memory: Any
    role: str

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)

    def _of(self, sock: socket.socket) -> Any:
        return self.memory if passed(sock, self.role) else self.transport

    def ways(self, targets: Iterable[Any], options: Mapping[str, Any]) -> list[Any]:
        """What to try: each target, after its shortcuts."""
        found: list[Any] = []
        for target in targets:
            names = self.transport.local_names(target, options)
            found += [*(Shortcut(address_of(name), target) for name in names), target]
        return found

    def connect(self, target: Any, options: Mapping[str, Any]) -> socket.socket:
        if not isinstance(target, Shortcut):
            made: socket.socket = self.transport.connect(target, options)
            return made
        sock: socket.socket = self.memory.connect(target.address, options)
        try:
            if credentials(sock).uid != os.geteuid():
                raise OSError(errno.EPERM, "another user has taken the name of the shortcut")
        except OSError:
            sock.close()
            raise
        return sock

    def finish(self, sock: socket.socket) -> int:
        return int(self._of(sock).finish(sock))

    def tune(self, sock: socket.socket, options: Mapping[str, Any]) -> None:
        self._of(sock).tune(sock, options)

    def names(self, sock: socket.socket) -> tuple[str, str]:
        found: tuple[str, str] = self._of(sock).names(sock)
        return found

    def listen(self, address: str, options: Mapping[str, Any]) -> Listening:
        shortcuts: dict[int, Listening] = {}    # by the descriptor of the bound socket

        def open_shortcut(sock: socket.socket) -> None:
            before = shortcuts.pop(sock.fileno(), None)
            if before is not None:      # of a socket that could not listen, closed since
                _close(before)
            name = self.transport.local_name(sock, options)
            shortcut = _listen(self.memory, address_of(name), options) if name else None
            if shortcut is not None:
                shortcuts[sock.fileno()] = shortcut

        try:
            listening = self.transport.listen(address, {**options, "listen.beside": open_shortcut})
            used = [shortcuts.pop(sock.fileno(), None) for sock in listening.sockets]
        finally:
            for shortcut in shortcuts.values():     # of sockets that are closed again
                _close(shortcut)
        opened = [sock for shortcut in used if shortcut is not None for sock in shortcut.sockets]
        return Listening((*opened, *listening.sockets), listening.address, listening.release)


def _listen(memory: Any, address: str, options: Mapping[str, Any]) -> Listening | None:
    try:
        made: Listening = memory.listen(address, options)
    except BindError as error:
        _log.warning("no shared memory for a listener with upgrade=True: %s", error)
        return None
    return made


def _close(shortcut: Listening) -> None:
    for sock in shortcut.sockets:
        sock.close()


def transport_of(links: Any, route: Route, options: dict[str, Any]) -> Any:
    """The transport for a bind() or connect() of this route: its own, or a Beside, for which
    `options` get those of the shared memory. Where the program wants more of the link than its
    messages (encryption, a protocol, a device), it stays as it is. So it does where the kernel does
    not tell users apart."""
    plugin, transport = links.plugin, route.transport
    if not options["upgrade"] or transport.kind != "stream" or route.filters \
            or links.hub.world is not None:
        return transport
    if plugin.raw or not plugin.zmtp or options["wire"] == "sp" or demanded(options):
        return transport
    try:
        memory = registry.transport(MEMORY)
    except (UnknownTransport, PluginError):
        return transport
    if is_anybody(os.geteuid()):
        return transport
    rows = registry.transport_options(MEMORY)
    own = table.for_link(links.options, (), {}, extra=rows)
    for row in rows:
        options[row.name] = own[row.name]
    options["peer_uid"] = None      # the name is for one user
    return Beside(transport, memory, route.role)


def way(transport: Any, route: Route, sock: socket.socket) -> Route:
    """The route that a connection of this transport has taken."""
    if isinstance(transport, Beside) and passed(sock, route.role):
        return Route.of(transport.memory, f"{MEMORY}://{PREFIX}", route.role)
    return route
