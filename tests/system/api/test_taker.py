"""Messages taken within asyncio's callbacks, as a cluster's node takes them."""

import asyncio
import itertools

import pytest

from mqcore.api.wakers import TURN, Taker

LIMIT = 60


async def eventually(true):
    async with asyncio.timeout(LIMIT):
        while not true():
            await asyncio.sleep(0.001)


def bodies(taken):
    return [message.body for message in taken]


def test_it_takes_what_was_there_and_what_comes(linked):
    pull, push = linked("pull", "push")

    async def main():
        push.send_many([b"%d" % n for n in range(3 * TURN)])
        taken = []
        taker = Taker(pull, taken.append)
        taker.begin()
        await eventually(lambda: len(taken) == 3 * TURN)
        for n in range(3 * TURN, 1000):
            push.send(b"%d" % n)
            if not n % 7:
                await asyncio.sleep(0)
        await eventually(lambda: len(taken) == 1000)
        assert bodies(taken) == [b"%d" % n for n in range(1000)]
        taker.end()
        taker.end()
        push.send(b"later")
        assert await pull.arecv(timeout=LIMIT) == b"later" and len(taken) == 1000
    asyncio.run(main())


def test_other_callbacks_have_their_turns(linked):
    pull, push = linked("pull", "push")

    async def main():
        push.send_many([b"x"] * (10 * TURN))
        turns, taken = [], []

        def turn():
            turns.append(len(taken))
            if len(taken) < 10 * TURN:
                asyncio.get_running_loop().call_soon(turn)
        turn()
        taker = Taker(pull, taken.append)
        taker.begin()
        await eventually(lambda: turns[-1] == 10 * TURN)
        # at most one turn of its own and one after an event
        assert all(b - a <= 2 * TURN for a, b in itertools.pairwise(turns))
        taker.end()
    asyncio.run(main())


@pytest.mark.parametrize("while_taking", [False, True])
def test_it_ends_with_the_socket(linked, while_taking):
    pull, push = linked("pull", "push")

    async def main():
        taken = []

        def take(message):
            taken.append(message)
            pull.close()
        taker = Taker(pull, take)
        taker.begin()
        if while_taking:
            push.send_many([b"x"] * 3)
            await eventually(lambda: taken)
        else:
            pull.close()
        await eventually(lambda: taker.waker is None)
        assert len(taken) == while_taking
    asyncio.run(main())


def test_an_end_while_it_takes(linked):
    pull, push = linked("pull", "push")

    async def main():
        taken = []

        def take(message):
            taken.append(message)
            taker.end()
        push.send_many([b"a", b"b"])
        taker = Taker(pull, take)
        taker.begin()
        await eventually(lambda: taken)
        assert await pull.arecv(timeout=LIMIT) == b"b" and bodies(taken) == [b"a"]
    asyncio.run(main())
