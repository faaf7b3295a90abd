"""A forwarder between multicast and TCP, in the network namespace of a host of its own."""

import sys

import network
import pytest
from mqcore_pgm import epgm

pytestmark = [
    pytest.mark.skipif(not network.LIBZMQ, reason="`make test-multicast` runs it: it takes long"),
    pytest.mark.skipif(bool(network.lacking()), reason=network.lacking() or "-"),
    pytest.mark.skipif(bool(epgm.unavailable()), reason=epgm.unavailable() or "-")]

GROUP = f"epgm://eth0;{network.GROUP}:{network.PORT}"
TCP = "tcp://10.77.0.2:5556"


@pytest.mark.parametrize("library", ["mq", "zmq"])
def test_from_a_group_to_subscribers_over_tcp(library):
    """Publisher, forwarder and two subscribers; those over TCP are of either library."""
    with network.network(4) as (one, middle, *others):
        forwarder(middle, front=GROUP, back=TCP)
        subs = [host.peer_at(library, "sub", TCP, n=5000) for host in others]
        pub = one.peer("mq", "pub", n=5000)
        check(pub, subs)


@pytest.mark.parametrize("library", ["mq", "zmq"])
def test_from_a_publisher_over_tcp_to_a_group(library):
    """It listens for publishers, and gets everything: subscribers of a group ask for nothing."""
    with network.network(4) as (one, middle, *others):
        forwarder(middle, front=TCP, back=GROUP)
        subs = [host.peer("mq", "sub", n=5000) for host in others]
        pub = one.peer_at(library, "pub", TCP, n=5000, connect=1)
        check(pub, subs)


def forwarder(host, front, back):
    made = host.start(sys.executable, *network.ISOLATED, "-u", "-m", "mqcore", "device",
                      "forwarder", "--front", front, "--back", back)
    assert {made.line() for _ in range(2)} == {f"front {front}", f"back {back}"}
    return made


def check(pub, subs):
    for sub in subs:
        assert sub.line() == "ready"
    pub.go()
    sent = pub.result()
    assert not sent.get("undelivered")
    for got in [sub.result() for sub in subs]:
        assert (got["got"], got["missing"], got["wrong"], got["ordered"]) == (5000, 0, 0, True)
