"""kill -9 of members under 1,000 requests/s. MQCORE_KILLS=100 --timeout=3000 for a
long run."""

import asyncio
import itertools
import os
import random
import signal
from collections import Counter

from mqcore import cluster

KILLS = int(os.environ.get("MQCORE_KILLS", "5"))
MEMBERS = 4
PAUSE = 0.01        # seconds
BURST = 10          # requests in each: half of them idempotent
MOST = 2000         # that wait for an answer; a busy machine gets no more
BETWEEN = 200       # answers between two kills
LIMIT = 60.0


def test_kills_under_load(key, nodes, tmp_path):
    asyncio.run(asyncio.wait_for(under_load(key, nodes, tmp_path / "ran"), 60 + 30 * KILLS))


async def under_load(key, nodes, ran):
    outcomes = {True: Counter(), False: Counter()}
    answered = set()
    stop = []
    async with cluster.ajoin(key) as net:
        nodes.urls = [net.url]
        programs = [nodes() for _ in range(MEMBERS)]
        await net.await_members("work", MEMBERS, timeout=LIMIT)

        async def ask(number, idempotent):
            line = b"%d" % number
            try:
                assert await net.arequest("work", b"mark %s %s" % (bytes(ran), line),
                                          timeout=LIMIT, idempotent=idempotent) == line
                outcomes[idempotent]["answered"] += 1
                answered.add(number)
            except cluster.ClusterError as error:
                outcomes[idempotent][type(error).__name__] += 1

        async def load():
            numbers = itertools.count(1)
            while not stop:
                room = net.requests.pending < MOST
                for number in itertools.islice(numbers, BURST if room else 0):
                    net.loop.spawn(ask, number, number % 2 == 0)
                await asyncio.sleep(PAUSE)

        net.loop.spawn(load)
        for _ in range(KILLS):
            count = len(answered)
            assert await net.until(lambda count=count: len(answered) > count + BETWEEN, LIMIT)
            victim = programs.pop(random.randrange(len(programs)))
            victim.process.send_signal(signal.SIGKILL)
            programs.append(await net.loop.in_pool(nodes))
            await net.await_members("work", MEMBERS, timeout=LIMIT)
        stop.append(True)
        assert await net.until(lambda: not net.requests.pending, LIMIT)
        counts = net.stats()["requests"]
    print(f"{KILLS} kills: idempotent {dict(outcomes[True])}, others {dict(outcomes[False])}; "
          f"{counts}")
    assert set(outcomes[True]) == {"answered"}
    assert set(outcomes[False]) <= {"answered", "MemberLost"}
    total = outcomes[True] + outcomes[False]
    assert counts["asked"] == sum(total.values())
    assert counts["answered"] == total["answered"] and counts["lost"] == total["MemberLost"]
    assert counts["asked"] == counts["answered"] + counts["lost"]
    times = Counter(map(int, ran.read_text().split()))
    assert answered <= set(times)
    assert all(count == 1 for number, count in times.items() if number % 2)
