"""One end of a measurement, a process of its own: pinned, warmed up, then timed.

    ends.py LIBRARY ROLE --url URL --size N --count N
            [--calls plain|parts|many|batch|journal|asyncio|uvloop]
            [--beside busy|watch] [--cpu N]

Roles: `echo` and `sink` listen and print their real URL as the first line; `ask` and `source`
connect to that. `both_lat` and `both_thr` are two ends as threads of this process (inproc). Each
says `done`, closes when its standard input ends (by then the other end has everything), and prints
a line of JSON, what it measured.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import threading
import time

from beside import THREADS
from candidates import known, load
from libraries import die_with_parent
from timing import MOST_BODIES, Timer, endless, percentiles, warm_messages, warm_trips

MANY = 256  # messages a call
BATCH, BATCH_BYTES = 4096, 1 << 20


def say(line: str) -> None:
    print(line, flush=True)


def wait_for_end() -> None:
    """Of the measurement, at the other end too."""
    say("done")
    sys.stdin.read()


class End:
    def __init__(self, library, options: argparse.Namespace, ready=say, over=wait_for_end):
        self.lib, self.o, self.ready, self.over = library, options, ready, over
        self.timer = Timer(options.beside)

    def opened(self, kind: str):
        if self.o.dial:
            s, url = self.lib.connect(kind, self.o.url), self.o.url
        else:
            s, url = self.lib.bind(kind, self.o.url)
        self.ready(url)
        return self.called(s)

    def connected(self, kind: str):
        return self.called(self.lib.connect(kind, self.o.url))

    def called(self, s):
        return self.lib.parts(s) if self.o.calls == "parts" else s

    def texts(self):
        """What is sent: bodies, or the two halves of each."""
        some = endless(self.o.size)
        if self.o.calls != "parts":
            return some
        half = self.o.size // 2
        bodies = itertools.islice(some, MOST_BODIES)
        return itertools.cycle([[body[:half], body[half:]] for body in bodies])

    def echo(self) -> dict:
        s = self.opened("rep")
        for _ in range(warm_trips(self.o.size)):
            s.send(s.recv())
        self.timer.start()
        send, recv = s.send, s.recv
        for _ in range(self.o.count):
            send(recv())
        return self.finish(s)

    def ask(self) -> dict:
        """Each round trip by itself, so that the median does not hide a tail."""
        s, clock, trips = self.connected("req"), time.perf_counter, []
        trip, texts = self.lib.trip(s), self.texts()
        for body in itertools.islice(texts, warm_trips(self.o.size)):
            trip(body)
        self.timer.start()
        for body in itertools.islice(texts, self.o.count):
            before = clock()
            trip(body)
            trips.append(clock() - before)
        return self.finish(s, **percentiles(trips))

    def sink(self) -> dict:
        s = self.opened("pull")
        if self.o.calls == "journal":
            s = self.lib.recorded(s)
        self.take(s, warm_messages(self.o.count))
        self.timer.start()
        self.take(s, self.o.count)
        return self.finish(s)

    def take(self, s, count: int) -> None:
        if hasattr(self.lib, "read_all") and hasattr(s, "s"):
            self.lib.read_all(s, self.o.size * count)
        elif self.o.calls == "many":
            while count:
                count -= len(s.recv_many(min(MANY, count)))
        elif self.o.calls == "batch":
            while count:
                count -= len(s.recv_batch(min(65536, count)))
        elif self.o.calls == "journal":
            s.take(count)
        else:
            recv = s.recv
            for _ in range(count):
                recv()

    def source(self) -> dict:
        s, texts = self.connected("push"), self.texts()
        self.give(s, texts, warm_messages(self.o.count))
        self.timer.start()
        self.give(s, texts, self.o.count)
        return self.finish(s)

    def give(self, s, texts, count: int) -> None:
        if hasattr(self.lib, "write_all") and hasattr(s, "s"):
            self.lib.write_all(s, self.o.size * count)
        elif self.o.calls == "many":
            for left in range(count, 0, -MANY):
                s.send_many(itertools.islice(texts, min(MANY, left)))
        elif self.o.calls in ("batch", "journal"):
            self.give_batches(s, count)
        else:
            send = s.send
            for body in itertools.islice(texts, count):
                send(body)

    def give_batches(self, s, count: int) -> None:
        import numpy as np

        size = self.o.size
        n = max(1, min(BATCH, BATCH_BYTES // max(size, 1)))
        offsets = np.arange(n + 1, dtype=np.int32) * size
        dice = np.random.default_rng(size)
        several = itertools.cycle([dice.integers(0, 256, n * size, np.uint8) for _ in range(4)])
        while count:
            now = min(n, count)
            s.send_batch(next(several)[: now * size], offsets[: now + 1])
            count -= now

    def finish(self, s, **more) -> dict:
        self.timer.stop()
        self.over()
        result = self.timer.result(self.o.count, **more)
        self.lib.close(s)
        return result


PAIRS = {"both_lat": ("echo", "ask"), "both_thr": ("sink", "source")}


def both(library, role: str, options: argparse.Namespace) -> dict:
    """Two threads; the result is the measuring side's: the asker's, or the receiver's."""
    listens, connects = PAIRS[role]
    results, bound, over = {}, threading.Event(), threading.Barrier(2)

    def run(name: str) -> None:
        try:
            end = End(library, options, lambda url: bound.set(), over.wait)
            results[name] = getattr(end, name)()
        finally:
            if name not in results:
                over.abort()
                bound.set()

    first = threading.Thread(target=run, args=(listens,))
    first.start()
    bound.wait()
    run(connects)
    first.join()
    return results["ask" if role == "both_lat" else "sink"]


ROLES = ("echo", "ask", "sink", "source", *PAIRS)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("library", type=known)
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("--url", required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--calls", default="plain")
    parser.add_argument("--beside", default="", choices=("", *THREADS), help="a second thread")
    parser.add_argument("--dial", action="store_true", help="what listens connects: to a device")
    parser.add_argument("--cpu", type=int)
    return parser.parse_args()


def main() -> None:
    options = read_arguments()
    die_with_parent()
    if options.cpu is not None:
        os.sched_setaffinity(0, {options.cpu})
    if options.calls in ("asyncio", "uvloop"):
        import asyncs

        asyncs.main(options)
        return
    library = load(options.library, options.size)
    if options.role in PAIRS:
        result = both(library, options.role, options)
    else:
        result = getattr(End(library, options), options.role)()
    say(json.dumps(result))
    os._exit(0)  # nothing of a library's own teardown is waited for


if __name__ == "__main__":
    main()
