"""The turnstile of request() and survey(): its places where threads and tasks meet, give up and
are cancelled."""

import asyncio
import random
import threading
import time

import pytest

from mqcore.api.turnstile import FIRST, NONE, Turnstile
from mqcore.base.virtual import monotonic

LIMIT = 60


class Watched:
    """A turnstile, and who is inside."""

    def __init__(self, beside):
        self.turnstile = Turnstile(beside)
        self.lock = threading.Lock()
        self.inside = []
        self.wrong = []

    def enter(self, place):
        with self.lock:
            self.inside.append(place)
            if len(self.inside) > self.turnstile.beside + 1 or self.inside.count(FIRST) > 1:
                self.wrong.append(list(self.inside))

    def leave(self, place):
        with self.lock:
            self.inside.remove(place)
        self.turnstile.release(place)

    def thread(self, rng):
        turnstile = self.turnstile
        for _ in range(200):
            if not turnstile.line and turnstile.first.acquire(False):   # as request() does
                place = FIRST
            else:
                place = turnstile.acquire(rng.choice([None, 0, monotonic() + rng.random() * 2e-3]))
            if place != NONE:
                self.enter(place)
                time.sleep(rng.random() * 2e-4)
                self.leave(place)

    def loop(self, rng):
        async def task(rng):
            for _ in range(40):
                wait = self.turnstile.aacquire(rng.choice([None, 0, monotonic() + 1e-3]))
                try:
                    place = await asyncio.wait_for(wait, rng.choice([None, rng.random() * 3e-3]))
                except TimeoutError:
                    continue
                if place != NONE:
                    self.enter(place)
                    await asyncio.sleep(0)
                    self.leave(place)

        async def all_of_them():
            await asyncio.gather(*(task(random.Random(rng.random())) for _ in range(8)))

        asyncio.run(all_of_them())


@pytest.mark.parametrize("beside", [0, 1, 3])
def test_no_place_is_lost_or_given_twice(rng, beside):
    it = Watched(beside)
    threads = [threading.Thread(target=target, args=(random.Random(rng.random()),))
               for target in [it.thread] * 4 + [it.loop] * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert not any(thread.is_alive() for thread in threads)
    assert it.inside == it.wrong == [] and not it.turnstile.line
    free = [it.turnstile.acquire(0) for _ in range(beside + 2)]
    assert free[0] == FIRST and NONE not in free[:-1] and free[-1] == NONE


def test_each_place_that_is_given_back_goes_to_the_first_in_line():
    turnstile = Turnstile(1)
    first, beside = turnstile.acquire(0), turnstile.acquire(0)
    came = []

    async def waiter(name):
        came.append((name, await turnstile.aacquire(None)))

    async def main():
        tasks = []
        for name in "abc":
            tasks.append(asyncio.create_task(waiter(name)))
            await asyncio.sleep(0)                      # in line, one after the other
        assert turnstile.acquire(0) == NONE             # nobody overtakes
        for place in (first, beside, first):
            turnstile.release(place)
            assert turnstile.acquire(0) == NONE         # nor where a place has just become free
            assert not turnstile.first.acquire(False)
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert came == [("a", first), ("b", beside), ("c", first)]
