"""The gateway on uvicorn: listening, limits below HTTP, TLS, the end.

uvicorn parses HTTP with httptools and WebSocket with wsproto. What it leaves open is bounded here:
the number of connections, the size of headers and how long they take, pipelined requests, pongs to
a client that does not read.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
import ssl
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

try:
    import uvicorn
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
except ImportError as _error:
    raise ImportError(f'the HTTP gateway needs {_error.name}: pip install "mqcore[http]"',
                      name=_error.name) from None

from mqcore.base import waits
from mqcore.base.accepting import Accepting
from mqcore.base.components import COMPONENTS, State, numbers
from mqcore.base.rarely import Rarely
from mqcore.base.threads import Thread
from mqcore.errors import AddressError, BindError, Error, OptionError, UsageError
from mqcore.http import config
from mqcore.http.access import hosts_for, is_loopback, read_tokens
from mqcore.http.bounds import Limits, Stats
from mqcore.http.gateway import Gateway
from mqcore.http.problem import TYPE, Problem
from mqcore.http.route import parse

PIPELINED = 16              # requests of one connection that wait for their turn
UNREAD = 256 << 10          # bytes of pongs that a client leaves unread
DISCARD = 2.0               # seconds that a refused body is read for
START = 60.0
_log = logging.getLogger("mqcore.http.server")
_log.addFilter(Rarely())


def reply(problem: Problem) -> bytes:
    """A whole answer, for a connection that ends with it."""
    body = problem.body()
    return (b"HTTP/1.1 %d %s\r\ncontent-type: %s\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            % (problem.status, b"Refused", TYPE, len(body))) + body


class Corked:
    """What an answer is written to. `hold` keeps the head of an answer until its body comes."""

    def __init__(self, transport: Any) -> None:
        self.abort = transport.abort
        self.is_closing = transport.is_closing
        self._transport = transport
        self._holds = False
        self._head = b""

    def hold(self) -> None:
        self._holds = True

    def write(self, data: bytes) -> None:
        if self._holds:
            self._holds = False
            self._head = data
        elif self.is_closing():     # refused in the middle, or gone: no client reads it
            self._head = b""
        elif self._head:
            head, self._head = self._head, b""
            self._transport.writelines((head, data))
        else:
            self._transport.write(data)

    def close(self) -> None:
        self._holds = False
        if self._head:
            self.write(b"")
        self._transport.close()


class Guarded(HttpToolsProtocol):
    """One connection. `limits` and `stats` are the gateway's."""

    limits: Limits
    stats: Stats

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.logger = _log      # it writes a line for each request that is no HTTP

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.most = self.limits.header_bytes
        self.unparsed = 0       # bytes since the last event, at least
        self.chunk = 0          # bytes of this call
        self.size = 0           # bytes of the message, at most
        self.refused: Problem | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.due = math.inf
        self.corked = Corked(transport)
        if len(self.connections) > self.limits.clients:
            self.stats.turned_away += 1
            transport.write(reply(Problem(503, "clients", f"{self.limits.clients} clients are "
                                          "connected", "connect again later")))
            transport.close()
            self._arm(1.0)
            return
        self._arm(self.limits.header_time)

    def connection_lost(self, exc: Exception | None) -> None:
        self.due = math.inf
        if self.timer is not None:
            self.timer.cancel()
        super().connection_lost(exc)

    def _arm(self, delay: float) -> None:
        """Cut the connection so many seconds from now, unless `due` is moved. The timer itself is
        moved seldom: when it fires too early, or would fire too late."""
        self.due = self.loop.time() + delay
        if self.timer is not None:
            if self.timer.when() <= self.due:
                return
            self.timer.cancel()
        self.timer = self.loop.call_at(self.due, self._look)

    def _look(self) -> None:
        """No headers in time; or the client has not even read its last answer."""
        self.timer = None
        if self.due > self.loop.time():
            if self.due < math.inf:
                self.timer = self.loop.call_at(self.due, self._look)
            return
        self.stats.late += 1
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self.chunk = chunk = len(data)
        self.unparsed += chunk
        self.size += chunk
        super().data_received(data)
        if self.parser is None:
            return
        if self.unparsed > self.most or self.size > self.most and self._large():
            self._oversized()
            self.send_400_response("")
        elif self.unparsed and self.due == math.inf and (
                self.cycle is None or self.cycle.response_complete):
            self._arm(self.limits.idle_time + self.limits.header_time)

    def _oversized(self) -> None:
        self.stats.oversized += self.refused is None
        self.refused = Problem(431, "header_size", "the headers are larger than "
                               f"{self.limits.header_bytes} bytes", "send fewer")

    def send_400_response(self, msg: str) -> None:
        problem = self.refused or Problem(400, "http", "the request is no HTTP", "send HTTP/1.1")
        if not self.transport.is_closing():
            self.transport.write(reply(problem))
            self.transport.close()
            self._arm(1.0)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.size = self.chunk
        self.scope["mqcore.connection"] = self.corked       # type: ignore[typeddict-unknown-key]

    def _large(self) -> bool:
        """Whether the headers, with the trailers of a chunked body, are too large. They are added
        up only in a message that is larger."""
        return self.most < len(self.url) + sum(
            len(name) + len(value) + 4 for name, value in self.headers)

    def _bound(self) -> None:
        """ValueError for headers that are too large. uvicorn then calls send_400_response."""
        if self._large():
            self._oversized()
            raise ValueError("headers too large")

    def on_headers_complete(self) -> None:
        if self.size > self.most:
            self._bound()
        self.unparsed = 0
        self.due = math.inf
        super().on_headers_complete()
        if self.cycle is not None:      # it is None where the connection becomes a WebSocket
            self.cycle.transport = self.corked      # type: ignore[assignment]
        if len(self.pipeline) > PIPELINED:
            self.stats.oversized += 1
            self.transport.abort()
            raise ValueError("too many pipelined requests")

    def on_body(self, body: bytes) -> None:
        self.unparsed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.size > self.most:
            self._bound()
        self.unparsed = 0
        super().on_message_complete()
        if self.cycle is not None and self.cycle.response_complete:
            self._arm(self.limits.idle_time + self.limits.header_time)

    def on_response_complete(self) -> None:
        """A body that comes after its answer is discarded for a while, so that the client reads the
        answer; a connection that is closed at once may lose it. uvicorn ends idle connections."""
        super().on_response_complete()
        if not self.cycle.response_complete:
            return                      # a pipelined request is next
        unread = self.transport.get_write_buffer_size()
        if self.cycle.more_body and (unread or not self.transport.is_closing()):
            self._arm(DISCARD)
        elif unread:
            self._arm(self.limits.idle_time + self.limits.header_time)


