"""Several calls begin one subscription or service at the same time, and some are cancelled."""

import itertools

import pytest
from echoing import Echo

import mqcore as mq
from mqcore import cluster
from mqcore.binding.sleep import sleep

LIMIT = 50.0


class Starts:
    """Calls that begin something. Each waits in the node's barrier until it may go on."""

    def __init__(self, net, monkeypatch, start):
        self.net, self.start = net, start
        self.waits, self.over, self.cancels = 0, [], []
        self.go_on = False
        monkeypatch.setattr(net, "barrier", self._barrier)

    async def _barrier(self):
        self.waits += 1
        await self.net.until(lambda: self.go_on, None)

    async def _call(self, number):
        try:
            await self.start()
        except BaseException as error:
            self.over.append((number, type(error)))
            raise
        self.over.append((number, None))

    async def begin(self, count):
        for number in range(len(self.cancels), len(self.cancels) + count):
            self.cancels.append(self.net.loop.spawn(self._call, number))
        while self.waits < len(self.cancels):
            await sleep(0.001)

    async def cancel(self, number):
        self.cancels[number]()
        while not any(one == number for one, _ in self.over):
            await sleep(0.001)

    async def finish(self):
        self.go_on = True
        while len(self.over) < len(self.cancels):
            await sleep(0.001)
        return sum(error is None for _, error in self.over)


@pytest.mark.parametrize("cancelled", [*itertools.permutations(range(3), 2), (0, 1, 2), (2, 1, 0)])
def test_a_subscription_ends_with_the_last_of_its_starts(run, key, monkeypatch, cancelled):
    async def main():
        async with cluster.ajoin(key, udp=False) as net:
            feed = net.asubscribe("a.>")
            starts = Starts(net, monkeypatch, feed.astart)
            await starts.begin(3)
            for number in cancelled:
                await starts.cancel(number)
            assert await starts.finish() == 3 - len(cancelled)
            assert feed.closed is (len(cancelled) == 3)
            assert await net.apublish("a.b", b"it") == (len(cancelled) < 3)
            await feed.aclose()
            assert not net.topics.own and feed.closed

    run(main)


def test_a_start_of_an_ended_subscription_is_cancelled(run, key, monkeypatch):
    """It was before the end: it does not end what has begun since."""
    async def main():
        async with cluster.ajoin(key, udp=False) as net:
            feed = net.asubscribe("a.>")
            starts = Starts(net, monkeypatch, feed.astart)
            await starts.begin(1)
            await feed.aclose()
            await starts.begin(1)
            await starts.cancel(0)
            assert await starts.finish() == 1
            assert not feed.closed and await net.apublish("a.b", b"it") == 1

    run(main)


def test_a_start_of_a_stopped_service_is_cancelled(run, key, monkeypatch):
    """A second start has an error, unless the service has been stopped. Then it is the one that
    counts."""
    async def main():
        async with cluster.ajoin(key, udp=False) as net:
            service = net.aserve("echo", Echo())
            starts = Starts(net, monkeypatch, service.astart)
            await starts.begin(1)
            with pytest.raises(mq.StateError, match="serves 'echo' already"):
                await service.astart()
            await service.astop()
            await starts.begin(1)
            await starts.cancel(0)
            assert await starts.finish() == 1
            assert await net.arequest("echo", b"it", timeout=LIMIT) == b"it"

    run(main)


@pytest.mark.parametrize("ended_before", [False, True], ids=["meanwhile", "before"])
def test_a_stop_that_waits_while_another_one_ends(run, key, ended_before):
    """The service has begun again meanwhile. The other stop ends while this one waits, or has ended
    before it begins."""
    async def main():
        async with cluster.ajoin(key, udp=False) as net:
            async with net.aserve("echo", Echo()) as service:
                held, begun, over = [True], [], []

                async def stop():
                    begun.append(True)
                    over.append(await service.astop(LIMIT))

                async def slow(it):
                    while held:
                        await sleep(0.001)
                    return it.body

                service._quick = slow
                net.loop.spawn(net.arequest, "echo", b"it")
                await net.until(lambda: service.busy, LIMIT)
                if ended_before:
                    assert not await service.astop(0)
                net.loop.spawn(stop)
                await net.until(lambda: begun and service.draining, LIMIT)
                if not ended_before:
                    assert not await service.astop(0)
                await service.astart()
                held.clear()
                assert await net.until(lambda: over, LIMIT) and over == [True]
                assert net.services == {"echo": service} and not service.draining
                assert await net.arequest("echo", b"it", timeout=LIMIT) == b"it"

    run(main)
