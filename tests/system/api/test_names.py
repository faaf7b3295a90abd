"""A socket's routing_id: the same to its peers, whatever lies between them."""

import pytest
from rawzmtp import GREETING, RawPeer, ready

from mqcore.testing.keeper import Keeper

URLS = ["inproc://named", "tcp://127.0.0.1:0", "ipc://", "ws://127.0.0.1:0/", "shm://"]
PAIRS = [("pull", "push"), ("push", "pull"), ("pub", "sub"), ("router", "dealer"),
         ("rep", "req"), ("pair", "pair"), ("xpub", "xsub"), ("server", "client")]


@pytest.fixture
def ctx():
    with Keeper(linger=0.2) as context:
        yield context


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("server, client", PAIRS)
def test_the_name_is_the_same_over_every_transport(ctx, tmp_path, url, server, client):
    url = url if url[-2:] != "//" else f"{url}{tmp_path}/named"
    with ctx.socket(server, bind=url, routing_id=b"server") as a, ctx.socket(
            client, connect=a.endpoints[0].url, routing_id=b"client") as b:
        a.wait_peers(1, 10)
        b.wait_peers(1, 10)
        assert [p.routing_id for p in a.peers()] == [b"client"]
        assert [p.routing_id for p in b.peers()] == [b"server"]


@pytest.mark.parametrize("url", ["inproc://sp", "tcp://127.0.0.1:0"])
def test_patterns_of_sp_have_no_name_anywhere(ctx, url):
    with ctx.socket("bus", bind=url, routing_id=b"a") as a, ctx.socket(
            "bus", connect=a.endpoints[0].url, routing_id=b"b") as b:
        a.wait_peers(1, 10)
        b.wait_peers(1, 10)
        assert [p.routing_id for s in (a, b) for p in s.peers()] == [b"", b""]


@pytest.mark.parametrize("kind, peer, name, said", [
    ("pull", "PUSH", b"", False), ("pull", "PUSH", b"me", True), ("dealer", "ROUTER", b"", True)])
def test_a_socket_without_a_name_announces_none(ctx, kind, peer, name, said):
    """As libzmq: Identity is in the READY of REQ, DEALER and ROUTER. Here also where there is a
    name, which libzmq accepts from any peer."""
    with ctx.socket(kind, bind="tcp://127.0.0.1:0", routing_id=name) as s, RawPeer.connect(
            s.endpoints[0].url) as raw:
        raw.say(GREETING)
        raw.hear(64)
        raw.say(ready(peer))
        assert (b"Identity" in raw.frame()[1]) == said