class GuardedTalk(WSProtocol):
    """One WebSocket."""

    stats: Stats

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        scope: Any = self.scope
        scope["mqcore.connection"] = Corked(self.transport)

    def handle_ping(self, event: Any) -> None:
        if self.transport.is_closing():
            return
        if self.transport.get_write_buffer_size() > UNREAD:
            self.stats.slow += 1
            self.transport.abort()
            return
        super().handle_ping(event)


def add(stats: Stats, counter: str) -> None:
    setattr(stats, counter, getattr(stats, counter) + 1)


class Serving(uvicorn.Server):
    """uvicorn, which ends the gateway's streams before it waits for requests in progress."""

    def __init__(self, config: uvicorn.Config, gateway: Gateway) -> None:
        super().__init__(config)
        self.gateway = gateway
        self.ready = waits.Event()
        self._accepting: Accepting | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.gateway.start()
        if self.config.ssl is None or not sockets:
            await super().startup(sockets)
        else:
            await super().startup([])
            self._accept(sockets[0], self.config.ssl)
        self.ready.set()

    def _accept(self, listening: socket.socket, context: ssl.SSLContext) -> None:
        """Over TLS, count connections before their handshake, too."""
        limits, stats = self.gateway.limits, self.gateway.stats
        make: Any = self.config.http_protocol_class
        self._accepting = Accepting(
            listening, context, lambda: make(self.config, self.server_state, self.lifespan.state),
            self.server_state.connections, most=limits.clients, seconds=limits.header_time,
            refused=lambda: add(stats, "turned_away"), late=lambda: add(stats, "late"))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.gateway.drain()
        if self._accepting is not None:
            self._accepting.close()
        try:
            await super().shutdown(sockets)
        finally:
            await self.gateway.stop()


def listen(url: str) -> tuple[socket.socket, str, str]:
    """(listening socket, host, URL with the real port). AddressError, BindError."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if not host or port is None or parts.scheme not in ("http", "https") \
            or parts.path.strip("/") or parts.query or parts.username is not None:
        raise AddressError(f"{url!r} is no address of a gateway", position=0,
                           hint="write http://HOST:PORT or https://HOST:PORT")
    bound = {"*": "0.0.0.0"}.get(host, host)
    try:
        family, kind, proto, _, place = socket.getaddrinfo(
            bound, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.socket(family, kind, proto)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(place)
            listening.listen(1024)
            listening.setblocking(False)
        except BaseException:
            listening.close()
            raise
    except OSError as error:
        raise BindError(f"cannot bind {url}: {error.strerror or error}",
                        hint="choose another address, or port 0 for a free one") from None
    shown = f"[{bound}]" if ":" in bound else bound
    return listening, bound, f"{parts.scheme}://{shown}:{listening.getsockname()[1]}"


def tls(cert: str, key: str) -> ssl.SSLContext:
    """OptionError if the files are no certificate with its key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(cert, key or None)
    except OSError as error:        # ssl.SSLError is one
        raise OptionError(f"cannot use the certificate {cert}: {error}",
                          hint="give a PEM file with the chain, and its key") from None
    return context


