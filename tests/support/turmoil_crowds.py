"""Stress of many sockets at once: event loops, and crowds of producers and consumers. Kinds of
tests/support/turmoil.py."""

import asyncio
import faulthandler
import random
import threading
import time

from gang import HEAD, STALL, Gang, Stuck, a_context, address

import mqcore

# -- loops -----------------------------------------------------------------------------------------

async def taken(sock, after):
    """One message, or None if the receive was cancelled first."""
    task = asyncio.ensure_future(sock.arecv())
    try:
        await asyncio.wait((task,), timeout=after)
    finally:
        task.cancel()
    try:
        return await task
    except asyncio.CancelledError:
        return None


def abandoned(sock, rng):
    """A loop that ends while two tasks receive; what one of them took is not lost."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # "destroyed but pending" is what we are after
    tasks = [loop.create_task(sock.arecv()) for _ in range(2)]
    loop.run_until_complete(asyncio.sleep(rng.choice((0, 0.0005, 0.003))))
    loop.close()
    for task in tasks:
        if task.done():
            sock.send(task.result())


def loops(seed, seconds=1.0, kind="tcp", members=3):
    """Two DEALERs and an echo: tasks of several loops, some of which are cancelled or end with
    their loop, and threads receive on the same socket. Who leads changes all the time; each token
    comes back to whoever waits."""
    gang = Gang()
    with address(kind) as where, a_context(seed, linger=0) as context:
        back = context.socket("dealer")
        front = context.socket("dealer", connect=str(back.bind(where)))

        def mirror():
            async def one():
                while True:
                    await back.asend(await back.arecv())

            async def main():
                await asyncio.gather(one(), one(), one())

            asyncio.run(main())

        def member(me):
            rng = random.Random(seed + me)

            async def one():
                while True:
                    data = await taken(front, rng.choice((0, 0.0002, 0.001, 0.01, None)))
                    if data is not None:
                        gang.steps += 1
                        await front.asend(data)
                    elif rng.random() < 0.05:
                        time.sleep(0.001)  # a loop that is busy leads nobody astray

            async def main():
                await asyncio.gather(*[one() for _ in range(members)])

            asyncio.run(main())

        def thread(me):
            rng = random.Random(seed + me)
            while True:
                try:
                    data = front.recv(timeout=rng.choice((0, 0.0002, 0.001, 0.01)))
                except mqcore.RecvTimeout:
                    time.sleep(rng.choice((0, 0, 0.01, 0.05)))  # now and then a loop waits alone
                    continue
                gang.steps += 1
                front.send(data)

        def passing(me):
            rng = random.Random(seed + me)
            while True:
                abandoned(front, rng)
                time.sleep(rng.choice((0, 0.02)))

        gang.start(mirror)
        for me in range(3):
            front.send(b"%d" % me)
        gang.start(member, 1)
        gang.watch(seconds * 0.4, "one loop")
        gang.start(member, 2)
        gang.start(thread, 3)
        gang.start(passing, 4)
        gang.watch(seconds * 0.6, "several loops and a thread")
        context.close(0)
        gang.join()
    return gang.steps


# -- crowds ----------------------------------------------------------------------------------------

def crowd(seed, seconds=1.0, kind="tcp", producers=4, consumers=3, hwm=1000, slow=False,
          most=1 << 30):
    """Threads share one PUSH and one PULL: nothing lost, nothing twice, each producer's order kept
    for each consumer."""
    rng = random.Random(seed)
    gang = Gang()
    stop = threading.Event()
    sent = [0] * producers
    got = [[] for _ in range(consumers)]
    with address(kind) as where, a_context(seed, linger=0) as context:
        pull = context.socket("pull", recv_hwm=hwm)
        at = pull.bind(where)
        push = context.socket("push", send_hwm=hwm, connect=str(at))
        sizes = [0, 10, 200, 20000] if not slow else [2000, 60000]

        def produce(me):
            dice = random.Random(seed + me)
            while not stop.is_set() and sent[me] < most:
                push.send(HEAD.pack(me, sent[me], 0) + bytes(dice.choice(sizes)))
                sent[me] += 1
                gang.steps += 1

        def consume(me):
            dice = random.Random(seed - me - 1)
            while True:
                for data in pull.recv_many(dice.choice((1, 3, 100))):
                    who, number, last = HEAD.unpack_from(data)
                    if last:
                        return
                    got[me].append((who, number))
                if slow and dice.random() < 0.1:
                    time.sleep(0.002)

        makers = [gang.start(produce, me) for me in range(producers)]
        for me in range(consumers):
            gang.start(consume, me)
        end = time.monotonic() + seconds + rng.random() * 0.1
        while time.monotonic() < end and min(sent) < most:
            gang.watch(0.05, "crowd")
        stop.set()
        for thread in makers:
            thread.join(STALL)
            if thread.is_alive():
                faulthandler.dump_traceback(all_threads=True)
                raise Stuck("a producer is blocked though there are consumers")
        gang.check()
        end = time.monotonic() + STALL + 5
        while sum(map(len, got)) < sum(sent):
            gang.check()
            if time.monotonic() > end:
                faulthandler.dump_traceback(all_threads=True)
                raise Stuck(f"{sum(sent)} sent, {sum(map(len, got))} received; "
                            f"push {push.stats()}; "
                            f"pull {pull.stats()}")
            time.sleep(0.01)
        context.close(0)
        gang.join()
    every = sorted(x for mine in got for x in mine)
    if every != [(who, n) for who in range(producers) for n in range(sent[who])]:
        raise AssertionError(f"{len(every)} messages, {len(set(every))} different, "
                                 f"{sum(sent)} sent")
    for mine in got:
        last = [-1] * producers
        for who, number in mine:
            if number <= last[who]:
                raise AssertionError(f"producer {who}: {number} after {last[who]}")
            last[who] = number
    return len(every)


def blocked(seed, seconds=1.0, kind="tcp"):
    """Senders blocked at marks of a few messages, readers that dawdle."""
    return crowd(seed, seconds, kind, producers=4, consumers=2, hwm=4, slow=True, most=3000)
