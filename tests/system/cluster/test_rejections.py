"""Nodes that do not let each other in: what is said of it, and how often."""

import contextlib
import os

import pytest

from mqcore import cluster
from mqcore.cluster import rejections, seeds
from mqcore.cluster.rejections import MOST, QUIET, Rejections

pytestmark = pytest.mark.keeps(threads=2, why="trio keeps its threads for ten seconds")
LIMIT = 50.0


def kinds(events):
    return [event.kind for event in events._queue]


def test_one_event_when_it_begins_and_one_when_it_ends(run, key, tmp_path, monkeypatch):
    monkeypatch.setattr(seeds, "AGAIN", 0.05)
    monkeypatch.setattr(seeds, "REFUSED", 0.05)
    monkeypatch.setattr(rejections, "QUIET", 2.0)
    path = tmp_path / "nodes"
    path.write_text("")

    async def main():
        async with cluster.ajoin(key, seeds=f"file://{path}", udp=False) as net:
            events = net.events()
            async with cluster.ajoin(cluster.Key.generate(), udp=False) as wrong:
                url, there = wrong.url, wrong.events()
                (tmp_path / "new").write_text(url)
                (tmp_path / "new").rename(path)
                assert await net.until(lambda: net.links.dropped.get("key_rejected", 0) >= 3, LIMIT)
                assert await net.until(
                    lambda: wrong.links.dropped.get("key_rejected", 0) >= 3, LIMIT)
                assert kinds(events) == kinds(there) == ["key rejected"]
                assert events._queue[0].url == url
                assert there._queue[0].url == "tcp://127.0.0.1"
                net.sources.seeds.clear()       # nothing is tried any more
                net.links.hang_up(net.links.dials[url])
                assert await net.until(lambda: kinds(there)[1:], LIMIT)
                assert await net.until(lambda: kinds(events)[1:], LIMIT)
                assert kinds(events) == kinds(there) == ["key rejected", "rejection over"]
                assert not net.rejections

    run(main)


def test_a_node_that_has_got_the_key(run, key, monkeypatch):
    monkeypatch.setattr(seeds, "AGAIN", 0.05)
    monkeypatch.setattr(seeds, "REFUSED", 0.05)

    async def main():
        async with cluster.ajoin(cluster.Key.generate()) as wrong:
            url = wrong.url
        async with cluster.ajoin(key, seeds=url) as net:
            events = net.events()
            async with cluster.ajoin(cluster.Key.generate(), listen=url):
                assert await net.until(lambda: net.links.dropped.get("key_rejected", 0) >= 2, LIMIT)
            async with cluster.ajoin(key, listen=url):
                assert await net.until(lambda: net.directory.members, LIMIT)
                assert kinds(events)[:2] == ["key rejected", "rejection over"]
                assert not net.rejections

    run(main)


def test_a_ban_is_said_once_at_both_sides(run, key, tmp_path, monkeypatch):
    monkeypatch.setattr(seeds, "AGAIN", 0.05)
    monkeypatch.setattr(seeds, "REFUSED", 0.05)
    file = os.fspath(tmp_path / "bad")

    async def main():
        async with cluster.ajoin(key, identity=file) as bad:
            banned = bytes.fromhex(bad.id)
        path = tmp_path / "nodes"
        path.write_text("")
        async with cluster.ajoin(key.banning(banned)) as net, \
                cluster.ajoin(key, identity=file, seeds=f"file://{path}") as bad:
            events = bad.events()
            (tmp_path / "new").write_text(net.url)
            (tmp_path / "new").rename(path)
            assert await bad.until(lambda: bad.links.dropped.get("refused", 0) >= 3, LIMIT)
            assert await net.until(lambda: net.links.dropped.get("banned", 0) >= 3, LIMIT)
            assert kinds(events) == ["key rejected"]
            assert bad.rejections[net.url].why == "banned"

    run(main)


def test_what_is_remembered_is_bounded():
    """What goes beyond it is not told, as it could be told at each attempt otherwise."""
    told = []
    table = Rejections(lambda *event, **at: told.append((event, at)))
    assert table.explain() == []
    for now in range(3):
        for number in range(3 * MOST):
            table.add(f"tcp://10.0.0.1:{number}", "no")
            table.connected(f"10.0.0.{number}", "no", now)
    assert len(table) == MOST == len(table._hosts) and len(told) == 2 * MOST
    assert table.untold == 3 * 2 * 2 * MOST
    [line] = table.explain()
    assert f"{table.untold} attempts that have no event" in line
    told.clear()
    table.add("tcp://10.0.0.1:1", "another reason")
    assert len(told) == 1
    table.over("tcp://10.0.0.1:0", "it is tried no more")
    table.add("tcp://10.0.0.1:500", "no")
    assert len(told) == 3
    table.tick(3 + QUIET + 1)
    assert not table._hosts and len(told) == 3 + MOST
    table.over("tcp://nowhere", "it is tried no more")
    assert len(told) == 3 + MOST


@contextlib.asynccontextmanager
async def without_its_seed(key):
    """A node that is alone, and the address where its seed was."""
    async with cluster.ajoin(key, udp=False) as gone:
        url = gone.url
    async with cluster.ajoin(key, udp=False, seeds=url) as net:
        yield net, url


@contextlib.asynccontextmanager
async def another_cluster_at(url, net):
    """A node of another cluster, which `net` has tried."""
    async with cluster.ajoin(cluster.Key.generate(), udp=False, listen=url):
        assert await net.until(lambda: net.rejections, LIMIT)
        yield


def test_it_is_over_when_the_node_connects_by_itself(run, key):
    """A node that has members does not try it again for 30 s."""
    async def main():
        async with without_its_seed(key) as (net, url):
            events = net.events()
            async with another_cluster_at(url, net):
                assert "does not hold" in net.explain()
            async with cluster.ajoin(key, udp=False, listen=url, seeds=net.url):
                assert await net.until(lambda: any(
                    member.url == url and member.link
                    for member in net.directory.members.values()), LIMIT)
                assert await net.until(lambda: "rejection over" in kinds(events), LIMIT)
                assert not net.rejections and "does not hold" not in net.explain()

    run(main)


def test_a_member_that_claims_the_address_ends_no_rejection(run, key):
    """The node there is asked, and its answer counts."""
    async def main():
        async with without_its_seed(key) as (net, url):
            events = net.events()
            async with another_cluster_at(url, net):
                tries = net.links.dropped["key_rejected"]
                async with cluster.ajoin(key, udp=False, url=url, seeds=net.url):
                    assert await net.until(lambda: net.links.dropped["key_rejected"] > tries,
                                           LIMIT)
                    assert list(net.rejections) == [url] and "does not hold" in net.explain()
                    assert "rejection over" not in kinds(events)

    run(main)


def test_what_is_not_told_is_said(run, key, monkeypatch):
    monkeypatch.setattr(rejections, "MOST", 0)

    async def main():
        async with cluster.ajoin(key, udp=False) as net:
            assert net.stats()["rejections_untold"] == 0 and "attempts" not in net.explain()
            async with cluster.ajoin(cluster.Key.generate(), udp=False, seeds=net.url) as wrong:
                for node in (net, wrong):
                    assert await node.until(lambda node=node: node.rejections.untold, LIMIT)
                    assert node.stats()["rejections_untold"]
                    assert "attempts that have no event" in node.explain()
                    assert not node.rejections

    run(main)
