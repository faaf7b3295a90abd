"""Clusters of processes: `nodes` starts them, `run` runs a coroutine function on each loop."""

import asyncio
from pathlib import Path

import pytest
import trio
from programs import starter

import mqcore as mq
from mqcore import cluster

NODE = Path(__file__).resolve().parents[2] / "support" / "cluster_node.py"


@pytest.fixture(params=["asyncio", "trio"])
def run(request):
    """run(main): its result. A main that hangs fails after a minute."""
    async def on_asyncio(main):
        return await asyncio.wait_for(main(), 60)

    async def on_trio(main):
        with trio.fail_after(60):
            return await main()

    if request.param == "asyncio":
        return lambda main: asyncio.run(on_asyncio(main))
    return lambda main: trio.run(on_trio, main)


@pytest.fixture
def once():
    """run(main), on asyncio alone."""
    async def limited(main):
        return await asyncio.wait_for(main(), 60)

    return lambda main: asyncio.run(limited(main))


@pytest.fixture
def key(tmp_path):
    made = cluster.Key.generate()
    made.save(tmp_path / "test.key")
    return made


class Nodes:
    """Processes that serve "work". The first one is the seed of the others."""

    def __init__(self, start, path):
        self.start = start
        self.path = path
        self.urls = []

    def begin(self, *options):
        """Start a process; `ready` waits for it."""
        return self.start(NODE, self.path, *self.urls[:1], *options, stdin=True)

    def ready(self, program):
        self.urls.append(program.line())
        return program

    def __call__(self, *options):
        return self.ready(self.begin(*options))

    @property
    def seed(self):
        return self.urls[0]


@pytest.fixture
def nodes(key, tmp_path):
    with starter() as start:
        yield Nodes(start, tmp_path / "test.key")


@pytest.fixture(autouse=True)
def _no_default_context():
    yield
    mq.Context.default().close(0)
