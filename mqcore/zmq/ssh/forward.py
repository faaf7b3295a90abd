"""Forwarding over a connection of paramiko's: a port here leads to a host and port there."""

from __future__ import annotations

import logging
import select
import socketserver
import time
from collections.abc import Callable
from typing import Any

from mqcore.zmq.borrowed import lend

log = logger = logging.getLogger("mqcore.zmq.ssh")
LOOK = 0.5  # seconds between looks whether it is to end
PIECE = 65536  # bytes


class Handler(socketserver.BaseRequestHandler):
    """One connection."""

    server: ForwardServer

    def handle(self) -> None:
        server = self.server
        try:
            channel = server.transport.open_channel("direct-tcpip", server.remote,
                                                    self.request.getpeername())
        except Exception as error:
            log.warning("%s:%d through ssh: %s", *server.remote, error)
            return
        try:
            _pump(self.request, channel)
        except OSError as error:
            log.debug("%s:%d through ssh: %s", *server.remote, error)
        finally:
            channel.close()


def _pump(here: Any, there: Any) -> None:
    """Until either side is at its end."""
    while True:
        ready, _, _ = select.select([here, there], [], [])
        for source, to in ((here, there), (there, here)):
            if source in ready:
                data = source.recv(PIECE)
                if not data:
                    return
                to.sendall(data)


class ForwardServer(socketserver.ThreadingTCPServer):
    """Listens on 127.0.0.1."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, local_port: int, remote_host: str, remote_port: int, transport: Any) -> None:
        self.transport, self.remote = transport, (remote_host, remote_port)
        self.open = 0
        super().__init__(("127.0.0.1", local_port), Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.open += 1
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.open -= 1

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.exception("a connection through ssh")


def serve(local_port: int, remote_host: str, remote_port: int, transport: Any,
          idle: float | None = None, up: Callable[[], Any] | None = None) -> None:
    """Forward until the ssh connection ends, or has been unused for `idle` seconds."""
    used = time.monotonic()
    with ForwardServer(local_port, remote_host, remote_port, transport) as server:
        if up is not None:
            up()
        server.timeout = LOOK
        while transport.is_active():
            server.handle_request()
            now = time.monotonic()
            if server.open:
                used = now
            elif idle is not None and now - used >= idle:
                return


def forward_tunnel(local_port: int, remote_host: str, remote_port: int, transport: Any) -> None:
    """Serve 127.0.0.1:local_port until the ssh connection ends. transport: paramiko's."""
    serve(local_port, remote_host, remote_port, transport)


__all__ = ["forward_tunnel"]

__getattr__ = lend(__name__)
