"""The journal's calls: append a message, append 1,000 from arrays, read a block as Arrow.

python perf/micro/journal.py -o new.json; python -m pyperf compare_to old.json new.json

The writer syncs at the end only, which is not timed: these are the costs of the calls, in blocks
that go to the page cache. perf/journal.py measures what the disk makes of them.
"""

import tempfile
import time

import numpy as np
import pyperf

from mqcore import journal

MOST = 64 << 20  # bytes of a journal, then a new one


def per_journal(size: int) -> int:
    return max(1, MOST // size)


def opened(place: str):
    return journal.open(place, "a", topic="micro", fsync="never")


def append(loops: int, size: int) -> float:
    message, took, left = bytes(size), 0.0, loops
    while left:
        now = min(left, per_journal(size))
        with tempfile.TemporaryDirectory() as place, opened(place) as log:
            call, began = log.append, time.perf_counter()
            for _ in range(now):
                call(message)
            took += time.perf_counter() - began
        left -= now
    return took


def append_batch(loops: int, size: int, count: int) -> float:
    data = np.zeros(size * count, np.uint8)
    ends = np.arange(count + 1) * size
    took, left = 0.0, loops
    while left:
        now = min(left, per_journal(size * count))
        with tempfile.TemporaryDirectory() as place, opened(place) as log:
            call, began = log.append_batch, time.perf_counter()
            for _ in range(now):
                call(data, ends)
            took += time.perf_counter() - began
        left -= now
    return took


def read_block(loops: int, size: int, verify: bool) -> float:
    """A full block, of 1 MiB, which is mapped already."""
    with tempfile.TemporaryDirectory() as place:
        with opened(place) as log:
            data = np.zeros(2 << 20, np.uint8)
            log.append_batch(data, np.arange(0, len(data) + 1, size))
        with journal.open(place, topic="micro", verify=verify) as log:
            log.read(0).to_arrow()
            began = time.perf_counter()
            for _ in range(loops):
                log.read(0).to_arrow()
            return time.perf_counter() - began


if __name__ == "__main__":
    runner = pyperf.Runner(processes=5, values=3, warmups=1)
    for size, name in ((16, "16 B"), (1 << 10, "1 KiB")):
        runner.bench_time_func(f"append {name}", append, size)
        runner.bench_time_func(f"append_batch 1000 of {name}", append_batch, size, 1000)
    for verify in (True, False):
        name = f"read and to_arrow, a block of 100 B{'' if verify else ', unverified'}"
        runner.bench_time_func(name, read_block, 100, verify)
