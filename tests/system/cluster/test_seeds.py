"""Where nodes find each other: service records, files, and the beacon of the local network."""

import os
import random
import socket
import subprocess
import sys

import pytest
from echoing import Echo
from nameserver import NameServer

from mqcore import Router, cluster
from mqcore.binding.sleep import sleep
from mqcore.cluster import beacon, links, seeds
from mqcore.errors import AddressError

pytestmark = pytest.mark.keeps(threads=2, why="trio keeps its threads for ten seconds")
LIMIT = 50.0
NODE = b"n" * 16


@pytest.fixture
def lan(monkeypatch):
    """A seed on the loopback interface, at a port of its own. A lone node does not wait long."""
    monkeypatch.setattr(beacon, "SETTLE", 0.3)
    return f"lan://lo;{beacon.GROUP}:{random.SystemRandom().randrange(20_000, 30_000)}"


def send(lan, *packets):
    where = beacon.Where.parse(lan)
    with where.open() as out:
        for packet in packets:
            out.sendto(packet, (where.group, where.port))


def refused(net):
    return net.stats()["beacon"]["refused"]


# -- the local network -----------------------------------------------------------------------------


def test_nodes_find_each_other_on_the_local_network(run, key, lan):
    async def main():
        async with cluster.ajoin(key, seeds=lan) as one, one.aserve("echo", Echo()), \
                cluster.ajoin(key, seeds=[lan]) as two:
            await two.await_members("echo", timeout=LIMIT)
            assert await two.arequest("echo", b"found", timeout=LIMIT) == b"found"
            assert "packet(s) heard" in two.explain() and one.url in two.explain()
            assert await two.until(lambda: not two.sources.beacon.dials, LIMIT)

    run(main)


def test_clusters_with_other_keys_do_not_meet(once, key, lan):
    async def main():
        async with cluster.ajoin(key, seeds=lan) as one, \
                cluster.ajoin(cluster.Key.generate(), seeds=lan) as two:
            assert await one.until(lambda: refused(one)["foreign"], LIMIT)
            assert await two.until(lambda: refused(two)["foreign"], LIMIT)
            assert not one.directory.members and not one.links.dials
            assert not one.rejections and not two.rejections      # neither has tried

    once(main)


def test_a_flood_of_foreign_packets_is_read_at_a_bounded_rate(once, key, lan):
    async def main():
        async with cluster.ajoin(key, seeds=lan) as one:
            while not refused(one)["rate"]:
                send(lan, *(os.urandom(beacon.SIZE) for _ in range(100)), b"x", b"")
                await sleep(0)
            assert refused(one)["foreign"] <= one.stats()["beacon"]["heard"]
            async with cluster.ajoin(key, seeds=lan) as two:
                assert await two.until(lambda: two.directory.members, LIMIT)

    once(main)


def test_an_insider_that_names_many_addresses_makes_few_connections(once, key, lan, monkeypatch):
    monkeypatch.setattr(beacon, "GIVE_UP", 0.2)

    async def main():
        async with cluster.ajoin(key, seeds=lan) as one:
            seal = beacon.Seal(key.beacon_keys())
            packets = [seal.seal(beacon.HERE, bytes([i]) * 16, f"tcp://127.0.0.1:{i + 1}")
                       for i in range(64)]
            while not refused(one)["busy"]:
                assert len(one.links.dials) <= beacon.PENDING
                send(lan, *packets)     # the same ones again count once
                await sleep(0.01)
            assert await one.until(lambda: not one.links.dials, LIMIT)
            assert not one.sources.beacon.dials

    once(main)


def test_an_address_of_another_machines_loopback_is_not_tried(once, key, lan):
    async def main():
        async with cluster.ajoin(key, seeds=lan) as one:
            for url in ("tcp://127.0.0.1:7400", "tcp://[::1]:7400", "tcp://localhost:7400",
                        "ipc:///tmp/node"):
                heard = beacon.Heard(beacon.HERE, 0, NODE, url)
                with pytest.raises(beacon.Refused, match="local"):
                    one.sources.beacon._take(heard, "203.0.113.9")
            assert not one.links.dials
            assert "only programs of this machine" in one.explain()

    once(main)


