"""Several tasks or threads iterate over one survey."""

import threading

import pytest
from waiting import until

from mqcore import cluster
from mqcore.binding.sleep import sleep

LIMIT = 50.0
DEADLINE = 3600.0       # no reader waits until then
READERS = 4


class Gated:
    """It answers a survey when it may."""

    def __init__(self, name):
        self.name, self.opened = name, threading.Event()

    async def broadcast(self, it):
        while not self.opened.is_set():
            await sleep(0.001)
        return self.name


@pytest.mark.parametrize("how", ["answers", "silence", "close"])
def test_tasks_share_the_answers_and_end(run, key, how):
    async def main():
        one, two = Gated(b"one"), Gated(b"two")
        async with cluster.ajoin(key, udp=False) as net, net.aserve("it", one), \
                cluster.ajoin(key, udp=False, seeds=[net.url]) as other, other.aserve("it", two):
            await net.await_members("it", 2, timeout=LIMIT)
            survey, taken, over = net.asurvey("it", b"", deadline=DEADLINE), [], []

            async def read():
                async for answer in survey:
                    taken.append(answer.body)
                over.append(True)

            for _ in range(READERS):
                net.loop.spawn(read)
            await net.until(lambda: len(survey._bells) == READERS, LIMIT)
            if how == "close":
                one.opened.set()
                await net.until(lambda: taken, LIMIT)
                two.opened.set()
                await net.aclose()
            else:
                one.opened.set()
                await net.until(lambda: taken and len(survey._bells) == READERS, LIMIT)
                two.name = b"two" if how == "answers" else None
                two.opened.set()
                await net.until(lambda: len(over) == READERS, LIMIT)
                assert taken == [b"one", b"two"][:2 if how == "answers" else 1]
                assert len(over) == READERS
            assert not survey._bells

    run(main)


def test_a_reader_that_is_cancelled_ends_the_others(run, key):
    async def main():
        gated = Gated(b"")
        async with cluster.ajoin(key, udp=False) as net, net.aserve("it", gated):
            survey, over = net.asurvey("it", b"", deadline=DEADLINE), []

            async def read():
                over.append([answer.body async for answer in survey])

            cancel = [net.loop.spawn(read) for _ in range(READERS)][1]
            await net.until(lambda: len(survey._bells) == READERS, LIMIT)
            cancel()
            await net.until(lambda: len(over) == READERS - 1, LIMIT)
            assert over == [[]] * (READERS - 1) and not survey._bells
            gated.opened.set()

    run(main)


def test_threads_share_the_answers_and_end(key):
    one, two = Gated(b"one"), Gated(b"two")
    with cluster.join(key, udp=False) as net, net.serve("it", one), \
            cluster.join(key, udp=False, seeds=[net.url]) as other, other.serve("it", two):
        net.wait_members("it", 2, timeout=LIMIT)
        survey, taken = net.survey("it", b"", deadline=DEADLINE), []
        threads = [threading.Thread(target=lambda: taken.extend(survey)) for _ in range(READERS)]
        for thread in threads:
            thread.start()
        until(lambda: len(survey._bells) == READERS)
        one.opened.set()
        two.opened.set()
        for thread in threads:
            thread.join(LIMIT)
        assert not any(thread.is_alive() for thread in threads)
        assert sorted(answer.body for answer in taken) == [b"one", b"two"]
