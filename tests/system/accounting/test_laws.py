"""The laws of accounting after every step of random programs, over every transport; what close()
reports; two contexts in one process.

    per peer    offered == written + queued_out + dropped_out      read == delivered + queued_in +
    dropped_in per socket  sent == sum(offered) + waiting + dropped           (one-to-one patterns)
"""

import socket
import threading
import time
from contextlib import contextmanager

import pytest
from child import Child
from rawzmtp import RawListener, RawPeer
from waiting import until

import mqcore as mq

LIMIT = 60
FAST = {"reconnect": 0.01, "reconnect_max": 0.05}
ONE_TO_ONE = ("push", "dealer", "pair")
transports = pytest.mark.parametrize("kind", ["inproc", "tcp", "ipc", "shm"])


@pytest.fixture
def where(tmp_path):
    count = iter(range(1000))

    def make(kind):
        return {"inproc": f"inproc://s{next(count)}", "tcp": "tcp://127.0.0.1:0",
                "ipc": f"ipc://{tmp_path}/s{next(count)}",
                "shm": f"shm://{tmp_path}/s{next(count)}"}[kind]
    return make


def check(s):
    """The laws at this moment, from one snapshot."""
    stats = s.stats()
    for peer, p in stats.peers.items():
        out, inn = sum(p.dropped_out.values()), sum(p.dropped_in.values())
        numbers = (p.offered, p.written, p.queued_out, p.read, p.delivered, p.queued_in, out, inn)
        assert min(numbers) >= 0, (peer, p)
        assert p.offered == p.written + p.queued_out + out, (peer, p)
        assert p.read == p.delivered + p.queued_in + inn, (peer, p)
    if s.pattern in ONE_TO_ONE:
        offered = sum(p.offered for p in stats.peers.values())
        assert stats.sent == offered + stats.waiting + sum(stats.dropped.values()), stats
    assert stats.received <= sum(p.delivered for p in stats.peers.values()) or s.pattern == "xpub"
    return stats


def read_to_the_end(s, n):
    got = []
    while len(got) < n:
        got.extend(s.recv_many(timeout=LIMIT))
    return got


@transports
@pytest.mark.parametrize("out,inn", [("push", "pull"), ("dealer", "dealer"), ("pair", "pair")])
def test_written_at_one_side_is_read_at_the_other(ctx, where, kind, out, inn, rng):
    """Bursts in every form of send, a reader that stops and goes on, small marks."""
    r = ctx.socket(inn, recv_hwm=50)
    s = ctx.socket(out, connect=r.bind(where(kind)).url, send_hwm=50)
    s.wait_peers(1, LIMIT)
    sent = received = 0
    for _ in range(150):
        what = rng.randrange(5)
        try:
            if what == 0:
                s.send(b"x" * rng.choice([0, 1, 56, 57, 5000, 100_000]), timeout=0)
                sent += 1
            elif what == 1:
                sent += s.send_many([b"m%d" % k for k in range(rng.randrange(80))], timeout=0)
            elif what == 2:
                s.send_parts([b"a", b"", b"c" * rng.randrange(300)], timeout=0)
                sent += 1
            elif what == 3:
                received += len(r.recv_many(rng.randrange(1, 100), timeout=0))
            else:
                r.recv_parts(timeout=0)
                received += 1
        except mq.SendTimeout as error:
            sent += error.sent
        except mq.RecvTimeout:
            pass
        assert check(s).sent == sent
        assert check(r).received == received
    read_to_the_end(r, sent - received)
    [mine] = until(lambda: [p for p in s.stats().peers.values() if p.written == sent])
    [theirs] = r.stats().peers.values()
    assert mine.written == theirs.read == theirs.delivered == sent and not mine.dropped
    report = s.close(LIMIT)
    assert report and report.written == sent and not report.dropped