def test_a_network_without_multicast_is_told():
    apart = ["unshare", "-rn"]
    if (tried := subprocess.run([*apart, "true"], capture_output=True, text=True)).returncode:
        pytest.skip(f"no network namespace can be made here: {tried.stderr.strip()[:200]}")
    program = """if True:
        import os, tempfile
        from mqcore import cluster
        with tempfile.TemporaryDirectory() as folder:
            with cluster.join(cluster.Key.generate(), listen=f"ipc://{folder}/n", seeds="lan",
                              udp=False) as net:
                print(net.explain())
    """
    done = subprocess.run([*apart, sys.executable, "-c", program], capture_output=True, text=True,
                          timeout=120)
    assert "seed lan://239.192.77.81:7401: no multicast here: " in done.stdout, done.stderr


def test_a_packet_names_no_file_of_this_machine(once, key, lan, tmp_path):
    """A node at this machine that has the key could have every node here read it, or join with
    another key."""
    path = tmp_path / "nodes"
    path.write_text("tcp://127.0.0.1:1")

    async def main():
        async with cluster.ajoin(key, seeds=lan) as one:
            for url in (f"file://{path}", "dns://localhost:1", "cluster://x?key=/k&seeds=s"):
                with pytest.raises(beacon.Refused, match="malformed"):
                    one.sources.beacon._take(beacon.Heard(beacon.HERE, 0, NODE, url), "127.0.0.1")
            assert not one.links.dials

    once(main)


# -- packets ---------------------------------------------------------------------------------------


def test_a_packet_shows_nothing_of_what_it_says(key):
    seal = beacon.Seal(key.beacon_keys())
    url = "tcp://db-primary.example.org:7400"
    first, second = (seal.seal(beacon.CALL, NODE, url) for _ in range(2))
    assert len(first) == len(second) == len(seal.seal(beacon.HERE, NODE, "x://y")) == beacon.SIZE
    assert url.encode() not in first and NODE not in first
    assert bytes.fromhex(key.id) not in first
    assert sum(a == b for a, b in zip(first, second, strict=True)) < 20   # as chance has it
    heard = beacon.Seal(key.beacon_keys()).open(first)
    assert (heard.kind, heard.id, heard.url) == (beacon.CALL, NODE, url)


def test_a_packet_counts_once_if_it_is_recent_and_of_this_key(key):
    wall = 1_800_000_000.0
    seal = beacon.Seal(key.beacon_keys(), wall=lambda: wall)
    packet = seal.seal(beacon.CALL, NODE, "tcp://10.0.0.1:7400")
    seal.open(packet)

    def reason(data, keys=key, now=wall):
        with pytest.raises(beacon.Refused) as caught:
            opened.append(beacon.Seal(keys.beacon_keys(), wall=lambda: now).open(data))
        return caught.value.args[0]

    opened = []
    with pytest.raises(beacon.Refused, match="repeated"):
        seal.open(packet)
    assert reason(packet, cluster.Key.generate()) == "foreign"
    assert {reason(packet[:at] + bytes([packet[at] ^ 1]) + packet[at + 1:])
            for at in range(len(packet))} == {"foreign"}
    assert reason(packet[:-1]) == reason(packet + b"x") == reason(b"") == "size"
    assert reason(packet, now=wall + 301) == reason(packet, now=wall - 301) == "clock"
    assert reason(seal.seal(3, NODE, "tcp://10.0.0.1:7400")) == "malformed"
    assert reason(seal.seal(beacon.CALL, NODE, "no url")) == "malformed"
    assert not opened


def test_the_memory_of_packets_is_bounded(key, monkeypatch):
    monkeypatch.setattr(beacon, "SEEN", 10)
    seal = beacon.Seal(key.beacon_keys())
    for _ in range(50):
        seal.open(seal.seal(beacon.CALL, NODE, "tcp://10.0.0.1:7400"))
    assert len(seal._seen) == 10


