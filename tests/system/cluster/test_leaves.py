"""Leaves that handlers begin, or wait for: each of them ends."""

import asyncio
import contextlib
import contextvars
import functools
import logging
import time
from types import SimpleNamespace

import pytest
import trio

from mqcore import cluster
from mqcore.binding.sleep import in_trio, sleep

pytestmark = pytest.mark.keeps(threads=4, why="trio keeps its threads for ten seconds")
LIMIT = 50.0


class Calls:
    """Runs `function(self)`, and knows how far it is."""

    def __init__(self, function):
        self.function = function
        self.begun = self.over = self.cancelled = False

    async def request(self, req):
        self.begun = True
        try:
            await self.function(self)
        except BaseException:
            self.cancelled = True
            raise
        finally:
            self.over = True
        return b""


async def together(*functions):
    """Run them in tasks of the caller's, which it waits for."""
    if in_trio():
        async with trio.open_nursery() as nursery:
            for function in functions:
                nursery.start_soon(function)
    else:
        async with asyncio.TaskGroup() as group:
            for function in functions:
                group.create_task(function())


async def stubborn(task):
    """Wait for a task of asyncio's, whoever cancels that."""
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(task)


@contextlib.asynccontextmanager
async def serving(key, *functions):
    """For each function a node whose handler runs it: the nodes, and the handlers. Another node has
    sent a request to each."""
    async with contextlib.AsyncExitStack() as stack:
        asker = await stack.enter_async_context(cluster.ajoin(key))
        handlers = [Calls(function) for function in functions]
        nodes = [await stack.enter_async_context(cluster.ajoin(key, seeds=[asker.url]))
                 for _ in functions]
        for number, (node, handler) in enumerate(zip(nodes, handlers, strict=True)):
            handler.node, handler.nodes = node, nodes
            await node.aserve(f"s{number}", handler).astart()
            await asker.await_members(f"s{number}", timeout=LIMIT)

        async def ask(number):
            with contextlib.suppress(cluster.ClusterError):
                await asker.arequest(f"s{number}", b"", timeout=None)

        for number in range(len(nodes)):
            asker.loop.spawn(ask, number)
        yield nodes, handlers
        for node in nodes:
            await node.aclose()
        assert await asker.until(lambda: all(handler.over for handler in handlers), LIMIT)
        assert await asker.until(lambda: not any(node.loop.handlers for node in nodes), LIMIT)


def begun(handlers):
    return all(handler.begun for handler in handlers)


def test_a_handler_closes_its_node_in_tasks_of_its_own(run, key):
    async def closes(handler):
        await together(handler.node.aclose, handler.node.aclose)

    async def main():
        async with serving(key, closes) as (nodes, handlers):
            assert await nodes[0].until(lambda: handlers[0].over, LIMIT)
            assert nodes[0].ended and not nodes[0].loop.left

    run(main)


def test_a_handler_awaits_the_task_that_closes_its_node(once, key):
    async def awaits(handler):
        await asyncio.create_task(handler.node.aclose())

    async def insists(handler):
        await stubborn(asyncio.create_task(handler.node.aclose()))

    async def main():
        async with serving(key, awaits, insists) as (nodes, handlers):
            assert await nodes[0].until(lambda: all(one.over for one in handlers), LIMIT)
            assert not any(node.loop.left for node in nodes) and not handlers[1].cancelled

    once(main)


def test_a_handler_that_does_not_await_its_leave_is_cancelled(run, key):
    async def starts(handler):
        await together(handler.node.aclose, lambda: sleep(LIMIT))

    async def main():
        async with serving(key, starts) as (nodes, handlers):
            assert await nodes[0].until(lambda: handlers[0].over, LIMIT)
            assert handlers[0].cancelled and not nodes[0].loop.left

    run(main)


