"""One end of a measurement, a process of its own: pinned, warmed up, then timed.

    ends.py LIBRARY ROLE --url URL --size N --count N [--cpu N] [--many N]

Roles: `echo` and `sink` listen, print their real URL as the first line, and `ask` and `source`
connect to that. Each prints one line of JSON at its end: seconds and CPU seconds of the timed
part, and what it did. Libraries: mqcore, pyzmq, and raw, plain blocking sockets: what the kernel
alone costs.
"""

import argparse
import itertools
import json
import os
import random
import socket
import sys
import time

WARM_LAT, WARM_THR = 200, 2000
BODIES = 256  # different ones, sent in turn: nothing gains by seeing the same bytes again
CHUNK = 256 << 10  # raw throughput: bytes a system call


def bodies(size: int) -> list[bytes]:
    dice = random.Random(size)
    return [dice.randbytes(size) for _ in range(BODIES)]


class Timer:
    """Wall clock, CPU of this process, and one after the other when it ends."""

    def start(self) -> None:
        self.cpu = time.process_time()
        self.at = time.perf_counter()

    def stop(self, messages: int, **more) -> dict:
        seconds = time.perf_counter() - self.at
        return {
            "seconds": seconds,
            "cpu": time.process_time() - self.cpu,
            "messages": messages,
            **more,
        }


def ready(url: str) -> None:
    print(url, flush=True)


def percentiles(trips: list[float]) -> dict:
    trips.sort()
    at = {
        name: trips[min(len(trips) - 1, int(len(trips) * part))]
        for name, part in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
    }
    return {"min": trips[0], **at}


def time_trips(trip, size: int, count: int) -> dict:
    """Each round trip by itself, so that the median does not hide a tail."""
    clock, timer = time.perf_counter, Timer()
    texts = itertools.cycle(bodies(size))
    for _ in range(WARM_LAT):
        trip(next(texts))
    trips = []
    timer.start()
    for body in itertools.islice(texts, count):
        before = clock()
        trip(body)
        trips.append(clock() - before)
    return timer.stop(count, **percentiles(trips))


# -- mqcore --------------------------------------------------------------------------------------


class Mqcore:
    def __init__(self, options: argparse.Namespace):
        import mqcore

        self.mq = mqcore
        self.o = options

    def echo(self) -> dict:
        timer = Timer()
        with self.mq.Rep(bind=self.o.url) as s:
            ready(s.endpoints[0].url)
            for i in range(WARM_LAT + self.o.count):
                if i == WARM_LAT:
                    timer.start()
                s.send(s.recv())
            return timer.stop(self.o.count)

    def ask(self) -> dict:
        with self.mq.Req(connect=self.o.url) as s:
            s.wait_peers()
            return time_trips(s.request, self.o.size, self.o.count)

    def sink(self) -> dict:
        timer, count, many = Timer(), self.o.count, self.o.many
        with self.mq.Pull(bind=self.o.url) as s:
            ready(s.endpoints[0].url)
            for _ in range(WARM_THR):
                s.recv()
            timer.start()
            if many:
                while count:
                    count -= len(s.recv_many(min(many, count)))
            else:
                recv = s.recv
                for _ in range(count):
                    recv()
            return timer.stop(self.o.count)

    def source(self) -> dict:
        timer, many, texts = Timer(), self.o.many, itertools.cycle(bodies(self.o.size))
        with self.mq.Push(connect=self.o.url, linger=None) as s:
            s.wait_peers()
            for body in itertools.islice(texts, WARM_THR):
                s.send(body)
            timer.start()
            if many:
                for left in range(self.o.count, 0, -many):
                    s.send_many(itertools.islice(texts, min(many, left)))
            else:
                send = s.send
                for body in itertools.islice(texts, self.o.count):
                    send(body)
            s.close()
            return timer.stop(self.o.count)


# -- pyzmq ---------------------------------------------------------------------------------------


