"""Stress of the data plane, each kind a function that raises when something is lost, out of order
or stuck. Used by tests/stress and, under sanitizers and with widened gaps, by tools/turmoil.py:

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
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

from gang import STALL, Gang, Stuck, a_context, address
from sealed import sealed
from second_wire import buses, held, surveys, wires

import mqcore

HEAD = struct.Struct("<III")


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
                with good.context() as line:
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
                    with req.context() as line:
                        for n in range(start, start + 20):
                            line.send(b"given up")
                            question = asked(rng, me, n)
                            assert line.request(question) == question
                            gang.steps += 1

            async def task(me):
                rng = random.Random(seed + me)
                for start in itertools.count(0, 20):
                    async with req.context() as line:
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


# -- loops -----------------------------------------------------------------------------------------

async def taken(sock, after):
    """One message, or None if the receive was cancelled first."""
    task = asyncio.ensure_future(sock.arecv())
    try:
        await asyncio.wait((task,), timeout=after)
    finally:
        task.cancel()
    try:
        return await task
    except asyncio.CancelledError:
        return None


def abandoned(sock, rng):
    """A loop that ends while two tasks receive; what one of them took is not lost."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # "destroyed but pending" is what we are after
    tasks = [loop.create_task(sock.arecv()) for _ in range(2)]
    loop.run_until_complete(asyncio.sleep(rng.choice((0, 0.0005, 0.003))))
    loop.close()
    for task in tasks:
        if task.done():
            sock.send(task.result())


def loops(seed, seconds=1.0, kind="tcp", members=3):
    """Two DEALERs and an echo: tasks of several loops, some of which are cancelled or end with
    their loop, and threads receive on the same socket. Who leads changes all the time; each token
    comes back to whoever waits."""
    gang = Gang()
    with address(kind) as where, a_context(seed, linger=0) as context:
        back = context.socket("dealer")
        front = context.socket("dealer", connect=str(back.bind(where)))

        def mirror():
            async def one():
                while True:
                    await back.asend(await back.arecv())

            async def main():
                await asyncio.gather(one(), one(), one())

            asyncio.run(main())

        def member(me):
            rng = random.Random(seed + me)

            async def one():
                while True:
                    data = await taken(front, rng.choice((0, 0.0002, 0.001, 0.01, None)))
                    if data is not None:
                        gang.steps += 1
                        await front.asend(data)
                    elif rng.random() < 0.05:
                        time.sleep(0.001)  # a loop that is busy leads nobody astray

            async def main():
                await asyncio.gather(*[one() for _ in range(members)])

            asyncio.run(main())

        def thread(me):
            rng = random.Random(seed + me)
            while True:
                try:
                    data = front.recv(timeout=rng.choice((0, 0.0002, 0.001, 0.01)))
                except mqcore.RecvTimeout:
                    time.sleep(rng.choice((0, 0, 0.01, 0.05)))  # now and then a loop waits alone
                    continue
                gang.steps += 1
                front.send(data)

        def passing(me):
            rng = random.Random(seed + me)
            while True:
                abandoned(front, rng)
                time.sleep(rng.choice((0, 0.02)))

        gang.start(mirror)
        for me in range(3):
            front.send(b"%d" % me)
        gang.start(member, 1)
        gang.watch(seconds * 0.4, "one loop")
        gang.start(member, 2)
        gang.start(thread, 3)
        gang.start(passing, 4)
        gang.watch(seconds * 0.6, "several loops and a thread")
        context.close(0)
        gang.join()
    return gang.steps


# -- crowds ----------------------------------------------------------------------------------------

