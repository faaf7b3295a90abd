"""Requests/s of one node of a cluster, beside zenoh's get and NATS' request, in the same run.

    python perf/cluster_beside.py [ROUNDS [REQUESTS]]

16 bytes each way, 100 requests in flight from one asyncio loop, client and server in two processes
on loopback. The rounds alternate, the rates are medians, and the ratio is that of the cluster to
the other. The cluster's links are sealed, the others' are not. NATS goes through its server,
`nats-server` of PATH or of tools/brokers.sh (MQCORE_BROKERS). What is not installed is skipped.
"""

import asyncio
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

from mqcore import cluster

SIZE, FLIGHT, EACH = 16, 100, 5000      # bytes; requests at once, and in a round
ROUNDS = 7
BROKERS = Path(os.environ.get("MQCORE_BROKERS", "build/brokers/root"))


class Echo:
    async def request(self, req):
        return req.body


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def zenoh_config(zenoh, kind, url):
    config = zenoh.Config()
    config.insert_json5("scouting/multicast/enabled", "false")
    config.insert_json5("listen/endpoints", f'["{url}"]' if kind == "listen" else "[]")
    config.insert_json5("connect/endpoints", f'["{url}"]' if kind == "connect" else "[]")
    return config


# -- servers, each a process -----------------------------------------------------------------------


async def serve_cluster(path):
    async with cluster.ajoin(cluster.Key.load(path)) as net, net.aserve("echo", Echo()):
        print(net.url, flush=True)
        await asyncio.Event().wait()


async def serve_zenoh(url):
    import zenoh

    with zenoh.open(zenoh_config(zenoh, "listen", url)) as session:
        session.declare_queryable("echo", lambda query: query.reply("echo", query.payload))
        print(url, flush=True)
        await asyncio.Event().wait()


async def serve_nats(url):
    import nats

    async def reply(message):
        await message.respond(message.data)

    client = await nats.connect(url)
    await client.subscribe("echo", cb=reply)
    await client.flush()
    print(url, flush=True)
    await asyncio.Event().wait()


@contextmanager
def process(*command):
    started = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True)
    try:
        yield started
    finally:
        started.kill()
        started.wait()
        started.stdout.close()


def server(stack, kind, where):
    started = stack.enter_context(process(sys.executable, __file__, kind, where))
    where = started.stdout.readline().strip()
    if not where:
        raise SystemExit(f"the server of {kind} has ended: run {sys.executable} {__file__} {kind}")
    return where


# -- clients: each returns one call ----------------------------------------------------------------


async def with_cluster(stack, folder):
    path = f"{folder}/key"
    cluster.Key.generate().save(path)
    seed = server(stack, "cluster", path)
    net = await stack.enter_async_context(cluster.ajoin(cluster.Key.load(path), seeds=[seed]))
    await net.await_members("echo", timeout=30)
    return lambda body: net.arequest("echo", body)


async def with_zenoh(stack, folder):
    try:
        import zenoh
    except ImportError:
        return "zenoh is not installed: pip install eclipse-zenoh"
    url = server(stack, "zenoh", f"tcp/127.0.0.1:{free_port()}")
    session = stack.enter_context(zenoh.open(zenoh_config(zenoh, "connect", url)))
    querier = session.declare_querier("echo")       # its route is looked up once
    loop = asyncio.get_running_loop()

    async def call(body):
        answer = loop.create_future()

        def replied(reply):
            loop.call_soon_threadsafe(answer.set_result, reply.ok.payload.to_bytes())

        querier.get(handler=replied, payload=body)
        return await asyncio.wait_for(answer, 30)

    return call


async def with_nats(stack, folder):
    try:
        import nats
    except ImportError:
        return "nats-py is not installed: pip install nats-py"
    program = shutil.which("nats-server") or BROKERS / "usr/sbin/nats-server"
    if not Path(program).exists():
        return "there is no nats-server: run tools/brokers.sh"
    port = free_port()
    stack.enter_context(process(program, "-a", "127.0.0.1", "-p", port))
    url = f"nats://127.0.0.1:{port}"
    end = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            if time.monotonic() > end:
                return "nats-server does not start"
            await asyncio.sleep(0.02)
    server(stack, "nats", url)
    client = await nats.connect(url)
    stack.push_async_callback(client.close)

    async def call(body):
        return (await client.request("echo", body, timeout=30)).data

    return call


# -- rounds ----------------------------------------------------------------------------------------


async def rate(call, each):
    body, turns = bytes(SIZE), max(1, each // FLIGHT)

    async def many():
        for _ in range(turns):
            assert await call(body) == body

    begun = time.perf_counter()
    await asyncio.gather(*(many() for _ in range(FLIGHT)))
    return turns * FLIGHT / (time.perf_counter() - begun)


async def measure(folder, rounds, each):
    async with AsyncExitStack() as stack:
        calls = {}
        for name, made in (("cluster", with_cluster), ("zenoh", with_zenoh), ("nats", with_nats)):
            call = await made(stack, folder)
            if isinstance(call, str):
                print(f"{name:8} skipped: {call}")
            else:
                calls[name] = call
                await rate(call, each // 5)
        rates = {name: [] for name in calls}
        for _ in range(rounds):
            for name, call in calls.items():
                rates[name].append(await rate(call, each))
        medians = {name: statistics.median(found) for name, found in rates.items()}
        for name, median in medians.items():
            spread = f"{min(rates[name]):,.0f} to {max(rates[name]):,.0f}"
            ratio = "" if name == "cluster" else f", ratio {medians['cluster'] / median:.2f}"
            print(f"{name:8} {median:10,.0f} requests/s, {spread}{ratio}")


def main(rounds=ROUNDS, each=EACH):
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(folder, rounds, each))


SERVERS = {"cluster": serve_cluster, "zenoh": serve_zenoh, "nats": serve_nats}

if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in SERVERS:
        asyncio.run(SERVERS[sys.argv[1]](sys.argv[2]))
    else:
        main(*map(int, sys.argv[1:]))