def test_keys_can_be_rotated(key):
    new = key.accepting_new()
    offering = new.offering(new.newest)
    for sender, receiver in ((key, new), (offering, new), (new, offering)):
        packet = beacon.Seal(sender.beacon_keys()).seal(beacon.CALL, NODE, "tcp://10.0.0.1:7400")
        assert beacon.Seal(receiver.beacon_keys()).open(packet).id == NODE


@pytest.mark.parametrize("seed", [
    "lan://10.0.0.1:5", "lan://239.1.1.1", "lan://239.1.1.1:0", "lan://group.test:5", "lan://*:5",
    "lan://[ff02::1]:5", "lan://lo:5;239.1.1.1:5"])
def test_a_seed_that_is_no_group(once, key, seed):
    async def main():
        with pytest.raises(AddressError):
            await cluster.ajoin(key, seeds=seed).__aenter__()

    once(main)


def test_one_place_on_the_local_network():
    with pytest.raises(AddressError, match="in one place on the local network"):
        seeds.split(["lan", "tcp://10.0.0.1:1", "lan://239.1.1.1:5"])
    others, where = seeds.split(["tcp://10.0.0.1:1", "lan"])
    assert others == ("tcp://10.0.0.1:1",)
    assert str(where) == "lan://239.192.77.81:7401"
    assert beacon.Where.parse("lan://127.0.0.1;239.1.1.1:5").target() == "127.0.0.1"


# -- names that are looked up ----------------------------------------------------------------------


def test_a_service_record_is_a_seed(run, key):
    pytest.importorskip("dns")

    async def main():
        with NameServer() as server:
            async with cluster.ajoin(key) as one:
                port = int(one.url.rpartition(":")[2])
                server.records["_mq._tcp.nodes.test"] = [(0, 0, port, "127.0.0.1")]
                seed = f"srv://_mq._tcp.nodes.test?nameserver={server.url}"
                async with cluster.ajoin(key, seeds=seed) as two:
                    assert await two.until(lambda: two.directory.members, LIMIT)

    run(main)


def test_seeds_are_looked_up_again_while_a_node_is_alone(run, key, tmp_path, monkeypatch):
    monkeypatch.setattr(seeds, "AGAIN", 0.1)
    path = tmp_path / "nodes"

    async def main():
        async with cluster.ajoin(key) as one, \
                cluster.ajoin(key, seeds=f"file://{path}") as two:
            assert f"seed file://{path}: No such file or directory" in two.explain()
            new = tmp_path / "new"
            new.write_text(one.url)
            new.rename(path)
            assert await two.until(lambda: two.directory.members, LIMIT)
            assert "No such file" not in two.explain()

    run(main)


def test_the_beacon_of_a_closed_node_is_closed(once, key, lan):
    async def main():
        async with cluster.ajoin(key, seeds=lan) as net:
            there = net.sources.beacon._socket
            assert isinstance(there, socket.socket) and there.fileno() >= 0
        assert there.fileno() == -1 and not net.sources.beacon._cancel

    once(main)


def test_a_bad_line_of_a_file_takes_nothing_from_the_others(run, key, tmp_path):
    path = tmp_path / "nodes"

    async def main():
        async with cluster.ajoin(key) as one:
            path.write_text(f"tcp:/10.0.0.1:7400\nwhat://10.0.0.1:1\n{one.url}\n")
            async with cluster.ajoin(key, seeds=f"file://{path}") as two:
                assert await two.until(lambda: two.directory.members, LIMIT)
                assert f"seed file://{path}: line 1: " in two.explain()
            path.write_text(f"what://10.0.0.1:1\n{one.url}\n")
            async with cluster.ajoin(key, seeds=f"file://{path}") as two:
                assert await two.until(lambda: two.directory.members, LIMIT)
                assert f"seed file://{path}: what://10.0.0.1:1: " in two.explain()
                assert not two.counts.get("trouble")

    run(main)