def serving(gateway: Gateway, context: ssl.SSLContext | None) -> Serving:
    """uvicorn with the gateway's limits."""
    limits = gateway.limits
    bound: dict[str, Any] = {"limits": limits, "stats": gateway.stats}
    made: dict[str, Any] = {} if context is None else {
        "ssl_context_factory": lambda *_: context}
    return Serving(uvicorn.Config(
        gateway, http=type("Guarded", (Guarded,), bound), ws=type("GuardedTalk", (GuardedTalk,),
                                                                 bound),
        lifespan="off", log_config=None, access_log=False, server_header=False,
        proxy_headers=False, ws_max_size=limits.body_bytes, ws_per_message_deflate=False,
        ws_ping_interval=limits.heartbeat, ws_ping_timeout=limits.send_time,
        timeout_keep_alive=int(limits.idle_time) or 1,
        timeout_graceful_shutdown=int(limits.drain) or 1, **made), gateway)


class Server:
    """A gateway that runs in a thread of its own, until `stop` or the end of the `with` block.
    `serve` makes one. `run` runs it in this thread instead."""

    def __init__(self, gateway: Gateway, listening: socket.socket, url: str,
                 context: ssl.SSLContext | None) -> None:
        self.gateway, self.url = gateway, url
        self._listening = listening
        self._serving = serving(gateway, context)
        self._thread: Thread | None = None
        self._error: BaseException | None = None
        self._running = False

    def run(self) -> None:
        """Serve in this thread until Ctrl-C or SIGTERM, which are raised again at the end."""
        self._running = True
        COMPONENTS.add(self)
        try:
            self._serving.run([self._listening])
        finally:
            self._running = False
            self._listening.close()

    def _mq_components(self) -> list[State]:
        if self._running:
            return [State("HTTP gateway", self.url, counts=numbers(self.stats()))]
        return [] if self._error is None else [
            State("HTTP gateway", self.url, "failed", str(self._error))]

    def _main(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self._error = error
        finally:
            self._serving.ready.set()

    def __enter__(self) -> Server:
        self._thread = Thread(self._main, "mqcore-http")
        self._thread.start()
        if not self._serving.ready.wait(START):
            self.stop()
            raise Error("the gateway did not start in time", hint="is the machine very busy?")
        if self._error is not None:
            self._thread.join()
            raise self._error
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End streams, let requests in progress finish within `Limits.drain`, close the sockets.
        Raises what ended the gateway before."""
        self._serving.should_exit = True
        if self._thread is not None:
            self._thread.join()
        else:
            self._listening.close()
        if self._error is not None:
            raise self._error

    def stats(self) -> Stats:
        """The gateway's counters."""
        return self.gateway.stats


def serve(routes: Mapping[str, str], *, bind: str = "http://127.0.0.1:8080",
          hosts: Iterable[str] = (), origins: Iterable[str] = (),
          tokens: str | os.PathLike[str] | None = None, cert: str = "", key: str = "",
          insecure: bool = False, limits: Limits | None = None) -> Server:
    """A gateway at `bind`, ready to `run()` or to enter. Its port is bound on return.

    Args:
        routes: path: address, as in {"/orders": "push:tcp://127.0.0.1:5555"}.
        bind: http://HOST:PORT or https://HOST:PORT; port 0 is a free one.
        hosts: more names that a Host header may have.
        origins: origins of web pages that may use the gateway, beside its own.
        tokens: a file with tokens, see `read_tokens`. None: no token is demanded.
        cert: a PEM file with the certificate chain, for https.
        key: a PEM file with its key, if `cert` does not have it.
        insecure: allow an address of the network without TLS or without tokens.
        limits: bounds for clients.

    Raises OptionError, AddressError, BindError, and UsageError for an exposed address.
    """
    secure = bind.lower().startswith("https:")
    if secure != bool(cert):
        raise OptionError(f"{bind} and the certificate {cert or '(none)'} do not fit",
                          hint="https:// needs cert= (--cert), and http:// has none")
    found = read_tokens(tokens) if tokens is not None else None
    parsed = [parse(path, address) for path, address in routes.items()]
    named = tuple(hosts)
    gateway = Gateway(parsed, origins=origins, tokens=found, limits=limits)
    context = tls(cert, key) if secure else None
    listening, host, url = listen(bind)
    if not is_loopback(host) and not insecure and not (secure and found):
        listening.close()
        raise UsageError(f"{url} is exposed to the network without TLS and tokens: any machine "
                         "that reaches it could use its routes, or read what goes through",
                         hint="give it a certificate and tokens (--cert, --tokens), bind "
                              "127.0.0.1, or accept the risk with insecure=True (--insecure)")
    gateway.hosts = hosts_for(host, named)
    return Server(gateway, listening, url, context)


def opened(settings: config.Settings, insecure: bool) -> Server:
    """`serve` with the settings of a file or a command line."""
    return serve(settings.routes, bind=settings.bind, hosts=settings.hosts,
                 origins=settings.origins, tokens=settings.tokens or None, cert=settings.cert,
                 key=settings.key, insecure=insecure, limits=config.limits(settings.limits))
