"""Priorities over live links: the best live peer gets all, at once another when it dies or falls
silent, and it again when it returns."""

import contextlib

import pytest
from child import Child

import mqcore as mq
from mqcore.spi.python.strategy import Strategy
from mqcore.testing import installed, until
from mqcore.testing.traffic import laws

LIMIT = 60
SENDERS = {"push": "pull", "dealer": "router", "req": "rep"}
WIRES = [("inproc", None), ("tcp", None), ("tcp", "sp")]
QUICK = {"reconnect": 0.02, "reconnect_max": 0.05}


def moved(events):
    """The next event of a fail-over or fail-back."""
    while True:
        event = events.get(LIMIT)
        if event.kind in ("FailedOver", "FailedBack"):
            return event


def drained(sock):
    """How many messages were there."""
    n = 0
    while True:
        try:
            sock.recv_parts(timeout=0)
        except mq.RecvTimeout:
            return n
        n += 1
        if sock.pattern == "rep":       # the next one only after the answer
            return n


class Ladder:
    """A sender with a peer at each priority, and who of them gets a message."""

    def __init__(self, ctx, transport, pattern, wire=None, **options):
        self.ctx, self.pattern = ctx, pattern
        self.far = SENDERS[pattern]
        if wire:
            options["wire"] = wire
        self.sock = ctx.socket(pattern, **QUICK, **options)
        self.events = self.sock.events()
        self.peers, self.urls = {}, {}
        self.first = "inproc://ladder-{}" if transport == "inproc" else "tcp://127.0.0.1:0"

    def peer(self, prio, how="keyword"):
        """A new peer there, at the address that it had before."""
        far = self.ctx.socket(self.far, bind=self.urls.get(prio, self.first.format(prio)))
        self.peers[prio] = far
        if prio not in self.urls:
            self.urls[prio] = url = far.endpoints[0].url
            if how == "keyword":
                self.sock.connect(url, prio=prio)
            else:
                self.sock.connect(f"{url}?prio={prio}")
        self.sock.wait_peers(len(self.peers), LIMIT)
        return far

    def leave(self, prio):
        self.peers.pop(prio).close(0)
        until(lambda: len(self.sock.peers()) == len(self.peers), LIMIT)

    def taker(self):
        """The priority of who gets the next message (a request is answered)."""
        if self.pattern == "dealer":
            self.sock.send_parts([b"", b"x"])
        else:
            self.sock.send(b"x")
        found = []
        until(lambda: found.extend(
            prio for prio, far in self.peers.items() if drained(far)) or found, LIMIT)
        if self.pattern == "req":
            self.peers[found[0]].send(b"answer")
            assert self.sock.recv(timeout=LIMIT) == b"answer"
        return found[0]


@pytest.mark.parametrize(("transport", "wire"), WIRES)
@pytest.mark.parametrize("pattern", SENDERS)
def test_over_and_back(ctx, transport, wire, pattern):
    ladder = Ladder(ctx, transport, pattern, wire)
    for prio, how in ((3, "keyword"), (2, "query"), (1, "query")):
        ladder.peer(prio, how)
    assert [moved(ladder.events).kind for _ in range(2)] == ["FailedBack"] * 2
    assert {ladder.taker() for _ in range(4)} == {1}
    assert {peer.prio for peer in ladder.sock.peers()} == {1, 2, 3}
    for prio in (1, 2):
        ladder.leave(prio)
        event = moved(ladder.events)
        here, there = ladder.urls[prio], ladder.urls[prio + 1]
        assert event.kind == "FailedOver" and event.endpoint == here
        assert event.peer.prio == prio
        assert event.reason == (
            f"from priority {prio} ({here}) to {prio + 1} ({there}): it disconnected")
        assert ladder.taker() == prio + 1
    ladder.peer(1)
    event = moved(ladder.events)
    assert event.kind == "FailedBack" and event.endpoint == ladder.urls[1]
    assert event.reason == (f"from priority 3 ({ladder.urls[3]}) to 1 ({ladder.urls[1]}): "
                            "it is connected")
    assert {ladder.taker() for _ in range(4)} == {1}
    laws(ladder.sock)


