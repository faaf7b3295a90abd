"""How long the partitions of a member of a consumer group stand still after kill -9.

    python perf/rebalance.py --members 8 --partitions 16 --kills 20

A program appends to every partition all the time. Members are processes; each notes what it has
handled, then commits, then notes that. After a kill the time counts until another member has
handled something of each of the dead member's partitions. In the end every message must be there,
and none committed twice: a commit by a former owner would be.
"""

import argparse
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from statistics import median

from mqcore import journal

MEMBER = """
import os, sys, time
from mqcore import journal
url, path, name = sys.argv[1:]
with journal.join(url, "g", topic="t", session=10.0, autocommit=None, timeout=60) as member, \\
        open(path, "ab", buffering=0) as log:
    for records in member:
        what = f"{name} {records.partition} {records.first} {records.next}"
        log.write(f"handled {time.monotonic()} {what}\\n".encode())
        try:
            member.commit()
        except journal.PartitionLost:
            continue
        log.write(f"committed {time.monotonic()} {what}\\n".encode())
"""


class Feed(threading.Thread):
    """Appends to every partition. At the end, `ends` says how far."""

    def __init__(self, logs, pause):
        super().__init__()
        self.logs, self.pause, self.stopping = logs, pause, threading.Event()

    def run(self):
        while not self.stopping.wait(self.pause):
            for log in self.logs:
                log.append(b"x")
                log.flush()


def events(path):
    for line in path.read_text().splitlines():
        what, at, name, partition, first, stop = line.split()
        yield what, float(at), name, int(partition), int(first), int(stop)


def owners(path):
    return {partition: name for what, _, name, partition, *_ in events(path) if what == "handled"}


def until(true, seconds=60.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.01)


def handled_since(path, moment, dead, partitions):
    """{partition: when another member has handled something of it}"""
    found = {}
    for what, at, name, partition, *_ in events(path):
        if what == "handled" and at > moment and name != dead and partition in partitions:
            found.setdefault(partition, at)
    return found


def measure(args, where):
    with contextlib.ExitStack() as stack:
        logs = [stack.enter_context(journal.open(where / "j", "a", topic="t", partition=number))
                for number in range(args.partitions)]
        server = stack.enter_context(journal.serve(where / "j", f"ipc://{where}/s", groups=True))
        path = where / "log"
        path.touch()
        running, born = {}, iter(range(10 ** 6))

        def start():
            name = f"m{next(born)}"
            running[name] = subprocess.Popen([sys.executable, "-c", MEMBER, server.urls[0],
                                              str(path), name])
        stack.callback(lambda: [process.kill() or process.wait() for process in running.values()])
        feed = Feed(logs, args.pause)
        feed.start()
        try:
            for _ in range(args.members):
                start()
            times = [kill_one(args, path, running, start) for _ in range(args.kills)]
        finally:
            feed.stopping.set()
            feed.join()
        ends = [log.commit() for log in logs]
        with journal.open(f"ipc://{where}/s", topic="t") as reader:
            until(lambda: len(reader.group_members("g")) == args.members)
        until(lambda: all(at == end for at, end in zip(committed(where / "j", args), ends,
                                                        strict=True)))
    return times, ends, path


def committed(where, args):
    for number in range(args.partitions):
        with journal.open(where, topic="t", partition=number) as reader:
            yield reader.committed_offset("g")


def kill_one(args, path, running, start):
    """Seconds for each of its partitions."""
    until(lambda: len(settled(path, running, args)) == args.members)
    name = random.choice(list(running))
    mine = {number for number, owner in owners(path).items() if owner == name}
    process = running.pop(name)
    moment = time.monotonic()
    process.kill()
    until(lambda: len(handled_since(path, moment, name, mine)) == len(mine))
    found = [at - moment for at in handled_since(path, moment, name, mine).values()]
    process.wait()
    start()
    return found


def settled(path, running, args):
    """The members that have partitions, if the shares are even."""
    found = Counter(owners(path).values())
    even = args.partitions // args.members
    return {name for name, n in found.items() if name in running and n >= even}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--pause", type=float, default=0.05, help="between two appends, seconds")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        times, ends, path = measure(args, Path(folder))
        took = sorted(max(found) for found in times)
        every = {(number, at) for number, end in enumerate(ends) for at in range(end)}
        done = Counter((number, at) for what, _, _, number, first, stop in events(path)
                       if what == "committed" for at in range(first, stop))
        seen = Counter((number, at) for what, _, _, number, first, stop in events(path)
                       if what == "handled" for at in range(first, stop))
        assert set(seen) == every, "messages are missing"
        twice = sum(n > 1 for n in done.values())
        print(f"{args.members} members, {args.partitions} partitions, {args.kills} kills, "
              f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
        print(f"takeover of all partitions of a killed member: median {median(took):.3f} s, "
              f"largest {took[-1]:.3f} s")
        print(f"{len(every)} messages, {twice} committed twice, "
              f"{sum(n > 1 for n in seen.values())} handled again after a kill")
        return 1 if twice else 0


if __name__ == "__main__":
    sys.exit(main())
