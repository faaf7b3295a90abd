"""Stress of the data plane, each kind a function that raises when something is lost, out of order
or stuck. Used by tests/system/stress and, under sanitizers and with widened gaps, by
tools/turmoil.py:

    python tests/support/turmoil.py [--seconds 1] [--seed N] [kind ...]

Tokens circulate for ever, so that no later message rescues a lost wake-up; whoever waits, waits
without a limit, and a watchdog on the side notices that nothing moves any more.
"""

import argparse
import asyncio
import contextlib
import faulthandler
import itertools
import os
import random
import subprocess
import sys
import threading
import time

from gang import HEAD, Gang, a_context, address
from sealed import sealed
from second_wire import buses, held, surveys, wires
from turmoil_crowds import blocked, crowd, loops
from turmoil_ends import closing, dying, pour, storm, waking

import mqcore

# -- tokens ----------------------------------------------------------------------------------------

def tokens(seed, seconds=1.0, kind="tcp", nodes=3, count=5, io_threads=1):
    """A ring of PUSH -> PULL, a thread each; every link's order is checked."""
    rng = random.Random(seed)
    gang = Gang()
    with contextlib.ExitStack() as stack:
        context = stack.enter_context(a_context(seed, linger=0, io_threads=io_threads))
        pulls, pushes = [], []
        for _ in range(nodes):
            where = stack.enter_context(address(kind))
            pull = context.socket("pull", recv_hwm=rng.choice((2, 10, 1000)))
            at = pull.bind(where)
            push = context.socket("push", send_hwm=rng.choice((8, 1000)))
            push.connect(str(at))
            pulls.append(pull)
            pushes.append(push)

        def node(me):
            push, pull, out, expected = pushes[me], pulls[me - 1], 0, 0
            pad = random.Random(seed + me)
            if me == 0:
                for _ in range(count):
                    push.send(HEAD.pack(0, out, 0))
                    out += 1
            while True:
                data = pull.recv()
                _, number, hops = HEAD.unpack_from(data)
                if number != expected:
                    raise AssertionError(f"link {me}: message {number} where {expected} was due")
                expected += 1
                gang.steps += 1
                push.send(HEAD.pack(me, out, hops + 1) + bytes(pad.choice((0, 0, 0, 60, 5000))))
                out += 1

        for me in range(nodes):
            gang.start(node, me)
        gang.watch(seconds)
        context.close(0)
        gang.join()
    return gang.steps


def tokens_apart(seed, seconds=1.0, kind="tcp", pairs=2, count=3):
    """The same between two processes, over PAIRs; the child sends back what it gets."""
    gang = Gang()
    with contextlib.ExitStack() as stack:
        context = stack.enter_context(a_context(seed, linger=0))
        ours, urls = [], []
        for _ in range(pairs):
            where = stack.enter_context(address(kind))
            pair = context.socket("pair")
            urls.append(str(pair.bind(where)))
            ours.append(pair)
        child = subprocess.Popen([sys.executable, __file__, "--echo", *urls], stdin=subprocess.PIPE)
        try:
            def node(pair):
                out = expected = 0
                for _ in range(count):
                    pair.send(b"%d" % out)
                    out += 1
                while True:
                    data = pair.recv()
                    if data != b"%d" % expected:
                        raise AssertionError(f"{data} where {expected} was due")
                    expected += 1
                    gang.steps += 1
                    pair.send(b"%d" % out)
                    out += 1

            for pair in ours:
                pair.wait_peers(1, 60)      # a child under a sanitizer takes long to begin
                gang.start(node, pair)
            gang.watch(seconds)
        finally:
            child.kill()
            child.wait()
            child.stdin.close()
        context.close(0)
        gang.join()
    return gang.steps


def echo(urls):
    context = a_context(os.getpid(), linger=0)
    threads = []
    for url in urls:
        pair = context.socket("pair", connect=url)

        def run(pair=pair):
            while True:
                pair.send(pair.recv())
        threads.append(threading.Thread(target=run, daemon=True))
        threads[-1].start()
    sys.stdin.buffer.read()


def followers(seed, seconds=1.0, kind="tcp", threads=6):
    """Several threads receive on one DEALER, most with short time-outs, so that the lead goes
    round; one token a thread comes back from an echo and must never be left lying."""
    gang = Gang()
    with address(kind) as where, a_context(seed, linger=0) as context:
        back = context.socket("dealer")
        at = back.bind(where)
        front = context.socket("dealer", connect=str(at))

        def mirror():
            while True:
                back.send(back.recv())

        def member(me):
            rng = random.Random(seed + me)
            while True:
                try:
                    data = front.recv(timeout=rng.choice((0, 0.0002, 0.001, 0.01, None, None)))
                except mqcore.RecvTimeout:
                    continue
                gang.steps += 1
                front.send(data)

        gang.start(mirror)
        for me in range(threads):
            gang.start(member, me)
        for me in range(3):
            front.send(b"%d" % me)
        gang.watch(seconds)
        context.close(0)
        gang.join()
    return gang.steps


