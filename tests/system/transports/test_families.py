"""`*` and an interface's name are reached over IPv4 and IPv6, on one port."""

import contextlib

import pytest
from machine import ipv6

import mqcore as mq
from mqcore import journal
from mqcore.spi.inet import host_port

pytestmark = ipv6

HOSTS = ("127.0.0.1", "[::1]")


@pytest.mark.parametrize("scheme", ["tcp", "ws"])
@pytest.mark.parametrize("place", ["*", "lo"])
def test_streams(ctx, scheme, place):
    pull = ctx.socket("pull", bind=f"{scheme}://{place}:0")
    port = pull.endpoints[0].url.rstrip("/").rpartition(":")[2]
    for host in HOSTS:
        with ctx.socket("push", connect=f"{scheme}://{host}:{port}") as push:
            push.send(host.encode())
            message = pull.recv_msg(timeout=10)
            assert message.body == host.encode() and "ffff" not in message.peer.address
    pull.unbind(pull.endpoints[0])
    for host in HOSTS:
        with pytest.raises(mq.ConnectTimeout):
            ctx.socket("push").connect(f"{scheme}://{host}:{port}", wait=0.2)


@pytest.mark.parametrize("place", ["*", "lo"])
@pytest.mark.parametrize("pattern", ["sub", "dish"])
def test_datagrams(ctx, place, pattern):
    sink = ctx.socket(pattern, bind=f"udp://{place}:0")
    sink.subscribe(b"") if pattern == "sub" else sink.join("g")
    port = sink.endpoints[0].url.rpartition(":")[2]
    for host in HOSTS:
        with ctx.socket("pub" if pattern == "sub" else "radio",
                        connect=f"udp://{host}:{port}") as source:
            source.wait_peers(1, 10)
            for _ in range(100):    # a datagram may be lost
                if pattern == "sub":
                    source.send(host.encode())
                else:
                    source.send(host.encode(), group="g")
                with contextlib.suppress(mq.RecvTimeout):
                    assert sink.recv(timeout=0.1).endswith(host.encode())
                    break
            else:
                pytest.fail(f"nothing came from {host}")
            with contextlib.suppress(mq.RecvTimeout):
                while True:
                    sink.recv(timeout=0)


def test_the_journal_server(ctx, tmp_path):
    with journal.open(tmp_path, "a", topic="t") as out:
        out.append(b"x")
        out.commit()
    with journal.serve(tmp_path, "tcp://*:0", context=ctx, insecure=True) as serving:
        port = serving.urls[0].rpartition(":")[2]
        for host in HOSTS:
            with journal.open(f"tcp://{host}:{port}", topic="t", context=ctx) as source:
                assert source.read(0).to_list()[0]


def test_an_ipv4_peer_of_a_socket_for_both_is_shown_as_one():
    assert host_port(("::ffff:192.0.2.1", 5, 0, 0)) == "192.0.2.1:5"