@pytest.mark.parametrize(("transport", "wire"), WIRES[1:])
def test_what_was_queued_for_the_dead_goes_to_another(ctx, transport, wire):
    options = {"wire": wire} if wire else {}
    push = ctx.socket("push", send_hwm=50_000, **QUICK, **options)
    # too small for what follows: most of it stays with us
    best = ctx.socket("pull", bind="tcp://127.0.0.1:0", recv_hwm=1, recv_buffer=4096)
    rest = ctx.socket("pull", bind="tcp://127.0.0.1:0")
    push.connect(best.endpoints[0].url, prio=1, send_buffer=4096)
    push.connect(rest.endpoints[0].url, prio=2)
    push.wait_peers(2, LIMIT)
    n, body = 2000, bytes(1000)
    for i in range(n):
        push.send(b"%05d" % i + body, timeout=LIMIT)
    first, = (p for p in push.stats().peers if p.prio == 1)
    written = push.stats().peers[first].written
    assert written < n and push.stats().peers[first].offered == n
    best.close(0)
    numbers = []
    while not numbers or numbers[-1] != n - 1:
        numbers += [int(m[:5]) for m in rest.recv_many(n, timeout=LIMIT)]
    assert numbers == sorted(numbers)                   # in order, none twice
    stats = laws(push)
    lost = sum(stats.peers[first].dropped_out.values())
    assert stats.peers[first].written + lost + len(numbers) == n and lost <= 1


def test_full_for_a_moment_is_no_fail_over(ctx):
    push = ctx.socket("push", send_hwm=1)
    pulls = [ctx.socket("pull", bind=f"inproc://full-{i}", recv_hwm=1) for i in range(2)]
    for prio, pull in enumerate(pulls, 1):
        push.connect(pull.endpoints[0].url, prio=prio)
    push.wait_peers(2, LIMIT)
    with push.events() as events:
        got = [0, 0]
        for _ in range(20):
            while True:
                try:
                    push.send(b"x", timeout=0)
                except mq.SendTimeout as error:
                    assert error.why == "full"
                    break
            for i, pull in enumerate(pulls):
                got[i] += drained(pull)
        assert min(got) >= 20           # what the first could not take went to the second
        pulls[0].close(0)
        assert moved(events).kind == "FailedOver"       # the first event of the kind


@pytest.mark.parametrize("pattern", ["push", "req"])
def test_a_peer_that_stops_answering_fails_over(ctx, pattern):
    """SIGSTOP: its kernel still answers, it does not. Heartbeats find out."""
    far = SENDERS[pattern]
    sock = ctx.socket(pattern, heartbeat=0.1, heartbeat_timeout=0.5, **QUICK)
    rest = ctx.socket(far, bind="tcp://127.0.0.1:0")
    with Child("mqcore", far, bind="tcp://127.0.0.1:0") as child, sock.events() as events:
        sock.connect(child.url, prio=1)
        sock.connect(rest.endpoints[0].url, prio=2)
        sock.wait_peers(2, LIMIT)
        sock.send(b"1")
        assert child.recv() == [b"1"]
        if pattern == "req":
            child.send(b"answer")
            assert sock.recv(timeout=LIMIT) == b"answer"
        child.stop()
        event = next(e for e in iter(lambda: moved(events), None) if e.kind == "FailedOver")
        assert event.endpoint == child.url and event.peer.prio == 1
        sock.send(b"2")
        assert rest.recv(timeout=LIMIT) == b"2"
        if pattern == "req":
            rest.send(b"answer")
            assert sock.recv(timeout=LIMIT) == b"answer"
        child.resume()
        assert moved(events).kind == "FailedBack"
        sock.send(b"3")
        assert child.recv() == [b"3"]


def test_a_request_that_is_sent_again_fails_over(ctx):
    """The provider's link is there, its process answers PINGs, the answer does not come."""
    req = ctx.socket("req", resend=0.2)
    slow = ctx.socket("rep", bind="tcp://127.0.0.1:0")
    spare = ctx.socket("rep", bind="tcp://127.0.0.1:0")
    req.connect(slow.endpoints[0].url, prio=1)
    req.connect(spare.endpoints[0].url, prio=2)
    req.wait_peers(2, LIMIT)
    with req.events() as events:
        req.send(b"ask")
        assert slow.recv(timeout=LIMIT) == b"ask"
        assert spare.recv(timeout=LIMIT) == b"ask"      # sent again, to the other
        event = moved(events)
        assert event.kind == "FailedOver" and event.endpoint == slow.endpoints[0].url
        assert event.reason.endswith("it is unresponsive") and "to 2" in event.reason
        spare.send(b"spare's")
        assert req.recv(timeout=LIMIT) == b"spare's"
        slow.send(b"slow's")                            # late, but a sign of life
        best, = (peer for peer in req.peers() if peer.prio == 1)
        until(lambda: req.stats().peers[best].read, LIMIT)
        req.send(b"again")
        while slow.recv(timeout=LIMIT) != b"again":     # asked once more, if the spare was slow too
            slow.send(b"late")
        while "it responds again" not in moved(events).reason:
            pass


