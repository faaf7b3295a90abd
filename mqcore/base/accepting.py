"""Accepts the connections of an asyncio server over TLS, and counts them before their handshake.

asyncio tells a server's protocol of a connection only once TLS has shaken hands, so a client that
never does so is in no limit of that server.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

from mqcore.base.native import socket

AT_ONCE = 64        # connections that are accepted in one turn of the loop
PAUSE = 1.0         # seconds until the next attempt, where the process has no descriptors left


class Accepting:
    """Accepts at `listening`, in the running loop. make() gives a connection's protocol, which is
    one of `connections` from the first moment. A connection ends at once if these are `most`, and
    if its handshake takes more than `seconds`. refused() and late() are called for each of them."""

    def __init__(self, listening: socket.socket, context: ssl.SSLContext,
                 make: Callable[[], asyncio.Protocol], connections: set[Any], *, most: int,
                 seconds: float, refused: Callable[[], None] = lambda: None,
                 late: Callable[[], None] = lambda: None) -> None:
        self._listening, self._context, self._make = listening, context, make
        self._connections, self._most, self._seconds = connections, most, seconds
        self._refused, self._late = refused, late
        self._loop = asyncio.get_running_loop()
        self._shaking: dict[asyncio.Task[None], asyncio.Protocol] = {}
        self._timer: asyncio.TimerHandle | None = None
        listening.setblocking(False)
        self._begin()

    def close(self) -> None:
        """Accept no more, and end handshakes that go on. The listening socket stays open."""
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self._listening)
        for task, protocol in self._shaking.items():
            self._connections.discard(protocol)
            task.cancel()

    def _begin(self) -> None:
        self._timer = None
        self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                sock, _where = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                self._loop.remove_reader(self._listening)
                self._timer = self._loop.call_later(PAUSE, self._begin)
                return
            if len(self._connections) >= self._most:
                self._refused()
                sock.close()
                continue
            sock.setblocking(False)
            protocol = self._make()
            self._connections.add(protocol)
            task = self._loop.create_task(self._shake(sock, protocol))
            self._shaking[task] = protocol
            task.add_done_callback(self._shaking.pop)

    async def _shake(self, sock: socket.socket, protocol: asyncio.Protocol) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: protocol, sock, ssl=self._context, ssl_handshake_timeout=self._seconds)
        except BaseException as error:      # asyncio has closed the socket
            self._connections.discard(protocol)
            if isinstance(error, ConnectionAbortedError):
                self._late()
            elif not isinstance(error, OSError):
                raise
