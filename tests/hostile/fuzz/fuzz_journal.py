"""A fuzz target of the journal server: any messages to a real one, over a real socket.

The server must stay alive, give answers that can be read, never fail at a request by a mistake of
its own, keep its accounts and its bounds, and go on serving others. Requests are made of the
protocol's words with any values, then some are mutated as bytes:
    python tests/hostile/fuzz/fuzz_journal.py --count 1000000 --seed 7
"""

import argparse
import json
import logging
import os
import random
import tempfile
import time

from fuzz_mutate import mutate

import mqcore as mq
from mqcore import journal
from mqcore.journal.server.requests import OPS

BATCH = 200
LIMIT = 20.0
LIMITS = journal.Limits(streams=40, streams_per_peer=8, partitions=4, groups=20, requests=64)
CODES = {"usage", "journal", "journal_busy", "journal_corrupt", "journal_not_found", "offset_gone"}
MEMBERS = ("topic", "partition", "offset", "bytes", "time", "start", "stop", "group", "stream",
           "window", "id", "v", "op") + ("durable",)
GOOD = {"v": 1, "topic": "t", "partition": 0, "offset": 5, "bytes": 100, "time": 3.0, "start": 0,
        "stop": 9, "group": "g", "stream": 1, "window": 500}
WORDS = ["", "t", "u", "..", ".", "../../etc", "a/b", "%2e%2e", "\0", "é" * 100, "x" * 255,
         "x" * 256, "x" * 5000, "\ud800", "\u202e", "\x1b[31m", "None", "t\n", "lock", "groups"]
NUMBERS = [-1, 0, 1, 2, 5, 100, 199, 200, 201, 1 << 20, 1 << 31, 1 << 32, (1 << 62) - 1, 1 << 62,
           1 << 63, 1 << 64, 10**30, -10**30, 0.5, 1.0, -0.0, 1e300, -1e300, 5e-324]
ODD = [None, True, False, [], {}, [[]], {"a": {}}, [1, 2], "1", "1e999"]
TOKENS = ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "01", "1_000", "0x10", "\"\\ud800\"",
          "\"\\udc00\\ud800\"", "\"\xff\"", "[" * 3000, "{\"a\":" * 2000, "9" * 4000, "-", "",
          "1e-999", "\"" + "\\n" * 500 + "\"", "[" * 30000, "nul", "tru"]


def seeds():
    """One good request of each kind, and what has ended servers before."""
    good = [dict(GOOD, op=op, id=i) for i, op in enumerate(OPS)]
    raw = [json.dumps(head).encode() for head in good]
    plain = b'{"v":1,"id":1,"op":"at","topic":"t","partition":0,"time":%s}'
    raw += [plain % text for text in (b"NaN", b"1e999", b"-1e999", b"1" + b"0" * 30, b"1e300",
                                      b"Infinity", b"[" * 60000)]
    raw += [b"[" * 60000, b"{" * 60000, b'{"a":' * 10000, b"", b"\xff", b"{}", b"[]", b"null"]
    raw += [json.dumps(dict(GOOD, op=op, id=1, **{name: "\ud800"})).encode()
            for op, name in (("ends", "topic"), ("commit", "group"), ("committed", "group"))]
    raw += [json.dumps(dict(GOOD, op="commit", id=1, offset=1 << 61)).encode()]
    return raw


def value(rng, name):
    kind = rng.random()
    if kind < 0.6:
        return rng.choice([GOOD.get(name, 1), GOOD.get(name, 1), rng.choice(NUMBERS)])
    if kind < 0.75:
        return rng.choice(WORDS)
    return rng.choice(NUMBERS if kind < 0.9 else ODD)


def request(rng):
    """A request with some members wrong, missing, doubled or unknown."""
    head = dict(GOOD, id=rng.randrange(1000), op=rng.choice(OPS))
    if head["op"] == "commit" and rng.random() < 0.9:       # each good one is an fsync
        head["op"] = "committed"
    for _ in range(rng.choice([0, 0, 0, 1, 1, 2, 5])):
        name = rng.choice(MEMBERS)
        if rng.random() < 0.15:
            head.pop(name, None)
        else:
            head[name] = value(rng, name)
    if rng.random() < 0.3:
        head["stream"] = rng.randrange(20)
    text = json.dumps(head)
    if rng.random() < 0.15:
        name = rng.choice(MEMBERS)
        text = text[:-1] + f', "{name}": {rng.choice(TOKENS)}}}'
    return text.encode("utf-8", "surrogatepass")


