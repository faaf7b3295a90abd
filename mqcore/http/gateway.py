"""The gateway as an ASGI application: who may, which route, what becomes of the request."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from typing import Any

import msgspec

from mqcore.errors import OptionError, SocketClosed, StateError
from mqcore.http import access, envelope, streaming
from mqcore.http.access import RECEIVE, SEND, STATS, Token
from mqcore.http.backend import HARM, Backend, backend
from mqcore.http.bounds import Limits, Rates, Stats, count_problem
from mqcore.http.exchange import Exchange, Gone, Message, Receive, Send
from mqcore.http.problem import Header, Problem, retry_after
from mqcore.http.route import OWN, Route
from mqcore.journal import JournalClosed, JournalNotFound

log = logging.getLogger("mqcore.http")
JSON = b"application/json"
ENVELOPE = envelope.TYPE.encode()
SCHEME = "mqcore.bearer."       # a WebSocket's subprotocol: pages cannot set its headers
EXPOSED = b"mq-next, retry-after, www-authenticate"


class Gateway:
    """An ASGI application that leads from HTTP to sockets and journal topics.

    hosts: names that a Host header may have; None: any. origins: web pages that may use it beside
    its own. tokens: None: no token is demanded. It opens its sockets in ASGI's lifespan, so the
    server needs to support that. Use `serve` unless another application is served with it.
    """

    def __init__(self, routes: Iterable[Route], *, hosts: frozenset[str] | None = None,
                 origins: Iterable[str] = (), tokens: tuple[Token, ...] | None = None,
                 limits: Limits | None = None) -> None:
        self.backends: dict[str, Backend] = {}
        for route in routes:
            if route.path in self.backends:
                raise OptionError(f"the route {route.path} is there twice",
                                  hint="give each a path of its own")
            self.backends[route.path] = backend(route)
        if not self.backends:
            raise OptionError("a gateway without a route serves nothing",
                              hint="declare one: /orders=push:tcp://127.0.0.1:5555")
        self.hosts, self.tokens = hosts, tokens
        self.host: bytes | None = None      # the Host header that was right last
        self.origins = frozenset(map(access.origin, origins))
        self.limits = limits or Limits()
        self.stats = Stats()
        self.rates = Rates(self.limits.rate, self.limits.burst)
        self.ending: asyncio.Event | None = None

    # -- its life --

    async def start(self) -> None:
        """Open what is behind the routes."""
        self.ending = asyncio.Event()
        try:
            for one in self.backends.values():
                await one.open()
        except BaseException:
            await self.stop()
            raise

    def drain(self) -> None:
        """End streams and long polls; new requests are refused."""
        if self.ending is not None:
            self.ending.set()

    def is_ending(self) -> bool:
        return self.ending is not None and self.ending.is_set()

    async def stop(self) -> None:
        self.drain()
        for one in self.backends.values():
            await one.close()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.start()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.stop()
        await send({"type": "lifespan.shutdown.complete"})

    # -- a request --

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if self.ending is None:
            raise StateError("the gateway has not been started",
                             hint="serve it with a server that supports ASGI's lifespan")
        stats = self.stats
        stats.requests += 1
        stats.in_progress += 1
        exchange: Exchange | None = None
        try:
            exchange = Exchange(scope, receive, send, self.limits, stats)
            await self._serve(exchange, scope["type"] == "websocket", self.ending)
        except Gone:
            pass
        except Problem as problem:
            await self._refuse(exchange, problem, scope, receive, send)
        except asyncio.CancelledError:      # `drain` is over
            if exchange is None or not self.ending.is_set():
                raise
            talks = scope["type"] == "websocket"
            if exchange.started or talks:
                exchange.cut()
            if not talks:
                await self._refuse(exchange, self._ended(HARM), scope, receive, send)
        except Exception as error:
            await self._refuse(exchange, self._trouble(error, scope, self.ending), scope, receive,
                               send)
        finally:
            stats.in_progress -= 1
            stats.refused += exchange is None or not exchange.answered

    @staticmethod
    def _ended(hint: str) -> Problem:
        return Problem(503, "ending", "the gateway ends", hint, retry_after(5))

    @staticmethod
    def _trouble(error: Exception, scope: Message, ending: asyncio.Event) -> Problem:
        """What the client hears of an error that is not its own."""
        if isinstance(error, JournalNotFound | JournalClosed):
            return Problem(503, "journal", f"the topic of this route is not there: {error.text}",
                           "it was renamed or deleted; the route reads what has its name next",
                           retry_after(1))
        if isinstance(error, SocketClosed) and ending.is_set():
            return Gateway._ended(error.hint)
        log.error("a request to %s failed", scope.get("path"), exc_info=error)
        return Problem(500, "internal", "the gateway has made a mistake", "its log has the details")

    async def _refuse(self, exchange: Exchange | None, problem: Problem, scope: Message,
                      receive: Receive, send: Send) -> None:
        if exchange is None:
            exchange = Exchange({**scope, "headers": []}, receive, send, self.limits, self.stats)
        if exchange.answered and scope["type"] == "websocket":      # it has been accepted
            count_problem(self.stats, problem.name)
            await streaming.close_for(exchange, problem)
        elif not exchange.started:
            with contextlib.suppress(Gone):
                await exchange.refuse(problem)

    async def _serve(self, exchange: Exchange, talks: bool, ending: asyncio.Event) -> None:
        self._check_host(exchange)
        self._check_origin(exchange)
        if exchange.path.startswith(OWN):
            await self._own(exchange, talks)
            return
        one = self.backends.get(exchange.path)
        if exchange.method == "OPTIONS" and not talks:
            await self._preflight(exchange, one)
            return
        token = self._token(exchange)
        if one is None:
            raise Problem(404, "route", f"there is no route {exchange.path[:200]}",
                          "routes are declared when the gateway is started")
        due = self.rates.wait(exchange.who)
        if due:
            raise Problem(429, "rate", f"{exchange.who} sends more than {self.limits.rate:g} "
                          "requests a second", "wait", retry_after(int(due) + 1))
        if ending.is_set():
            raise self._ended("send it again later")
        if self.stats.in_progress > self.limits.requests + self.stats.streams:
            raise Problem(503, "busy", f"{self.limits.requests} requests are in progress",
                          "send it again later", retry_after(1))
        if talks:
            await self._talk(exchange, one, token, ending)
        elif exchange.method == "POST":
            self._want(exchange, one, token, SEND)
            await self._post(exchange, one)
        elif exchange.method == "GET":
            self._want(exchange, one, token, RECEIVE)
            await self._get(exchange, one, ending)
        else:
            raise self._not_allowed(exchange, one.route)

    # -- who may --

    def _check_host(self, exchange: Exchange) -> None:
        if self.hosts is None:
            return
        given = exchange.headers.get(b"host", b"")
        if given == self.host:
            return
        name = access.host_name(given.decode("latin-1"))
        if name in self.hosts:
            self.host = given
        else:
            raise Problem(421, "host", f"the Host header names {name[:200] or 'nothing'!r}, which "
                          "is not this gateway", "use its address, or allow the name with --host")

    def _check_origin(self, exchange: Exchange) -> None:
        """Answers to a declared origin get CORS headers. A page of another origin is refused, even
        where its browser would send the request without asking."""
        if exchange.method != "POST":       # no cache keeps what answers one
            exchange.extra.append((b"vary", b"origin"))
        if b"origin" not in exchange.headers:
            return
        origin = exchange.header(b"origin").lower()
        scheme = exchange.scope.get("scheme", "http").replace("ws", "http")
        if origin in self.origins:
            exchange.extra += [(b"access-control-allow-origin", exchange.headers[b"origin"]),
                               (b"access-control-expose-headers", EXPOSED)]
        elif origin != f"{scheme}://{exchange.header(b'host').lower()}":
            raise Problem(403, "origin", f"pages of {origin[:200]!r} may not use this gateway",
                          "allow the origin with --origin")

    async def _preflight(self, exchange: Exchange, one: Backend | None) -> None:
        allowed = self._methods(one.route) if one is not None else b"GET, POST"
        more: list[Header] = [(b"allow", allowed)]
        if exchange.header(b"origin").lower() in self.origins:
            more += [(b"access-control-allow-methods", allowed),
                     (b"access-control-allow-headers",
                      b"authorization, content-type, last-event-id, accept"),
                     (b"access-control-max-age", b"600")]
        await exchange.answer(204, more=more)

    def _token(self, exchange: Exchange) -> Token | None:
        client = exchange.scope.get("client")
        exchange.who = client[0] if client else "a client"
        if self.tokens is None:
            return None
        scheme, _, text = exchange.header(b"authorization").partition(" ")
        if scheme.lower() != "bearer" or not text:
            text = next((name.removeprefix(SCHEME) for name in
                         exchange.scope.get("subprotocols", ()) if name.startswith(SCHEME)), "")
        token = access.find(self.tokens, text.strip()) if text else None
        if token is None:
            due = self.rates.wait(exchange.who)     # guesses count, too
            why = "the token is not known" if text else "a token is needed"
            raise Problem(429 if due else 401, "token", why,
                          "send Authorization: Bearer TOKEN",
                          [(b"www-authenticate", b'Bearer realm="mqcore"')])
        exchange.who = token.name
        return token

    def _want(self, exchange: Exchange, one: Backend, token: Token | None, right: str) -> None:
        if right not in one.route.rights:
            raise self._not_allowed(exchange, one.route)
        if token is not None and not token.may(right, one.route.path):
            raise Problem(403, "rights", f"the token of {token.name} may not {right} at "
                          f"{one.route.path}", f"give it {right}:{one.route.path}")

    @staticmethod
    def _methods(route: Route) -> bytes:
        return b", ".join([b"POST"] * (SEND in route.rights) + [b"GET"] * (RECEIVE in route.rights))

    def _not_allowed(self, exchange: Exchange, route: Route) -> Problem:
        allowed = self._methods(route)
        return Problem(405, "method", f"{exchange.path} is {route.kind}: it has no "
                       f"{exchange.method}", f"use {allowed.decode()}", [(b"allow", allowed)])

    # -- what becomes of it --

    async def _post(self, exchange: Exchange, one: Backend) -> None:
        body = await exchange.body()
        if ENVELOPE in exchange.headers.get(b"content-type", b""):
            message = envelope.decode(body)
        else:
            message = envelope.Envelope(base64=body)
        reply = await one.send(message, 0)
        self.stats.sent += 1
        if reply is None:
            await exchange.answer(202)
        elif one.feed is not None:
            await exchange.answer(201, reply, JSON)
        elif ENVELOPE in exchange.headers.get(b"accept", b""):
            await exchange.answer(200, envelope.encode(reply), ENVELOPE)
        else:
            await exchange.answer(200, reply, one.kind)

    async def _get(self, exchange: Exchange, one: Backend, ending: asyncio.Event) -> None:
        query = exchange.query()
        with self._stream():
            if one.feed is None:
                await streaming.take(exchange, one, query, ending)
            elif streaming.EVENTS in exchange.header(b"accept"):
                await streaming.events(exchange, one.feed, query, ending)
            else:
                await streaming.poll(exchange, one.feed, query, ending)

    async def _talk(self, exchange: Exchange, one: Backend, token: Token | None,
                    ending: asyncio.Event) -> None:
        path = one.route.path
        rights = frozenset(right for right in one.route.rights
                           if token is None or token.may(right, path))
        if not rights:
            raise Problem(403, "rights", f"the token of {exchange.who} has no right at {path}",
                          f"give it send:{path} or receive:{path}")
        offered = [name for name in exchange.scope.get("subprotocols", ())
                   if not name.startswith(SCHEME)]
        with self._stream():
            talk = streaming.Talk(exchange, one, rights, exchange.query())
            await talk.run(ending, {"subprotocol": "mqcore"} if "mqcore" in offered else {})

    @contextlib.contextmanager
    def _stream(self) -> Any:
        if self.stats.streams >= self.limits.streams:
            raise Problem(503, "streams", f"{self.limits.streams} streams are open",
                          "connect again later", retry_after(5))
        self.stats.streams += 1
        try:
            yield
        finally:
            self.stats.streams -= 1

    async def _own(self, exchange: Exchange, talks: bool) -> None:
        """/-/health for anybody, /-/stats for tokens with that right."""
        name = exchange.path.removeprefix(OWN)
        if talks or name not in ("health", "stats"):
            self._token(exchange)
            raise Problem(404, "route", f"there is no page {exchange.path[:200]}",
                          "the gateway's own are /-/health and /-/stats")
        if exchange.method not in ("GET", "HEAD"):
            raise Problem(405, "method", f"{exchange.path} has no {exchange.method}", "use GET",
                          [(b"allow", b"GET, HEAD")])
        ending = self.is_ending()
        if name == "health":
            await exchange.answer(503 if ending else 200,
                                  b'{"status":"%s"}' % (b"ending" if ending else b"ok"), JSON)
            return
        token = self._token(exchange)
        if token is not None and not token.may(STATS, exchange.path):
            raise Problem(403, "rights", f"the token of {token.name} may not read the counters",
                          "give it stats")
        await exchange.answer(200, msgspec.json.encode(self.stats.facts()), JSON)
