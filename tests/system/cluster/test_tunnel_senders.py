"""Tasks that share a tunnel, ends with different windows, and a socket that was full."""

import asyncio

import pytest

from mqcore import cluster
from mqcore.binding.sleep import sleep
from mqcore.cluster.flow import PIECE_COST, Flow
from mqcore.cluster.link import Link
from mqcore.errors import SendTimeout, StateError

pytestmark = pytest.mark.keeps(threads=2, why="trio keeps its threads for ten seconds")
LIMIT = 50.0


class Reader:
    def __init__(self):
        self.got = []

    async def tunnel(self, tun):
        async for message in tun:
            self.got.append(bytes(message))


def tunnelled(handler, function):
    """function(tunnel) with a tunnel to that handler."""
    async def main(key):
        async with cluster.ajoin(key) as server, server.aserve("it", handler), \
                cluster.ajoin(key, seeds=[server.url]) as client:
            await client.await_members("it", timeout=LIMIT)
            await function(await client.atunnel("it", timeout=LIMIT))

    return main


async def greedy(tunnel):
    while True:
        await tunnel.asend(b"greedy")


def test_a_task_that_sends_on_and_on_leaves_turns_to_others(once, key):
    async def use(tunnel):
        task = asyncio.ensure_future(greedy(tunnel))
        await sleep(0.05)
        for _ in range(20):
            await tunnel.asend(b"mine", timeout=LIMIT)
        await asyncio.wait_for(tunnel.aclose(), LIMIT)
        with pytest.raises((cluster.TunnelClosed, StateError)):
            await task

    reader = Reader()
    once(lambda: tunnelled(reader, use)(key))
    assert reader.got.count(b"mine") == 20


def test_tasks_send_in_the_order_in_which_they_came(once, key):
    """Those that give up leave the others' order alone, however they give up."""
    async def use(tunnel):
        first = asyncio.ensure_future(tunnel.asend(bytes(4_000_000)))
        await sleep(0)
        tasks = [asyncio.ensure_future(tunnel.asend(
            b"%d" % number, timeout=0 if number % 5 == 1 else LIMIT)) for number in range(100)]
        await sleep(0)
        for task in tasks[3::5]:
            task.cancel()
        done = await asyncio.gather(first, *tasks, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in done[4::5])
        assert all(isinstance(one, SendTimeout) for one in done[2::5])
        assert not any(done[at::5] != [None] * len(done[at::5]) for at in (1, 3, 5))
        await tunnel.aclose()

    reader = Reader()
    once(lambda: tunnelled(reader, use)(key))
    assert reader.got[1:] == [b"%d" % number for number in range(100) if number % 5 not in (1, 3)]


def test_a_sender_that_is_cancelled_when_its_turn_comes_hands_it_on(once, key):
    async def use(tunnel):
        for _ in range(50):
            await tunnel._line_up(None)
            cancelled = asyncio.ensure_future(tunnel.asend(b"no"))
            next_one = asyncio.ensure_future(tunnel.asend(b"yes"))
            await sleep(0)
            tunnel._hand_on()
            cancelled.cancel()
            await asyncio.wait_for(next_one, LIMIT)
        await tunnel.aclose()

    reader = Reader()
    once(lambda: tunnelled(reader, use)(key))
    assert reader.got == [b"yes"] * 50


def test_closing_waits_for_others_for_a_while(once, key, monkeypatch):
    class Deaf:
        async def tunnel(self, tun):
            await sleep(LIMIT)

    async def use(tunnel):
        task = asyncio.ensure_future(greedy(tunnel))
        assert await tunnel._node.until(lambda: tunnel._flow.credit <= 0, LIMIT)
        await asyncio.wait_for(tunnel.aclose(), LIMIT)
        with pytest.raises(cluster.TunnelClosed):
            await task

    monkeypatch.setattr("mqcore.cluster.tunnel.OTHERS", 0.2)
    once(lambda: tunnelled(Deaf(), use)(key))


@pytest.mark.parametrize("one, other", [(1 << 21, 1 << 16), (1 << 16, 1 << 21), (1 << 16, 1 << 16)])
def test_windows_of_different_sizes(one, other):
    """A receiver returns credit before the sender with the smaller window has spent all of it."""
    sender, receiver = Flow(one), Flow(other)
    sender.granted(other)
    receiver.granted(one)
    for _ in range(1000):
        while sender.spend(1000):
            receiver.data(bytes(1000), True)
            receiver.take()
        credit = receiver.grant()
        assert credit >= min(one, other) // 4
        sender.credited(credit)
    assert receiver.received >= 1000 * (min(one, other) // 4) // (1000 + PIECE_COST)


class Full:
    """What a link needs of a node. The socket takes nothing at first."""

    def __init__(self, key):
        self.node = self.socket = self.loop = self
        self.key, self.static = key, cluster.crypto.X25519PrivateKey.generate()
        self.full, self.sent = True, []

    def send_parts(self, parts, timeout):
        if self.full:
            raise SendTimeout
        self.sent.append(parts[1])

    async def asend_parts(self, parts):
        self.sent.append(parts[1])

    def spawn(self, function):
        """As Python 3.12 and later begin a task: at once."""
        running = function()
        with pytest.raises(StopIteration):
            running.send(None)


def test_what_did_not_fit_into_the_socket_is_flushed_by_a_task_that_begins_at_once(key):
    node = Full(key)
    link = Link(node, b"rid", 1, None)
    link._raw(b"one")
    assert node.sent == [b"one"] and not link.unsent and not link.unsent_bytes
    node.full = False
    link._raw(b"two")
    assert node.sent == [b"one", b"two"]