def message(rng, pool):
    """The parts of one message."""
    kind = rng.random()
    if kind < 0.7:
        raw = request(rng)
    elif kind < 0.72:
        raw = rng.choice(pool)
    else:
        small = [data for data in pool if len(data) < 4096]
        raw = mutate(rng.choice(small), rng.choice(small), rng)
    return [raw] if rng.random() < 0.99 else [raw] * rng.choice([2, 3, 20])


class Bed:
    """A server, a peer that sends anything, and one that must be served all the while."""

    def __init__(self, folder, **how):
        with journal.open(folder, "a", topic="t", stamps=True, segment_bytes=4096) as writer:
            for i in range(200):
                writer.append(journal.stamp(2, i, key=b"k") + b"%d" % i * (i % 20), time=i,
                              headers=[("n", b"x")] * (i % 3))
                if i % 9 == 0:
                    writer.flush()
        self.context = mq.Context()
        self.server = journal.serve(folder, "tcp://127.0.0.1:0", groups=True, limits=LIMITS,
                                    context=self.context, **how)
        [self.url] = self.server.urls
        self.reader = journal.open(self.url, topic="t", context=self.context)
        self.peer = self.dealer()
        self.sent = self.answers = 0

    def dealer(self):
        dealer = mq.Dealer(context=self.context, connect=self.url, linger=0, send_timeout=20)
        dealer.wait_peers(1, timeout=20)
        return dealer

    def close(self):
        self.peer.close()
        self.reader.close()
        self.server.stop()
        self.context.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def batch(self, messages):
        """All of them; then the server must answer the others as ever."""
        for parts in messages:
            if self.peer.peers() or not self.sent:
                self.peer.send_parts(parts)
            else:                       # a message beyond the limit has ended the connection
                self.peer.close()
                self.peer = self.dealer()
                self.peer.send_parts(parts)
            self.sent += 1
            self.drain()
        assert self.reader.end == 200
        self.drain()

    def drain(self):
        while True:
            try:
                parts = self.peer.recv_parts(timeout=0)
            except mq.RecvTimeout:
                return
            self.answers += 1
            head = json.loads(parts[0])
            kinds = [name for name in ("ok", "records", "error") if name in head]
            assert len(kinds) == 1 and ("id" in head) != ("stream" in head), head
            assert len(parts) == (2 if kinds == ["records"] else 1), head
            if kinds == ["error"]:
                assert head["error"]["code"] in CODES, head
                assert len(parts[0]) < 5000, head

    def check(self):
        """The rules that hold once nothing is under way."""
        end = time.monotonic() + LIMIT
        while not settled(self.server.stats()):
            assert self.server.running and time.monotonic() < end, self.server.stats()
            self.drain()
            time.sleep(0.001)
        stats = self.server.stats()
        assert self.server.error is None and stats.failed == 0
        assert stats.streams <= LIMITS.streams and stats.partitions <= LIMITS.partitions
        assert len(self.reader.groups()) <= LIMITS.groups
        assert all(offset <= 200 for offset in self.reader.groups().values())


def settled(stats):
    """Nothing is under way, and every request is accounted for."""
    return stats.waiting == 0 and stats.requests == (
        stats.answered + stats.errors + stats.repeated + stats.dropped)


def run(bed, count, seed, note=lambda done: None):
    rng = random.Random(seed)
    pool = seeds()
    end = bed.sent + count
    while bed.sent < end:
        bed.batch(message(rng, pool) for _ in range(min(BATCH, end - bed.sent)))
        bed.check()
        note(bed.sent)


def resident():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    logging.getLogger("mqcore.journal").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder, Bed(folder) as bed:
        run(bed, 10_000, asked.seed - 1)        # what is allocated once
        before, began = resident(), time.monotonic()

        def note(done):
            if done % 100_000 == 0:
                print(f"{done} requests, {resident():.1f} MiB", flush=True)

        run(bed, asked.count, asked.seed, note)
        took = time.monotonic() - began
        print(f"seed {asked.seed}: {asked.count} requests in {took:.0f} s, "
              f"{asked.count / took:.0f}/s; {bed.answers} answers; the server is "
              f"{'alive' if bed.server.running else 'dead'}; resident {before:.1f} MiB before, "
              f"{resident():.1f} MiB after")
        print(bed.server.stats())


if __name__ == "__main__":
    main()
