"""How long a journal server lets a reader wait while others ask for much.

The journal has one message in each block, the worst case: whatever looks for an offset or a time,
or gathers messages, walks over many headers. Readers in processes of their own read all of it, read
at random offsets and times, follow, and list; one asks for single messages and measures how long
each answer takes. The server tells its longest turn.

    python perf/server_turns.py [--blocks 1000000] [--seconds 20]
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import tempfile
import time

from mqcore import journal

VALUE = bytes(16)


def fill(where: str, blocks: int) -> None:
    with journal.open(where, "a", topic="t", fsync="never", segment_bytes=64 << 20) as log:
        for _ in range(blocks):
            log.append(VALUE)
            log.flush()
        log.commit()


def read_all(reader: journal.Reader, blocks: int, end: float) -> None:
    for _ in reader.batches():
        if time.monotonic() > end:
            return


def read_somewhere(reader: journal.Reader, blocks: int, end: float) -> None:
    reader.read(random.randrange(blocks), max_bytes=1 << 20)


def look_for_times(reader: journal.Reader, blocks: int, end: float) -> None:
    times = [float(reader.read(at, max_bytes=1).times[0]) / 1e6 for at in (0, blocks - 1)]
    reader.at(random.uniform(*times))


def follow(reader: journal.Reader, blocks: int, end: float) -> None:
    for records in reader.follow(random.randrange(blocks)):
        if records.next == blocks or time.monotonic() > end:
            return


WORK = (read_all, read_somewhere, look_for_times, follow)


def load(url: str, work: str, blocks: int, seconds: float) -> None:
    end = time.monotonic() + seconds
    with journal.open(url, topic="t", timeout=60) as reader:
        while time.monotonic() < end:
            globals()[work](reader, blocks, end)


def probe(url: str, blocks: int, seconds: float) -> list[float]:
    """Seconds that each answer took."""
    took = []
    with journal.open(url, topic="t", timeout=60) as reader:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            begin = time.perf_counter()
            reader.read(random.randrange(blocks), max_bytes=1)
            took.append(time.perf_counter() - begin)
            time.sleep(0.005)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--blocks", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=20)
    args = parser.parse_args()
    fork = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as where:
        begin = time.perf_counter()
        fill(where, args.blocks)
        print(f"{args.blocks} blocks written in {time.perf_counter() - begin:.1f} s")
        for works in ((), *((work,) for work in WORK), WORK):
            with journal.serve(where, "tcp://127.0.0.1:0") as server:
                url = server.urls[0]
                others = [fork.Process(target=load, args=(url, work.__name__, args.blocks,
                                                          args.seconds)) for work in works]
                for other in others:
                    other.start()
                took = sorted(probe(url, args.blocks, args.seconds))
                for other in others:
                    other.join()
                name = " + ".join(work.__name__ for work in works) or "nobody else"
                print(f"{name}: an answer took {1e3 * took[len(took) // 2]:.1f} ms (median), "
                      f"{1e3 * took[-1]:.1f} ms (at most); longest turn "
                      f"{1e3 * server.stats().longest_turn:.1f} ms", flush=True)


if __name__ == "__main__":
    main()
