"""Group `shared`: shared memory between two processes, against others' and against our own ipc.

    shared.py [--what thr|lat] [--row TEXT] [--rounds N] [--seconds S] [--lib NAME ...]

`faster-fifo` (a ring and a lock), `queue` (`multiprocessing.Queue`) and `iceoryx2` (publisher and
subscriber without loss, in its waiting mode: an event service tells the reader, who sleeps on its
listener) pass their ends on by fork, so here both ends are children of this program. mqcore's rows
are measured as those of other transports, over shm and, next to it in each round, over ipc; the
ratio is theirs. So are zenoh's, for bodies so large that its peers pass them through shared memory.
Every receiver has each body as bytes of its own. `memory` is `numpy.copyto` of the same size, once
a message, in one process: what an ideal single copy would be.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import multiprocessing
import os
import sys
import time
from collections.abc import Callable

from libraries import die_with_parent
from pairs import Case, awake, placement, run_pair, size_name
from rows import Row, main_of
from timing import endless, percentiles

FORK = multiprocessing.get_context("fork")
FIRST = {"thr": 2000, "lat": 300}  # messages of the run that tells how many fit into the time
PATIENCE = 60.0


# -- others' ends: make() in this program, then one end in each child ------------------------------


class FasterFifo:
    def __init__(self, size: int):
        import faster_fifo

        room = max(1 << 20, 16 * size)
        self.ways = [
            faster_fifo.Queue(max_size_bytes=room, loads=bytes, dumps=bytes) for _ in range(2)
        ]

    def end(self, first: bool) -> tuple[Callable, Callable]:
        out, back = self.ways if first else self.ways[::-1]
        return functools.partial(out.put, timeout=PATIENCE), functools.partial(
            back.get, timeout=PATIENCE
        )


class Queue:
    def __init__(self, size: int):
        self.ways = [FORK.Queue(max(4, min(10_000, (16 << 20) // size))) for _ in range(2)]

    def end(self, first: bool) -> tuple[Callable, Callable]:
        out, back = self.ways if first else self.ways[::-1]
        return out.put, back.get


class Iceoryx:
    """A service of each kind a way; opened by both children under the same names."""

    def __init__(self, size: int):
        self.size = size
        self.name = f"mqcore-perf-{os.getpid()}-{time.monotonic_ns()}"

    def end(self, first: bool) -> tuple[Callable, Callable]:
        import iceoryx2 as iox

        iox.set_log_level(iox.LogLevel.Error)
        self.node = iox.NodeBuilder.new().create(iox.ServiceType.Ipc)
        out, back = ("there", "back") if first else ("back", "there")
        data, bell = self.services(iox, out)
        publisher = (
            data.publisher_builder()
            .initial_max_slice_len(self.size)
            .backpressure_strategy(iox.BackpressureStrategy.RetryUntilDelivered)
            .create()
        )
        notifier = bell.notifier_builder().create()
        data, bell = self.services(iox, back)
        subscriber = data.subscriber_builder().create()
        listener = bell.listener_builder().create()
        move = ctypes.memmove

        def send(body: bytes) -> None:
            sample = publisher.loan_slice_uninit(len(body))
            move(sample.payload_ptr, body, len(body))
            sample.assume_init().send()
            notifier.notify()

        def recv() -> bytes:
            while (sample := subscriber.receive()) is None:
                listener.blocking_wait()
            body = bytes(sample.payload().as_memory_view())
            sample.delete()
            return body

        return send, recv

    def services(self, iox, way: str):
        data = (
            self.node.service_builder(iox.ServiceName.new(f"{self.name}-{way}"))
            .publish_subscribe(iox.Slice[ctypes.c_uint8])
            .enable_safe_overflow(False)
            .subscriber_max_buffer_size(64)
            .open_or_create()
        )
        bell = self.node.service_builder(iox.ServiceName.new(f"{self.name}-{way}-bell"))
        return data, bell.event().open_or_create()


OTHERS = {"faster-fifo": FasterFifo, "queue": Queue, "iceoryx2": Iceoryx}


def child(body: Callable[[], object], cpu: int | None, result) -> None:
    die_with_parent()
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
    result.send(body())


def both(kind: str, size: int, count: int, place: str, library: str) -> dict:
    """One measurement with `count` messages after a tenth of them."""
    ways, warm = OTHERS[library](size), max(1, count // 10)
    ready = FORK.Barrier(2)

    def far() -> float:
        send, recv = ways.end(False)
        ready.wait(PATIENCE)
        for _ in range(warm + (count if kind == "lat" else 0)):
            body = recv()
            if kind == "lat":
                send(body)
        began = time.perf_counter()
        for _ in range(count if kind == "thr" else 0):
            recv()
        took = time.perf_counter() - began
        ready.wait(PATIENCE)
        return took

    def near() -> dict:
        send, recv = ways.end(True)
        texts, clock, trips = endless(size), time.perf_counter, []
        ready.wait(PATIENCE)
        for _ in range(warm + count):
            body = next(texts)
            before = clock()
            send(body)
            if kind == "lat":
                recv()
                trips.append(clock() - before)
        ready.wait(PATIENCE)
        return percentiles(trips[warm:]) if trips else {}

    cpus, ends = placement(place), []
    for body, cpu in ((far, cpus[0]), (near, cpus[1])):
        here, there = FORK.Pipe(False)
        ends.append((here, FORK.Process(target=child, args=(body, cpu, there))))
        ends[-1][1].start()
    try:
        if not all(pipe.poll(PATIENCE) for pipe, _ in ends):
            raise RuntimeError(f"{library}: nothing for {PATIENCE:.0f} s")
        took, trips = (pipe.recv() for pipe, _ in ends)
    finally:
        for _, process in ends:
            process.kill()
            process.join()
    return {"value": trips["p50"], "p99": trips["p99"]} if trips else {"value": count / took}


# -- rows ------------------------------------------------------------------------------------------


def memory(size: int, seconds: float) -> float:
    import numpy as np

    one, other = np.ones(size, np.uint8), np.zeros(size, np.uint8)
    count, end = 0, time.perf_counter() + seconds
    began = time.perf_counter()
    while time.perf_counter() < end:
        for _ in range(100):
            np.copyto(other, one)
        count += 100
    return count / (time.perf_counter() - began)


def ours(kind: str, size: int, count: int, place: str, library: str) -> dict:
    found = {
        over: run_pair(library, Case(kind, over, size, "plain", place), count)
        for over in ("shm", "ipc")
    }
    there, here = found["ipc"]["value"], found["shm"]["value"]
    ratio = here / there if kind == "thr" else there / here
    return {"value": here, "ipc": there, "times ipc": ratio,
            "CPU us a message": found["shm"]["cpu"] * 1e6}  # fmt: skip


def zenohs(kind: str, size: int, count: int, place: str, library: str) -> dict:
    found = run_pair(library, Case(kind, "shm", size, "plain", place), count)
    return {"value": found["value"], "CPU us a message": found["cpu"] * 1e6}


def measure(kind: str, size: int, place: str, library: str, seconds: float) -> dict:
    how = both if library in OTHERS else ours if library == "mqcore" else zenohs
    run = functools.partial(how, kind, size)
    with awake(list(placement(place))) if place == "awake" else contextlib.nullcontext():
        first = run(max(20, min(FIRST[kind], (64 << 20) // size)), place, library)["value"]
        if kind == "lat":
            found = run(max(100, int(seconds / first)), place, library)
            micro = {key: found[key] * 1e6 for key in ("value", "p99", "ipc") if key in found}
            return {**found, **micro}
        found = run(max(50, int(seconds * first)), place, library)
    if library not in OTHERS and size >= 1 << 16:
        found["times memory"] = found["value"] / memory(size, 0.05)
    return found


def takes(large: bool, library: str) -> bool:
    return library == "mqcore" or large and library == "zenoh"


def others() -> tuple[str, ...]:
    """Those that are installed."""
    modules = {"faster-fifo": "faster_fifo", "queue": "multiprocessing", "iceoryx2": "iceoryx2"}
    return tuple(name for name in OTHERS if importlib.util.find_spec(modules[name]))


def rows(quick: bool) -> list[Row]:
    sizes = (1024,) if quick else (16, 1024, 1 << 16, 1 << 20)
    places = ("awake",) if quick else ("awake", "idle", "together")
    return [
        *(Row(f"one way, shared memory, {size_name(size)}", "/s", False,
              functools.partial(measure, "thr", size, "free"),
              functools.partial(takes, size >= 1 << 16), 5, "thr", size, others())
          for size in sizes),
        *(Row(f"round trip, shared memory, 16 B, {place}", "us", True,
              functools.partial(measure, "lat", 16, place), functools.partial(takes, False), 5,
              "lat", 0.0, others())
          for place in places),
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main_of(__doc__, "shared", rows))
