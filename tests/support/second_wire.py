"""Stress of what came with the second wire: links of either, contexts, alarms, surveys, buses,
strategies that change. Kinds of tests/support/turmoil.py."""

import asyncio
import contextlib
import itertools
import random
import time

from gang import Gang, a_context, address

import mqcore
from mqcore.spi.python.strategy import Strategy


class Last(Strategy):
    """The last of those that may have it."""

    abi = 1

    def choose(self, peers):
        return len(peers) - 1


STRATEGIES = ("priority", "round_robin", "least_loaded", "two_choices", f"{__name__}:Last")


def over(url, wire):
    """The address, spoken to so; within the process there is no wire."""
    return url if url.startswith("inproc:") else f"{url}?wire={wire}"


def mortals(gang, seed, make, serve):
    """A thread in which one peer after the other comes, serves a little and is gone."""
    def run():
        rng = random.Random(seed)
        while True:
            with make(rng.choice(("sp", "zmtp"))) as sock:
                for _ in range(rng.choice((0, 1, 5))):
                    try:
                        serve(sock, rng)
                    except (mqcore.Timeout, mqcore.NoSuchPeer):
                        break             # nobody asks, or who asked has left
                sock.close(0)
            time.sleep(rng.random() * 0.002)

    gang.start(run)


def wires(seed, seconds=1.0, kind="tcp", threads=3):
    """One REQ asks over both wires, connecting and listening, while providers die with what they
    have been asked, and strategies change: each request is answered in the end, once."""
    gang = Gang()
    with address(kind) as one, address(kind) as two, a_context(seed, linger=0) as context:
        stays = context.socket("rep")
        at = str(stays.bind(one))
        req = context.socket("req", resend=0.02, reconnect=0.001,
                             connect=[over(at, "sp"), over(at, "zmtp")][:1 + (kind != "inproc")])
        there = str(req.bind(two))

        def provide():
            with stays.new_context() as line:
                while True:
                    line.send(line.recv())

        def serve(rep, rng):
            request = rep.recv_msg(timeout=0.005)
            if rng.random() < 0.7:
                request.reply(bytes(request))

        def switch():
            rng = random.Random(seed)
            while True:
                req.strategy = rng.choice(STRATEGIES)
                req.immediate = rng.random() < 0.5
                stays.max_hops = rng.choice((8, 9))
                time.sleep(rng.random() * 0.003)

        def ask(me):
            rng = random.Random(seed + me)
            for start in itertools.count(0, 10):
                with req.new_context() as line:
                    for n in range(start, start + 10):
                        question = b"%d.%d" % (me, n) + b"x" * rng.choice((0, 100, 20_000))
                        if line.request(question) != question:
                            raise AssertionError(f"another answer for {me}.{n}")
                        gang.steps += 1

        for _ in range(2):
            gang.start(provide)
        for n in range(2):
            mortals(gang, seed + n, lambda wire: context.socket("rep", connect=over(there, wire)),
                    serve)
        gang.start(switch)
        for me in range(threads):
            gang.start(ask, me)
        gang.watch(seconds, "wires")
        context.close(0)
        gang.join()
    return gang.steps


def surveys(seed, seconds=1.0, kind="tcp", threads=3, tasks=3):
    """Contexts of one SURVEYOR survey in threads and on a loop; some surveys are left early, some
    end at once. Two respondents stay, others come and go: who stays answers each survey, and no
    survey gets another's answers."""
    gang = Gang()
    with address(kind) as where, a_context(seed, linger=0) as context:
        ask = context.socket("surveyor")
        at = str(ask.bind(where))
        stay = [context.socket("respondent", connect=at) for _ in range(2)]
        ask.wait_peers(2)

        def respond(sock):
            with sock.new_context() as line:
                while True:
                    line.send(line.recv())

        def serve(sock, rng):
            message = sock.recv_msg(timeout=0.005)
            if rng.random() < 0.7:
                message.reply(bytes(message))

        def asked(rng, me, n):
            if rng.random() < 0.2:
                return b"brief", rng.choice((0, 0.001)), 1 << 30
            return b"%d.%d" % (me, n) + b"x" * rng.choice((0, 100, 20_000)), None, 2

        def thread(me):
            rng = random.Random(seed + me)
            for n in itertools.count():
                with ask.new_context() if me else contextlib.nullcontext(ask) as line:
                    question, deadline, most = asked(rng, me, n)
                    for answer in itertools.islice(line.survey(question, deadline=deadline), most):
                        assert answer == question
                        gang.steps += 1

        async def task(me):
            rng = random.Random(seed + me)
            for start in itertools.count(0, 5):
                with ask.new_context() as line:
                    for n in range(start, start + 5):
                        question, deadline, most = asked(rng, me, n)
                        answers = line.asurvey(question, deadline=deadline)
                        async for answer in answers:
                            assert answer == question
                            gang.steps += 1
                            most -= 1
                            if not most:
                                break
                        answers.close()

        async def main():
            await asyncio.gather(*(task(threads + i) for i in range(tasks)))

        for sock in stay:
            gang.start(respond, sock)
            gang.start(respond, sock)
        mortals(gang, seed, lambda _: context.socket("respondent", connect=at), serve)
        for me in range(threads):
            gang.start(thread, me)
        gang.start(asyncio.run, main())
        gang.watch(seconds, "surveys")
        context.close(0)
        gang.join()
    return gang.steps


