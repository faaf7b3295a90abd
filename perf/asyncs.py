"""The same ends under asyncio, or uvloop: plain awaits, one task, as a user would write them."""

from __future__ import annotations

import argparse
import asyncio
import inspect
import itertools
import json
import os
import time

from candidates import load
from libraries import Alias, Mqcore, Pynng, Pyomq, Pyzmq
from plain import CHUNK, Raw
from timing import Timer, endless, percentiles, warm_messages, warm_trips


async def settled(value):
    return await value if inspect.isawaitable(value) else value


class AsyncMqcore(Mqcore):
    async def bind(self, kind: str, url: str):
        s = self.mq.socket(kind)
        end = await s.abind(url)
        return self.named(s), end.url

    async def connect(self, kind: str, url: str):
        s = self.mq.socket(kind)
        await s.aconnect(url)
        await s.await_peers()
        return self.named(s)

    def named(self, s):
        return Calls(s.asend, s.arecv)


class Calls:
    def __init__(self, send, recv):
        self.send, self.recv = send, recv


class AsyncPyzmq(Pyzmq):
    def __init__(self, size: int = 0, variant: str = ""):
        super().__init__(size, variant)
        self.context = __import__(f"{self.module}.asyncio", fromlist=["Context"]).Context()

    async def bind(self, kind: str, url: str):
        s = self.socket(kind)
        await settled(s.bind(url))
        real = await settled(s.getsockopt(self.zmq.LAST_ENDPOINT))
        return s, real.rstrip(b"\0").decode() if isinstance(real, bytes) else real

    async def connect(self, kind: str, url: str):
        s = self.socket(kind)
        await settled(s.connect(url))
        return s


class AsyncAlias(AsyncPyzmq):
    module = Alias.module


class AsyncPyomq(AsyncPyzmq):
    module = Pyomq.module


class AsyncPynng(Pynng):
    async def bind(self, kind: str, url: str):
        s, real = super().bind(kind, url)
        return Calls(s.asend, s.arecv), real

    async def connect(self, kind: str, url: str):
        s = super().connect(kind, url)
        return Calls(s.asend, s.arecv)


class AsyncRaw(Raw):
    """asyncio's own streams."""

    async def bind(self, kind: str, url: str):
        listener, real = self.listen(url)
        return AsyncStream(self, listener, self.size), real

    async def connect(self, kind: str, url: str):
        s = AsyncStream(self, None, self.size)
        s.pair = await asyncio.open_connection(sock=self.dial(url))
        return s


class AsyncStream:
    def __init__(self, library: AsyncRaw, listener, size: int):
        self.listener, self.size, self.pair = listener, size, None

    async def streams(self):
        if self.pair is None:
            self.listener.setblocking(False)
            s, _ = await asyncio.get_running_loop().sock_accept(self.listener)
            self.pair = await asyncio.open_connection(sock=s)
        return self.pair

    async def send(self, body: bytes) -> None:
        writer = (self.pair or await self.streams())[1]
        writer.write(body)
        await writer.drain()

    async def recv(self) -> bytes:
        return await (self.pair or await self.streams())[0].readexactly(self.size)


ASYNC = {
    "mqcore": AsyncMqcore,
    "alias": AsyncAlias,
    "pyzmq": AsyncPyzmq,
    "pyomq": AsyncPyomq,
    "pynng": AsyncPynng,
    "raw": AsyncRaw,
}


async def echo(lib, o, timer: Timer) -> dict:
    s, url = await lib.bind("rep", o.url)
    print(url, flush=True)
    warm = warm_trips(o.size)
    for i in range(warm + o.count):
        if i == warm:
            timer.start()
        await s.send(await s.recv())
    timer.stop()
    return {}


async def ask(lib, o, timer: Timer) -> dict:
    s, texts, trips, clock = await lib.connect("req", o.url), endless(o.size), [], time.perf_counter
    warm = warm_trips(o.size)
    for i, body in enumerate(itertools.islice(texts, warm + o.count)):
        if i == warm:
            timer.start()
        before = clock()
        await s.send(body)
        await s.recv()
        trips.append(clock() - before)
    timer.stop()
    return percentiles(trips[warm:])


async def sink(lib, o, timer: Timer) -> dict:
    s, url = await lib.bind("pull", o.url)
    print(url, flush=True)
    for _ in range(warm_messages(o.count)):
        await s.recv()
    timer.start()
    if o.library == "raw":
        await read_all(s, o.size * o.count)
    else:
        for _ in range(o.count):
            await s.recv()
    timer.stop()
    return {}


async def read_all(s: AsyncStream, left: int) -> None:
    reader = (await s.streams())[0]
    while left > 0:
        data = await reader.read(min(CHUNK, left))
        if not data:
            raise SystemExit("the other end left")
        left -= len(data)


async def source(lib, o, timer: Timer) -> dict:
    s, texts = await lib.connect("push", o.url), endless(o.size)
    for body in itertools.islice(texts, warm_messages(o.count)):
        await s.send(body)
    timer.start()
    for body in itertools.islice(texts, o.count):
        await s.send(body)
    timer.stop()
    return {}


async def run(options: argparse.Namespace) -> dict:
    timer = Timer(options.beside)
    more = await globals()[options.role](load(options.library, options.size, ASYNC), options, timer)
    print("done", flush=True)
    await asyncio.to_thread(__import__("sys").stdin.read)  # what is still to be written is
    return timer.result(options.count, **more)


def main(options: argparse.Namespace) -> None:
    if options.calls == "uvloop":
        import uvloop

        result = uvloop.run(run(options))
    else:
        result = asyncio.run(run(options), debug=False)
    print(json.dumps(result), flush=True)
    os._exit(0)
