"""Packets that are lost on purpose, between namespaces: repaired, or counted and reported."""

import pytest
from mqcore_norm import norm

network = pytest.importorskip("network", reason="takes the tests of mqcore-pgm beside these")

pytestmark = [
    pytest.mark.skipif(not network.LIBZMQ, reason="`make test-multicast` runs it: it takes long"),
    pytest.mark.skipif(bool(network.lacking()), reason=network.lacking() or "-"),
    pytest.mark.skipif(bool(norm.unavailable()), reason=norm.unavailable() or "-")]


def through(hosts, to=None, **options):
    """(the publisher's report, those of the subscribers, who have the options `to`, too)"""
    one, *others = hosts
    subs = [host.peer("mq", "sub", "norm", **options, **(to or {})) for host in others]
    pub = one.peer("mq", "pub", "norm", **options)
    for sub in subs:
        assert sub.line() == "ready"
    pub.go()
    return pub.result(), [sub.result() for sub in subs]


@pytest.mark.parametrize("options", [
    {}, {"norm_parity": 4}, {"norm_congestion": "on", "norm_parity": 4}],
    ids=["repaired", "corrected", "congestion"])
def test_one_percent_is_repaired(options):
    with network.network(2) as hosts:
        hosts[1].drop(0.01)
        sent, [got] = through(hosts, n=20_000, size=1024, **options)
        dropped = hosts[1].dropped()
    print(f"{dropped} packets dropped, the longest pause was {got['slowest']:.3f} s, "
          f"{got['got'] / got['seconds']:,.0f} messages/s")
    assert dropped > 50
    assert (got["got"], got["wrong"], got["ordered"]) == (20_000, 0, True)
    assert (got["lost"], got["events"]) == ({}, [])
    assert (sent["undelivered"], sent["unacked"]) == (0, 0)


def test_thirty_percent():
    """Repaired, or else what is missing in the sequence of messages is what the events say, and the
    counters by source. test_norm.py has losses for certain."""
    with network.network(2) as hosts:
        hosts[1].drop(0.3)
        sent, [got] = through(hosts, n=3000, size=1000)
        dropped = hosts[1].dropped()
    assert got["ordered"] and got["wrong"] == 0
    heard = got["hellos"]
    missing = got["missing"] + sent["hellos"] - heard[0] - len(heard)
    print(f"{dropped} packets dropped, {missing} messages missing, the longest pause was "
          f"{got['slowest']:.3f} s")
    assert dropped > 500
    told = sum(int(reason.split()[0]) for reason in got["events"])
    assert told == got["lost_total"] == sum(got["lost"].values()) == missing


def test_ten_subscribers_cost_the_sender_what_one_does():
    sent = {}
    for number in (1, 10):
        with network.network(number + 1) as hosts:
            _, found = through(hosts, n=2000, size=1024)
            sent[number] = hosts[0].bytes_out()
        assert [got["got"] for got in found] == [2000] * number
    print(f"bytes on the network: {sent}")
    assert sent[10] < sent[1] * 1.1