@transports
def test_random_programs_of_peers_that_come_and_go(ctx, where, kind, rng):
    """PUSH to a changing set of PULLs, some slow, some closed with messages unread: everything that
    was sent is read once, waits, or is a counted loss."""
    url = where(kind)
    s = ctx.socket("push", send_hwm=20, linger=0)
    url = s.bind(url).url
    pulls, seen, unread = [], [], 0
    sent = 0
    for _ in range(120):
        what = rng.choice(["come", "go", "send", "send", "send", "burst", "read", "read", "choice"])
        if what == "choice":
            s.strategy = rng.choice(["priority", "round_robin", "least_loaded", "two_choices"])
        elif what == "come" and len(pulls) < 4:
            pulls.append(ctx.socket("pull", connect=url, recv_hwm=5))
        elif what == "go" and pulls:
            gone = pulls.pop(rng.randrange(len(pulls)))
            report = gone.close(0)
            for p in report.peers.values():
                assert p.read == p.delivered + sum(p.dropped_in.values())
                unread += sum(p.dropped_in.values())
        elif what in ("send", "burst"):
            for _ in range(1 if what == "send" else 30):
                try:
                    s.send(b"%d" % sent, timeout=0)
                    sent += 1
                except mq.SendTimeout:
                    break
        elif what == "read" and pulls:
            try:
                seen += rng.choice(pulls).recv_many(rng.randrange(1, 30), timeout=0)
            except mq.RecvTimeout:
                pass
        check(s)
        for p in pulls:
            check(p)
    if not pulls:
        pulls.append(ctx.socket("pull", connect=url))
    for p in pulls:
        p.recv_hwm = None

    def quiet():
        for p in pulls:
            try:
                seen.extend(p.recv_many(timeout=0))
            except mq.RecvTimeout:
                pass
        stats = check(s)
        return stats.waiting == 0 and all(p.queued_out == 0 for p in stats.peers.values())
    until(quiet)
    until(lambda: quiet() and sum(p.stats().received for p in pulls) >= 0 and stable(seen, quiet))
    assert len(set(seen)) == len(seen)
    lost = sum(check(s).total.dropped_out.values())
    assert len(seen) + unread + lost <= sent
    if kind == "inproc":            # there is no kernel in which some could have been lost
        assert len(seen) + unread + lost == sent


def stable(seen, quiet):
    before = len(seen)
    time.sleep(0.02)
    quiet()
    return len(seen) == before


@transports
def test_requests(ctx, where, kind, rng):
    """REQ and REP, DEALER and ROUTER: some abandoned, some answered late or not at all."""
    rep = ctx.socket("router")
    url = rep.bind(where(kind)).url
    req = ctx.socket("req", connect=url, correlate=True)
    dealer = ctx.socket("dealer", connect=url)
    for s in (req, dealer):
        s.wait_peers(1, LIMIT)
    held = []
    for n in range(150):
        what = rng.randrange(6)
        try:
            if what == 0:
                req.send(b"%d" % n, timeout=0)
            elif what == 1:
                req.recv(timeout=0)
            elif what == 2:
                dealer.send_parts([b"", b"%d" % n], timeout=0)
            elif what == 3:
                dealer.recv(timeout=0)
            elif what == 4:
                held.append(rep.recv_msg(timeout=0))
            elif held:
                held.pop(rng.randrange(len(held))).reply(b"answer")
        except (mq.Timeout, mq.StateError):
            pass
        for s in (req, dealer, rep):
            check(s)


@transports
@pytest.mark.parametrize("pattern", ["pub", "xpub"])
def test_publishers(ctx, where, kind, pattern, rng):
    """Subscriptions change, subscribers come, go and do not read: each publication is offered to
    exactly those that wanted it, and is written, queued or a counted drop for each; else it is
    unmatched."""
    s = ctx.socket(pattern, send_hwm=30, linger=0)
    url = s.bind(where(kind)).url
    subs, sent = [], 0
    for _ in range(120):
        what = rng.choice(["come", "go", "topic", "send", "send", "read"])
        if what == "come" and len(subs) < 4:
            subs.append(ctx.socket("sub", topics=["a"], connect=url, recv_hwm=10))
        elif what == "go" and subs:
            subs.pop(rng.randrange(len(subs))).close(0)
        elif what == "topic" and subs:
            sub, topic = rng.choice(subs), rng.choice([b"a", b"b", b""])
            sub.unsubscribe(topic) if topic in sub.topics else sub.subscribe(topic)
        elif what == "send":
            for _ in range(rng.randrange(60)):
                s.send(rng.choice([b"a", b"b", b"c"]) + b"x" * rng.choice([0, 1000]))
                sent += 1
        elif what == "read" and subs:
            try:
                rng.choice(subs).recv_many(timeout=0)
            except (mq.RecvTimeout, mq.NotSubscribed):
                pass
        assert check(s).sent == sent
        for sub in subs:
            check(sub)


