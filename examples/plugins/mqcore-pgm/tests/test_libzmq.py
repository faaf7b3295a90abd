"""Interoperation with libzmq's own epgm and pgm, both ways. MULTICAST_LIBZMQ is a Python with pyzmq
over a libzmq that has PGM (`make test-multicast` makes one)."""

import os

import network
import pytest
from mqcore_pgm import epgm, pgm

pytestmark = [
    pytest.mark.skipif(not network.LIBZMQ, reason="MULTICAST_LIBZMQ is not set"),
    pytest.mark.skipif(bool(epgm.unavailable()), reason=epgm.unavailable() or "-")]

WAYS = [("mq", "zmq"), ("zmq", "mq"), ("mq", "mq")]


def run(place, sender, receiver, scheme="epgm", **options):
    """(the publisher's report, the subscriber's)"""
    sub = place.peer(receiver, "sub", scheme, **options)
    pub = place.peer(sender, "pub", scheme, **options)
    assert sub.line() == "ready"
    pub.go()
    return pub.result(), sub.result()


@pytest.mark.parametrize("sender,receiver", WAYS)
def test_twenty_thousand_messages_without_a_gap_and_close(sender, receiver):
    """The publisher closes with linger right after the last send."""
    with network.here() as place:
        sent, got = run(place, sender, receiver, n=20_000, size=1024)
    assert (got["got"], got["missing"], got["wrong"], got["ordered"]) == (20_000, 0, 0, True)
    for report in (sent, got):
        assert not report.get("undelivered") and not report.get("lost")


@pytest.mark.parametrize("sender,receiver", WAYS)
@pytest.mark.parametrize("parts,size", [(3, 40), (2, 300), (20, 700)])
def test_messages_of_several_parts(sender, receiver, parts, size):
    with network.here() as place:
        _, got = run(place, sender, receiver, n=200, size=size, parts=parts)
    assert (got["got"], got["wrong"], got["ordered"]) == (200, 0, True)


@pytest.mark.parametrize("sender,receiver", WAYS)
def test_messages_of_a_megabyte(sender, receiver):
    with network.here() as place:
        _, got = run(place, sender, receiver, n=5, size=1_000_000)
    assert (got["got"], got["wrong"], got["ordered"]) == (5, 0, True)


@pytest.mark.parametrize("sender,receiver", WAYS)
@pytest.mark.skipif(bool(pgm.unavailable()), reason=pgm.unavailable() or "-")
def test_raw_pgm(sender, receiver):
    """In namespaces: a raw socket hears every packet of its host."""
    if network.lacking():
        pytest.skip(network.lacking())
    with network.network(2) as (one, two):
        sub = two.peer(receiver, "sub", "pgm", n=2000)
        pub = one.peer(sender, "pub", "pgm", n=2000)
        assert sub.line() == "ready"
        pub.go()
        pub.result()
        got = sub.result()
    assert (got["got"], got["wrong"], got["ordered"]) == (2000, 0, True)


def test_the_peer_is_a_libzmq():
    assert os.access(network.LIBZMQ, os.X_OK)
