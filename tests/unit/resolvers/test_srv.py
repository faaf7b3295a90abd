"""Service records, asked of a name server of the test."""

import pytest
from nameserver import NameServer

import mqcore as mq
from mqcore.errors import AddressError
from mqcore.resolvers.srv import TARGETS, resolver

pytest.importorskip("dns")
NAME = "_mq._tcp.nodes.test"


@pytest.fixture
def server():
    with NameServer() as made:
        yield made


def look_up(server, name=NAME, patience=10.0):
    return resolver.look_up(name, {"nameserver": server.url, "connect_timeout": patience})


def test_targets_come_by_priority_then_weight(server):
    server.records[NAME] = [(20, 0, 7402, "c.nodes.test"), (10, 1, 7401, "b.nodes.test"),
                            (10, 5, 7400, "a.nodes.test"), (10, 5, 7400, "a.nodes.test")]
    assert look_up(server) == ["tcp://a.nodes.test:7400", "tcp://b.nodes.test:7401",
                               "tcp://c.nodes.test:7402"]


def test_a_name_without_a_record_is_a_failed_look_up(server):
    server.records["_empty._tcp.nodes.test"] = []
    for name in (NAME, "_empty._tcp.nodes.test"):
        with pytest.raises(OSError, match="it has no service record"):
            look_up(server, name)


def test_the_target_dot_is_an_empty_set(server):
    server.records[NAME] = [(0, 0, 0, ".")]
    assert look_up(server) == []


def test_a_silent_server_takes_no_longer_than_the_time_out(server):
    server.silent = True
    with pytest.raises(OSError, match="no name server answered in time"):
        look_up(server, patience=0.2)
    assert server.asked


def test_an_answer_that_cannot_be(server):
    server.records[NAME] = [(0, 0, 0, "a.nodes.test")]
    with pytest.raises(AddressError, match="port 0"):
        look_up(server)
    assert TARGETS == 1024


@pytest.mark.parametrize("address", [
    "nodes.test", "_mq._tcp", "_mq._tcp.nodes.test:7400", "mq._tcp.nodes.test",
    "_mq.tcp.nodes.test", "_mq._tcp." + "a" * 64, "_mq._tcp." + ".".join(["abcdefgh"] * 40),
    "_mq._tcp.n\0.test",
])
def test_what_names_no_record(address):
    with pytest.raises(AddressError, match="names no service record"):
        resolver.check(address)


@pytest.mark.parametrize("nameserver", ["ns.test", "10.0.0.1:x", "10.0.0.1:0", "[::1"])
def test_a_name_server_is_an_address(nameserver):
    with pytest.raises(AddressError):
        resolver.look_up(NAME, {"nameserver": nameserver, "connect_timeout": 1.0})


def test_a_socket_follows_a_service_record(ctx, server):
    pull = ctx.socket("pull", bind="tcp://127.0.0.1:0")
    port = int(pull.endpoints[0].url.rpartition(":")[2])
    server.records[NAME] = [(0, 0, port, "127.0.0.1")]
    push = ctx.socket("push")
    push.connect(f"srv://{NAME}", nameserver=server.url, wait=60)
    push.send(b"x")
    assert pull.recv(timeout=60) == b"x"
    assert isinstance(push, mq.Socket)