def test_the_laws_hold_while_others_work(ctx):
    """The accounts are looked at all the time while two threads send and receive."""
    r = ctx.socket("pull", bind="tcp://127.0.0.1:0")
    s = ctx.socket("push", connect=r.endpoints[0].url)
    n = 20_000

    def send():
        for _ in range(n):
            s.send(b"x" * 100)
    threads = [threading.Thread(target=send), threading.Thread(target=read_to_the_end, args=(r, n))]
    for t in threads:
        t.start()
    looked = 0
    while any(t.is_alive() for t in threads):
        check(s)
        check(r)
        looked += 1
    for t in threads:
        t.join()
    assert looked and check(s).sent == n == check(r).received


def test_two_connects_of_which_one_is_dead(ctx):
    """Nothing is queued for it, nothing lost, nothing waits."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        dead = f"tcp://127.0.0.1:{gone.getsockname()[1]}"
    r = ctx.socket("pull", bind="tcp://127.0.0.1:0")
    s = ctx.socket("push", connect=[dead, r.endpoints[0].url], send_timeout=LIMIT)
    for n in range(100):
        s.send(b"%d" % n)
    assert read_to_the_end(r, 100) == [b"%d" % n for n in range(100)]
    assert check(s).waiting == 0
    assert s.close(1).written == 100


def test_two_connects_of_which_one_never_answers(ctx):
    """It accepts and then says nothing: it is no peer."""
    with RawListener() as mute:
        r = ctx.socket("pull", bind="tcp://127.0.0.1:0")
        s = ctx.socket("push", connect=[mute.url, r.endpoints[0].url], send_timeout=LIMIT)
        with mute.accept():
            for n in range(100):
                s.send(b"%d" % n)
            assert read_to_the_end(r, 100) == [b"%d" % n for n in range(100)]


def test_what_is_queued_for_a_dead_peer_goes_to_another(ctx):
    s = ctx.socket("push", bind="tcp://127.0.0.1:0", send_hwm=1000, send_buffer=65536)
    slow = RawPeer.connect(s.endpoints[0].url)
    slow.shake("PULL")
    s.wait_peers(1, LIMIT)
    for n in range(300):
        s.send(b"%d " % n + b"x" * 50_000)
    r = ctx.socket("pull", connect=s.endpoints[0].url)
    s.wait_peers(2, LIMIT)
    slow.reset()
    until(lambda: s.stats().total.offered)
    first = check(s).total
    got = read_to_the_end(r, 300 - first.offered)
    numbers = [int(m.split()[0]) for m in got]
    assert numbers == list(range(first.offered, 300))
    assert first.offered == first.written + sum(first.dropped_out.values())
    assert set(first.dropped_out) <= {"half_written"} and sum(first.dropped_out.values()) <= 1


def test_a_killed_reader(ctx):
    """kill -9 while messages flow: the laws hold, the other reader has the rest."""
    s = ctx.socket("push", bind="tcp://127.0.0.1:0", send_timeout=LIMIT)
    url = s.endpoints[0].url
    with Child("mqcore", "pull", connect=url) as child:
        s.wait_peers(1, LIMIT)
        for n in range(200):
            s.send(b"%d" % n + b"x" * 10_000)
            check(s)
        child.kill()
    until(lambda: not s.peers())
    r = ctx.socket("pull", connect=url)
    for n in range(100):
        s.send(b"after")
        check(s)
    first = check(s).total
    assert len(read_to_the_end(r, 300 - first.offered)) == 300 - first.offered


# -- close -----------------------------------------------------------------------------------------

@contextmanager
def full(ctx):
    """A PUSH whose peer reads nothing, and whose own linger would never end."""
    s = ctx.socket("push", bind="tcp://127.0.0.1:0", send_buffer=65536, linger=None)
    with RawPeer.connect(s.endpoints[0].url) as peer:
        peer.shake("PULL")
        s.wait_peers(1, LIMIT)
        for _ in range(300):
            s.send(b"x" * 50_000)
        yield s, peer


def honest(report, n=300):
    assert report.written + report.undelivered == n and not report
    assert sum(report.dropped.values()) == report.undelivered > 0


def test_linger_0(ctx):
    with full(ctx) as (s, _):
        report = s.close(0)
        honest(report)
        assert s.close() is report


def test_linger_expires(ctx):
    with full(ctx) as (s, _):
        report = s.close(0.2)
        honest(report)
        assert report.elapsed >= 0.2


def test_linger_is_enough(ctx):
    with full(ctx) as (s, peer):
        got = []
        reader = threading.Thread(target=lambda: got.extend(peer.parts() for _ in range(300)))
        reader.start()
        report = s.close(LIMIT)
        reader.join()
        assert report and report.written == 300 == len(got) and report.unacked == 0


def test_linger_for_a_peer_that_is_not_there_yet(ctx, where):
    url = where("ipc")
    s = ctx.socket("push", connect=url, **FAST)
    s.send(b"patient")
    reports = []
    t = threading.Thread(target=lambda: reports.append(s.close(LIMIT)))
    t.start()
    r = ctx.socket("pull", bind=url)
    assert r.recv(timeout=LIMIT) == b"patient"
    t.join()
    assert reports[0] and reports[0].written == 1


def test_nobody_came(ctx, where):
    s = ctx.socket("push", connect=where("ipc"))
    for _ in range(7):
        s.send(b"x")
    report = s.close(0.05)
    assert not report and report.undelivered == 7 and report.dropped == {"closed": 7}


def test_a_line_that_never_empties_does_not_grow(ctx, where):
    """Messages that wait in the socket leave at the pace of a slow reader, for long."""
    import resource
    r = ctx.socket("pull", bind=where("inproc"), recv_hwm=1)
    s = ctx.socket("push", connect=r.endpoints[0].url, send_hwm=1)
    s.connect("inproc://nobody")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(50_000):
        try:
            s.send(b"x", timeout=0)
        except mq.SendTimeout:
            r.recv(timeout=0)
    check(s)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 << 10


# -- contexts --------------------------------------------------------------------------------------

def test_two_contexts_with_the_same_names(ctx):
    """One is closed under load; the other does not notice."""
    with mq.Context(linger=0) as one, mq.Context(linger=0) as two:
        sockets = []
        counts = {one: 0, two: 0}
        ended = []

        def send(s):
            try:
                while True:
                    s.send(b"x" * 50)
            except (mq.SocketClosed, mq.ContextClosed):
                ended.append(s)

        def receive(c, r):
            for _ in r:
                counts[c] += 1
            ended.append(r)

        threads = []
        for c in (one, two):
            r = c.socket("pull", bind="inproc://same")
            s = c.socket("push", connect="inproc://same")
            sockets += [r, s]
            threads += [threading.Thread(target=send, args=(s,)),
                        threading.Thread(target=receive, args=(c, r))]
        for t in threads:
            t.start()
        until(lambda: counts[one] > 1000 and counts[two] > 1000)
        one.close(0)
        until(lambda: len(ended) == 2)
        seen = counts[two]
        until(lambda: counts[two] > seen + 1000)
        assert len(ended) == 2 and len(sockets[2].peers()) == 1
        two.close(0)
        for t in threads:
            t.join(LIMIT)
        assert len(ended) == 4
        for s in sockets:
            assert s.closed


@pytest.mark.parametrize("kind", ["tcp", "ipc", "shm"])
def test_what_came_whole_in_front_of_a_message_that_is_too_large_counts_as_read(kind, where):
    with mq.Context() as ctx, ctx.socket("pull", max_message_size=100) as pull:
        url = pull.bind(where(kind)).url
        with ctx.socket("push", connect=url, reconnect=None) as push:
            push.wait_peers(1, LIMIT)
            push.send_many([*([b"%d" % i for i in range(10)]), [b"x" * 60, b"y" * 60]])
            until(lambda: not pull.peers())
            check(pull)
            assert read_to_the_end(pull, 10) == [b"%d" % i for i in range(10)]
            total = check(pull).total
            assert (total.read, total.delivered, total.queued_in) == (10, 10, 0)
