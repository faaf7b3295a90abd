"""A member of a cluster that offers the service "adder". Start as many as you like.

    mq cluster key new adder.key
    python cluster_adder.py adder.key                           prints its address
    python cluster_adder.py adder.key tcp://127.0.0.1:7400      a second one; any member's address

A request holds two integers; the answer is their sum. A broadcast gets the number of additions as
its answer. A tunnel keeps a running total. Ctrl-C finishes what runs, then leaves.
"""

import asyncio
import signal
import sys

from mqcore import cluster


class Adder:
    def __init__(self) -> None:
        self.additions = 0

    async def request(self, req: cluster.Incoming) -> bytes:
        first, second = map(int, req.body.split())
        self.additions += 1
        return b"%d" % (first + second)

    async def broadcast(self, msg: cluster.Received) -> bytes:
        return b"%d" % self.additions

    async def tunnel(self, tun: cluster.Tunnel) -> None:
        total = 0
        async for message in tun:
            total += int(message)
            await tun.asend(b"%d" % total)


async def main(key: str, *seeds: str) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with cluster.ajoin(cluster.Key.load(key), seeds=seeds) as net:
        async with net.aserve("adder", Adder(), concurrency=8):
            print(net.url, flush=True)
            await ended.wait()
            await net.adrain(5)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    asyncio.run(main(*sys.argv[1:]))
