"""Dgram: bare datagrams with their addresses, against plain sockets of the loopback interface."""

import asyncio
import random
import socket

import pytest
from machine import ipv6
from waiting import until

import mqcore as mq
from mqcore.testing.traffic import laws

LIMIT = 60.0


def place(sock):
    host, port = sock.endpoints[0].url.removeprefix("udp://").rsplit(":", 1)
    return host.strip("[]"), int(port)


def text(plain):
    host, port = plain.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def of(sock):
    (stats,) = laws(sock).peers.values()
    return stats


@pytest.fixture(params=["127.0.0.1", pytest.param("::1", marks=ipv6)])
def host(request):
    return request.param


@pytest.fixture
def plain(host):
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET,
                       socket.SOCK_DGRAM) as sock:
        sock.bind((host, 0))
        sock.settimeout(LIMIT)
        yield sock


@pytest.fixture
def dgram(ctx, host):
    made = ctx.socket("dgram", bind=f"udp://{f'[{host}]' if ':' in host else host}:0")
    made.wait_peers(timeout=LIMIT)
    return made


def test_both_ways(dgram, plain):
    """The datagram is the body and nothing else."""
    for body in (b"x", b"", bytes(range(256)) * 30, bytes(60_000)):
        plain.sendto(body, place(dgram))
        assert dgram.recv_parts(timeout=LIMIT) == [text(plain).encode(), body]
        dgram.send_to(text(plain), body)
        assert plain.recvfrom(65536) == (body, plain_name(plain, dgram))
    dgram.send_parts([text(plain).encode() + b"\0", b"as libzmq writes it"])
    assert plain.recv(100) == b"as libzmq writes it"
    assert (of(dgram).delivered, of(dgram).written) == (4, 5)


def plain_name(plain, dgram):
    """How the other side sees it."""
    return place(dgram) if plain.family == socket.AF_INET else (*place(dgram), 0, 0)


def test_messages_say_whose_they_are(dgram, plain):
    plain.sendto(b"one", place(dgram))
    plain.sendto(b"two", place(dgram))
    m = dgram.recv_msg(timeout=LIMIT)
    assert (m.routing_id, m.parts) == (text(plain).encode(), (b"one",))
    (m,) = asyncio.run(first(dgram))
    asyncio.run(dgram.asend_to(m.routing_id, m.body))
    assert plain.recv(100) == b"two"
    with pytest.raises(mq.UsageError, match="which recv.. would lose"):
        dgram.recv()
    with pytest.raises(mq.StateError, match="no answers to give"):
        m.reply(b"x")


async def first(sock):
    async for m in sock:
        return [m]


BAD = [b"", b":1", b"127.0.0.1", b"127.0.0.1:", b"127.0.0.1:0", b"127.0.0.1:65536", b"127.0.0.1:5x",
       b"127.0.0.1:-5", b"127.0.0.1:99999999999", b"localhost:5555", b"127.0.0.256:5", b"::1:5",
       b"[::1:5", b"[]:5", b"[::1%]:5", b"[::1%lo]:5", b"[127.0.0.1]:5", b"127.0.0.1:5\0\0",
       b"1" * 79 + b":5", b"[" + b"1" * 5000 + b"]:5", b"127.0.0.1\0:5", b"udp://127.0.0.1:5"]


@pytest.mark.parametrize("address", BAD, ids=range(len(BAD)))
def test_what_is_no_address(ctx, address):
    with ctx.socket("dgram", bind="udp://127.0.0.1:0") as sock:
        sock.wait_peers(timeout=LIMIT)
        with pytest.raises(mq.UsageError, match="an address like"):
            sock.send_parts([address, b"x"])
        assert laws(sock).sent == 0


def test_messages_that_are_none(ctx):
    with ctx.socket("dgram", bind="udp://127.0.0.1:0") as sock:
        sock.wait_peers(timeout=LIMIT)
        for parts in ([b"x"], [b"127.0.0.1:5", b"a", b"b"]):
            with pytest.raises(mq.UsageError, match="two parts"):
                sock.send_parts(parts)
        with pytest.raises(mq.UsageError, match="not to a Peer"):
            sock.send_to(sock.peers()[0], b"x")
        with pytest.raises(mq.SendTimeout):
            ctx.socket("dgram").send_to("127.0.0.1:5", b"x", timeout=0)


def test_what_no_datagram_can_carry(dgram, plain):
    """Too large, or of the other family: counted, and the next one goes."""
    other = "[::1]:9" if plain.family == socket.AF_INET else "127.0.0.1:9"
    dgram.send_to(text(plain), bytes(65_530))
    dgram.send_to(other, b"x")
    dgram.send_to(text(plain), b"after")
    assert plain.recv(100) == b"after"
    until(lambda: of(dgram).dropped_out == {"unsendable": 2})
    until(lambda: of(dgram).written == 1)      # counted when the kernel has it


def test_max_message_size(ctx, dgram, plain):
    """Of address and body."""
    limit = len(text(plain)) + 10
    with ctx.socket("dgram", bind=dgram.endpoints[0].url.rpartition(":")[0] + ":0",
                    max_message_size=limit) as sock:
        plain.sendto(bytes(11), place(sock))
        until(lambda: sock.stats().peers and of(sock).read == 1)
        assert mq.poll([sock], 0) == [] and of(sock).dropped_in == {"malformed": 1}
        plain.sendto(bytes(10), place(sock))
        assert sock.recv_parts(timeout=LIMIT)[1] == bytes(10)


def test_connected_hears_that_address_alone(ctx, plain, host):
    sock = ctx.socket("dgram", connect=f"udp://{text(plain)}")
    sock.send_to(text(plain), b"hello")
    body, where = plain.recvfrom(100)
    with socket.socket(plain.family, socket.SOCK_DGRAM) as stranger:
        stranger.bind((host, 0))
        stranger.sendto(b"strange", where)
        plain.sendto(b"answer", where)
        assert body == b"hello"
        assert sock.recv_parts(timeout=LIMIT) == [text(plain).encode(), b"answer"]
        assert of(sock).read == 1


def test_anything_may_come(dgram, plain):
    rng = random.Random(7)
    for n in range(200):
        plain.sendto(rng.randbytes(rng.randrange(200)), place(dgram))
        if n % 50 == 49:
            plain.sendto(b"mark", place(dgram))
            while dgram.recv_parts(timeout=LIMIT)[1] != b"mark":
                pass
    assert of(dgram).delivered == 204


def test_where_it_cannot_be(ctx, dgram):
    for url in ("tcp://127.0.0.1:0", "ipc://@mq-dgram"):
        with pytest.raises(mq.NotSupported, match="no protocol supports the pattern"):
            ctx.socket("dgram").bind(url)
    with pytest.raises(mq.AddressInUse):
        ctx.socket("dgram", bind=dgram.endpoints[0].url)


def test_one_address(ctx, dgram):
    """A second one is refused, as PAIR's second peer is; the first stays."""
    events = dgram.events()
    dgram.bind("udp://127.0.0.1:0")
    while events.get(LIMIT).kind != "Refused":
        pass
    until(lambda: len(dgram.peers()) == 1)


def test_what_was_accepted_is_sent_at_the_end(ctx, plain):
    sock = ctx.socket("dgram", connect=f"udp://{text(plain)}")
    sock.wait_peers(timeout=LIMIT)
    for n in range(100):
        sock.send_to(text(plain), b"%d" % n)
    assert sock.close(LIMIT).written == 100
    assert [plain.recv(100) for _ in range(100)] == [b"%d" % n for n in range(100)]
