"""The draft sockets against those of others: libzmq's, where one with drafts is installed, and
pyomq's."""

import contextlib
import socket

import draftzmq
import pytest
from draftzmq import Draft
from waiting import until

from mqcore.testing.keeper import Keeper

LIMIT = 60.0
drafts = pytest.mark.skipif(draftzmq.LIBRARY is None, reason=draftzmq.WHY)


@pytest.fixture
def ctx():
    context = Keeper(linger=0)
    yield context
    context.finish()


@pytest.fixture(params=["we bind", "they bind"])
def joined(request, ctx, where):
    """joined(ours, theirs): a socket of each, one of them bound."""
    with contextlib.ExitStack() as stack:
        def join(ours, theirs):
            one, two = ctx.socket(ours), stack.enter_context(Draft(theirs))
            if request.param == "we bind":
                two.connect(one.bind(where).url)
            else:
                one.connect(two.bind(where.replace(":0", ":*")))
            one.wait_peers(1, LIMIT)
            return one, two
        yield join


@drafts
@pytest.mark.parametrize("kind", ["server", "peer"])
def test_libzmq_asks(joined, kind):
    one, two = joined(kind, "peer" if kind == "peer" else "client")
    if kind == "peer":
        one.send_to(one.peers()[0], b"knock")
        body, to, _ = two.recv()
        assert body == b"knock"
        two.send(b"hi", routing_id=to)
    else:
        two.send(b"hi")
    m = one.recv_msg(timeout=LIMIT)
    for body in (b"", b"x" * 100, bytes(100_000)):
        one.send_to(m.peer, body)
        assert two.recv()[0] == body


@drafts
def test_libzmq_serves(joined):
    one, two = joined("client", "server")
    one.send(b"hi")
    body, to, _ = two.recv()
    for answer in (b"", b"x" * 100, bytes(100_000)):
        two.send(answer, routing_id=to)
        assert one.recv(timeout=LIMIT) == answer
    assert body == b"hi"
    with pytest.raises(OSError, match="EHOSTUNREACH"):
        two.send(b"x", routing_id=to ^ 1)


@drafts
@pytest.mark.parametrize("ours,theirs", [("scatter", "gather"), ("gather", "scatter"),
                                         ("channel", "channel")])
def test_libzmq_one_way(joined, ours, theirs):
    one, two = joined(ours, theirs)
    for body in (b"", b"x" * 100, bytes(100_000)):
        if ours != "gather":
            one.send(body)
            assert two.recv()[0] == body
        if ours != "scatter":
            two.send(body)
            assert one.recv(timeout=LIMIT) == body


@drafts
def test_libzmq_connects_a_peer(ctx):
    one = ctx.socket("peer", bind="tcp://127.0.0.1:0")
    with Draft("peer") as two:
        to = two.connect_peer(one.endpoints[0].url)
        two.send(b"hi", routing_id=to)
        one.recv_msg(timeout=LIMIT).reply(b"ho")
        assert two.recv()[:2] == (b"ho", to)


@drafts
def test_libzmq_radio_and_dish(ctx):
    """Groups by tcp and by datagrams (RFC 48)."""
    radio = ctx.socket("radio", bind="tcp://127.0.0.1:0")
    with Draft("dish") as dish:
        dish.join("news")
        dish.connect(radio.endpoints[0].url)
        radio.wait_subscribers("news", 1, LIMIT)
        radio.send(b"lost", group="other")
        radio.send(b"found", group="news")
        assert dish.recv() == (b"found", 0, "news")
    with Draft("dish") as dish:
        dish.join("tv")
        at = f"udp://127.0.0.1:{port()}"
        dish.bind(at)
        sender = ctx.socket("radio", connect=at)
        sender.wait_subscribers("tv", 1, LIMIT)
        dish.set(draftzmq.RCVTIMEO, 20)

        def heard():
            """libzmq's thread binds some time after zmq_bind(); until then datagrams get lost."""
            sender.send(b"datagram", group="tv")
            with contextlib.suppress(BlockingIOError):
                return dish.recv() == (b"datagram", 0, "tv")

        until(heard)
    into = ctx.socket("dish", groups=("tv",), bind="udp://127.0.0.1:0")
    into.wait_peers(1, LIMIT)
    with Draft("radio") as sender:
        sender.connect(into.endpoints[0].url)
        sender.send(b"back", group="tv")
        m = into.recv_msg(timeout=LIMIT)
        assert (m.body, m.group) == (b"back", "tv")


@drafts
def test_libzmq_dgram(ctx):
    one = ctx.socket("dgram", bind="udp://127.0.0.1:0")
    one.wait_peers(1, LIMIT)
    with Draft("dgram") as two:
        at = f"127.0.0.1:{port()}"
        two.bind(f"udp://{at}")
        two.send(one.endpoints[0].url.removeprefix("udp://").encode(), more=True)
        two.send(b"out")
        m = one.recv_msg(timeout=LIMIT)
        assert (m.routing_id, m.body) == (at.encode(), b"out")
        one.send_to(at, b"back")
        assert [two.recv()[0] for _ in range(2)][1] == b"back"


def port():
    """libzmq does not tell which port a datagram socket has got."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


# -- pyomq -----------------------------------------------------------------------------------------

@pytest.fixture
def omq():
    """omq("CLIENT"): a socket of pyomq with limits."""
    pyomq = pytest.importorskip("pyomq")
    context, held = pyomq.Context(), []

    def make(kind):
        made = context.socket(getattr(pyomq, kind))
        for option in ("RCVTIMEO", "SNDTIMEO"):
            made.setsockopt(getattr(pyomq, option), 10_000)
        made.setsockopt(pyomq.LINGER, 0)
        held.append(made)
        return made
    yield make
    for made in held:
        made.close()
    context.term()


@pytest.mark.parametrize("ours,theirs", [
    ("server", "CLIENT"), ("client", "SERVER"), ("gather", "SCATTER"), ("scatter", "GATHER"),
    ("channel", "CHANNEL")])
def test_pyomq(ctx, omq, ours, theirs):
    one, two = ctx.socket(ours, bind="tcp://127.0.0.1:0"), omq(theirs)
    two.connect(one.endpoints[0].url)
    one.wait_peers(1, LIMIT)
    for body in (b"", b"x" * 100, bytes(100_000)):
        if ours not in ("gather", "server"):
            one.send(body)
            assert two.recv_multipart()[-1] == body
        if ours not in ("scatter", "client"):
            two.send(body)
            m = one.recv_msg(timeout=LIMIT)
            assert m.parts == (body,)
            if ours == "server":
                m.reply(body)
                assert two.recv() == body
