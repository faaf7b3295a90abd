"""A node of a cluster in a process of its own: serves the name "work" until it is killed or told to
end. It prints its address, and a line for each call that its standard input asks for.

    python cluster_node.py KEY [SEED ...] [--name NAME] [--zone ZONE] [--weight N] [--concurrency N]
                           [--queue-bytes N] [--no-udp] [--trio] [--topic PATTERN] [--group NAME]
                           [--identity FILE]
"""

import argparse
import asyncio
import os
import signal
import sys
import threading
import time

from mqcore import cluster
from mqcore.binding.sleep import sleep


class Work:
    """`pid`, `echo ...`, `sleep SECONDS`, `block SECONDS` (the whole loop), `fail TEXT`, `count`
    (of requests so far), `big N`, `mark PATH LINE` (appends the line to the file, so that it
    outlives the process)."""

    def __init__(self):
        self.requests = 0

    async def request(self, req):
        self.requests += 1
        word, _, rest = req.body.partition(b" ")
        if word == b"sleep":
            await sleep(float(rest))
        elif word == b"block":
            time.sleep(float(rest))
        elif word == b"fail":
            raise LookupError(rest.decode())
        elif word == b"big":
            return bytes(int(rest))
        elif word == b"count":
            return b"%d" % self.requests
        elif word == b"echo":
            return rest
        elif word == b"mark":
            path, _, line = rest.rpartition(b" ")
            with open(path, "ab", buffering=0) as file:
                file.write(line + b"\n")
            return line
        elif word == b"about":
            return repr((sorted(req.headers.items()), req.trace, req.deadline is None)).encode()
        return b"%d" % os.getpid()

    async def broadcast(self, msg):
        return None if msg.body == b"silent" else b"%d" % os.getpid()

    async def tunnel(self, tun):
        async for message in tun:
            if message == b"die":
                os.kill(os.getpid(), signal.SIGKILL)
            await tun.asend(message)
        await tun.asend(b"end")


async def main(arguments, ended):
    key = cluster.Key.load(arguments.key)
    async with cluster.ajoin(key, seeds=arguments.seeds, zone=arguments.zone,
                             udp=not arguments.no_udp, identity=arguments.identity) as net:
        async with net.aserve(arguments.name, Work(), weight=arguments.weight,
                              concurrency=arguments.concurrency,
                              queue_bytes=arguments.queue_bytes):
            if arguments.topic:
                feed = await net.asubscribe(arguments.topic, queue=arguments.group).astart()
                net.loop.spawn(show, feed)
            print(net.url, flush=True)
            while not ended.is_set():
                await sleep(0.01)
            await net.adrain(5)


async def show(feed):
    async for message in feed:
        print(message.topic, message.body.decode(), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("key")
    parser.add_argument("seeds", nargs="*")
    parser.add_argument("--name", default="work")
    parser.add_argument("--zone", default="")
    parser.add_argument("--weight", type=float, default=1.0)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--queue-bytes", type=int, default=32 << 20)
    parser.add_argument("--topic")
    parser.add_argument("--group", default="")
    parser.add_argument("--identity")
    parser.add_argument("--no-udp", action="store_true")
    parser.add_argument("--trio", action="store_true")
    given = parser.parse_args()
    done = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), done.set()), daemon=True).start()
    if given.trio:
        import trio

        trio.run(main, given, done)
    else:
        asyncio.run(main(given, done))
