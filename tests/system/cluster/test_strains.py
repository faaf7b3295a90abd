"""Strains on a cluster: loops that are blocked, clocks that go back, processes that are killed
while they join, names that never resolve, many nodes.

MQCORE_NODES: how many nodes live in one process.
"""

import errno
import os
import random
import signal
import threading
import time

import pytest
from echoing import Echo

from mqcore import Router, cluster
from mqcore.binding.sleep import Nap, sleep
from mqcore.cluster import balance, seeds
from mqcore.cluster.requests import Call
from mqcore.errors import SendTimeout
from mqcore.testing import until

pytestmark = pytest.mark.keeps(threads=2, why="trio keeps its threads for ten seconds")
LIMIT = 50.0
NODES = int(os.environ.get("MQCORE_NODES", "16"))
BLOCKED = 6.0       # seconds; longer than a handshake may take


def test_a_loop_that_is_blocked_for_seconds(once, key, nodes, monkeypatch):
    """The node is away for that long, and comes back by itself. Nobody waits for it."""
    monkeypatch.setattr(balance, "EJECTED", 1.0)     # five requests may fail there, one by one
    first, second = nodes(), nodes()

    async def main():
        async with cluster.ajoin(key, seeds=[nodes.seed]) as net:
            await net.await_members("work", 2, timeout=LIMIT)
            until = time.monotonic() + BLOCKED
            [stuck] = [member for member in net.members("work") if member.url == nodes.urls[1]]
            outcome = []

            async def block():
                try:
                    outcome.append(await net.requests.ask(only(net, stuck), None))
                except cluster.MemberLost:
                    outcome.append(b"lost")

            net.loop.spawn(block)
            answers = set()

            async def ask():
                """Retries and hedges are a tenth of the requests: some are lost with the node."""
                try:
                    answers.add(await net.arequest("work", b"pid", timeout=2, idempotent=True,
                                                   hedge=0.1))
                except (cluster.MemberLost, cluster.RequestTimeout):
                    pass

            while time.monotonic() < until or b"%d" % first.process.pid not in answers:
                await ask()
                await sleep(0.05)
            await net.await_members("work", 2, timeout=LIMIT)
            while b"%d" % second.process.pid not in answers:
                await ask()
                await sleep(0.02)
            assert await net.until(lambda: outcome, LIMIT)
            assert not net.requests.pending

    once(main)


async def joined(net, live):
    """A thread of live(seed, go), whose node has joined: `go` is set once it takes answers."""
    go = threading.Event()
    thread = threading.Thread(target=live, args=(net.url, go))
    thread.start()
    while not net.topics.remote.takers("answers"):
        await sleep(0.01)
    go.set()
    return thread


@pytest.mark.parametrize("messages", [3, 11_000])      # the socket takes them all, or not
def test_a_publisher_that_leaves_is_heard_by_who_finds_its_link_broken_first(run, key, messages):
    def publish(seed, go):
        with cluster.join(key, seeds=[seed]) as net, net.subscribe("answers"):
            assert go.wait(LIMIT)
            taken.extend(n for n in range(messages) if net.publish("news", b"%d" % n))

    taken: list[int] = []   # not all, if the loop stands still for so long that it counts as dead

    async def main():
        async with cluster.ajoin(key) as net, net.asubscribe("news") as feed:
            publisher = await joined(net, publish)      # from here on this loop stands still
            publisher.join(LIMIT)
            until(lambda: net.topics.publish("answers", b"") and net.topics.unsent)
            for n in taken:
                assert (await feed.arecv(timeout=LIMIT)).body == b"%d" % n
            assert await net.until(lambda: len(net.members()) == 1, LIMIT)
            assert net.links.dropped == {}

    run(main)


class Full:
    """A node's socket that takes nothing at once."""

    def __init__(self, socket):
        self.socket = socket

    def __getattr__(self, name):
        return getattr(self.socket, name)

    def send_parts(self, parts, *, timeout):
        raise SendTimeout("it is full")


