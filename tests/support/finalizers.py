"""Finalizers and signal handlers that close, beside every blocking call.

Garbage with sockets in it is made all the time, on two threads, and the collector is set to start
often: it runs anywhere, also on mqcore's own threads, and in the middle of calls that hold a lock.
A signal handler closes sockets, too. Run it as a program: `finalizers.py SCENE ROUNDS`. It prints
how many finalizers and handlers have closed something, and which threads are left.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import itertools
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import mqcore as mq
from mqcore import zmq
from mqcore.control.hub import HUBS

STUCK = 60      # seconds, for what takes a few
NOBODY = "tcp://127.0.0.1:9"
CLOSED = itertools.count()


class Litter:
    """Garbage in a cycle, which only the collector frees."""

    def __init__(self, close: Callable[[], Any] | None, *things: Any) -> None:
        self.close, self.things, self.me = close, things, self

    def __del__(self) -> None:
        next(CLOSED)
        if self.close is not None:
            self.close()


def own(context: Any, _: Any) -> Litter:
    """Socket.__del__"""
    return Litter(None, context.socket("pub", connect=NOBODY))


def closes(context: Any, _: Any) -> Litter:
    sock = context.socket("pub", connect=NOBODY, linger=0)
    return Litter(sock.close, sock)


def closes_all(context: Any, _: Any) -> Litter:
    """Twice, and beside its own finalizer; what is called after that raises at most SocketClosed"""
    sock = context.socket("sub", topics=[b"a"], linger=0)
    end, far = sock.bind(f"inproc://{id(sock)}"), sock.connect(NOBODY)

    def close() -> None:
        with contextlib.suppress(mq.SocketClosed, mq.AddressError):
            sock.unsubscribe(b"a")
            sock.unbind(end)
            sock.disconnect(far)
        end.close()
        far.close()
        sock.close()
        sock.close(0)

    return Litter(close, sock)


def context_closes(_: Any, __: Any) -> Litter:
    context = mq.Context(linger=0)
    context.socket("push", connect=NOBODY)
    return Litter(context.close, context)


def zmq_closes(_: Any, context: Any) -> Litter:
    sock = context.socket(zmq.PUB)
    sock.connect(NOBODY)
    return Litter(lambda: sock.close(0), sock)


def zmq_own(_: Any, context: Any) -> Litter:
    sock = context.socket(zmq.PUSH)
    sock.linger = 0
    sock.connect(NOBODY)
    return Litter(None, sock)


def zmq_destroys(_: Any, __: Any) -> Litter:
    context = zmq.Context()
    context.socket(zmq.PUSH).connect(NOBODY)
    return Litter(lambda: context.destroy(0), context)


COMMON = (own, closes, closes_all, zmq_closes, zmq_own)
RARE = (context_closes, zmq_destroys)   # these start and end threads


def ends(context: Any) -> None:
    """Calls that hold the hub's lock."""
    with context.socket("pair") as one, context.socket("pair") as other:
        other.connect(one.bind(f"inproc://{id(one)}").url)


def over_tcp(context: Any) -> None:
    """The control thread is busy."""
    with context.socket("pull", linger=0) as one, context.socket("push", linger=0) as other:
        other.connect(one.bind("tcp://127.0.0.1:0").url, wait=STUCK)
        other.send(b"x")
        one.recv()


def polls(context: Any) -> None:
    with context.socket("pull", linger=0) as one, context.socket("push", linger=0) as other:
        with mq.Poller() as poller:
            poller.register(one)
            poller.poll(0.001)
            events = one.events()
            other.connect(one.bind(f"inproc://{id(one)}").url)
            other.wait_peers()
            other.send(b"x")
            assert poller.poll() and mq.poll([one])
            while events.get().kind != "Connected":
                pass


def requests(context: Any) -> None:
    with context.socket("rep", linger=0) as one, context.socket("req", linger=0) as other:
        other.connect(one.bind(f"inproc://{id(one)}").url)
        other.send(b"x")
        one.send(one.recv())
        other.recv()
        with contextlib.suppress(mq.Timeout):
            one.recv(timeout=0.001)


def as_zmq(_: Any) -> None:
    with zmq.Context() as context:
        with context.socket(zmq.REP) as one, context.socket(zmq.REQ) as other:
            name = f"inproc://{id(one)}"
            one.bind(name)
            other.connect(name)
            other.send(b"x")
            assert one.poll(STUCK * 1000)
            one.send(one.recv())
            other.recv()


SCENES = {scene.__name__: scene for scene in (ends, over_tcp, polls, requests, as_zmq)}


def littering(seed: int, context: Any, alias: Any) -> Iterator[None]:
    chance = random.Random(seed)
    while True:
        for number in range(200):
            kind = chance.choice(RARE if number == 0 else COMMON)
            kind(context, alias)
            yield


class Handler:
    """A signal handler that closes what the main thread has put there."""

    def __init__(self) -> None:
        self.fresh: list[Any] = []
        signal.signal(signal.SIGALRM, self)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)

    def __call__(self, *_: Any) -> None:
        with contextlib.suppress(IndexError):   # another signal may come in here
            self.fresh.pop().close(0)
            next(CLOSED)

    def end(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for sock in self.fresh:
            sock.close(0)


def run(scene: Callable[[Any], None], rounds: int, seed: int) -> None:
    context, alias = mq.Context(linger=0), zmq.Context()
    alias.max_sockets = 20_000
    failed: list[BaseException] = []
    turns = itertools.count()

    def work(handler: Handler | None, seed: int) -> None:
        litter = littering(seed, context, alias)
        try:
            while (turn := next(turns)) < rounds and not failed:
                next(litter)
                if turn % 8 == 0:
                    scene(context)
                if handler is not None and turn % 4 == 0:
                    handler.fresh.append(context.socket("pub", connect=NOBODY))
        except BaseException as error:
            failed.append(error)
            raise

    other = threading.Thread(target=work, args=(None, seed))
    other.start()
    handler = Handler()
    work(handler, seed + 1)
    other.join()
    handler.end()
    gc.collect()
    context.close()
    alias.term()
    if failed:
        raise SystemExit(1)


def main(name: str, rounds: str, seed: str = "1") -> None:
    warnings.simplefilter("ignore")
    faulthandler.dump_traceback_later(STUCK + int(rounds) // 20, exit=True)
    gc.set_threshold(37, 5, 5)
    run(SCENES[name], int(rounds), int(seed))
    end = time.monotonic() + STUCK
    while (left := [thread.name for thread in threading.enumerate()
                    if thread.name.startswith("mqcore-")]) and time.monotonic() < end:
        gc.collect()
        time.sleep(0.01)
    if left:
        faulthandler.dump_traceback(all_threads=True)
        for hub in HUBS:
            print(f"hub {id(hub):x}: started={hub.started} closed={hub.closed} left={hub._left} "
                  f"closing={hub.closing} sockets={len(hub.sockets)}", file=sys.stderr)
    print(next(CLOSED), "closed; left:", *left, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
