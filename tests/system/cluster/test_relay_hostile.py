"""Bindings that break the rules: the relay ends their connection, and others do not notice.

MQCORE_ROUNDS: further random conversations; MQCORE_SEED: where they begin.
"""

import asyncio
import os
import random

import pytest
from fake_net import Echo
from relay_client import client_allows, opened, run

from mqcore.cluster import relay_frames, relay_tunnel
from mqcore.cluster.relay_frames import (
    CHUNK,
    VERSION,
    Broadcast,
    Close,
    Closed,
    Hello,
    Publish,
    Reply,
    Request,
    Subscribe,
    TunnelAllow,
    TunnelClose,
    TunnelConfirm,
    TunnelInit,
    TunnelTransfer,
    Unsubscribe,
    encode,
)

ROUNDS = int(os.environ.get("MQCORE_ROUNDS", "1"))
SEED = int(os.environ.get("MQCORE_SEED", "1"))


@pytest.mark.parametrize("bad", [
    bytes.fromhex("01"), bytes.fromhex("0e"), encode(Hello("iris-client-magic", VERSION, "")),
    bytes.fromhex("08 01 74 ffffffffffffffffff01"),
    encode(Request(1, "echo", b"hang", 9000)) * 2,
    encode(TunnelInit(1, "echo", 9000)) * 2,
    encode(TunnelInit(1, "echo", 9000)) + encode(TunnelConfirm(0, 1)),
], ids=lambda data: data[:4].hex())
def test_violations_end_the_connection(bad):
    async def test(net, relay, connect):
        async with connect() as client:
            client.writer.write(bad)
            assert isinstance((await client.rest())[-1], Closed)
        async with connect() as client:
            await client.silent(1)          # others do not notice
        assert relay.counters["malformed"] == 1
    run(test)


@pytest.mark.parametrize("transfers", [
    [TunnelTransfer(3, 2, b"longer")],
    [TunnelTransfer(3, relay_frames.MAX_BODY + 1, b"x")],
    [TunnelTransfer(3, relay_frames.MAX_BODY, bytes(CHUNK))] * 2 * (relay_tunnel.WINDOW // CHUNK),
], ids=["longer", "huge", "discards"])
def test_violations_in_a_tunnel(transfers):
    async def test(net, relay, connect):
        async with connect() as client:
            await opened(client)
            client.send(*transfers)
            if transfers[0].size == relay_frames.MAX_BODY and len(transfers) > 1:
                await client_allows(client, (len(transfers) - 1) * CHUNK)
                await client.silent(1)      # discarded messages take no memory
            else:
                assert isinstance((await client.rest())[-1], Closed)
    run(test)


def test_a_binding_that_ignores_its_allowance(monkeypatch):
    monkeypatch.setattr(relay_tunnel, "WINDOW", 1 << 18)

    async def test(net, relay, connect):
        relay._limit = 1 << 18

        class Stuck(Echo):
            async def tunnel(self, tunnel):
                await asyncio.sleep(3600)
        net.services["stuck"] = [Stuck()]
        async with connect() as client:
            await opened(client, name="stuck")
            for _ in range(100):
                client.send(TunnelTransfer(3, CHUNK, bytes(CHUNK)))
            while not relay.counters["malformed"]:
                await asyncio.sleep(0.001)
    run(test)


def test_random_frames():
    """Any frames in any order: the relay lives, and answers others."""
    chance = random.Random(SEED)

    def frame():
        number = chance.randrange(3)
        return chance.choice([
            lambda: Request(chance.randrange(1000), chance.choice(("echo", "x", "")), b"b",
                            chance.randrange(20)),
            lambda: Reply(number, chance.choice((b"", b"x", "", "y"))),
            lambda: Broadcast(chance.choice(("echo", "mine")), b"b"),
            lambda: Subscribe(chance.choice("abc")), lambda: Unsubscribe(chance.choice("abc")),
            lambda: Publish(chance.choice("abc"), b"e"),
            lambda: TunnelInit(number, chance.choice(("echo", "x")), chance.randrange(20)),
            lambda: TunnelConfirm(number, number), lambda: TunnelAllow(number, 100),
            lambda: TunnelTransfer(number, chance.randrange(3), b"x" * chance.randrange(3)),
            lambda: TunnelClose(number)])()

    async def test(net, relay, connect):
        for _ in range(100 * ROUNDS):
            async with connect(chance.choice(("", "mine"))) as client:
                data = bytearray(b"".join(encode(frame()) for _ in range(30)))
                if chance.random() < 0.5:
                    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
                client.writer.write(bytes(data))
                if chance.random() < 0.3:
                    client.send(Close())
                if chance.random() < 0.5:
                    await asyncio.sleep(0.001)
        async with connect() as client:
            await client.silent(1)
        assert not relay.counters["errors"], relay.counters
    run(test)


def test_too_many_bindings(monkeypatch):
    monkeypatch.setattr("mqcore.cluster.relay.MAX_BINDINGS", 2)

    async def test(net, relay, connect):
        async with connect(), connect(), connect(greet=False) as third:
            assert await third.get() is None
        assert relay.counters["too_many_bindings"] == 1
    run(test)