def contexts(seed, seconds=1.0, kind="tcp", threads=4, tasks=4):
    """Contexts of one REQ ask in threads and on a loop, give up, are closed and opened, while a
    provider loses requests and links die: what is not given up is answered in the end, once, with
    its own answer, however often it was sent."""
    gang = Gang()
    with address(kind) as where, a_context(seed, linger=0) as context:
        good = context.socket("rep")
        at = str(good.bind(where))
        bad = context.socket("router")
        with address(kind) as there:
            req = context.socket("req", resend=0.01, reconnect=0.001,
                                 connect=[at, str(bad.bind(there))])

            def provider():
                with good.new_context() as line:
                    while True:
                        line.send(line.recv())

            def loser():
                rng = random.Random(seed)
                while True:
                    peer, *rest = bad.recv_parts()
                    if rng.random() < 0.5:
                        with contextlib.suppress(mqcore.NoSuchPeer):
                            bad.send_parts([peer, *rest])
                    elif rng.random() < 0.1:
                        for endpoint in req.endpoints[1:]:
                            req.disconnect(endpoint)
                        req.connect(bad.endpoints[0])

            def asked(rng, me, n):
                return b"%d.%d" % (me, n) + b"x" * rng.choice((0, 100, 100_000))

            def member(me):
                rng = random.Random(seed + me)
                for start in itertools.count(0, 20):
                    with req.new_context() as line:
                        for n in range(start, start + 20):
                            line.send(b"given up")
                            question = asked(rng, me, n)
                            assert line.request(question) == question
                            gang.steps += 1

            async def task(me):
                rng = random.Random(seed + me)
                for start in itertools.count(0, 20):
                    async with req.new_context() as line:
                        for n in range(start, start + 20):
                            with contextlib.suppress(mqcore.RecvTimeout):
                                await line.arequest(b"given up", timeout=rng.random() / 1000)
                            question = asked(rng, me, n)
                            assert await line.arequest(question) == question
                            gang.steps += 1

            async def main():
                await asyncio.gather(*(task(threads + i) for i in range(tasks)))

            for _ in range(3):
                gang.start(provider)
            gang.start(loser)
            for me in range(threads):
                gang.start(member, me)
            gang.start(asyncio.run, main())
            gang.watch(seconds)
            context.close(0)
            gang.join()
    return gang.steps


def device(seed, seconds=1.0, kind="tcp"):
    """Requests through a ROUTER-DEALER device."""
    gang = Gang()
    with address(kind) as one, address(kind) as two, a_context(seed, linger=0) as context:
        front, back = context.socket("router"), context.socket("dealer")
        to, frm = str(front.bind(one)), str(back.bind(two))
        moving = mqcore.device(front, back)
        workers = [context.socket("rep", connect=frm) for _ in range(2)]
        clients = [context.socket("req", connect=to) for _ in range(3)]

        def work(rep):
            while True:
                rep.send(rep.recv())

        def ask(req, me):
            n = 0
            while True:
                req.send(b"%d.%d" % (me, n))
                answer = req.recv()
                if answer != b"%d.%d" % (me, n):
                    raise AssertionError(f"{answer} for {me}.{n}")
                n += 1
                gang.steps += 1

        for rep in workers:
            gang.start(work, rep)
        for me, req in enumerate(clients):
            gang.start(ask, req, me)
        gang.watch(seconds)
        for sock in (*clients, *workers):
            sock.close(0)
        gang.join()
        moving.stop(0)
    return gang.steps


def exchange():
    """One message over tcp between sockets of this process's own."""
    with mqcore.Context() as context:
        pull = context.socket("pull")
        push = context.socket("push", connect=str(pull.bind("tcp://127.0.0.1:*")))
        push.send(b"new")
        assert pull.recv(timeout=10) == b"new"


def served(_=None):
    """The same in a child process, which finds it here however it was started."""
    exchange()
    return os.getpid()


KINDS = {fn.__name__: fn for fn in (
    tokens, tokens_apart, followers, contexts, device, wires, surveys, buses, held, sealed, loops,
    crowd, blocked, closing, storm, dying, waking)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--over", default="tcp,ipc,inproc")
    parser.add_argument("--echo", nargs="*")
    parser.add_argument("--pour")
    parser.add_argument("kinds", nargs="*")
    options = parser.parse_args()
    if options.echo is not None:
        return echo(options.echo)
    if options.pour:
        return pour(options.pour)
    seed = options.seed if options.seed is not None else random.SystemRandom().getrandbits(31)
    for name in options.kinds or KINDS:
        for kind in options.over.split(","):
            if (kind == "inproc" and name in ("tokens_apart", "dying", "sealed")
                    or name == "dying" and kind != "tcp"):
                continue
            started = time.monotonic()
            print(f"{name} {kind} seed={seed}", end=" ", flush=True)
            print(KINDS[name](seed, options.seconds, kind), f"{time.monotonic() - started:.1f} s",
                  flush=True)


if __name__ == "__main__":
    faulthandler.enable()
    main()
