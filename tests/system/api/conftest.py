"""Contexts that end with the test, and addresses of both kinds."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
import trio
from answering import LIMIT, Answering

from mqcore.testing.keeper import Keeper

try:
    import uvloop
except ImportError:
    uvloop = None
else:
    uvloop.run(asyncio.sleep(0))  # opens what it never closes: before anything is counted


@pytest.fixture
def ctx():
    context = Keeper(linger=0.2)
    yield context
    context.finish()


@pytest.fixture(params=["inproc", "tcp"])
def url(request):
    return {"inproc": "inproc://test", "tcp": "tcp://127.0.0.1:0"}[request.param]


def pair_of(ctx, url, server, client, server_options=(), **options):
    """A bound socket and a connected one, both ready."""
    a = ctx.socket(server, bind=url, **dict(server_options))
    b = ctx.socket(client, connect=a.endpoints[0], **options)
    a.wait_peers(1, 5)
    b.wait_peers(1, 5)
    return a, b


@pytest.fixture
def linked(ctx, url):
    return lambda server, client, **kw: pair_of(ctx, url, server, client, **kw)


@pytest.fixture
def linked_at(ctx):
    """linked, at an address of the test's own."""
    return lambda url, server, client, **kw: pair_of(ctx, url, server, client, **kw)


@pytest.fixture(params=["socket", "context"])
def asking(linked, request):
    """What asks, and the one that answers."""
    respondent, surveyor = linked("respondent", "surveyor", deadline=LIMIT)
    answering = Answering(respondent)
    yield surveyor if request.param == "socket" else surveyor.new_context(), answering
    answering.close()


@pytest.fixture
def pool():
    made = ThreadPoolExecutor(4)
    yield made
    made.shutdown(cancel_futures=True)


class Loop:
    """One of the libraries, the same for a test's purposes."""

    def __init__(self, name):
        self.name = name

    def run(self, fn, *args):
        if self.name == "uvloop":
            return uvloop.run(fn(*args))
        if self.name == "asyncio":
            return asyncio.run(fn(*args))
        return trio.run(fn, *args)

    async def sleep(self, seconds):
        await (trio if self.name == "trio" else asyncio).sleep(seconds)

    async def both(self, *fns):
        """All at once; their results."""
        if self.name != "trio":
            return await asyncio.gather(*(fn() for fn in fns))
        out = [None] * len(fns)

        async def one(i, fn):
            out[i] = await fn()

        async with trio.open_nursery() as nursery:
            for i, fn in enumerate(fns):
                nursery.start_soon(one, i, fn)
        return out

    async def cut(self, seconds, fn):
        """fn() cancelled after so long; its result, or None."""
        if self.name == "trio":
            with trio.move_on_after(seconds):
                return await fn()
            return None
        task = asyncio.ensure_future(fn())
        await asyncio.sleep(seconds)
        task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            return None


    async def until_then_cut(self, true, fn):
        """fn(), which must be under way when true() becomes true, and is cancelled then."""
        if self.name == "trio":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(fn)
                while not true():
                    await trio.sleep(0.001)
                nursery.cancel_scope.cancel()
            return
        task = asyncio.ensure_future(fn())
        while not true():
            await asyncio.sleep(0.001)
        assert task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.fixture(params=["asyncio", "trio"] + ["uvloop"] * (uvloop is not None))
def loop(request):
    return Loop(request.param)
