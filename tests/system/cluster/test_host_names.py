"""Members that give host names as their addresses: look-ups never stop the loop."""

import socket
import threading

import pytest
from echoing import Echo

from mqcore import cluster

pytestmark = pytest.mark.keeps(threads=2, why="trio keeps its threads for ten seconds")
LIMIT = 50.0


def heard(net):
    """Datagrams of the membership protocol that a node took, over UDP or a link."""
    counters = net.stats()["membership"]["counters"]
    return sum(count for name, count in counters.items()
               if name.endswith("_in") and name != "sync_in")


class Look:
    """Stands in for the system's look-up: it waits until it may go on. `member.test` is here."""

    def __init__(self, monkeypatch):
        self.real = socket.getaddrinfo
        self.asked = threading.Event()
        self.go = threading.Event()
        self.known = True
        self.threads = set()
        monkeypatch.setattr(socket, "getaddrinfo", self)

    def __call__(self, host, *args, **options):
        if host != "member.test":
            return self.real(host, *args, **options)
        self.threads.add(threading.get_ident())
        self.asked.set()
        assert self.go.wait(LIMIT)
        if not self.known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self.real("127.0.0.1", *args, **options)


@pytest.fixture
def look(monkeypatch):
    made = Look(monkeypatch)
    yield made
    made.go.set()


def test_a_slow_look_up_stops_nothing(run, key, look):
    async def main():
        async with cluster.ajoin(key) as one, one.aserve("echo", Echo()), \
                cluster.ajoin(key, seeds=[one.url], url="tcp://member.test:9") as two:
            await two.await_members("echo", timeout=LIMIT)
            assert await one.until(look.asked.is_set, LIMIT)
            assert await two.arequest("echo", b"meanwhile", timeout=LIMIT) == b"meanwhile"
            look.go.set()
            assert await one.until(
                lambda: one.pulse.names.known["member.test"].address == "127.0.0.1", LIMIT)
            before = heard(two)
            assert await one.until(lambda: heard(two) > before, LIMIT)
            assert "resolve" not in one.explain()
            assert threading.get_ident() not in look.threads

    run(main)


def test_a_name_that_does_not_resolve_is_told(run, key, look):
    """Its member stays, since the membership protocol goes over the link instead."""
    look.known = False
    look.go.set()

    async def main():
        async with cluster.ajoin(key) as one:
            events = one.events()
            async with cluster.ajoin(key, seeds=[one.url], url="tcp://member.test:9") as two:
                while (event := await events.anext(LIMIT)).kind != "trouble":
                    pass
                assert "member.test does not resolve: Name or service not known" in event.reason
                assert "member.test does not resolve: Name or service not known" in one.explain()
                assert await one.until(lambda: heard(two) > 2, LIMIT)
                assert [member.state for member in one.members()] == ["alive", "alive"]

    run(main)


def test_a_wildcard_looks_its_seed_up_in_a_thread(monkeypatch, key, run):
    from mqcore.cluster import node

    threads = []
    real = node.reachable
    monkeypatch.setattr(node, "reachable",
                        lambda *args: threads.append(threading.get_ident()) or real(*args))

    async def main():
        async with cluster.ajoin(key, listen="tcp://*:0", seeds=["tcp://127.0.0.1:9"]) as net:
            assert net.url.startswith("tcp://127.0.0.1:")

    run(main)
    assert threads and threading.get_ident() not in threads


def test_a_node_leaves_while_a_name_is_looked_up(key, run, look):
    """The thread that looks it up may go on; the node does not wait for it."""
    async def main():
        async with cluster.ajoin(key) as one:
            async with cluster.ajoin(key, seeds=[one.url], url="tcp://member.test:9"):
                assert await one.until(look.asked.is_set, LIMIT)
        assert not look.go.is_set()
        look.go.set()

    run(main)