def crowd(seed, seconds=1.0, kind="tcp", producers=4, consumers=3, hwm=1000, slow=False,
          most=1 << 30):
    """Threads share one PUSH and one PULL: nothing lost, nothing twice, each producer's order kept
    for each consumer."""
    rng = random.Random(seed)
    gang = Gang()
    stop = threading.Event()
    sent = [0] * producers
    got = [[] for _ in range(consumers)]
    with address(kind) as where, a_context(seed, linger=0) as context:
        pull = context.socket("pull", recv_hwm=hwm)
        at = pull.bind(where)
        push = context.socket("push", send_hwm=hwm, connect=str(at))
        sizes = [0, 10, 200, 20000] if not slow else [2000, 60000]

        def produce(me):
            dice = random.Random(seed + me)
            while not stop.is_set() and sent[me] < most:
                push.send(HEAD.pack(me, sent[me], 0) + bytes(dice.choice(sizes)))
                sent[me] += 1
                gang.steps += 1

        def consume(me):
            dice = random.Random(seed - me - 1)
            while True:
                for data in pull.recv_many(dice.choice((1, 3, 100))):
                    who, number, last = HEAD.unpack_from(data)
                    if last:
                        return
                    got[me].append((who, number))
                if slow and dice.random() < 0.1:
                    time.sleep(0.002)

        makers = [gang.start(produce, me) for me in range(producers)]
        for me in range(consumers):
            gang.start(consume, me)
        end = time.monotonic() + seconds + rng.random() * 0.1
        while time.monotonic() < end and min(sent) < most:
            gang.watch(0.05, "crowd")
        stop.set()
        for thread in makers:
            thread.join(STALL)
            if thread.is_alive():
                faulthandler.dump_traceback(all_threads=True)
                raise Stuck("a producer is blocked though there are consumers")
        gang.check()
        end = time.monotonic() + STALL + 5
        while sum(map(len, got)) < sum(sent):
            gang.check()
            if time.monotonic() > end:
                faulthandler.dump_traceback(all_threads=True)
                raise Stuck(f"{sum(sent)} sent, {sum(map(len, got))} received; "
                            f"push {push.stats()}; "
                            f"pull {pull.stats()}")
            time.sleep(0.01)
        context.close(0)
        gang.join()
    every = sorted(x for mine in got for x in mine)
    if every != [(who, n) for who in range(producers) for n in range(sent[who])]:
        raise AssertionError(f"{len(every)} messages, {len(set(every))} different, "
                                 f"{sum(sent)} sent")
    for mine in got:
        last = [-1] * producers
        for who, number in mine:
            if number <= last[who]:
                raise AssertionError(f"producer {who}: {number} after {last[who]}")
            last[who] = number
    return len(every)


def blocked(seed, seconds=1.0, kind="tcp"):
    """Senders blocked at marks of a few messages, readers that dawdle."""
    return crowd(seed, seconds, kind, producers=4, consumers=2, hwm=4, slow=True, most=3000)


# -- ends ------------------------------------------------------------------------------------------

def closing(seed, seconds=1.0, kind="tcp"):
    """Sockets and whole contexts close at random moments while threads send, receive and ask."""
    rng = random.Random(seed)
    rounds = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        gang = Gang()
        context = a_context(seed, linger=rng.choice((0, 0.01, 0.2)))
        with address(kind) as where:
            pull = context.socket("pull", recv_hwm=rng.choice((2, 1000)))
            at = str(pull.bind(where))
            pushes = [context.socket("push", connect=at, send_hwm=rng.choice((2, 1000)))
                      for _ in range(3)]

            def pour(push):
                while True:
                    push.send(b"x" * rng.choice((1, 100, 30000)))

            def drink():
                while True:
                    pull.recv(timeout=None)

            def ask():
                while True:
                    pull.stats()
                    pushes[0].stats()
                    mqcore.poll([pull], timeout=0.001)

            for push in pushes:
                gang.start(pour, push)
            gang.start(drink)
            gang.start(drink)
            gang.start(ask)
            time.sleep(rng.random() * 0.03)
            victims = [pull, *pushes]
            rng.shuffle(victims)
            for sock in victims[:rng.randrange(5)]:
                gang.start(sock.close)
                time.sleep(rng.random() * 0.005)
            closer = gang.start(context.close)
            closer.join(STALL + 5)
            if closer.is_alive():
                faulthandler.dump_traceback(all_threads=True)
                raise Stuck("the context does not close")
            gang.join()
            rounds += 1
    return rounds