@pytest.mark.parametrize("count", [2, 3])
def test_handlers_close_each_others_nodes(run, key, count):
    async def main():
        async def closes(handler):
            assert await handler.node.until(lambda: begun(handlers), LIMIT)
            place = handler.nodes.index(handler.node)
            await together(handler.nodes[place - 1].aclose)

        async def insists(handler):
            assert await handler.node.until(lambda: begun(handlers), LIMIT)
            with trio.CancelScope(shield=True) if in_trio() else contextlib.nullcontext():
                place = handler.nodes.index(handler.node)
                leave = handler.nodes[place - 1].aclose()
                await (leave if in_trio() else stubborn(asyncio.create_task(leave)))

        for function in closes, insists:
            async with serving(key, *[function] * count) as (nodes, handlers):
                assert await nodes[0].until(lambda: all(one.over for one in handlers), LIMIT)
                assert not any(node.loop.left for node in nodes)

    run(main)


async def cleans_up(handler):
    try:
        await sleep(LIMIT)
    finally:
        with trio.CancelScope(shield=True) if in_trio() else contextlib.nullcontext():
            for _ in range(20):
                await sleep(0.01)


def test_a_leave_within_a_handler_waits_for_others(run, key):
    async def main():
        async def closes(handler):
            assert await handler.node.until(lambda: begun(handlers), LIMIT)
            await handlers[1].node.aclose()
            assert handlers[1].over

        async with serving(key, closes, cleans_up) as (_, handlers):
            assert await handlers[0].node.until(lambda: handlers[0].over, LIMIT)
            assert not handlers[0].cancelled

    run(main)


def test_a_leave_ends_although_handlers_do_not(run, key, monkeypatch, caplog):
    for module in "loops", "trio_loop":
        monkeypatch.setattr(f"mqcore.cluster.{module}.PATIENCE", 0.2)

    async def main():
        released = trio.Event() if in_trio() else asyncio.Event()

        async def ignores(handler):
            if in_trio():
                with trio.CancelScope(shield=True):
                    await released.wait()
            else:
                await stubborn(asyncio.ensure_future(released.wait()))

        async with serving(key, ignores) as (nodes, handlers):
            assert await nodes[0].until(lambda: begun(handlers), LIMIT)
            await nodes[0].aclose()
            assert nodes[0].stats()["counts"]["handlers_left"] == 1 and not handlers[0].over
            released.set()

    with caplog.at_level(logging.WARNING, "mqcore.cluster"):
        run(main)
    assert [record.args[0] for record in caplog.records] == [1]


def test_a_handler_awaits_a_leave_that_has_begun_elsewhere(once, key, monkeypatch):
    """It passes on to the leave each time that the leave cancels it."""
    monkeypatch.setattr("mqcore.cluster.loops.PATIENCE", 0.2)

    async def main():
        leaves = asyncio.Queue()

        async def awaits(handler):
            await (await leaves.get())

        async with serving(key, awaits) as (nodes, handlers):
            assert await nodes[0].until(lambda: begun(handlers), LIMIT)
            leave = asyncio.create_task(nodes[0].aclose())
            leaves.put_nowait(leave)
            await asyncio.wait([leave])
            assert leave.cancelled() and leave.cancelling() == 2

    once(main)


def test_a_node_that_lives_within_a_handler_has_ended_after_its_leave(run, key):
    async def main():
        async def joins(handler):
            async with cluster.ajoin(cluster.Key.generate()) as net, net.aserve("s", Calls(sleep)):
                pass
            handler.clean = net.loop.ended.is_set() if in_trio() else not net.loop.tasks

        async with serving(key, joins) as (nodes, handlers):
            assert await nodes[0].until(lambda: handlers[0].over, LIMIT)
            assert handlers[0].clean

    run(main)


def test_a_loop_that_stands_still_is_no_reason_to_leave_handlers(run, key, monkeypatch):
    for module in "loops", "trio_loop":
        monkeypatch.setattr(f"mqcore.cluster.{module}.PATIENCE", 0.2)

    async def main():
        async def blocks(handler):
            try:
                await sleep(LIMIT)
            finally:
                time.sleep(0.5)
                with trio.CancelScope(shield=True) if in_trio() else contextlib.nullcontext():
                    await sleep(0)

        async with serving(key, blocks) as (nodes, handlers):
            assert await nodes[0].until(lambda: begun(handlers), LIMIT)
            await nodes[0].aclose()
            assert handlers[0].over and not nodes[0].loop.left

    run(main)


