"""A forked child leaves the blocks of a node that is its parent's: the parent's node goes on."""

import asyncio
import os
import signal

import pytest
from echoing import Echo
from waiting import until

import mqcore as mq
from mqcore import cluster
from mqcore.base import threads
from mqcore.base.waits import Event
from mqcore.cluster import blocking
from mqcore.cluster.errors import IdentityError
from mqcore.cluster.identity import Identity

LIMIT = 50.0


def ended(child):
    """The exit status of a child that ends by itself."""
    found = []
    until(lambda: found.append(os.waitpid(child, os.WNOHANG)) or found[-1][0] == child)
    return os.waitstatus_to_exitcode(found[-1][1])


def test_a_child_that_unwinds_takes_nothing_from_its_parent(once, key, tmp_path):
    async def main():
        async with cluster.ajoin(key) as one, cluster.ajoin(
                key, seeds=[one.url], identity=tmp_path / "identity") as two:
            service, feed = two.aserve("echo", Echo()), two.asubscribe("t")
            gate = one.afederate("west", cluster.Key.generate())
            with mq.Rep(bind="tcp://127.0.0.1:0") as rep:
                old = await one.aadopt("old", rep.endpoints[0].url)
            async with service, feed, gate, old:
                await one.await_members("echo", timeout=LIMIT)
                events, incarnation = one.events(), one.members("echo")[0].record.incarnation
                tunnel = await one.atunnel("echo", timeout=LIMIT)
                child = os.fork()
                if not child:
                    status = 1
                    try:        # as a child does that unwinds, and it cannot wait: no loop runs
                        for block in (tunnel, old, gate, feed, service, two, one):
                            await block.__aexit__(None, None, None)
                        status = 0
                    finally:
                        os._exit(status)
                assert await one.loop.in_thread(ended, child) == 0
                with pytest.raises(IdentityError, match="in use"):
                    Identity.take(tmp_path / "identity")
                # what the child had said would have come before what two says now
                refuted = two.pulse.membership.refused["refuted"]
                async with two.aserve("second", Echo()):
                    await one.await_members("second", timeout=LIMIT)
                assert await one.arequest("echo", b"on", timeout=LIMIT) == b"on"
                await tunnel.asend(b"on")
                assert await tunnel.arecv(timeout=LIMIT) == b"on"
                await tunnel.aclose()
                assert gate.stats()["name"] == "west" and gate in one.gateways
                assert await one.apublish("t", b"on") == 1
                assert (await feed.arecv(timeout=LIMIT)).body == b"on"
                seen = []
                while (event := await events.anext(0.1)) is not None:
                    seen.append(event.kind)
                assert set(seen) <= {"offers"} and not refuted and incarnation
                assert two.pulse.membership.refused["refuted"] == 0

    once(main)


def test_a_child_closes_the_node_of_a_thread(key):
    with cluster.join(key) as net, net.serve("echo", Echo()):
        child = os.fork()
        if not child:
            try:
                asyncio.run(net.aclose())
                net.close()
            finally:
                os._exit(not net.closed)
        assert ended(child) == 0
        assert net.request("echo", b"on", timeout=LIMIT) == b"on"


class Forking(Event):
    """The first wait() begins with a signal handler that forks."""

    child = None

    def wait(self, timeout=None):
        if Forking.child is None:
            Forking.child = os.fork()
            if not Forking.child:
                signal.alarm(int(LIMIT))        # it ends, whatever it waits for
        return super().wait(timeout)


def in_child(block, expected):
    """Whether a block that forks within ends so in the child. Its result in the parent."""
    status = 1
    try:
        block()
        status = expected is not None
    except mq.Forked as error:
        status = type(error) is not expected
    finally:
        if Forking.child == 0:
            os._exit(status)
    return Forking.child and ended(Forking.child) == 0


def test_a_handler_forks_in_join(key, monkeypatch):
    monkeypatch.setattr(Forking, "child", None)
    monkeypatch.setattr(blocking, "Event", Forking)
    joined = cluster.join(key, udp=False)
    assert in_child(joined.__enter__, mq.Forked)
    joined.__exit__()


def test_a_handler_forks_at_the_end(key, monkeypatch):
    monkeypatch.setattr(Forking, "child", None)
    with monkeypatch.context() as patch:
        patch.setattr(threads, "Event", Forking)
        joined = cluster.join(key, udp=False)
    joined.__enter__()
    assert in_child(joined.__exit__, None)


def test_a_child_enters_what_its_parent_has_made(key):
    joined = cluster.join(key, udp=False)
    child = os.fork()
    if not child:
        status = 1
        try:
            with joined as net, net.serve("echo", Echo()):
                status = net.request("echo", b"on", timeout=LIMIT) != b"on"
        finally:
            os._exit(status)
    assert ended(child) == 0
