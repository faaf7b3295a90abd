"""CURVE beside libzmq's: messages a second one way over tcp, and handshakes a second.

python perf/sealed.py --rounds 3        medians, and the ratio to pyzmq, measured in turns

Each end is a process of its own, as in run.py; all handshakes are of one process with two contexts,
`CLIENTS` clients and one server that knows their key.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import subprocess
import sys
import time
from typing import Any

import zmq

import mqcore as mq

SIZES = {16: 400_000, 1024: 150_000, 65536: 6_000}  # bytes: messages of a round
CLIENTS = 300
MARK = 10_000


def ours(pattern: type[mq.Socket], keys: list[str], server: bool, **more: Any) -> Any:
    demands = (mq.security.Curve(secret_key=keys[1], allow={keys[2]}) if server
               else mq.security.Curve(keys[0], secret_key=keys[3]))
    return pattern(security=demands, linger=None, **more)


def theirs(context: zmq.Context, kind: int, keys: list[str], server: bool) -> zmq.Socket:
    s = context.socket(kind)
    s.sndhwm = s.rcvhwm = MARK
    if server:
        s.curve_server, s.curve_secretkey = True, keys[1].encode()
    else:
        s.curve_serverkey, s.curve_publickey, s.curve_secretkey = (
            key.encode() for key in (keys[0], keys[2], keys[3]))
    return s


def end(library: str, role: str, url: str, size: int, keys: list[str]) -> None:
    """One end of a one-way run. The receiver prints messages a second."""
    receiving = role == "recv"
    if library == "mqcore":
        s = ours(mq.Pull if receiving else mq.Push, keys, receiving)
    else:
        context = zmq.Context()
        s = theirs(context, zmq.PULL if receiving else zmq.PUSH, keys, receiving)
    (s.bind if receiving else s.connect)(url)
    if receiving:
        print("up", flush=True)
        s.recv()
        started = time.perf_counter()
        for _ in range(SIZES[size]):
            s.recv()
        print(SIZES[size] / (time.perf_counter() - started))
    else:
        body = bytes(size)
        for _ in range(SIZES[size] + 1):
            s.send(body)
    s.close()
    if library != "mqcore":
        context.term()


def one_way(library: str, size: int, keys: list[str]) -> float:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"tcp://127.0.0.1:{free.getsockname()[1]}"

    def command(role: str) -> list[str]:
        return [sys.executable, __file__, "--end", library, role, url, str(size), *keys]

    with subprocess.Popen(command("recv"), stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdout is not None
        receiver.stdout.readline()
        subprocess.run(command("send"), check=True)
        return float(receiver.stdout.read())


def handshakes(library: str, _: int, keys: list[str]) -> float:
    if library == "mqcore":
        with mq.Context() as one, mq.Context() as other:
            server = ours(mq.Router, keys, True, context=one)
            url = server.bind("tcp://127.0.0.1:0").url
            started = time.perf_counter()
            clients = [ours(mq.Dealer, keys, False, context=other, connect=url)
                       for _ in range(CLIENTS)]
            server.wait_peers(CLIENTS)
            return len(clients) / (time.perf_counter() - started)
    first, second = zmq.Context(), zmq.Context()
    server = theirs(first, zmq.ROUTER, keys, True)
    server.backlog = 1024  # ours; with its own, 100, some would wait a second for the kernel
    server.bind("tcp://127.0.0.1:*")
    started = time.perf_counter()
    for _ in range(CLIENTS):
        client = theirs(second, zmq.DEALER, keys, False)
        client.connect(server.last_endpoint)
        client.send(b"")
    for _ in range(CLIENTS):  # libzmq does not report the end of a handshake
        server.recv_multipart()
    rate = CLIENTS / (time.perf_counter() - started)
    second.destroy(0)
    first.destroy(0)
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--end", nargs=8, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.end:
        library, role, url, size, *keys = given.end
        end(library, role, url, int(size), keys)
        return
    keys = [*mq.security.curve_keypair(), *mq.security.curve_keypair()]
    rows = [(f"one way, tcp, {size} B, CURVE", one_way, size) for size in SIZES]
    for name, measure, size in (*rows, ("handshakes, tcp, CURVE", handshakes, 0)):
        rates: dict[str, list[float]] = {"mqcore": [], "pyzmq": []}
        for _ in range(given.rounds):
            for library, found in rates.items():
                found.append(measure(library, size, keys))
        mine, other = (statistics.median(found) for found in rates.values())
        print(f"{name}: mqcore {mine:,.0f}/s, pyzmq {other:,.0f}/s, {mine / other:.2f}", flush=True)


if __name__ == "__main__":
    main()