def buses(seed, seconds=1.0, kind="tcp", leaves=3):
    """A BUS, a PAIR1 with many peers and a PUB whose subscribers have contexts, each with peers of
    both wires that stay and others that come and go. Who stays answers each message; what is
    published comes in order."""
    gang = Gang()
    with contextlib.ExitStack() as stack:
        context = stack.enter_context(a_context(seed, linger=0))
        bus, pair, pub = (context.socket("bus"), context.socket("pair1", poly=True),
                          context.socket("pub"))
        at, there, news = (str(sock.bind(stack.enter_context(address(kind))))
                           for sock in (bus, pair, pub))
        rest = [context.socket("bus", connect=at) for _ in range(leaves)]
        bus.wait_peers(leaves)

        def lead():
            for n in itertools.count():
                bus.send(b"%d" % n)
                pub.send_many([b"a%d" % n, b"b%d" % n])
                missing = set(range(leaves))
                while missing:
                    who, number = bus.recv().split(b".")
                    if who != b"m" and int(number) == n:
                        missing.remove(int(who))
                gang.steps += 1

        def follow(me, sock):
            while True:
                sock.send(b"%d.%s" % (me, sock.recv()))

        def mirror():
            while True:
                message = pair.recv_msg()
                with contextlib.suppress(mqcore.NoSuchPeer):
                    message.reply(bytes(message))

        def ask(me):
            with context.socket("pair1", connect=there) as sock:
                for n in itertools.count():
                    sock.send(b"%d.%d" % (me, n))
                    assert sock.recv() == b"%d.%d" % (me, n)
                    gang.steps += 1

        def hear(sub, me):
            rng = random.Random(seed + me)
            while True:
                with sub.new_context() as line:
                    topic, last = rng.choice((b"a", b"b")), -1
                    line.subscribe(topic)
                    for _ in range(rng.choice((1, 20))):
                        data = line.recv()
                        assert data[:1] == topic and int(data[1:]) > last
                        last = int(data[1:])

        gang.start(lead)
        for me, sock in enumerate(rest):
            gang.start(follow, me, sock)
        mortals(gang, seed, lambda _: context.socket("bus", connect=at),
                lambda sock, _: (sock.recv(timeout=0.01), sock.send(b"m.0")))
        gang.start(mirror)
        for me in range(2):
            gang.start(ask, me)
        mortals(gang, seed + 1, lambda _: context.socket("pair1", connect=there),
                lambda sock, _: (sock.send(b"x"), sock.recv(timeout=0.01)))
        for wire in ("sp", "zmtp"):
            sub = context.socket("sub", connect=over(news, wire))
            for me in range(2):
                gang.start(hear, sub, me)
        mortals(gang, seed + 2, lambda wire: context.socket("sub", connect=over(news, wire)),
                lambda sock, _: (sock.subscribe(b""), sock.recv(timeout=0.01)))
        gang.watch(seconds, "buses")
        context.close(0)
        gang.join()
    return gang.steps


def held(seed, seconds=1.0, kind="tcp"):
    """A PULL's peers are held until a gatekeeper has looked at each: some are admitted, some sent
    away, some have left by then. Nobody is heard who was not admitted."""
    gang = Gang()
    with address(kind) as where, a_context(seed, linger=0) as context:
        pull = context.socket("pull")
        pull._set("held", True)
        events = pull.events(backlog=100_000)
        at = str(pull.bind(where))
        stays = context.socket("push", connect=at, reconnect=0.001, reconnect_max=0.001)
        admitted = set()

        def keep():
            rng = random.Random(seed)
            for event in events:
                if event.kind != "Connected":
                    continue
                peer = event.peer.id
                pull._links.settle_peer(peer)       # before, nobody can admit it or turn it away
                if not admitted or rng.random() < 0.5:
                    admitted.add(peer)
                    pull._admit(peer)
                else:
                    pull._end_pipe(peer)

        def hear():
            while True:
                assert pull.recv_msg().peer.id in admitted
                gang.steps += 1

        def tell():
            while True:
                stays.send(b"here")

        gang.start(keep)
        gang.start(hear)
        gang.start(tell)
        gang.begin("held")
        for n in range(2):
            mortals(gang, seed + n, lambda wire: context.socket("push", connect=over(at, wire)),
                    lambda sock, rng: sock.send(b"x" * rng.choice((1, 100_000)), timeout=0.01))
        gang.watch(seconds, "held")
        context.close(0)
        gang.join()
    return gang.steps
