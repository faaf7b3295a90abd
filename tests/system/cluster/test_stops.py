"""Handlers that stop services: their own, each other's, those of another node, and with requests
that wait behind them."""

import asyncio
import random
import time
from types import SimpleNamespace

import pytest

from mqcore import cluster
from mqcore.binding.sleep import sleep
from mqcore.cluster.federation import Gateway
from mqcore.errors import StateError

pytestmark = pytest.mark.keeps(threads=12, why="trio keeps its threads for ten seconds")
LIMIT = 50.0


def handler_of(plain, stop, before):
    """Its method calls before(), waits until that is true, and answers what the stop of the service
    stop() has returned."""
    async def request(_):
        while not before():
            await sleep(0.001)
        return repr(await stop().astop(None)).encode()

    def blocking(_):
        while not before():
            time.sleep(0.001)
        return repr(stop().stop(None)).encode()

    return SimpleNamespace(request=blocking if plain else request)


def times(n):
    """True from the call on in which that many callers have called."""
    callers = []
    return lambda: callers.append(None) or len(callers) >= n


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
def test_handlers_that_stop_services_of_each_others_nodes(run, key, plain):
    async def main():
        services, both = [], times(2)
        async with cluster.ajoin(key) as net, cluster.ajoin(key, seeds=[net.url]) as one, \
                cluster.ajoin(key, seeds=[net.url]) as two:
            for which, node in enumerate((one, two)):
                handler = handler_of(plain, lambda which=which: services[1 - which], both)
                services.append(await node.aserve(f"s{which}", handler).astart())
                await net.await_members(f"s{which}", timeout=LIMIT)
            answers = []

            async def ask(name):
                answers.append(await net.arequest(name, b"", timeout=LIMIT))

            for name in ("s0", "s1"):
                net.loop.spawn(ask, name)
            assert await net.until(lambda: len(answers) == 2, LIMIT)
            assert answers == [b"True"] * 2

    run(main)


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
def test_requests_that_wait_behind_a_handler_that_stops_its_service_go_to_others(run, key, plain):
    async def main():
        answers, services = [], []

        def all_wait():
            return services[0].requests.load + len(answers) == 4

        async def ask():
            answers.append(await net.arequest("s", b"", timeout=LIMIT))

        async def answering(_):
            return b"other"

        async with cluster.ajoin(key) as net, cluster.ajoin(key, seeds=[net.url]) as one, \
                cluster.ajoin(key, seeds=[net.url]) as two:
            handler = handler_of(plain, lambda: services[0], all_wait)
            services.append(one.aserve("s", handler, concurrency=1))
            other = two.aserve("s", SimpleNamespace(request=answering), weight=0.001)
            async with services[0], other:
                await net.await_members("s", 2, timeout=LIMIT)
                for _ in range(4):
                    net.loop.spawn(ask)
                assert await net.until(lambda: len(answers) == 4, LIMIT)
        assert answers.count(b"True") == 1 and answers.count(b"other") == 3
        accounts = services[0].requests.accounts()
        assert (accounts["waiting"], accounts["running"], accounts["done"]) == (0, 0, 1)
        assert accounts["offered"] == accounts["done"] + accounts["refused"]

    run(main)


def test_as_many_as_wait_go_to_others(once, key):
    """They have not run: this is no repetition, of which there is a budget."""
    async def main():
        answers, services = [], []

        async def ask():
            answers.append(await net.arequest("s", b"", timeout=LIMIT))

        async def stopping(_):
            while services[0].requests.load < 200:
                await sleep(0.001)
            await net.await_members("s", 2, timeout=LIMIT)
            return repr(await services[0].astop(None)).encode()

        async def answering(_):
            return b"other"

        async with cluster.ajoin(key) as net, cluster.ajoin(key, seeds=[net.url]) as one, \
                cluster.ajoin(key, seeds=[net.url]) as two:
            services.append(one.aserve("s", SimpleNamespace(request=stopping), concurrency=1))
            async with services[0]:
                await net.await_members("s", timeout=LIMIT)
                for _ in range(200):
                    net.loop.spawn(ask)
                assert await one.until(lambda: services[0].requests.load == 200, LIMIT)
                async with two.aserve("s", SimpleNamespace(request=answering)):
                    assert await net.until(lambda: len(answers) == 200, LIMIT)
        assert sorted(answers) == [b"True"] + [b"other"] * 199

    once(main)


@pytest.mark.parametrize("what, answer", [("stop", b"True"), ("drain", b"StateError")])
def test_a_plain_handler_that_runs_a_loop_with_a_node_of_its_own(once, key, what, answer):
    """Whose handler makes the call, in the same thread."""
    async def inner():
        async with cluster.ajoin(cluster.Key.generate()) as node:
            async def request(_):
                try:
                    return repr(await (service.astop(None) if what == "stop" else
                                       node.adrain(None))).encode()
                except StateError as error:
                    return type(error).__name__.encode()

            service = await node.aserve("in", SimpleNamespace(request=request)).astart()
            return await node.arequest("in", b"", timeout=LIMIT)

    async def main():
        outer = SimpleNamespace(request=lambda _: asyncio.run(inner()))
        async with cluster.ajoin(key) as node, node.aserve("out", outer):
            assert await node.arequest("out", b"", timeout=LIMIT) == answer

    once(main)


def test_a_drain_waits_for_what_a_stopped_service_still_runs(run, key):
    async def main():
        begun, answers = [], []

        async def request(_):
            begun.append(1)
            await sleep(0.3)
            return b"done"

        async def ask():
            answers.append(await net.arequest("s", b"", timeout=LIMIT))

        async with cluster.ajoin(key) as net, cluster.ajoin(key, seeds=[net.url]) as one:
            service = await one.aserve("s", SimpleNamespace(request=request)).astart()
            await net.await_members("s", timeout=LIMIT)
            net.loop.spawn(ask)
            assert await one.until(lambda: begun, LIMIT)
            assert await service.astop(0) is False
            assert await one.adrain(LIMIT) is True
            assert await net.until(lambda: answers, LIMIT)
        assert answers == [b"done"]

    run(main)


