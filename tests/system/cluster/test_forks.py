"""A forked child leaves the blocks of a node that is its parent's: the parent's node goes on."""

import asyncio
import os

import pytest
from waiting import until

from mqcore import cluster
from mqcore.cluster.errors import IdentityError
from mqcore.cluster.identity import Identity

LIMIT = 50.0


class Echo:
    async def request(self, req):
        return req.body


def ended(child):
    """The exit status of a child that ends by itself."""
    found = []
    until(lambda: found.append(os.waitpid(child, os.WNOHANG)) or found[-1][0] == child)
    return os.waitstatus_to_exitcode(found[-1][1])


async def leave(*blocks):
    """What a child does that unwinds. The event loop is its parent's: it cannot wait there."""
    for block in blocks:
        try:
            await block.__aexit__(None, None, None)
        except Exception:       # noqa: S110 - as long as it ends
            pass


def test_a_child_that_unwinds_takes_nothing_from_its_parent(once, key, tmp_path):
    async def main():
        async with cluster.ajoin(key) as one, cluster.ajoin(
                key, seeds=[one.url], identity=tmp_path / "identity") as two:
            service, feed = two.aserve("echo", Echo()), two.asubscribe("t")
            async with service, feed:
                await one.await_members("echo", timeout=LIMIT)
                events, incarnation = one.events(), one.members("echo")[0].record.incarnation
                child = os.fork()
                if not child:
                    try:
                        await leave(feed, service, two)
                    finally:
                        os._exit(0)
                assert await one.loop.in_thread(ended, child) == 0
                with pytest.raises(IdentityError, match="in use"):
                    Identity.take(tmp_path / "identity")
                # what the child had said would have come before what two says now
                refuted = two.pulse.membership.refused["refuted"]
                async with two.aserve("second", Echo()):
                    await one.await_members("second", timeout=LIMIT)
                assert await one.arequest("echo", b"on", timeout=LIMIT) == b"on"
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
