"""libzmq's draft sockets. pyzmq's wheel has none (its libzmq ends the process over tcp), so both
ends are ours; tests/peers/interop has the foreign ones."""

import pytest
from zmqerrno import number

import mqcore.zmq as ours
import mqcore.zmq.asyncio

ONE_WAY = [("GATHER", "SCATTER"), ("SERVER", "CLIENT"), ("CHANNEL", "CHANNEL")]


@pytest.fixture
def linked(make):
    def join(first, second, url="tcp://127.0.0.1:*"):
        one, two = make(ours, first), make(ours, second)
        one.bind(url)
        two.connect(one.last_endpoint)
        return one, two
    return join


def test_has_drafts():
    assert ours.has("draft") and ours.DRAFT_API


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:*", "inproc://draft", "ipc://@mq-draft-*"])
@pytest.mark.parametrize("far,near", ONE_WAY)
def test_one_part(linked, url, far, near):
    """SNDMORE and several parts are EINVAL, and leave nothing behind."""
    if "ipc" in url:
        url = "ipc://*"
    one, two = linked(far, near, url)
    assert number(ours, two.send, b"x", ours.SNDMORE) == ours.EINVAL
    assert number(ours, two.send_multipart, [b"a", b"b"]) == ours.EINVAL
    assert number(ours, two.send_multipart, [b"a", b"b"], copy=False) == ours.EINVAL
    two.send(b"one")
    two.send_multipart([b"two"])
    two.send(ours.Frame(b"three"), copy=False)
    assert [one.recv() for _ in range(2)] == [b"one", b"two"]
    frame = one.recv(copy=False)
    assert (frame.bytes, frame.more, bool(frame.routing_id)) == (b"three", False, far == "SERVER")
    assert not one.rcvmore


@pytest.mark.parametrize("far,near", [("SERVER", "CLIENT"), ("PEER", "PEER")])
def test_routing_ids(linked, make, far, near):
    one, two = linked(far, near)
    if near == "PEER":
        two.disconnect(one.last_endpoint)
        to = two.connect_peer(one.last_endpoint)
        two.send(b"hi", routing_id=to)
    else:
        two.send(b"hi")
    frame = one.recv(copy=False)
    assert 0 < frame.routing_id < 1 << 32 and frame["routing_id"] == frame.routing_id
    one.send(b"by number", routing_id=frame.routing_id)
    one.send(frame)
    answer = ours.Frame(b"by frame")
    answer.routing_id = frame.routing_id
    one.send(answer, copy=False)
    one.send_string("text", routing_id=frame.routing_id)
    one.send_multipart([b"listed"], routing_id=frame.routing_id)
    one.send(b"now", ours.NOBLOCK, routing_id=frame.routing_id)
    assert [two.recv() for _ in range(6)] == [b"by number", b"hi", b"by frame", b"text", b"listed",
                                              b"now"]
    for routing_id in (None, 0, 1, 1 << 31, 1 << 40):
        if routing_id != frame.routing_id:
            assert number(ours, one.send, b"x", routing_id=routing_id) == ours.EHOSTUNREACH
    for wrong in (0, 1 << 32):
        with pytest.raises(ours.ZMQError):
            ours.Frame(b"").routing_id = wrong
    assert number(ours, one.send, b"x", ours.SNDMORE, routing_id=frame.routing_id) == ours.EINVAL
    two.close()


def test_who_has_left(linked):
    server, client = linked("SERVER", "CLIENT")
    client.send(b"hi")
    routing_id = server.recv(copy=False).routing_id
    client.close()
    with pytest.raises(ours.ZMQError) as caught:
        while True:
            server.send(b"x", routing_id=routing_id)
    assert caught.value.errno == ours.EHOSTUNREACH


def test_who_may_what(make):
    for kind, call in (("GATHER", "send"), ("SCATTER", "recv")):
        args = (b"x",) if call == "send" else ()
        assert number(ours, getattr(make(ours, kind), call), *args) == ours.ENOTSUP
    assert number(ours, make(ours, "CLIENT").send, b"x", routing_id=5) == ours.ENOTSUP
    assert number(ours, make(ours, "CLIENT").connect_peer, "inproc://x") == ours.ENOTSUP
    client = make(ours, "CLIENT")
    assert number(ours, client.send, b"x", ours.NOBLOCK) == ours.EAGAIN
    peer = make(ours, "PEER", sndtimeo=20)
    assert number(ours, peer.connect_peer, "inproc://nobody") == ours.EAGAIN
    assert number(ours, peer.disconnect, "inproc://nobody") == 2


def test_a_full_client_is_waited_for(linked, make):
    """SERVER never drops: EAGAIN, then there is room."""
    server, client = make(ours, "SERVER", sndhwm=3), make(ours, "CLIENT", rcvhwm=3)
    server.bind("inproc://full")
    client.connect("inproc://full")
    client.send(b"hi")
    to = server.recv(copy=False).routing_id
    sent = 0
    with pytest.raises(ours.Again):
        while sent < 100:
            server.send(b"%d" % sent, ours.NOBLOCK, routing_id=to)
            sent += 1
    assert [client.recv() for _ in range(sent)] == [b"%d" % n for n in range(sent)]
    server.send(b"room", routing_id=to)
    assert client.recv() == b"room"


def test_dgram(make):
    one, two = make(ours, "DGRAM"), make(ours, "DGRAM")
    for sock in (one, two):
        sock.bind("udp://127.0.0.1:*")
        assert sock.poll(0, ours.POLLOUT) == ours.POLLOUT
    to, sender = (sock.last_endpoint.removeprefix(b"udp://") for sock in (two, one))
    one.send(to, ours.SNDMORE)
    one.send(b"in pieces")
    one.send_multipart([to + b"\0", b"at once"])
    assert two.recv_multipart() == [sender, b"in pieces"]
    assert (two.recv(), two.rcvmore, two.recv(), two.rcvmore) == (sender, 1, b"at once", 0)
    two.send_multipart(two_parts := [sender, b"back"])
    frames = one.recv_multipart(copy=False)
    assert [frame.bytes for frame in frames] == [to, two_parts[1]]
    for parts in ([b"alone"], [b"no address", b"x"], [to, b"a", b"b"]):
        assert number(ours, one.send_multipart, parts) == ours.EINVAL
    one.send_multipart([to, b"still here"])
    assert two.recv_multipart() == [sender, b"still here"]
    assert number(ours, one.bind, "tcp://127.0.0.1:*") == ours.ENOTSUP


def test_awaited():
    async def main():
        context = mqcore.zmq.asyncio.Context()
        server, client = context.socket(ours.SERVER), context.socket(ours.CLIENT)
        server.linger = client.linger = 0
        server.bind("inproc://awaited")
        client.connect("inproc://awaited")
        await client.send(b"hi")
        frame = await server.recv(copy=False)
        await server.send(b"back", routing_id=frame.routing_id)
        assert await client.recv() == b"back"
        context.destroy(0)

    import asyncio
    asyncio.run(main())


def test_poller_and_fd(linked):
    """Ours have a descriptor, where pyzmq's draft sockets have none."""
    server, client = linked("SERVER", "CLIENT")
    poller = ours.Poller()
    poller.register(server, ours.POLLIN)
    assert server.fileno() >= 0 and poller.poll(0) == []
    client.send(b"x")
    assert poller.poll(5000) == [(server, ours.POLLIN)]
    assert server.recv() == b"x"