def test_a_line_that_is_no_text_can_be_shown(run, key, tmp_path):
    """The name of a file may have any bytes, so an address may, too."""
    path, odd = tmp_path / "nodes", os.fsencode(tmp_path) + b"/\xe9"

    async def main():
        async with cluster.ajoin(cluster.Key.generate(), udp=False, url="tcp://127.0.0.1:1",
                                 listen="ipc://" + os.fsdecode(odd)):
            path.write_bytes(b"tcp://caf\xe9.example.org:1\n")
            async with cluster.ajoin(key, seeds=f"file://{path}") as net:
                events = net.events()
                assert "caf\\udce9.example.org" in net.explain()
                net.explain().encode()
            path.write_bytes(b"ipc://" + odd + b"\n")
            net = cluster.ajoin(key, seeds=f"file://{path}")
            events = net.events()
            with pytest.raises(cluster.KeyRejected) as caught:
                await net.__aenter__()
            event = events.next()
            assert event.kind == "key rejected"
            for text in (str(caught.value), caught.value.peer, event.url, str(event)):
                assert "\\udce9" in text
                text.encode()

    run(main)


def test_a_name_that_changes_leaves_no_connections_behind(once, key, tmp_path, monkeypatch):
    monkeypatch.setattr(seeds, "AGAIN", 0.05)
    path = tmp_path / "nodes"

    async def main():
        path.write_text("tcp://127.0.0.1:1\n")
        async with cluster.ajoin(key, seeds=f"file://{path}") as net:
            for port in range(2, 6):
                (tmp_path / "new").write_text(f"tcp://127.0.0.1:{port}\ntcp://127.0.0.1:9\n")
                (tmp_path / "new").rename(path)
                wanted = {f"tcp://127.0.0.1:{port}", "tcp://127.0.0.1:9"}
                assert await net.until(lambda wanted=wanted: set(net.links.dials) == wanted, LIMIT)
            assert await net.until(lambda: len(net.links.socket.endpoints) == 3, LIMIT)

    once(main)


def test_a_former_address_that_still_has_a_connection(once, key, tmp_path, monkeypatch):
    """There is no node that answers. It is given up, unless it is named again."""
    monkeypatch.setattr(seeds, "AGAIN", 0.05)
    monkeypatch.setattr(links, "PATIENCE", 1.0)
    path = tmp_path / "nodes"

    def name(url):
        (tmp_path / "new").write_text(f"{url}\n")
        (tmp_path / "new").rename(path)

    async def main():
        with Router(probe=True, linger=0) as stuck:
            url = stuck.bind("tcp://127.0.0.1:0").url
            name(url)
            async with cluster.ajoin(key, seeds=f"file://{path}") as net:
                dials = net.links.dials

                def is_seed():
                    return url in dials and dials[url].seed

                for again in (True, False):
                    assert await net.until(lambda: url in dials and dials[url].link, LIMIT)
                    name("tcp://127.0.0.1:1")
                    assert await net.until(lambda: not is_seed(), LIMIT)
                    if again:
                        name(url)
                        assert await net.until(is_seed, LIMIT)
                assert await net.until(lambda: set(dials) == {"tcp://127.0.0.1:1"}, LIMIT)
                assert await net.until(lambda: len(net.links.socket.endpoints) == 2, LIMIT)

    once(main)


def test_a_seed_that_has_refused_is_tried_again_while_a_node_is_alone(run, key, monkeypatch):
    """It had another key, say, until it was given this one."""
    monkeypatch.setattr(seeds, "REFUSED", 0.1)

    async def main():
        async with cluster.ajoin(cluster.Key.generate()) as wrong:
            url = wrong.url
        async with cluster.ajoin(key, seeds=url) as net:
            async with cluster.ajoin(cluster.Key.generate(), listen=url):
                assert await net.until(lambda: url in net.rejections, LIMIT)
            async with cluster.ajoin(key, listen=url):
                assert await net.until(lambda: net.directory.members, LIMIT)
                assert not net.rejections

    run(main)