def test_what_waits_for_a_full_socket_leaves_before_its_node_does(run, key):
    async def main():
        async with cluster.ajoin(key) as net, net.asubscribe("news") as feed:
            async with cluster.ajoin(key, seeds=[net.url]) as other:
                assert await other.until(lambda: other.topics.remote.takers("news"), LIMIT)
                other.links.socket = Full(other.links.socket)
                for n in range(500):
                    assert await other.apublish("news", b"%d" % n) == 1
            assert other.links.dropped == {}
            for n in range(500):
                assert (await feed.arecv(timeout=LIMIT)).body == b"%d" % n

    run(main)


def test_a_member_is_back_while_what_it_sent_before_is_still_being_read(run, key, tmp_path):
    left, over = threading.Event(), threading.Event()
    taken: list[int] = []

    def come_twice(seed, go):
        who = {"seeds": [seed], "identity": tmp_path / "identity"}
        with cluster.join(key, **who) as net, net.subscribe("answers"):
            assert go.wait(LIMIT)
            taken.extend(n for n in range(3000) if net.publish("news", b"%d" % n))
        left.set()
        with cluster.join(key, **who) as net, net.subscribe("answers"):
            assert over.wait(LIMIT)

    async def main():
        async with cluster.ajoin(key) as net, net.asubscribe("news") as feed:
            member = await joined(net, come_twice)
            assert left.wait(LIMIT)     # this loop stands still
            for n in taken:
                assert (await feed.arecv(timeout=LIMIT)).body == b"%d" % n
            assert await net.until(lambda: len(net.links.by_rid) == 1
                                   and net.topics.remote.takers("answers"), LIMIT)
            assert net.topics.publish("answers", b"") == 1
            assert net.links.dropped == {}
            over.set()
            member.join(LIMIT)

    run(main)


def only(net, member):
    return Call("work", b"block %d" % BLOCKED, None, None, False, {}, "", Nap(net.loop.loop),
                lambda one: one is member)


def test_a_publisher_that_restarts_with_an_older_clock(run, key, tmp_path, monkeypatch):
    """It has the same identity and counts anew: its messages are not taken for old ones."""
    real = time.time_ns

    async def main():
        async with cluster.ajoin(key) as net, net.asubscribe("t") as feed:
            for back in (0, 3600, 7200):
                monkeypatch.setattr(time, "time_ns", lambda back=back: real() - back * 10 ** 9)
                async with cluster.ajoin(key, seeds=[net.url],
                                         identity=tmp_path / "identity") as publisher:
                    assert await publisher.until(
                        lambda publisher=publisher: publisher.topics.remote.takers("t"), LIMIT)
                    for number in range(20):
                        await publisher.apublish("t", b"%d %d" % (back, number))
                    for number in range(20):
                        message = await feed.arecv(timeout=LIMIT)
                        assert message.body == b"%d %d" % (back, number)
            assert net.stats()["topics"]["repeated"] == 0

    run(main)


@pytest.mark.slow
def test_processes_that_are_killed_while_they_join(once, key, nodes):
    """At any moment: what is left of them is forgotten, and others join."""
    rng = random.Random(1)

    async def main():
        async with cluster.ajoin(key) as net:
            nodes.urls = [net.url]
            for _ in range(8):
                program = await net.loop.in_pool(nodes.begin)
                await sleep(rng.uniform(0.0, 1.0))
                program.process.send_signal(signal.SIGKILL)
                await net.loop.in_pool(program.process.wait)
            assert await net.until(lambda: not net.directory.members and not net.links.by_rid
                                   and not net.links.silent, LIMIT)
            program = await net.loop.in_pool(nodes)
            await net.await_members("work", timeout=LIMIT)
            assert await net.arequest("work", b"pid", timeout=LIMIT) == \
                b"%d" % program.process.pid

    once(main)


def test_a_name_that_never_resolves_keeps_no_seed_waiting(run, key, monkeypatch):
    go = threading.Event()

    def hang(self):
        assert go.wait(LIMIT)
        raise OSError("no answer")

    real = seeds.Seed.look_up

    async def look_up(self, loop):
        if "hangs" in self.text:
            self._resolver = type("Hangs", (), {"look_up": lambda *_: hang(self)})
        await real(self, loop)

    monkeypatch.setattr(seeds.Seed, "look_up", look_up)

    async def main():
        try:
            async with cluster.ajoin(key) as one, one.aserve("echo", Echo()), cluster.ajoin(
                    key, seeds=["dns://hangs.test:7400", one.url]) as two:
                assert await two.arequest("echo", b"x", timeout=LIMIT) == b"x"
                assert "dns://hangs.test:7400: its name is being looked up" in two.explain()
        finally:
            go.set()

    run(main)