class Plain:
    def __init__(self, function):
        self.function = function

    def request(self, req):
        return self.function()


@contextlib.asynccontextmanager
async def asking(key, make):
    """A node whose service `s` has the handler make(node, services), and another one."""
    services = []
    async with cluster.ajoin(key) as net, cluster.ajoin(key, seeds=[net.url]) as one:
        services.append(await one.aserve("s", make(one, services)).astart())
        await net.await_members("s", timeout=LIMIT)
        yield net, one


def told(function):
    async def handler(_):
        return repr(await function()).encode()

    return SimpleNamespace(request=handler)


@pytest.mark.parametrize("make", [
    lambda one, services: told(lambda: one.adrain(None)),
    lambda one, services: Plain(lambda: one.drain(None))], ids=["async", "plain"])
def test_a_handler_that_awaits_the_drain_of_its_node_gets_an_error(run, key, make):
    async def main():
        async with asking(key, make) as (net, one):
            for _ in range(2):
                with pytest.raises(cluster.RemoteError, match="cannot wait") as caught:
                    await net.arequest("s", b"", timeout=LIMIT)
                assert caught.value.kind == "StateError"
            assert not one.draining
            assert await one.adrain(LIMIT) is True

    run(main)


@pytest.mark.parametrize("make", [
    lambda one, services: Plain(lambda: one.loop.call(begin, one)),
    lambda one, services: told(lambda: begin(one))], ids=["plain", "async"])
def test_a_handler_begins_the_drain_of_its_node_in_a_task(run, key, make):
    async def main():
        async with asking(key, make) as (net, one):
            assert await net.arequest("s", b"", timeout=LIMIT) in (b"", b"None")
            assert await net.until(lambda: one.ended, LIMIT) and one.drained

    run(main)


async def begin(one):
    async def drain():
        await one.adrain(LIMIT)

    if in_trio():
        trio.lowlevel.spawn_system_task(drain, context=contextvars.copy_context())
    else:
        one.task = asyncio.ensure_future(drain())


@pytest.mark.parametrize("make", [
    lambda one, services: told(lambda: services[0].astop(None)),
    lambda one, services: Plain(lambda: repr(services[0].stop(None)).encode())],
    ids=["async", "plain"])
def test_a_handler_that_stops_its_service_does_not_wait_for_itself(run, key, make):
    async def main():
        async with asking(key, make) as (net, one):
            assert await net.arequest("s", b"", timeout=LIMIT) == b"True"
            assert not one.services

    run(main)


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
def test_handlers_that_stop_services_do_not_wait_for_each_other(run, key, plain):
    """Two of one service, and one of another."""
    async def main():
        services, here = [], []

        def handler(which):
            async def request(_):
                here.append(which)
                await one.until(lambda: len(here) == 3, LIMIT)
                return repr(await services[1 - which].astop(None)).encode()

            def blocking(_):
                here.append(which)
                while len(here) < 3:
                    time.sleep(0.001)
                return repr(services[1 - which].stop(None)).encode()

            return SimpleNamespace(request=blocking if plain else request)

        async with cluster.ajoin(key) as net, cluster.ajoin(key, seeds=[net.url]) as one:
            for which in (0, 1):
                services.append(await one.aserve(f"s{which}", handler(which)).astart())
                await net.await_members(f"s{which}", timeout=LIMIT)
            answers = []

            async def ask(name):
                answers.append(await net.arequest(name, b"", timeout=LIMIT))

            await together(*(functools.partial(ask, name) for name in ("s0", "s1", "s1")))
            assert answers == [b"True"] * 3 and not one.services

    run(main)


def test_a_handler_that_goes_on_in_its_task_has_no_thread(key):
    """A plain method whose result is awaited. Its thread serves the request that it makes."""
    async def main():
        async with cluster.ajoin(key) as one:
            stops = one.aserve("stops", Plain(lambda: repr(stops.stop(LIMIT)).encode()))
            await stops.astart()
            asks = Plain(lambda: one.arequest("stops", b"", timeout=LIMIT))
            async with one.aserve("asks", asks):
                assert await one.arequest("asks", b"", timeout=LIMIT) == b"True"

    asyncio.run(main())
