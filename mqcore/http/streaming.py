"""Messages as they come: long polls, Server-Sent Events, WebSockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine
from typing import Any

import mqcore as mq
from mqcore.http import envelope
from mqcore.http.access import RECEIVE, SEND
from mqcore.http.backend import Backend
from mqcore.http.exchange import Exchange, Gone, count, seconds
from mqcore.http.feed import Feed, Item
from mqcore.http.problem import Problem

JSON = b"application/json"
EVENTS = "text/event-stream"
MOST = 1000         # messages of one answer
TURN = 100          # messages of a stream between two looks at other tasks
AWAY, WRONG, MISTAKE, LATER = 1001, 1008, 1011, 1013      # WebSocket's codes of the end


def start_of(exchange: Exchange, feed: Feed, query: dict[str, str]) -> tuple[int, int]:
    """(the position to begin at, how many were lost before it, -1 if that is unknown)"""
    last = exchange.header(b"last-event-id")
    if last:
        position, lost = feed.position(last)
        # no client was given the position of the end, whatever it says
        return min(position + (lost == 0), feed.end()), lost
    wanted = query.get("from", "first" if feed.first_default else "end")
    if wanted in ("first", "end"):
        return (feed.first() if wanted == "first" else feed.end()), 0
    return feed.position(wanted)


async def first_of(ending: asyncio.Event, *others: Coroutine[Any, Any, Any],
                   wait: float | None) -> asyncio.Task[Any] | None:
    """The first of the others that ends; None if the time is up, or the gateway ends. All have
    ended afterwards."""
    tasks = [asyncio.ensure_future(one) for one in others]
    end = asyncio.ensure_future(ending.wait())
    try:
        done, _ = await asyncio.wait([*tasks, end], timeout=wait,
                                     return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (*tasks, end):
            task.cancel()
        await asyncio.gather(*tasks, end, return_exceptions=True)
    # one that finished while it was cancelled counts, too: it may hold a message
    return next((task for task in tasks if not task.cancelled()), None)


async def poll(exchange: Exchange, feed: Feed, query: dict[str, str],
               ending: asyncio.Event) -> None:
    """The messages from a position on, after at most ?wait= seconds; 204 if there is none."""
    wait = seconds(query.get("wait", "0"), exchange.limits.wait, "wait")
    most = count(query.get("max", "100"), MOST, "max")
    position, lost = start_of(exchange, feed, query)
    items, after, more = feed.read(position, most)
    if not items and wait:
        await first_of(ending, feed.changed(after), exchange.gone(), wait=wait)
        items, after, again = feed.read(after, most)
        more += again
    lost += max(more, 0)
    exchange.stats.lost += max(lost, 0)
    headers = [(b"cache-control", b"no-store"), (b"mq-next", feed.name(after).encode())]
    if not items and not lost:
        await exchange.answer(204, more=headers)
        return
    body = b'{"messages":[%s],"next":"%s","lost":%d}' % (
        b",".join(item.json for item in items), feed.name(after).encode(), lost)
    await exchange.answer(200, body, JSON, headers)
    exchange.stats.delivered += len(items)


async def take(exchange: Exchange, backend: Backend, query: dict[str, str],
               ending: asyncio.Event) -> None:
    """One message that no other client gets; 204 if there is none within ?wait= seconds."""
    wait = seconds(query.get("wait", "0"), exchange.limits.wait, "wait")
    headers = [(b"cache-control", b"no-store")]
    receiving = asyncio.ensure_future(backend.take(wait))
    try:
        await first_of(ending, asyncio.wait([receiving]), exchange.gone(), wait=wait + 1)
    finally:
        receiving.cancel()      # a receive that is cancelled has taken no message
        await asyncio.wait([receiving])
    if receiving.cancelled() or isinstance(receiving.exception(), mq.Timeout):
        await exchange.answer(204, more=headers)
        return
    body = receiving.result()
    try:
        if envelope.TYPE in exchange.header(b"accept"):
            await exchange.answer(200, envelope.encode(body), envelope.TYPE.encode(), headers)
        else:
            await exchange.answer(200, body, backend.kind, headers)
    except BaseException:       # the client has gone, or the gateway ends
        exchange.stats.undelivered += 1
        raise
    exchange.stats.delivered += 1


# -- Server-Sent Events --


async def frames(exchange: Exchange, feed: Feed, position: int, lost: int
                 ) -> AsyncGenerator[Item | int, None]:
    """Without end, from what start_of() has told: messages, how many were lost (-1: unknown), and 0
    as a heartbeat."""
    while True:
        items, position, more = feed.read(position, TURN)
        lost = lost + more if lost >= 0 else -1
        if lost:
            exchange.stats.lost += max(lost, 0)
            yield lost
            lost = 0
        for item in items:
            yield item
            exchange.stats.delivered += 1       # the caller has written it when it goes on
        if items or more:
            await asyncio.sleep(0)
            continue
        try:
            async with asyncio.timeout(exchange.limits.heartbeat):
                await feed.changed(position)
        except TimeoutError:
            yield 0


async def events(exchange: Exchange, feed: Feed, query: dict[str, str],
                 ending: asyncio.Event) -> None:
    """An event stream, until the client or the gateway ends."""
    # now: an unknown position is a Problem as long as nothing was sent, and what is published after
    # the client has its headers is in the stream
    source = frames(exchange, feed, *start_of(exchange, feed, query))

    async def run() -> None:
        async for found in source:
            if isinstance(found, Item):
                chunk = b"id: %s\ndata: %s\n\n" % (found.id.encode(), found.json)
            else:
                chunk = b'event: lost\ndata: {"lost":%d}\n\n' % found if found else b":\n\n"
            await exchange.send({"type": "http.response.body", "body": chunk, "more_body": True})

    exchange.count()
    await exchange.start(200, EVENTS.encode(), [(b"cache-control", b"no-store"),
                                               (b"x-accel-buffering", b"no")])
    await exchange.send({"type": "http.response.body", "body": b":\n\n", "more_body": True})
    try:
        found = await first_of(ending, run(), exchange.gone(), wait=None)
    finally:
        await source.aclose()
    if found is not None:
        found.result()      # Gone, or a mistake
        return
    await exchange.send({"type": "http.response.body", "body": b"event: end\ndata: {}\n\n"})


# -- WebSocket --


async def close(exchange: Exchange, code: int, reason: str) -> None:
    """End a talk that has been accepted, unless it has ended."""
    with contextlib.suppress(Gone, RuntimeError):
        await exchange.send({"type": "websocket.close", "code": code, "reason": reason})


async def close_for(exchange: Exchange, problem: Problem) -> None:
    code = WRONG if problem.status < 500 else MISTAKE if problem.status == 500 else LATER
    reason = f"{problem.detail}; {problem.hint}".encode()[:120].decode(errors="ignore")
    await close(exchange, code, reason)


class Talk:
    """A WebSocket: what its client sends goes into the backend, what the backend has goes out."""

    def __init__(self, exchange: Exchange, backend: Backend, rights: frozenset[str],
                 query: dict[str, str]) -> None:
        self.exchange, self.backend, self.rights = exchange, backend, rights
        form = query.get("form", "json" if backend.feed is not None else "raw")
        if form not in ("json", "raw"):
            raise Problem(400, "query", f"form={form[:40]!r} is not known",
                          "write form=json or form=raw")
        self.json = form == "json"
        if backend.feed is not None:    # now, not when the client has been accepted: see events()
            self.start = start_of(exchange, backend.feed, query)

    async def run(self, ending: asyncio.Event, accept: dict[str, Any]) -> None:
        exchange = self.exchange
        await exchange.receive()        # websocket.connect
        await exchange.send({"type": "websocket.accept", "headers": exchange.extra, **accept})
        exchange.count()
        ways = [self.take_in()]
        if RECEIVE in self.rights:
            ways.append(self.give_out())
        found = await first_of(ending, *ways, wait=None)
        if found is None:
            await close(exchange, AWAY, "the gateway ends; connect again later")
            return
        error = found.exception()
        if isinstance(error, Problem):
            await close_for(exchange, error)
        elif error is not None:
            raise error     # the gateway closes the talk

    async def put(self, body: bytes, text: bool) -> None:
        if text:
            data = {"text": body.decode()}
        else:
            data = {"bytes": body}      # type: ignore[dict-item]
        await self.exchange.send({"type": "websocket.send", **data})

    async def take_in(self) -> None:
        """Frames from the client, one at a time: a backend that is full slows the client down."""
        exchange = self.exchange
        while True:
            message = await exchange.receive()
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text")
            body: bytes = message["bytes"] if text is None else text.encode()
            if SEND not in self.rights:
                raise Problem(403, "rights", f"{exchange.path} takes no messages from you",
                              "only receive")
            given = envelope.decode(body) if self.json else \
                envelope.Envelope(base64=body)
            reply = await self.backend.send(given, exchange.limits.send_time)
            exchange.stats.sent += 1
            if reply is None:
                continue
            if self.backend.feed is not None:
                await self.put(reply, True)
            elif self.json:
                await self.put(envelope.encode(reply), True)
            else:
                await self.put(reply, text is not None and is_text(reply))

    async def give_out(self) -> None:
        feed = self.backend.feed
        if feed is None:
            await self.give_socket()
            return
        async for found in frames(self.exchange, feed, *self.start):
            if isinstance(found, Item):
                await self.put(found.json if self.json else found.body, self.json)
            elif found:     # else a heartbeat, which the server library's pings are here
                await self.put(b'{"lost":%d}' % found, True)

    async def give_socket(self) -> None:
        """Messages of pull and pair."""
        while True:
            try:
                body = await self.backend.take(self.exchange.limits.heartbeat)
            except mq.Timeout:
                continue
            try:
                await self.put(envelope.encode(body) if self.json else body, self.json)
            except BaseException:
                self.exchange.stats.undelivered += 1
                raise
            self.exchange.stats.delivered += 1


def is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True
