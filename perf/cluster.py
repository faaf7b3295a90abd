"""A request through a cluster beside a bare `Req.request`, in the same run, between two processes.

    python perf/cluster.py [ROUNDS]

Both are awaited on asyncio, one at a time, 16 bytes each way; the cluster's are sealed. The rounds
alternate, and the ratios are those of the medians: of the time of a request, and of the CPU time of
both processes, which says more on a busy machine. Then: requests with 100 in flight, and messages
of 64 KiB to a member that discards them, through a tunnel and through a `Pair` under TLS, which
take turns. At last, how long a tenth node takes to join and have its first request answered.
"""

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from quiet import certificate

import mqcore as mq
from mqcore import cluster

EACH, SIZE, FLIGHT = 500, 16, 100
NODES, JOINS = 10, 10
PIECE, PIECES = 64 << 10, 2000


class Echo:
    async def request(self, req):
        return req.body

    async def tunnel(self, tun):
        count = 0
        async for message in tun:
            count += len(message)
        await tun.asend(b"%d" % count)


class Cpu:
    """Tells how much CPU time the process has taken, in seconds."""

    async def request(self, req):
        return repr(time.process_time()).encode()


async def node(path, seed):
    async with cluster.ajoin(cluster.Key.load(path), seeds=[seed]) as net, \
            net.aserve("tenth", Echo()):
        print(net.url, flush=True)
        await asyncio.Event().wait()


async def serve(path):
    cert, private = certificate(Path(path).parent)
    async with cluster.ajoin(cluster.Key.load(path)) as net, net.aserve("echo", Echo()), \
            net.aserve("cpu", Cpu()):
        with mq.Rep(bind="tcp://127.0.0.1:0") as rep, \
                mq.Pair(bind="tls+tcp://127.0.0.1:0", tls_cert=cert, tls_key=private) as pair:
            print(net.url, rep.endpoints[0].url, pair.endpoints[0].url, flush=True)
            net.loop.spawn(discard, pair)
            async for message in rep.messages():
                message.reply(message.body)


async def discard(pair):
    count = 0
    while True:
        message = await pair.arecv()
        count += len(message)
        if not message:
            await pair.asend(b"%d" % count)
            count = 0


async def through_tunnel(net):
    async with net.atunnel("echo") as tunnel:
        begun, piece = time.perf_counter(), bytes(PIECE)
        for _ in range(PIECES):
            await tunnel.asend(piece)
        await tunnel.asend_eof()
        assert int(await tunnel.arecv()) == PIECES * PIECE
        return PIECES * PIECE / (time.perf_counter() - begun) / 1e6


async def through_pair(pair):
    begun, piece = time.perf_counter(), bytes(PIECE)
    for _ in range(PIECES):
        await pair.asend(piece)
    await pair.asend(b"")
    assert int(await pair.arecv()) == PIECES * PIECE
    return PIECES * PIECE / (time.perf_counter() - begun) / 1e6


async def stream(net, url, cert, rounds):
    with mq.Pair(connect=url, tls_ca=cert, tls_hostname="localhost") as pair:
        rates = {"pair under TLS": [], "tunnel": []}
        for _ in range(rounds):
            rates["pair under TLS"].append(await through_pair(pair))
            rates["tunnel"].append(await through_tunnel(net))
        bare, sealed = (statistics.median(row) for row in rates.values())
        print(f"{bare:,.0f} MB/s through a Pair under TLS, {sealed:,.0f} MB/s through a tunnel, "
              f"messages of 64 KiB: {sealed / bare:.2f}")


async def timed(net, call, each=EACH):
    """Microseconds of a call: on the clock, and of CPU time here and at the server."""
    async def clocks():
        there = float(await net.arequest("cpu", b""))
        return time.perf_counter(), time.process_time(), there

    before = await clocks()
    for _ in range(each):
        await call()
    return [(now - then) / each * 1e6
            for now, then in zip(await clocks(), before, strict=True)]


async def joins(path, seed):
    """Seconds from the call of ajoin() to the first answer, of a node that comes last."""
    taken = []
    for _ in range(JOINS):
        begun = time.perf_counter()
        async with cluster.ajoin(cluster.Key.load(path), seeds=[seed]) as net:
            await net.arequest("tenth", b"x", timeout=60, idempotent=True)
            taken.append(time.perf_counter() - begun)
            await net.await_members(n=NODES, timeout=60)
    print(f"{statistics.median(taken) * 1e3:.0f} ms until node {NODES} has joined and its first "
          f"request is answered, {min(taken) * 1e3:.0f} to {max(taken) * 1e3:.0f}")


async def measure(path, seed, url, pair_url, rounds):
    body = bytes(SIZE)
    async with cluster.ajoin(cluster.Key.load(path), seeds=[seed]) as net:
        with mq.Req(connect=url) as req:
            await net.await_members("echo", timeout=10)
            calls = {"bare": lambda: req.arequest(body),
                     "cluster": lambda: net.arequest("echo", body)}
            taken = {name: [] for name in calls}
            for call in calls.values():
                await timed(net, call, 200)
            for _ in range(rounds):
                for name, call in calls.items():
                    taken[name].append(await timed(net, call))
            wall, here, there = ({name: statistics.median(row[i] for row in rows)
                                  for name, rows in taken.items()} for i in range(3))
            for name in calls:
                print(f"{name:8} {wall[name]:8.1f} us a request, CPU {here[name]:6.1f} us of the "
                      f"client, {there[name]:6.1f} us of the server")
            both = {name: here[name] + there[name] for name in calls}
            print(f"ratio    {wall['cluster'] / wall['bare']:8.2f} "
                  f"(CPU {both['cluster'] / both['bare']:.2f})")

            async def many():
                for _ in range(EACH // 5):
                    await net.arequest("echo", body)

            begun = time.perf_counter()
            await asyncio.gather(*(many() for _ in range(FLIGHT)))
            rate = FLIGHT * (EACH // 5) / (time.perf_counter() - begun)
            print(f"{rate:,.0f} requests/s with {FLIGHT} in flight")
            await stream(net, pair_url, f"{path.rpartition('/')[0]}/cert.pem", max(3, rounds // 3))


def main(rounds=15):
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/key"
        cluster.Key.generate().save(path)
        server, others = started("serve", path), []
        try:
            urls = server.stdout.readline().split()
            asyncio.run(measure(path, *urls, rounds))
            # the node that measures is the tenth
            others += [started("node", path, urls[0]) for _ in range(NODES - 2)]
            for other in others:
                other.stdout.readline()
            asyncio.run(joins(path, urls[0]))
        finally:
            for process in (server, *others):
                process.kill()
                process.wait()


def started(*words):
    return subprocess.Popen([sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(serve(sys.argv[2]))
    elif sys.argv[1:2] == ["node"]:
        asyncio.run(node(*sys.argv[2:]))
    else:
        main(*map(int, sys.argv[1:]))