class Pyzmq:
    def __init__(self, options: argparse.Namespace):
        import zmq

        self.zmq = zmq
        self.context = zmq.Context()
        self.o = options

    def open(self, kind: str, bind: bool):
        s = self.context.socket(getattr(self.zmq, kind))
        s.linger = -1
        if bind:
            s.bind(self.o.url)
            ready(s.last_endpoint.decode())
        else:
            s.connect(self.o.url)
        return s

    def echo(self) -> dict:
        s, timer = self.open("REP", True), Timer()
        for i in range(WARM_LAT + self.o.count):
            if i == WARM_LAT:
                timer.start()
            s.send(s.recv())
        result = timer.stop(self.o.count)
        s.close()
        self.context.term()
        return result

    def ask(self) -> dict:
        s = self.open("REQ", False)

        def trip(body):
            s.send(body)
            s.recv()

        result = time_trips(trip, self.o.size, self.o.count)
        s.close()
        self.context.term()
        return result

    def sink(self) -> dict:
        s, timer = self.open("PULL", True), Timer()
        recv = s.recv
        for _ in range(WARM_THR):
            recv()
        timer.start()
        for _ in range(self.o.count):
            recv()
        return timer.stop(self.o.count)

    def source(self) -> dict:
        s, timer, texts = self.open("PUSH", False), Timer(), itertools.cycle(bodies(self.o.size))
        send = s.send
        for body in itertools.islice(texts, WARM_THR):
            send(body)
        timer.start()
        for body in itertools.islice(texts, self.o.count):
            send(body)
        s.close()
        self.context.term()  # waits until all is written, as our close() does
        return timer.stop(self.o.count)


# -- plain sockets -------------------------------------------------------------------------------


class Raw:
    def __init__(self, options: argparse.Namespace):
        self.o = options
        self.scheme, _, self.place = options.url.partition("://")

    def accept(self) -> socket.socket:
        if self.scheme == "tcp":
            host, _, port = self.place.rpartition(":")
            listener = socket.create_server((host, int(port)))
            ready(f"tcp://{host}:{listener.getsockname()[1]}")
        else:
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(self.place)
            listener.listen()
            ready(self.o.url)
        with listener:
            return self.tuned(listener.accept()[0])

    def connect(self) -> socket.socket:
        if self.scheme == "tcp":
            host, _, port = self.place.rpartition(":")
            return self.tuned(socket.create_connection((host, int(port))))
        s = socket.socket(socket.AF_UNIX)
        s.connect(self.place)
        return s

    def tuned(self, s: socket.socket) -> socket.socket:
        if self.scheme == "tcp":
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s

    def read(self, s: socket.socket, n: int) -> bytes:
        data = s.recv(n)
        while len(data) < n:
            more = s.recv(n - len(data))
            if not more:
                sys.exit("the other end left")
            data += more
        return data

    def echo(self) -> dict:
        timer = Timer()
        with self.accept() as s:
            for i in range(WARM_LAT + self.o.count):
                if i == WARM_LAT:
                    timer.start()
                s.sendall(self.read(s, self.o.size))
            return timer.stop(self.o.count)

    def ask(self) -> dict:
        with self.connect() as s:

            def trip(body):
                s.sendall(body)
                self.read(s, len(body))

            return time_trips(trip, self.o.size, self.o.count)

    def sink(self) -> dict:
        timer, buffer, left = Timer(), bytearray(CHUNK), self.o.size * self.o.count
        with self.accept() as s:
            left -= s.recv_into(buffer)
            timer.start()
            while left > 0:
                n = s.recv_into(buffer)
                if not n:
                    sys.exit("the other end left")
                left -= n
            return timer.stop(self.o.count)

    def source(self) -> dict:
        timer, left = Timer(), self.o.size * self.o.count
        chunk = memoryview(random.Random(1).randbytes(CHUNK))
        with self.connect() as s:
            timer.start()
            while left > 0:
                s.sendall(chunk[:left])
                left -= min(CHUNK, left)
            return timer.stop(self.o.count)


LIBRARIES = {"mqcore": Mqcore, "pyzmq": Pyzmq, "raw": Raw}
ROLES = ("echo", "ask", "sink", "source")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("--url", required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--cpu", type=int)
    parser.add_argument("--many", type=int, default=0)
    options = parser.parse_args()
    if options.cpu is not None:
        os.sched_setaffinity(0, {options.cpu})
    result = getattr(LIBRARIES[options.library](options), options.role)()
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
