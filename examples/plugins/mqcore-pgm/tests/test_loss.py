"""Packets that are lost on purpose, between namespaces: repaired, or counted and reported."""

import network
import pytest
from mqcore_pgm import epgm

pytestmark = [
    pytest.mark.skipif(not network.LIBZMQ, reason="`make test-multicast` runs it: it takes long"),
    pytest.mark.skipif(bool(network.lacking()), reason=network.lacking() or "-"),
    pytest.mark.skipif(bool(epgm.unavailable()), reason=epgm.unavailable() or "-")]


def through(hosts, **options):
    """(the publisher's report, those of the subscribers)"""
    one, *others = hosts
    subs = [host.peer("mq", "sub", **options) for host in others]
    pub = one.peer("mq", "pub", **options)
    for sub in subs:
        assert sub.line() == "ready"
    pub.go()
    return pub.result(), [sub.result() for sub in subs]


def test_one_percent_is_repaired():
    with network.network(2) as hosts:
        hosts[1].drop(0.01)
        _, [got] = through(hosts, n=20_000, size=1024)
        dropped = hosts[1].dropped()
    print(f"{dropped} packets dropped, the longest pause was {got['slowest']:.3f} s")
    assert dropped > 50
    assert (got["got"], got["wrong"], got["ordered"]) == (20_000, 0, True)
    assert (got["lost"], got["events"]) == ({}, [])


def test_gaps_that_no_repair_fills_are_events_with_exact_counts():
    """A message a packet, and two requests for each missing packet: what is missing in the sequence
    of messages is what the events say, and the counters by source."""
    with network.network(2) as hosts:
        hosts[1].drop(0.3)
        sent, [got] = through(hosts, n=3000, size=1000, pace=0.001, pgm_retries=2)
        dropped = hosts[1].dropped()
    assert got["ordered"] and got["wrong"] == 0
    heard = got["hellos"]
    missing = got["missing"] + sent["hellos"] - heard[0] - len(heard)
    print(f"{dropped} packets dropped, {missing} messages missing")
    assert 0 < missing < dropped
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
