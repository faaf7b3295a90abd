"""The page and its files over HTTP: an ASGI application that uvicorn serves.

The files hold no secrets: what a page shows needs the token, which the address of the page carries
in its fragment, and a fragment never leaves the browser. Still, only requests that name this server
are answered, so no page of another name gets to read them (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import logging
import socket as system
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from mqcore.base.accepting import Accepting
from mqcore.base.rarely import Rarely
from mqcore.base.threads import Thread

FOLDER = Path(__file__).parent / "page"
FILES = {"/": ("index.html", "text/html; charset=utf-8"),
         "/console.css": ("console.css", "text/css; charset=utf-8"),
         "/icon.svg": ("icon.svg", "image/svg+xml"),
         **{f"/{name}.js": (f"{name}.js", "text/javascript; charset=utf-8")
            for name in ("console", "map", "socket", "table", "zws")}}
CONNECTIONS = 64        # at once; further ones get 503, and above twice as many nothing
HEADER = 16 << 10       # bytes of a request's header
IDLE = 5                # seconds until a connection is closed that does not send a whole request,
                        # or does not read the answer

Send = Callable[[dict[str, Any]], Awaitable[None]]
_log = logging.getLogger("mqcore.console.http")
_log.addFilter(Rarely())


def policy(live: list[str]) -> str:
    """The Content-Security-Policy: files of this server, and its live address, nothing else."""
    return ("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
            f"connect-src {' '.join(live)}; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'")


class Site:
    """The ASGI application. hosts: the values of the Host header that are answered. port: where
    the page's sockets listen. live: the addresses there, for the policy."""

    def __init__(self, hosts: set[str], port: int, live: list[str]) -> None:
        self._hosts = {host.encode() for host in hosts}
        self._files = {}
        for path, (name, kind) in FILES.items():
            body = (FOLDER / name).read_bytes()
            if name == "index.html":
                body = body.replace(b"@PORT@", str(port).encode())
            self._files[path] = body, kind.encode()
        self._headers = [
            (b"content-security-policy", policy(live).encode()),
            (b"x-content-type-options", b"nosniff"), (b"x-frame-options", b"DENY"),
            (b"referrer-policy", b"no-referrer"), (b"cache-control", b"no-store"),
            (b"cross-origin-opener-policy", b"same-origin"),
            (b"cross-origin-resource-policy", b"same-origin"),
            (b"permissions-policy", b"camera=(), geolocation=(), microphone=()")]

    @property
    def size(self) -> int:
        """The bytes of all files that a page loads."""
        return sum(len(body) for body, _ in self._files.values())

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Send) -> None:
        if scope["type"] != "http":
            return
        status, body, kind = self._answer(scope)
        await send({"type": "http.response.start", "status": status, "headers": [
            *self._headers, (b"content-type", kind),
            (b"content-length", str(len(body)).encode()),
            *([(b"allow", b"GET, HEAD")] if status == 405 else [])]})
        await send({"type": "http.response.body",
                    "body": b"" if scope["method"] == "HEAD" else body})

    def _answer(self, scope: dict[str, Any]) -> tuple[int, bytes, bytes]:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        plain = b"text/plain; charset=utf-8"
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return 421, b"This console does not answer under this name.\n", plain
        if scope["method"] not in ("GET", "HEAD"):
            return 405, b"Only GET and HEAD are supported.\n", plain
        found = self._files.get(scope["path"])
        if found is None:
            return 404, b"There is no such page.\n", plain
        return 200, *found


class Connection(H11Protocol):
    """uvicorn's, which ends a connection only once it has answered a request."""

    _slow: Any = None       # the request that was being answered at the latest look

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.logger = _log      # it writes a line for each request that it refuses

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > 2 * CONNECTIONS:
            transport.abort()

    def _wait(self) -> None:
        self._late = self.loop.call_later(IDLE, self._look)

    def _look(self) -> None:
        if self.cycle is None or self.cycle.response_complete or self.cycle is self._slow:
            self.transport.abort()
        else:
            self._slow = self.cycle
            self._wait()

    def on_response_complete(self) -> None:
        self._late.cancel()
        self._wait()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._late.cancel()
        super().connection_lost(exc)


class Serving(uvicorn.Server):
    """uvicorn, which counts connections over TLS before their handshake, too."""

    _accepting: Any = None

    async def startup(self, sockets: list[system.socket] | None = None) -> None:
        config = self.config
        if config.ssl is None or not sockets:
            await super().startup(sockets)
            return
        await super().startup([])
        self._accepting = Accepting(
            sockets[0], config.ssl,
            lambda: Connection(config, self.server_state, self.lifespan.state),
            self.server_state.connections, most=2 * CONNECTIONS, seconds=IDLE)

    async def shutdown(self, sockets: list[system.socket] | None = None) -> None:
        if self._accepting is not None:
            self._accepting.close()
        await super().shutdown(sockets)


class Server:
    """uvicorn in a thread of its own, on a socket that is bound already."""

    def __init__(self, sock: system.socket, site: Site, **tls: Any) -> None:
        self._sock = sock
        self._server = Serving(uvicorn.Config(
            site, loop="asyncio", http=Connection, ws="none", lifespan="off", interface="asgi3",
            log_config=None, access_log=False, server_header=False, proxy_headers=False,
            limit_concurrency=CONNECTIONS, h11_max_incomplete_event_size=HEADER,
            timeout_keep_alive=IDLE, timeout_graceful_shutdown=1, **tls))
        self._server.config.load()      # reads the certificate here, where an error can be raised
        self._thread = Thread(self._run, "mqcore-console-page")
        self._thread.start()

    def _run(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._sock]))

    def close(self) -> None:
        """Idempotent; complete on return."""
        self._server.should_exit = True
        self._thread.join()
        self._sock.close()
