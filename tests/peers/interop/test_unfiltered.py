"""A SUB filters the messages of publishers that do not, before they count: what it does not want
takes no place from what it wants."""

import pytest
from rawzmtp import RawPeer, frame1

from mqcore.testing import until

LIMIT = 20
MANY = 200


class Nng:
    """A Pub0 of nng."""

    def __init__(self, theirs, url):
        self.socket = theirs("Pub0", dial=url, send_buffer_size=MANY)
        assert self.socket.meets(LIMIT)

    def say(self, body):
        self.socket.send(body)


class Old:
    """A publisher of ZMTP 1.0, byte by byte."""

    def __init__(self, url):
        self.peer = RawPeer.connect(url)
        self.peer.say(frame1(b""))      # its identity; what it hears is not looked at

    def say(self, *parts):
        self.peer.say(b"".join(frame1(part, more) for part, more in zip(
            parts, [True] * (len(parts) - 1) + [False], strict=True)))


@pytest.fixture(params=["nng", "zmtp-1.0"])
def publisher(request, theirs):
    """publisher(url): a publisher that sends everything."""
    if request.param == "nng":
        yield lambda url: Nng(theirs, url)
        return
    made = []
    yield lambda url: made.append(Old(url)) or made[-1]
    for one in made:
        one.peer.close()


def read(sub, count):
    """So many messages have arrived."""
    until(lambda: sum(peer.read for peer in sub.stats().peers.values()) == count, LIMIT)


@pytest.mark.parametrize("contexts", [False, True])
def test_a_wanted_message_is_not_conflated_away(ctx, publisher, contexts):
    sub = ctx.socket("sub", bind="tcp://127.0.0.1:0", topics=[b"a"], conflate=True,
                     recv_timeout=LIMIT)
    taker = sub.new_context() if contexts else None
    if contexts:
        taker.subscribe(b"a")
    pub = publisher(sub.endpoints[0].url)
    sub.wait_peers(1, LIMIT)
    for body in (b"a0", b"a1", *[b"b"] * 20):
        pub.say(body)
    read(sub, 22)
    assert sub.recv() == b"a1"
    if contexts:
        assert taker.recv() == b"a1"
    stats, = sub.stats().peers.values()
    assert stats.read == 22 and stats.dropped_in["unsubscribed"] == 20
    # with contexts the older one may have been in their queues, and was replaced there
    assert contexts or (stats.delivered, stats.dropped_in["conflated"]) == (1, 1)
    pub.say(b"a2")      # and it goes on
    assert sub.recv() == b"a2"


def test_unwanted_messages_fill_no_high_water_mark(ctx, publisher):
    """Nobody receives, and all that the peer sends is read."""
    sub = ctx.socket("sub", bind="tcp://127.0.0.1:0", topics=[b"a"], recv_hwm=3,
                     recv_timeout=LIMIT)
    pub = publisher(sub.endpoints[0].url)
    sub.wait_peers(1, LIMIT)
    for i in range(MANY):
        pub.say(b"a%d" % i if i in (0, MANY // 2) else b"b%d" % i)
        read(sub, i + 1)
    assert [sub.recv(), sub.recv()] == [b"a0", b"a%d" % (MANY // 2)]
    stats, = sub.stats().peers.values()
    assert stats.dropped_in == {"unsubscribed": MANY - 2} and not stats.queued_in
    sub.unsubscribe(b"a")
    sub.subscribe(b"b")
    pub.say(b"a")
    pub.say(b"b")
    assert sub.recv() == b"b"


def test_unwanted_messages_of_several_parts(ctx):
    """Their other parts do not count, even if these look like a topic."""
    sub = ctx.socket("sub", bind="tcp://127.0.0.1:0", topics=[b"a"], recv_hwm=3,
                     recv_timeout=LIMIT)
    old = Old(sub.endpoints[0].url)
    sub.wait_peers(1, LIMIT)
    old.say(b"b", *[b"a"] * 100)    # more parts than are decoded at a time
    old.say(b"a1", *[b"b"] * 100)
    old.say(b"b", b"a")
    old.say(b"a2")
    assert sub.recv_parts() == [b"a1", *[b"b"] * 100]
    assert sub.recv_parts() == [b"a2"]
    stats, = sub.stats().peers.values()
    assert (stats.read, stats.delivered, stats.dropped_in) == (4, 2, {"unsubscribed": 2})
    old.peer.close()


def test_topics_change_beside_a_flood(ctx, publisher):
    """A topic that stays is never missed."""
    sub = ctx.socket("sub", bind="tcp://127.0.0.1:0", topics=[b"a"], recv_timeout=LIMIT)
    pub = publisher(sub.endpoints[0].url)
    sub.wait_peers(1, LIMIT)
    sent = 0
    for i in range(MANY):
        sub.subscribe(b"x%d" % i)
        pub.say(b"a%d" % i)
        pub.say(b"b")
        sub.unsubscribe(b"x%d" % i)
        sent += 2
        read(sub, sent)
    assert [sub.recv() for _ in range(MANY)] == [b"a%d" % i for i in range(MANY)]
