"""Stress of links whose ends prove who they are. A kind of tests/support/turmoil.py."""

import contextlib
import itertools
import random
import time

from gang import Gang, a_context, address
from rawzmtp import GREETING, dial
from second_wire import mortals

import mqcore
from mqcore import security


def demands(allow):
    """Of each mechanism that there is: the server's, a client's, a stranger's."""
    yield (security.Plain(allow=allow), security.Plain("ann", "pw"), security.Plain("eve", "pw"))
    with contextlib.suppress(mqcore.NotSupported):
        server, client, stranger = (security.curve_keypair() for _ in range(3))
        known = {client.public: "ann", stranger.public: "eve"}
        yield (security.Curve(secret_key=server.secret,
                            allow=lambda asking: allow(asking, known[asking.key])),
               *(security.Curve(server.public, secret_key=keys.secret)
                 for keys in (client, stranger)))


def sealed(seed, seconds=1.0, kind="tcp", threads=3):
    """Contexts of a REQ that is connected over PLAIN and over CURVE, whose links are cut and
    heartbeats frequent, ask a REP: each request is answered, once. Beside them peers come and go
    that are refused, leave while somebody thinks about them, or say half of a handshake."""
    gang = Gang()
    dice = random.Random(seed)

    def allow(asking, name=None):
        time.sleep(dice.choice((0, 0, 0.001, 0.005)))
        return (name or asking.username) == "ann"

    with contextlib.ExitStack() as stack:
        context = stack.enter_context(a_context(seed, linger=0, heartbeat=0.005))
        rep = context.socket("rep")
        req = context.socket("req", resend=0.05, reconnect=0.001, reconnect_max=0.001)
        ways = []
        for ours, theirs, strangers in demands(allow):
            at = str(rep.bind(stack.enter_context(address(kind)), security=ours))
            ways.append((at, theirs))
            req.connect(at, security=theirs)
            for security in (theirs, strangers):
                mortals(gang, seed, lambda _, at=at, security=security: context.socket(
                    "dealer", connect=at, security=security),
                    lambda sock, _: (sock.send_parts([b"", b"x"], timeout=0.01),
                                     sock.recv(timeout=0.01)))

        def answer():
            with rep.new_context() as line:
                while True:
                    line.send(line.recv())

        def ask(me):
            rng = random.Random(seed + me)
            with req.new_context() as line:
                for n in itertools.count():
                    question = b"%d.%d" % (me, n) + b"x" * rng.choice((0, 30, 5000, 300_000))
                    assert line.request(question) == question
                    gang.steps += 1

        def cut():
            rng = random.Random(seed)
            while True:
                time.sleep(rng.random() * 0.02)
                at, security = rng.choice(ways)
                for endpoint in req.endpoints:
                    if str(endpoint) == at:
                        req.disconnect(endpoint)
                req.connect(at, security=security)

        def vandal():
            rng = random.Random(seed)
            while not req.closed:
                with contextlib.suppress(OSError), dial(rng.choice(ways)[0]) as raw:
                    raw.sendall(GREETING[:12] + rng.choice((b"PLAIN", b"CURVE")).ljust(20, b"\0")
                                + GREETING[32:] + b"\4\xc8\5HELLO" + rng.randbytes(194))
                time.sleep(rng.random() * 0.002)

        for _ in range(2):
            gang.start(answer)
        for me in range(threads):
            gang.start(ask, me)
        gang.start(cut)
        gang.watch(seconds * 0.2, "sealed, before the vandal", enough=50)
        gang.start(vandal)
        gang.watch(seconds * 0.8, "sealed", enough=50)
        context.close(0)
        gang.join()
    return gang.steps
