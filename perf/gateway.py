"""The HTTP gateway beside its server library: requests a second, and their ratio.

    gateway.py [--seconds S] [--rounds N] [--clients N]

`memory` is uvicorn with the shortest application that reads the body and answers it from memory.
`gateway` is the gateway with a route to a REQ socket, whose REP peer is a process that echoes. Both
run on the same uvicorn, httptools and event loop, each in a process of its own. The client is a
process of plain sockets: it writes a request that it made before, and reads until the answer's
length. The two take turns within each round; the ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import socket
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

BODY = b"x" * 100
REQUEST = b"POST /ask HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n" + BODY


async def answer(scope: Any, receive: Any, send: Any) -> None:
    message = await receive()
    body = message["body"]
    while message["more_body"]:
        message = await receive()
        body += message["body"]
    await send({"type": "http.response.start", "status": 200, "headers": [
        (b"content-type", b"application/octet-stream"),
        (b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


def memory(pipe: Any) -> None:
    import uvicorn
    listening = socket.create_server(("127.0.0.1", 0))
    pipe.send(listening.getsockname()[1])
    uvicorn.Server(uvicorn.Config(
        answer, http="httptools", lifespan="off", log_config=None, access_log=False,
        server_header=False, proxy_headers=False)).run([listening])


def gateway(pipe: Any, url: str) -> None:
    from mqcore import http
    server = http.serve({"/ask": f"req:{url}"}, bind="http://127.0.0.1:0")
    pipe.send(int(server.url.rpartition(":")[2]))
    server.run()


def replier(url: str) -> None:
    import mqcore as mq
    with mq.Rep(bind=url) as rep:
        while True:
            request = rep.recv_msg()
            request.reply(request.parts[0])


async def client(port: int, end: float) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    count = 0
    try:
        while time.monotonic() < end:
            writer.write(REQUEST)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 "), head
            await reader.readexactly(len(BODY))
            count += 1
    finally:
        writer.close()
    return count


async def rate(port: int, clients: int, seconds: float) -> float:
    start = time.monotonic()
    counts = await asyncio.gather(*(client(port, start + seconds) for _ in range(clients)))
    return sum(counts) / (time.monotonic() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--clients", type=int, default=32)
    given = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    import uvloop
    with tempfile.TemporaryDirectory() as folder:
        url = f"ipc://{Path(folder)}/s"
        ports, processes = [], []
        for target, args in ((memory, ()), (gateway, (url,))):
            ours, theirs = context.Pipe()
            processes.append(context.Process(target=target, args=(theirs, *args), daemon=True))
            processes[-1].start()
            ports.append(ours.recv())
        processes.append(context.Process(target=replier, args=(url,), daemon=True))
        processes[-1].start()
        try:
            for port in ports:
                uvloop.run(rate(port, given.clients, 0.5))
            ratios = []
            for n in range(given.rounds):
                found = [uvloop.run(rate(port, given.clients, given.seconds)) for port in ports]
                ratios.append(found[1] / found[0])
                print(f"round {n + 1}: memory {found[0]:,.0f}/s, gateway {found[1]:,.0f}/s, "
                      f"ratio {ratios[-1]:.2f}", flush=True)
        finally:
            for process in processes:
                process.terminate()
                process.join()
    print(f"ratio {statistics.median(ratios):.2f} (median of {given.rounds} rounds, "
          f"{given.clients} clients)")


if __name__ == "__main__":
    main()
