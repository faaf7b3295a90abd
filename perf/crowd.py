"""Many peers at once: plain sockets that speak just enough ZMTP 3.0, the same for every candidate.

    crowd.py subscribe --url URL --peers N --size N --seconds X    reads what is published
    crowd.py push      --url URL --peers N --size N                writes until standard input ends
    crowd.py quiet     --url URL --peers N                         each 20 messages a second
    crowd.py idle      --url URL --peers N                         connects, and then does nothing
    crowd.py topics    --url URL --peers N                         one peer with N subscriptions

So the load generator costs the same for every candidate, and a figure measures the other end.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import select
import socket
import sys
import time

from libraries import die_with_parent

AT_ONCE = 64  # handshakes under way
CHUNK = 256 << 10
TOPIC = 25
QUIET_RATE = 20  # messages a second
QUIET_LATE = 0.01  # seconds: behind by more, and what was missed is left out
END = b"end"
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)


def command(name: bytes, **properties: bytes) -> bytes:
    body = bytes([len(name)]) + name
    for key, value in properties.items():
        key = key.replace("_", "-").encode()
        body += bytes([len(key)]) + key + len(value).to_bytes(4, "big") + value
    return b"\x04" + bytes([len(body)]) + body


def frame(body: bytes) -> bytes:
    if len(body) < 256:
        return b"\x00" + bytes([len(body)]) + body
    return b"\x02" + len(body).to_bytes(8, "big") + body


def exactly(s: socket.socket, n: int) -> bytes:
    data = b""
    while len(data) < n:
        piece = s.recv(n - len(data))
        if not piece:
            sys.exit("the other end closed in the handshake")
        data += piece
    return data


def connect(url: str, kind: bytes, n: int) -> list[socket.socket]:
    """All of them handshaken: each has said everything and read the other's READY."""
    host, _, port = url.partition("://")[2].rpartition(":")
    hello, done = GREETING + command(b"READY", Socket_Type=kind), []
    while len(done) < n:
        some = [
            socket.create_connection((host, int(port))) for _ in range(min(AT_ONCE, n - len(done)))
        ]
        for s in some:
            s.sendall(hello)
        for s in some:
            exactly(s, len(GREETING))
            exactly(s, exactly(s, 2)[1])
        done += some
    return done


def say(line: str) -> None:
    print(line, flush=True)


def subscribe(o: argparse.Namespace) -> dict:
    """The clock starts when every one of the peers has got something."""
    peers = connect(o.url, b"SUB", o.peers)
    poll, reads = select.epoll(), {}
    for s in peers:
        s.sendall(frame(b"\1"))
        poll.register(s, select.EPOLLIN)
        reads[s.fileno()] = s.recv_into
    buffer, silent = bytearray(CHUNK), set(reads)
    while silent:
        for fd, _ in poll.poll():
            reads[fd](buffer)
            silent.discard(fd)
    got, start, cpu = dict.fromkeys(reads, 0), time.perf_counter(), time.process_time()
    end = start + o.seconds
    while (now := time.perf_counter()) < end:
        for fd, _ in poll.poll(0.1):
            got[fd] += reads[fd](buffer)
    size = len(frame(bytes(o.size)))
    rates = [n / size / (now - start) for n in got.values()]
    say("done")
    sys.stdin.read()
    return {"rates": rates, "cpu": (time.process_time() - cpu) / (now - start)}


def push(o: argparse.Namespace) -> dict:
    """Each writes as much as is taken from it; the first two bytes say which it was."""
    peers, poll, dice, own = connect(o.url, b"PUSH", o.peers), select.epoll(), random.Random(1), {}
    each = max(1, (64 << 10) // (o.size + 9))
    for i, s in enumerate(peers):
        s.setblocking(False)
        name = i.to_bytes(2, "big")
        text = b"".join(frame(name + dice.randbytes(o.size - 2)) for _ in range(each))
        own[s.fileno()] = [s, text, 0]
        poll.register(s, select.EPOLLOUT)
    poll.register(0, select.EPOLLIN | select.EPOLLHUP)
    while True:
        for fd, _ in poll.poll():
            if fd == 0:
                return {}
            s, text, at = own[fd]
            try:
                own[fd][2] = (at + s.send(memoryview(text)[at:])) % len(text)
            except BlockingIOError:
                pass
            except ConnectionError:
                poll.unregister(fd)


def quiet(o: argparse.Namespace) -> dict:
    """One after the other, evenly; in each message who sends it, and when."""
    peers, dice = connect(o.url, b"PUSH", o.peers), random.Random(2)
    gap = 1 / (QUIET_RATE * o.peers)
    due = time.monotonic()
    poll = select.epoll()
    poll.register(0, select.EPOLLIN | select.EPOLLHUP)
    for i in itertools.cycle(range(len(peers))):
        due = max(due + gap, time.monotonic() - QUIET_LATE)
        if poll.poll(max(0.0, due - time.monotonic())):
            return {}
        stamp = time.monotonic_ns().to_bytes(8, "little")
        peers[i].sendall(frame((i + 1).to_bytes(2, "big") + stamp + dice.randbytes(6)))
    raise SystemExit("there are no peers")


def idle(o: argparse.Namespace) -> dict:
    connect(o.url, b"PUSH", 1)[0].close()  # code and buffers that the first one needs
    start = time.perf_counter()
    peers = connect(o.url, b"PUSH", o.peers)
    seconds = time.perf_counter() - start
    say("done")
    sys.stdin.read()
    return {"seconds": seconds, "peers": len(peers)}


def topics(o: argparse.Namespace) -> dict:
    """Random subscriptions of 25 bytes; the last one is for what is published to tell us."""
    dice = random.Random(25)
    text = b"".join(frame(b"\1" + dice.randbytes(TOPIC)) for _ in range(o.peers))
    s = connect(o.url, b"SUB", 1)[0]
    start = time.perf_counter()
    s.sendall(text + frame(b"\1" + END))
    s.recv(64)
    seconds = time.perf_counter() - start
    say("done")
    poll = select.epoll()
    poll.register(0, select.EPOLLIN | select.EPOLLHUP)
    poll.register(s, select.EPOLLIN)
    while 0 not in (ready := [fd for fd, _ in poll.poll()]):
        s.recv(CHUNK)
    del ready
    return {"seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("role", choices=("subscribe", "push", "quiet", "idle", "topics"))
    parser.add_argument("--url", required=True)
    parser.add_argument("--peers", type=int, default=1)
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--cpu", type=int)
    options = parser.parse_args()
    die_with_parent()
    if options.cpu is not None:
        os.sched_setaffinity(0, {options.cpu})
    say(json.dumps(globals()[options.role](options)))
    os._exit(0)


if __name__ == "__main__":
    main()