@pytest.mark.parametrize("url", ["nonsense", "tcp://", "dns://", "srv://?x=1"])
def test_a_seed_that_is_no_url_fails_at_once(once, key, url):
    async def main():
        with pytest.raises((ValueError, TypeError)):
            async with cluster.ajoin(key, seeds=[url]):
                raise AssertionError("it has joined")

    once(main)


def test_many_nodes_in_one_process(once, key):
    async def main():
        nets = [await cluster.ajoin(key).__aenter__()]
        try:
            for _ in range(NODES - 1):
                nets.append(await cluster.ajoin(key, seeds=[nets[0].url]).__aenter__())
            await nets[-1].aserve("last", Echo()).astart()
            for net in nets:
                await net.await_members(n=NODES, timeout=LIMIT)
                await net.await_members("last", timeout=LIMIT)
                assert await net.arequest("last", b"x", timeout=LIMIT) == b"x"
            feeds = [await net.asubscribe("all").astart() for net in nets]
            assert await nets[0].until(lambda: len(nets[0].topics.remote.takers("all"))
                                       == NODES - 1, LIMIT)
            assert await nets[0].apublish("all", b"x") == NODES
            for feed in feeds:
                assert (await feed.arecv(timeout=LIMIT)).body == b"x"
        finally:
            for net in reversed(nets):
                await net.aclose()

    once(main)


class Slow:
    """Takes as long as `go` is not set, in whatever it is asked."""

    def __init__(self):
        self.go = False
        self.running = 0

    async def request(self, req):
        self.running += 1
        while not self.go:
            await sleep(0.01)
        return b"done"

    broadcast = request


def test_a_second_link_takes_nothing_with_it(run, key):
    """Two nodes that connect to each other have two links for a moment. What was begun over the one
    that they give up is finished there."""
    async def main():
        while True:     # until the one that connects has the larger id: it will give way
            async with cluster.ajoin(key) as one, cluster.ajoin(key, seeds=[one.url]) as two:
                if two.id > one.id:
                    await two_links(one, two)
                    return

    run(main)


async def two_links(one, two):
    slow, done = Slow(), []
    member = two.directory.members[one.directory.me.record.id]
    first = member.link
    await one.aserve("slow", slow).astart()
    await two.await_members("slow", timeout=LIMIT)

    async def ask():
        done.append(await two.arequest("slow", b"", timeout=None))

    async def survey():
        done.extend([reply.body async for reply in two.asurvey("slow", b"", deadline=LIMIT)])

    two.loop.spawn(ask)
    two.loop.spawn(survey)
    assert await two.until(lambda: slow.running == 2, LIMIT)
    one.links.dial(two.url)
    assert await two.until(lambda: first.spare or member.link is not first, LIMIT)
    for _ in range(20):         # ticks, each of which could close it
        two.links.tick(time.monotonic() + 2)
        await sleep(0.02)
    assert first.alive and first.member is member and member.link is not first and not done
    slow.go = True
    assert await two.until(lambda: len(done) == 2, LIMIT)
    assert done == [b"done"] * 2 and two.stats()["requests"]["lost"] == 0
    assert await two.until(lambda: not first.alive and member.link.alive, LIMIT)


def test_a_node_that_finds_no_descriptor_to_wait_with(run, key, monkeypatch):
    """It tries again, and is not deaf for the rest of its life."""
    async def main():
        async with cluster.ajoin(key) as one, one.aserve("echo", Echo()):
            real, failed = Router.arecv_msg, []

            async def arecv_msg(self, **how):
                if len(failed) < 3:
                    failed.append(True)
                    raise OSError(errno.EMFILE, "too many open files")
                return await real(self, **how)

            monkeypatch.setattr(Router, "arecv_msg", arecv_msg)
            async with cluster.ajoin(key, seeds=[one.url]) as two:
                assert await two.arequest("echo", b"x", timeout=LIMIT) == b"x"
                assert len(failed) in (0, 3) and not two.counts     # on asyncio, no task waits

    run(main)