def storm(seed, seconds=1.0, kind="tcp"):
    """Connect and disconnect, bind and unbind, while messages flow by a link that stays."""
    rng = random.Random(seed)
    gang = Gang()
    with address(kind) as where, address(kind) as other, a_context(
            seed, linger=0, reconnect=0.001, reconnect_max=0.01) as context:
        pull = context.socket("pull")
        at = str(pull.bind(where))
        push = context.socket("push", connect=at)
        second = context.socket("pull")
        there = str(second.bind(other))

        def pour():
            while True:
                push.send(b"x" * 50)

        def drink(sock):
            while True:
                sock.recv()
                gang.steps += 1

        def shake():
            dice = random.Random(seed + 1)
            while True:
                push.connect(there)
                time.sleep(dice.random() * 0.01)
                push.disconnect(there)

        def rebind():
            dice = random.Random(seed + 2)
            while True:
                time.sleep(dice.random() * 0.02)
                second.unbind(there)
                second.bind(there)

        gang.start(pour)
        gang.start(drink, pull)
        gang.start(drink, second)
        gang.start(shake)
        if kind != "inproc":
            gang.start(rebind)
        gang.watch(seconds + rng.random() * 0.1, "storm")
        context.close(0)
        gang.join()
    return gang.steps


GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16) + b"\x00" + bytes(31)


def dying(seed, seconds=1.0, kind="tcp"):
    """Peers that are reset, cut off in mid-greeting and killed, beside one that goes on working."""
    rng = random.Random(seed)
    gang = Gang()
    with a_context(seed, linger=0) as context:
        pull = context.socket("pull")
        at = pull.bind("tcp://127.0.0.1:*")
        port = int(str(at).rpartition(":")[2])
        push = context.socket("push", connect=str(at))

        def good():
            while True:
                push.send(b"good")

        def drink():
            while True:
                if pull.recv() == b"good":
                    gang.steps += 1

        def vandal(me):
            dice = random.Random(seed + me)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                with socket.socket() as s:
                    s.settimeout(2)
                    with contextlib.suppress(OSError):
                        s.connect(("127.0.0.1", port))
                        s.sendall(GREETING[:dice.randrange(65)] if dice.random() < 0.5 else GREETING
                                  + b"\x04\x1a\x05READY\x0bSocket-Type\x00\x00\x00\x04PUSH"
                                  + b"\x00\x05evil!"[:dice.randrange(8)] * dice.randrange(5))
                        if dice.random() < 0.7:
                            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1,
                                                                                          0))
                time.sleep(dice.random() * 0.005)

        child = subprocess.Popen([sys.executable, __file__, "--pour", str(at)])
        gang.start(good)
        gang.start(drink)
        for me in range(3):
            gang.start(vandal, me)
        try:
            gang.watch(seconds * 0.6 + rng.random() * 0.2, "dying")
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait()
        gang.watch(seconds * 0.4, "dying")
        context.close(0)
        gang.join()
    return gang.steps


def pour(url):
    push = mqcore.Push(connect=url)
    while True:
        push.send(b"from afar" * 100)


def waking(seed, seconds=1.0, kind="tcp"):
    """Threads poll sockets all the time, each with an eventfd that comes and goes; nobody may write
    to a descriptor that has become another's."""
    gang = Gang()
    with address(kind) as where, a_context(seed, linger=0) as context:
        pull = context.socket("pull")
        push = context.socket("push", connect=str(pull.bind(where)))
        wrong = []

        def send():
            while True:
                push.send(b"x")
                gang.steps += 1

        def look(me):
            while not pull.closed:
                mqcore.poll([pull], timeout=0.0005)
                with contextlib.suppress(mqcore.RecvTimeout):
                    pull.recv_many(1000, timeout=0)

        def canary():
            while not pull.closed:
                read, write = os.pipe()
                mine = os.memfd_create("canary")
                select.select([read], [], [], 0.0005)
                if os.fstat(mine).st_size or select.select([read], [], [], 0)[0]:
                    wrong.append(os.pread(mine, 100, 0))
                for fd in (mine, read, write):
                    os.close(fd)

        gang.start(send)
        for me in range(4):
            gang.start(look, me)
        gang.start(canary)
        gang.watch(seconds, "waking")
        context.close(0)
        gang.join()
        if wrong:
            raise AssertionError(f"somebody else's descriptor was written: {wrong}")
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
