"""The gateway on uvicorn: listening, TLS, the thread, the end."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

try:
    import uvicorn

    from mqcore.http.guarded import Guarded
    from mqcore.http.guarded_talk import GuardedTalk
except ImportError as _error:
    raise ImportError(f'the HTTP gateway needs {_error.name}: pip install "mqcore[http]"',
                      name=_error.name) from None

from mqcore.base import waits
from mqcore.base.accepting import Accepting
from mqcore.base.components import COMPONENTS, State, numbers
from mqcore.base.threads import Thread
from mqcore.errors import AddressError, BindError, Error, OptionError, UsageError
from mqcore.http import config
from mqcore.http.access import hosts_for, is_loopback, read_tokens
from mqcore.http.bounds import Limits, Stats
from mqcore.http.gateway import Gateway
from mqcore.http.route import parse

START = 60.0
AT_ONCE = 0.05      # seconds: uvicorn that is given none reports an error before it has looked
ANSWERS = 0.5       # seconds for the last answers to clients that do not read
TURNS = 10          # of the loop, at most, until it has closed a connection


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
            await self._cut()

    async def _cut(self) -> None:
        """`drain` is over: requests that uvicorn has cancelled are answered, and what is left of
        connections is cut. The loop would warn of those that it closes."""
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=ANSWERS)
        await asyncio.sleep(0)      # uvloop writes at the end of a turn
        connections = self.server_state.connections
        for one in list(connections):
            one.transport.abort()
        for _ in range(TURNS):
            if connections:
                await asyncio.sleep(0)


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
    made: dict[str, Any] = {"timeout_graceful_shutdown": limits.drain or AT_ONCE}
    if context is not None:
        made["ssl_context_factory"] = lambda *_: context
    talk = type("GuardedTalk", (GuardedTalk,), {**bound, "busy": set()})
    http = type("Guarded", (Guarded,), {**bound, "ending": staticmethod(gateway.is_ending)})
    return Serving(uvicorn.Config(
        gateway, http=http, ws=talk,
        lifespan="off", log_config=None, access_log=False, server_header=False,
        proxy_headers=False, ws_max_size=limits.body_bytes, ws_per_message_deflate=False,
        ws_ping_interval=limits.heartbeat, ws_ping_timeout=limits.send_time, **made), gateway)


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
