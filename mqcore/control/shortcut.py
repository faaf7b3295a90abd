"""Shortcut: shared memory in place of tcp or ipc, between two sockets of one user on one machine
that both have `upgrade=True`.

A listener opens a second door beside each socket that it binds: a listener of shm, at an abstract
name made of the user and of what the socket is bound to (`local_name` in spi/transport.py). It
opens before the socket listens and closes before it does, and what it is bound to belongs to one
socket only, so whoever finds the name there would have reached the same listener. A connector tries
these names before its targets. A connection through one is a connection of shm; everything else,
the endpoint too, stays what it was.

Abstract names belong to a network namespace, as ports do. Every user may take one, so a connector
looks who listens before it says anything, and tries the next target if it is not its own user.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from mqcore import options as table
from mqcore.base.native import socket
from mqcore.control.connection import demanded, owner_of
from mqcore.control.route import Route
from mqcore.errors import BindError, PluginError, UnknownTransport
from mqcore.spi import registry
from mqcore.spi.transport import Listening

MEMORY = "shm"
PREFIX = "@mqcore/"
_log = logging.getLogger("mqcore")


class Door(NamedTuple):
    """A target that is the second door of a listener."""

    address: str


def address_of(name: str) -> str:
    return f"{PREFIX}{os.geteuid()}/{name}"


def passed(sock: socket.socket, role: str) -> bool:
    """Whether this connection came through a second door."""
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

    def resolve(self, address: str, options: Mapping[str, Any]) -> list[Any]:
        targets = self.transport.resolve(address, options)
        names = [name for target in targets
                 for name in self.transport.local_names(target, options)]
        return [*(Door(address_of(name)) for name in dict.fromkeys(names)), *targets]

    def connect(self, target: Any, options: Mapping[str, Any]) -> socket.socket:
        if not isinstance(target, Door):
            made: socket.socket = self.transport.connect(target, options)
            return made
        sock: socket.socket = self.memory.connect(target.address, options)
        if owner_of(sock, self.memory.pid(sock))[0] != os.geteuid():
            sock.close()
            raise OSError(errno.EPERM, "another user's process has taken the name of the shortcut")
        return sock

    def finish(self, sock: socket.socket) -> int:
        return int(self._of(sock).finish(sock))

    def tune(self, sock: socket.socket, options: Mapping[str, Any]) -> None:
        self._of(sock).tune(sock, options)

    def names(self, sock: socket.socket) -> tuple[str, str]:
        found: tuple[str, str] = self._of(sock).names(sock)
        return found

    def listen(self, address: str, options: Mapping[str, Any]) -> Listening:
        doors: dict[int, Listening] = {}    # by the descriptor of the bound socket

        def open_door(sock: socket.socket) -> None:
            name = self.transport.local_name(sock, options)
            before = doors.pop(sock.fileno(), None)
            if before is not None:      # of a socket that could not listen, closed since
                _close(before)
            if name:
                door = _listen(self.memory, address_of(name), options)
                if door is not None:
                    doors[sock.fileno()] = door

        try:
            listening = self.transport.listen(address, {**options, "listen.beside": open_door})
        except BaseException:
            for door in doors.values():
                _close(door)
            raise
        used = [doors.pop(sock.fileno(), None) for sock in listening.sockets]
        for door in doors.values():
            _close(door)
        opened = [sock for door in used if door is not None for sock in door.sockets]
        return Listening((*opened, *listening.sockets), listening.address, listening.release)


def _listen(memory: Any, address: str, options: Mapping[str, Any]) -> Listening | None:
    try:
        made: Listening = memory.listen(address, options)
    except BindError as error:
        _log.warning("no shared memory for a listener with upgrade=True: %s", error)
        return None
    return made


def _close(door: Listening) -> None:
    for sock in door.sockets:
        sock.close()


def beside(links: Any, route: Route, options: dict[str, Any]) -> Any:
    """The transport for a bind() or connect() of this route: its own, or a Beside, for which
    `options` get those of the shared memory. Where the program wants more of the link than its
    messages (encryption, a protocol, a device), it stays as it is."""
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
    rows = registry.transport_options(MEMORY)
    for name, value in table.for_link(links.options, (), {}, extra=rows).items():
        options.setdefault(name, value)
    return Beside(transport, memory, route.role)


def way(transport: Any, route: Route, sock: socket.socket) -> Route:
    """The route that a connection of this transport has taken."""
    if isinstance(transport, Beside) and passed(sock, route.role):
        route = Route.of(transport.memory, f"{MEMORY}://{PREFIX}", route.role)
        route.second = True
    return route