def shares(sock, n):
    for _ in range(n):
        sock.send(b"x")
    return [p.offered for _, p in sorted(sock.stats().peers.items(), key=lambda kv: kv[0].id)]


class Odd(Strategy):
    """the peer whose prio is odd"""

    abi = 1
    name = "odd"

    def choose(self, peers):
        return next(i for i, peer in enumerate(peers) if peer.prio % 2)


@pytest.mark.parametrize("transport", ["inproc", "tcp"])
def test_strategies_live(ctx, transport):
    with installed("strategy", Odd):
        push = ctx.socket("push", strategy="round_robin")
        pulls = []
        for i in range(3):
            pulls.append(ctx.socket("pull", bind="tcp://127.0.0.1:0" if transport == "tcp" else
                                    f"inproc://s{i}"))
            push.connect(pulls[-1].endpoints[0].url, prio=2 + i)
            push.wait_peers(i + 1, LIMIT)
        assert shares(push, 30) == [10, 10, 10]
        push.strategy = "priority"
        assert shares(push, 30) == [40, 10, 10]
        push.strategy = "odd"
        assert shares(push, 30) == [40, 40, 10]
        push.strategy = "least_loaded"
        assert sum(shares(push, 30)) == 120
        push.strategy = "mqcore.protocols.routing.strategies:round_robin"
        assert sum(shares(push, 30)) == 150
        got = []
        until(lambda: got.append(sum(map(drained, pulls))) or sum(got) == 150, LIMIT)
        laws(push)
        push.close(0)


def test_requests_go_where_fewest_are_owed(ctx):
    req = ctx.socket("req", strategy="least_loaded", correlate=True)
    reps = [ctx.socket("rep", bind="tcp://127.0.0.1:0") for _ in range(2)]
    for rep in reps:
        req.connect(rep.endpoints[0].url)
    req.wait_peers(2, LIMIT)
    with contextlib.ExitStack() as stack:
        asking = [stack.enter_context(req.new_context()) for _ in range(5)]
        for context in asking[:2]:
            context.send(b"held")       # one each
        assert reps[0].recv(timeout=LIMIT) == b"held"
        reps[0].send(b"done")
        until(lambda: any(answered(context) for context in asking[:2]), LIMIT)
        for context in asking[2:]:      # the other still owes one
            context.send(b"next")
            assert reps[0].recv(timeout=LIMIT) == b"next"
            reps[0].send(b"done")
            assert context.recv(timeout=LIMIT) == b"done"


def answered(context):
    try:
        return context.recv(timeout=0) == b"done"
    except mq.RecvTimeout:
        return False


def test_a_failing_strategy_is_told_as_an_event(ctx):
    class Moody(Strategy):
        abi, name = 1, "moody"

        def choose(self, peers):
            return 1 // 0

    with installed("strategy", Moody):
        push = ctx.socket("push", strategy="moody")
        pulls = [ctx.socket("pull", bind=f"inproc://m{i}") for i in range(2)]
        for pull in pulls:
            push.connect(pull.endpoints[0].url)
        push.wait_peers(2, LIMIT)
        with push.events() as events:
            for _ in range(10):
                push.send(b"x")
            told = events.get(LIMIT)
            assert told.kind == "PatternFailed"
            assert "Moody.choose() raised ZeroDivisionError" in told.reason
            assert [len(pull.recv_many(100, timeout=LIMIT)) for pull in pulls] == [5, 5]
            push.strategy = "priority"
            assert [e for e in iter_now(events) if e.kind == "PatternFailed"] == []
        push.close(0)


def iter_now(events):
    while True:
        try:
            yield events.get(0)
        except mq.WaitTimeout:
            return