def test_broadcasts_that_wait_behind_a_handler_that_stops_its_service_are_counted(run, key):
    """A survey ends without an answer of theirs."""
    class Heard:
        def __init__(self):
            self.service = one.aserve("heard", self, concurrency=1)

        def broadcast(self, msg):
            while self.service.broadcasts.load < 3:
                time.sleep(0.001)
            return repr(self.service.stop(None)).encode()

    async def main():
        nonlocal one
        found = []

        async def survey():
            found.append([answer.body async for answer in
                          net.asurvey("heard", b"", deadline=LIMIT)])

        async with cluster.ajoin(key) as net, cluster.ajoin(key, seeds=[net.url]) as one:
            async with Heard().service:
                await net.await_members("heard", timeout=LIMIT)
                for _ in range(3):
                    await net.abroadcast("heard", b"")
                assert await one.until(lambda: one.stats()["dropped"].get("unheard") == 2, LIMIT)
            async with Heard().service:
                await net.await_members("heard", timeout=LIMIT)
                for _ in range(3):
                    net.loop.spawn(survey)
                assert await net.until(lambda: len(found) == 3, LIMIT)
        assert sorted(found) == [[], [], [b"True"]]

    one = None
    run(main)


def test_broadcasts_that_wait_at_a_stopped_service_when_its_node_leaves_are_counted(run, key):
    async def main():
        class Stuck:
            async def broadcast(self, _):
                await sleep(LIMIT)

        async with cluster.ajoin(key) as net, cluster.ajoin(key, seeds=[net.url]) as one:
            service = await one.aserve("heard", Stuck(), concurrency=1).astart()
            await net.await_members("heard", timeout=LIMIT)
            for _ in range(3):
                await net.abroadcast("heard", b"")
            assert await one.until(lambda: service.broadcasts.load == 3, LIMIT)
            assert not await service.astop(0)
        assert one.stats()["dropped"]["unheard"] == 2

    run(main)


def test_what_runs_under_a_name_that_a_gateway_takes_back_is_known(once, key):
    async def main():
        async with cluster.ajoin(key) as node:
            services = [node.aserve(name, SimpleNamespace(request=print)) for name in ("a", "b")]
            services[0].requests.running = 1
            node.services.update((one.name, one) for one in services)
            Gateway._withdraw(None, node, {one.name: one for one in services}, set())
            assert node.services == {} and node.stopped == {services[0]}
            services[0].requests.running = 0

    once(main)


def test_a_handler_that_stops_its_service_goes_on_when_that_starts_again(run, key):
    """One that runs beside it does not end, and the next request waits behind it."""
    async def main():
        running, stopped, answers, release = [], [], [], []

        async def request(req):
            running.append(req.body)
            if req.body == b"stop":
                stopped.append(await service.astop(None))
            elif req.body == b"run":
                while not release:
                    await sleep(0.001)
            return req.body

        async def ask(body):
            answers.append(await net.arequest("s", body, timeout=LIMIT))

        async with cluster.ajoin(key) as net, cluster.ajoin(key, seeds=[net.url]) as one:
            service = one.aserve("s", SimpleNamespace(request=request), concurrency=2)
            async with service:
                await net.await_members("s", timeout=LIMIT)
                for body in (b"run", b"stop"):
                    net.loop.spawn(ask, body)
                    assert await net.until(lambda body=body: body in running, LIMIT)
                assert await net.until(lambda: service.draining, LIMIT)
                assert not await service.astop(0)
                await service.astart()
                net.loop.spawn(ask, b"next")
                assert await net.until(lambda: len(answers) == 2, LIMIT)
                assert stopped == [False] and answers == [b"stop", b"next"]
                assert not service.draining
                release.append(True)
                assert await net.until(lambda: len(answers) == 3, LIMIT)

    run(main)


@pytest.mark.parametrize("seed", range(6))
def test_handlers_that_stop_services_at_random(run, key, seed):
    """All stops end, and each request is answered or refused."""
    rng = random.Random(seed)

    def some():
        plain, pause = rng.random() < 0.5, rng.choice((0, 0.01, 0.05))

        async def request(_):
            await sleep(pause)
            return repr(await rng.choice(services).astop(None)).encode()

        def blocking(_):
            time.sleep(pause)
            return repr(rng.choice(services).stop(None)).encode()

        return SimpleNamespace(request=blocking if plain else request)

    async def main():
        results = []
        async with cluster.ajoin(key) as net, cluster.ajoin(key, seeds=[net.url]) as one, \
                cluster.ajoin(key, seeds=[net.url]) as two:
            for i in range(4):
                node = rng.choice((one, two))
                services.append(await node.aserve(
                    f"s{i}", some(), concurrency=rng.choice((1, 2, 4))).astart())
            for i in range(4):
                await net.await_members(f"s{i}", timeout=LIMIT)

            async def ask(name):
                try:
                    results.append(await net.arequest(name, b"", timeout=LIMIT))
                except (cluster.Overloaded, cluster.NoSuchService) as error:
                    results.append(type(error))

            for _ in range(16):
                net.loop.spawn(ask, f"s{rng.randrange(4)}")
            assert await net.until(lambda: len(results) == 16, LIMIT)
            assert {b"True"} <= set(results) <= {b"True", cluster.Overloaded,
                                                 cluster.NoSuchService}

    services = []
    run(main)
