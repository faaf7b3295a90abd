"""One binding of Iris at the relay: its connection, its requests, its topics, its tunnels.

Runs on asyncio. Frames are handled in the order they come. What takes time runs in a task of its
own, of which there is a bounded number. Each request of the binding gets exactly one reply, each
tunnel that it wants exactly one result, and neither is sent for an id that the binding does not
know: the original bindings do not survive that.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

from mqcore.cluster import relay_frames as frames
from mqcore.cluster.errors import NoSuchService
from mqcore.cluster.relay_frames import CHUNK, MAX_TEXT, MalformedPacket, encode
from mqcore.cluster.relay_names import Names
from mqcore.cluster.relay_tunnel import Pipe
from mqcore.errors import Error

GREETING = 5.0          # seconds for the first packet
CONFIRM = 3.0           # seconds for a binding to take a tunnel
RETRY = 0.1             # seconds between looks for a service that is not there yet
FINISH = 5.0            # seconds for what is pending when a binding closes
LONGEST = 7 * 86400.0   # seconds, of any time-out
MAX_PENDING = 1024      # requests of a binding, or to it, at a time
MAX_PENDING_BYTES = 64 << 20
MAX_TOPICS = 1024
MAX_TUNNELS = 256
UNREAD = 16 << 20       # bytes that wait for a binding before messages to it are dropped


class Fault(Exception):
    """What the service behind a binding answered instead of a reply."""


class Binding:
    """A connection, from its first byte to its last."""

    def __init__(self, net: Any, names: Names, reader: asyncio.StreamReader,
                 writer: asyncio.StreamWriter, counters: Counter[str], limit: int) -> None:
        self.cluster = ""
        self._net = net
        self._names = names
        self._reader = reader
        self._writer = writer
        self._count = counters
        self._limit = limit
        self._decoder = frames.Decoder(frames.FROM_BINDING, limit)
        self._service = AsyncExitStack()
        self._ready = asyncio.Event()
        self._stopping = False
        self.gone = False       # its connection has ended
        self._tasks: set[asyncio.Task[Any]] = set()
        self._finishing: asyncio.Task[None] | None = None
        self._asking: dict[int, int] = {}           # requests of the binding: bytes of each
        self._asked: dict[int, asyncio.Future[bytes | str]] = {}    # requests to it
        self._topics: dict[str, asyncio.Task[Any]] = {}
        self._opening: set[int] = set()                     # tunnels the binding waits for
        self._offered: dict[int, asyncio.Future[Pipe]] = {}         # by build id
        self._pipes: dict[int, Pipe] = {}                   # by the binding's id
        self._number = 0
        self._handlers: dict[type, Callable[[Any], Any]] = {
            frames.Close: self._on_close, frames.Broadcast: self._on_broadcast,
            frames.Request: self._on_request, frames.Reply: self._on_reply,
            frames.Subscribe: self._on_subscribe, frames.Unsubscribe: self._on_unsubscribe,
            frames.Publish: self._on_publish, frames.TunnelInit: self._on_tunnel_init,
            frames.TunnelConfirm: self._on_tunnel_confirm, frames.TunnelAllow: self._on_allow,
            frames.TunnelTransfer: self._on_transfer, frames.TunnelClose: self._on_tunnel_close}

    # -- the connection ----------------------------------------------------------------------------

    async def run(self) -> None:
        """Serves the binding until either side ends."""
        reason = ""             # for the binding, if it is still there
        try:
            if await self._greet():
                await self._read()
            if self._stopping:
                reason = "the relay is closing"
        except MalformedPacket as error:
            self._count["malformed"] += 1
            reason = _fault(error.text)
        except OSError:
            self._count["broken"] += 1
        finally:
            await self._end(reason)

    def stop(self) -> None:
        """The relay closes: `run` ends soon."""
        self._stopping = True
        if self.full:       # it reads nothing, and would not read why either
            self._writer.transport.abort()
        self._reader.feed_eof()

    async def _greet(self) -> bool:
        try:
            async with asyncio.timeout(GREETING):
                hello = await self._first()
        except TimeoutError:
            self._count["no_greeting"] += 1
            return False
        why = ""
        if not isinstance(hello, frames.Hello) or hello.magic != frames.CLIENT_MAGIC:
            raise MalformedPacket("the first packet is not that of a binding")
        if hello.version != frames.VERSION:
            why = f"protocol {hello.version!r:.60} is not supported, {frames.VERSION} is"
        elif hello.cluster:
            try:
                await self._names.enter(hello.cluster, self)
                self._service.push_async_callback(self._names.leave, hello.cluster, self)
            except Error as error:
                why = error.text
        if why:
            self._count["denied"] += 1
            self._send(frames.Deny(frames.RELAY_MAGIC, why))
            return False
        self.cluster = hello.cluster
        self._send(frames.Welcome(frames.RELAY_MAGIC, frames.VERSION))
        self._ready.set()
        return True

    async def _first(self) -> Any:
        """The first packet; those that came with it wait."""
        while data := await self._reader.read(CHUNK):
            for frame in self._decoder.feed(data):
                return frame
        raise ConnectionResetError

    async def _read(self) -> None:
        data = b""
        while True:
            for frame in self._decoder.feed(data):
                if isinstance(frame, frames.Hello):
                    raise MalformedPacket("a second greeting")
                answer = self._handlers[type(frame)](frame)
                if answer is not None:
                    await answer
                if self.full:       # of answers: the binding has to read them before it asks on
                    await self._writer.drain()
            data = await self._reader.read(CHUNK)
            if not data:
                return

    async def _end(self, reason: str) -> None:
        self.gone = True        # what waits for its frames, or would from now on, waits for nothing
        gone = Fault(f"the service is gone: {reason or 'its connection ended'}")
        waiting: list[asyncio.Future[Any]] = [*self._asked.values(), *self._offered.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(gone)
        for pipe in self._pipes.values():
            pipe.finish()
        if self._finishing is not None and not self._writer.is_closing():
            await asyncio.wait({self._finishing})       # it may still read what it has asked for
        for task in list(self._tasks):
            task.cancel()
        if self._finishing is not None:
            await asyncio.wait({self._finishing})
        if self._tasks:
            await asyncio.wait(set(self._tasks))
        await self._service.aclose()
        if reason:
            self._send(frames.Closed(reason))       # the last word
        self._writer.close()
        try:
            async with asyncio.timeout(FINISH):
                await self._writer.wait_closed()
        except TimeoutError:        # it does not read what it was sent
            self._count["unread"] += 1
            self._writer.transport.abort()
        except OSError:
            pass        # it was broken before

    def _send(self, frame: Any) -> None:
        if not self._writer.is_closing():
            self._writer.write(encode(frame))

    @property
    def full(self) -> bool:
        """Whether the binding does not read what it was sent."""
        return self._writer.transport.get_write_buffer_size() > UNREAD

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._count["errors"] += 1      # reported where it happened

    def _on_close(self, _: frames.Close) -> None:
        if self._finishing is None:
            self._finishing = asyncio.ensure_future(self._finish())

    async def _finish(self) -> None:
        """Lets what is pending end, then ends the connection. Meanwhile frames still come in."""
        for task in self._topics.values():
            task.cancel()
        try:
            for pipe in self._pipes.values():
                pipe.finish()
            async with asyncio.timeout(FINISH):
                await self._service.aclose()        # takes no more, and waits for replies
                while self._tasks:
                    await asyncio.wait(set(self._tasks))
        except (TimeoutError, Error):
            self._count["unfinished"] += 1
        self._send(frames.Closed(""))
        self._writer.close()
        self._reader.feed_eof()

    # -- requests ----------------------------------------------------------------------------------

    def _on_request(self, frame: frames.Request) -> None:
        if frame.id in self._asking:
            raise MalformedPacket(f"request {frame.id} twice")
        pending = sum(self._asking.values())
        if len(self._asking) >= MAX_PENDING or pending > MAX_PENDING_BYTES or self._finishing:
            self._count["refused_requests"] += 1
            why = "the binding is closing" if self._finishing else \
                f"{len(self._asking)} requests of {pending} bytes are pending"
            self._send(frames.Replied(frame.id, why))
            return
        self._asking[frame.id] = len(frame.body)
        self._spawn(self._ask(frame))

    async def _ask(self, frame: frames.Request) -> None:
        outcome: bytes | str | None = "the relay could not ask"
        try:
            outcome = await self._retry(
                frame.timeout, lambda left: self._net.arequest(frame.cluster, frame.body,
                                                               timeout=left))
        except Error as error:      # of a RemoteError, the text is the fault itself
            outcome = error.text
        finally:
            del self._asking[frame.id]
            if self.full and outcome is not None:
                outcome = "the binding does not read its replies"
            self._send(frames.Replied(frame.id, _fault(outcome) if isinstance(outcome, str)
                                      else outcome))

    async def _retry(self, timeout: int, call: Callable[[float], Any]) -> Any:
        """What the call returns, within so many milliseconds, else None. A service that is not
        there may come in the meantime: Iris knows no other answer than a time-out."""
        ends = time.monotonic() + min(timeout / 1000, LONGEST)
        while (left := ends - time.monotonic()) > 0:
            try:
                return await call(left)
            except TimeoutError:
                return None
            except NoSuchService:
                await asyncio.sleep(min(RETRY, left))
        return None

    async def serve(self, request: Any) -> bytes:
        """A request of the cluster, for the binding."""
        await self._ready.wait()
        if len(self._asked) >= MAX_PENDING or self.full:
            self._count["refused_requests"] += 1
            raise Fault("the binding does not keep up")
        left = LONGEST if request.deadline is None else request.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request expired at the relay")
        number = self._next()
        future = self._asked[number] = asyncio.get_running_loop().create_future()
        self._send(frames.Requested(number, request.body,
                                    max(1, int(min(left, LONGEST) * 1000))))
        try:
            async with asyncio.timeout(left):
                outcome = await future
        finally:
            del self._asked[number]
        if isinstance(outcome, str):
            raise Fault(outcome)
        return bytes(outcome)

    def _on_reply(self, frame: frames.Reply) -> None:
        future = self._asked.get(frame.id)
        if future is None or future.done():
            self._count["late_replies"] += 1
        else:
            future.set_result(frame.outcome)

    # -- broadcasts and topics ---------------------------------------------------------------------

    async def _on_broadcast(self, frame: frames.Broadcast) -> None:
        try:
            await self._net.abroadcast(frame.cluster, frame.body)
        except Error:
            self._count["lost_broadcasts"] += 1

    async def hear(self, message: Any) -> None:
        """A broadcast of the cluster, for the binding."""
        await self._ready.wait()
        if self.full:
            self._count["dropped"] += 1
        else:
            self._send(frames.Broadcasted(bytes(message.body)))

    async def _on_publish(self, frame: frames.Publish) -> None:
        try:
            await self._net.apublish(frame.topic, frame.body)
        except Error:
            self._count["lost_events"] += 1

    def _on_subscribe(self, frame: frames.Subscribe) -> None:
        if frame.topic in self._topics or len(self._topics) >= MAX_TOPICS or self._finishing:
            self._count["refused_topics"] += 1
            return
        self._topics[frame.topic] = self._spawn(self._follow(frame.topic))

    async def _follow(self, topic: str) -> None:
        try:
            async with self._net.asubscribe(topic) as feed:
                async for message in feed:
                    if message.topic != topic:
                        continue        # Iris has no wildcards: a star is a star
                    if self.full:
                        self._count["dropped"] += 1
                    else:
                        self._send(frames.Publish(topic, bytes(message.body)))
        except Error:
            self._count["lost_topics"] += 1
        finally:
            if self._topics.get(topic) is asyncio.current_task():
                del self._topics[topic]

    def _on_unsubscribe(self, frame: frames.Unsubscribe) -> None:
        task = self._topics.pop(frame.topic, None)
        if task is not None:
            task.cancel()

    # -- tunnels -----------------------------------------------------------------------------------

    def _on_tunnel_init(self, frame: frames.TunnelInit) -> None:
        self._must_be_new(frame.id)
        if len(self._pipes) + len(self._opening) >= MAX_TUNNELS or self._finishing is not None:
            self._count["refused_tunnels"] += 1
            self._send(frames.TunnelResult(frame.id, None))
            return
        self._opening.add(frame.id)
        self._spawn(self._open(frame))

    async def _open(self, frame: frames.TunnelInit) -> None:
        async with AsyncExitStack() as stack:
            tunnel = None
            try:
                tunnel = await self._retry(
                    frame.timeout or int(LONGEST * 1000),
                    lambda left: stack.enter_async_context(
                        self._net.atunnel(frame.cluster, timeout=left)))
            except Error:
                self._count["lost_tunnels"] += 1
            finally:
                # exactly one result, whatever happened; credit only after it
                self._opening.discard(frame.id)
                if tunnel is not None:
                    pipe = self._pipe(frame.id)
                self._send(frames.TunnelResult(frame.id, None if tunnel is None else CHUNK))
            if tunnel is not None:
                await self._run(pipe, tunnel)

    async def carry(self, tunnel: Any) -> None:
        """A tunnel of the cluster, for the binding."""
        await self._ready.wait()
        if len(self._pipes) + len(self._offered) >= MAX_TUNNELS:
            self._count["refused_tunnels"] += 1
            raise Fault("the binding has too many tunnels")
        build = self._next()
        future = self._offered[build] = asyncio.get_running_loop().create_future()
        self._send(frames.TunnelOffer(build, CHUNK))
        try:
            await asyncio.wait({future}, timeout=CONFIRM)
        except asyncio.CancelledError:
            if future.done() and future.exception() is None:
                del self._pipes[future.result().number]
            raise
        finally:
            del self._offered[build]
        if not future.done():
            self._count["unconfirmed"] += 1
            raise Fault(f"the binding has not taken the tunnel within {CONFIRM:g} s")
        await self._run(future.result(), tunnel)

    def _on_tunnel_confirm(self, frame: frames.TunnelConfirm) -> None:
        self._must_be_new(frame.id)
        future = self._offered.get(frame.build)
        if future is None or future.done():
            self._count["late_confirms"] += 1
            self._send(frames.TunnelClosed(frame.id, "the tunnel was confirmed too late"))
        else:
            future.set_result(self._pipe(frame.id))     # chunks may follow at once

    def _must_be_new(self, number: int) -> None:
        if number in self._pipes or number in self._opening:
            raise MalformedPacket(f"tunnel {number} twice")

    def _pipe(self, number: int) -> Pipe:
        pipe = self._pipes[number] = Pipe(number, self._send, self._writer.drain, self._limit)
        return pipe

    async def _run(self, pipe: Pipe, tunnel: Any) -> None:
        reason = "the relay is closing"
        try:
            reason = await pipe.run(tunnel)
        finally:
            del self._pipes[pipe.number]
            self._send(frames.TunnelClosed(pipe.number, _fault(reason) if reason else ""))
            await tunnel.aclose()

    def _on_allow(self, frame: frames.TunnelAllow) -> None:
        pipe = self._pipes.get(frame.id)
        if pipe is None:
            self._count["no_tunnel"] += 1       # it has just ended here
        else:
            pipe.allow(frame.size)

    def _on_transfer(self, frame: frames.TunnelTransfer) -> None:
        pipe = self._pipes.get(frame.id)
        if pipe is None or not pipe.transfer(frame.size, frame.chunk):
            self._count["no_tunnel" if pipe is None else "stray_chunks"] += 1

    def _on_tunnel_close(self, frame: frames.TunnelClose) -> None:
        pipe = self._pipes.get(frame.id)
        if pipe is None:
            self._count["no_tunnel"] += 1
        else:
            pipe.finish()

    def _next(self) -> int:
        self._number += 1
        return self._number - 1


def _fault(text: str) -> str:
    """A text within its limit, never empty."""
    return text.encode("utf-8", "replace")[:MAX_TEXT].decode("utf-8", "ignore") or "failed"
