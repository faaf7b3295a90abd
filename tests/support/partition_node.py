"""A node that publishes numbers under its name, and checks those of the others. It answers `heard`
on its standard input with JSON: how many members it sees, and for each publisher how many numbers
came, and how many of these were not larger than the one before.

    python partition_node.py KEY LISTEN NAME [SEED ...]
"""

import asyncio
import json
import sys
import threading

from mqcore import cluster

PERIOD = 0.005      # seconds between two numbers


class Heard:
    def __init__(self):
        self.last, self.count, self.wrong = {}, {}, {}

    async def follow(self, feed):
        async for message in feed:
            name, number = message.topic, int(message.body)
            self.count[name] = self.count.get(name, 0) + 1
            self.wrong[name] = self.wrong.get(name, 0) + (number <= self.last.get(name, -1))
            self.last[name] = number


async def publish(net, name):
    number = 0
    while True:
        await net.apublish(f"n.{name}", b"%d" % number)
        number += 1
        await asyncio.sleep(PERIOD)


async def main(key, listen, name, *seeds):
    heard, loop = Heard(), asyncio.get_running_loop()
    asked = asyncio.Queue()

    def read():
        for line in sys.stdin:
            loop.call_soon_threadsafe(asked.put_nowait, line)
        loop.call_soon_threadsafe(asked.put_nowait, "")

    async with cluster.ajoin(cluster.Key.load(key), listen=listen, seeds=seeds) as net:
        print(net.url, flush=True)
        async with net.asubscribe("n.>") as feed:
            tasks = [asyncio.create_task(heard.follow(feed)),
                     asyncio.create_task(publish(net, name))]
            threading.Thread(target=read, daemon=True).start()
            while await asked.get():
                print(json.dumps({"members": len(net.members()), "count": heard.count,
                                  "wrong": heard.wrong}), flush=True)
            for task in tasks:
                task.cancel()


asyncio.run(main(*sys.argv[1:]))
