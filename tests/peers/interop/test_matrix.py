"""Every pattern with every pyzmq peer it may have: either binds, tcp and ipc, small, empty, 1 KiB,
1 MiB and multipart, in each direction that the two have."""

import pytest
from waiting import until

import mqcore as mq

MESSAGES = [[b"small"], [b""], [b"k" * 1024], [b"M" * (1 << 20)], [b"a", b"", b"c" * 300],
            [b"head", b"L" * (1 << 18), b"tail"]]
LIMIT = 60

OUT = [("push", "PULL")]
IN = [("pull", "PUSH")]
BOTH = [("pair", "PAIR"), ("dealer", "DEALER")]
ASKS = [("req", "REP"), ("req", "ROUTER"), ("dealer", "REP"), ("dealer", "ROUTER")]
ANSWERS = [("rep", "REQ"), ("rep", "DEALER"), ("router", "REQ"), ("router", "DEALER")]
PUBLISHES = [("pub", "SUB"), ("pub", "XSUB"), ("xpub", "SUB"), ("xpub", "XSUB")]
LISTENS = [("sub", "PUB"), ("sub", "XPUB"), ("xsub", "PUB"), ("xsub", "XPUB")]


def pairs(names):
    return pytest.mark.parametrize("mine,theirs", names)


@pytest.fixture(params=["we_bind", "we_connect"])
def join(request, ctx, zsock, zurl, where):
    def make(mine, theirs, topics=None, **options):
        s = ctx.socket(mine, recv_timeout=LIMIT, send_timeout=LIMIT, **options)
        if topics is not None:
            s.subscribe(*topics)
        zwhere = where.replace(":0", ":*") if where.startswith("tcp") else where
        if request.param == "we_bind":
            z = zsock(theirs, connect=s.bind(where).url)
        else:
            z = zsock(theirs, bind=zwhere)
            s.connect(zurl(z), wait=LIMIT)
        s.wait_peers(1, LIMIT)
        assert [p.pattern for p in s.peers()] == [theirs.lower()]
        return s, z
    return make


def send_all(s):
    for parts in MESSAGES:
        s.send_parts(parts)


@pairs(OUT + BOTH)
def test_out(join, mine, theirs):
    s, z = join(mine, theirs)
    send_all(s)
    assert [z.recv_multipart() for _ in MESSAGES] == MESSAGES
    # the peer may have it before our own thread is back from the kernel and has counted it
    until(lambda: [p.written for p in s.stats().peers.values()] == [len(MESSAGES)])


@pairs(IN + BOTH)
def test_in(join, mine, theirs):
    s, z = join(mine, theirs)
    for parts in MESSAGES:
        z.send_multipart(parts)
    assert [s.recv_parts() for _ in MESSAGES] == MESSAGES
    z.send_multipart([b"jo", b"ined"])
    assert s.recv() == b"joined"


@pairs(ASKS)
def test_asks(join, mine, theirs):
    s, z = join(mine, theirs)
    empty = [b""] if mine == "dealer" and theirs == "REP" else []
    for parts in MESSAGES:
        s.send_parts(empty + parts)
        got = z.recv_multipart()
        if theirs == "ROUTER":
            envelope = got[:1] + ([b""] if mine == "req" else [])
            assert got == envelope + parts and len(got[0]) == 5
            z.send_multipart([*envelope, b"answer", *parts])
        else:
            assert got == parts
            z.send_multipart([b"answer", *parts])
        assert s.recv_parts() == [*empty, b"answer", *parts]


@pairs(ANSWERS)
def test_answers(join, mine, theirs):
    s, z = join(mine, theirs)
    empty = [b""] if theirs == "DEALER" and mine == "rep" else []
    for parts in MESSAGES:
        z.send_multipart(empty + parts)
        if mine == "rep":
            assert s.recv_parts() == parts
            s.send_parts([b"answer", *parts])
        else:
            got = s.recv_parts()
            head = got[:len(got) - len(parts)]
            assert got == head + parts
            s.send_parts([*head, b"answer", *parts])
        assert z.recv_multipart() == [*empty, b"answer", *parts]


def test_router_router(join, zsock):
    s, z = join("router", "ROUTER", routing_id=b"ours")
    [peer] = s.peers()
    for parts in MESSAGES:
        s.send_to(peer, *parts)
        assert z.recv_multipart() == [b"ours", *parts]
        z.send_multipart([b"ours", *parts])
        assert s.recv_parts()[1:] == parts


def subscribed(s, *topics):
    try:
        for topic in topics:
            s.wait_subscribers(topic, 1, 0.05)
    except mq.WaitTimeout:
        return False
    return True


@pairs(PUBLISHES)
def test_publishes(join, mine, theirs):
    s, z = join(mine, theirs)
    for topic in (b"a", b"end"):
        if theirs == "SUB":
            z.subscribe(topic)
        else:
            z.send(b"\1" + topic)
    while not subscribed(s, b"a", b"end"):
        z.poll(0)  # libzmq shows a SUB its new peers only when the application looks
    for parts in MESSAGES:
        s.send_parts([b"a", *parts])
        s.send_parts([b"nobody wants", *parts])
    s.send_parts([b"end"])
    got = []
    while not got or got[-1] != [b"end"]:
        got.append(z.recv_multipart())
    assert got == [[b"a", *parts] for parts in MESSAGES] + [[b"end"]]
    assert s.stats().unmatched == len(MESSAGES)


@pairs(LISTENS)
def test_listens(join, mine, theirs):
    s, z = join(mine, theirs, topics=[b"a", b"end"] if mine == "sub" else None)
    if mine == "xsub":
        s.send(b"\1a")
        s.send(b"\1end")
    if theirs == "XPUB":
        assert {z.recv(), z.recv()} == {b"\1a", b"\1end"}
    else:  # a PUB does not say that it has heard: repeat until the first one comes
        while not s_poll(s, z):
            pass
    for parts in MESSAGES:
        z.send_multipart([b"a", *parts])
        z.send_multipart([b"nobody wants", *parts])
    z.send_multipart([b"end"])
    got = []
    while not got or got[-1] != [b"end"]:
        parts = s.recv_parts()
        if parts != [b"a", b"probe"] and parts != [b"endprobe"]:
            got.append(parts)
    assert got == [[b"a", *parts] for parts in MESSAGES] + [[b"end"]]


def s_poll(s, z):
    z.send_multipart([b"a", b"probe"])
    z.send_multipart([b"endprobe"])
    end = False
    try:
        while True:
            end |= s.recv_parts(timeout=0.02) == [b"endprobe"]
    except mq.RecvTimeout:
        return end
