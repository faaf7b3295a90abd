"""What peers get of a socket whose event loop is busy with a callback: their PINGs are answered,
and their handshakes, subscriptions and ends take effect meanwhile."""

import asyncio
import time

import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

import mqcore as mq
from mqcore.testing import until

LIMIT = 60
BEATS = 0.3         # seconds: that long without a PONG, and the peer gives up
BEAT = {"HEARTBEAT_IVL": 100, "HEARTBEAT_TIMEOUT": int(BEATS * 1000)}


def seen(monitor):
    """The names of the events so far."""
    names = []
    while monitor.poll(0):
        names.append(zmq.Event(recv_monitor_message(monitor)["event"]).name)
    return names


def gets(pub, peer, topic):
    """What is published reaches this peer by now."""
    def got():
        pub.send(topic)
        return peer.poll(0)
    until(got, LIMIT)


@pytest.fixture
def blocked():
    """blocked(sock, call): call() in a loop that leads this socket, since a task waits there. The
    loop runs nothing else meanwhile."""
    def run(sock, call):
        async def main():
            task = asyncio.ensure_future(sock.arecv(timeout=LIMIT))
            while sock._leader() < 2:
                await asyncio.sleep(0)
            call()
            task.cancel()
        asyncio.run(main())
    return run


@pytest.mark.parametrize("io_threads", [1, 2])
def test_pings_are_answered(zsock, blocked, io_threads):
    with mq.Context(io_threads=io_threads, linger=0) as context:
        s = context.socket("pair", bind="tcp://127.0.0.1:0")
        peer = zsock("PAIR", **BEAT)
        monitor = peer.get_monitor_socket()
        peer.connect(s.endpoints[0].url)
        s.wait_peers(1, LIMIT)
        blocked(s, lambda: time.sleep(5 * BEATS))
        names = seen(monitor)
        assert "HANDSHAKE_SUCCEEDED" in names and "DISCONNECTED" not in names
        monitor.close()


def test_what_changes_at_peers_takes_effect(ctx, zsock, blocked):
    s = ctx.socket("xpub", bind="tcp://127.0.0.1:0")
    url = s.endpoints[0].url
    first, leaves = zsock("SUB", connect=url), zsock("SUB", connect=url)
    s.wait_peers(2, LIMIT)

    def changes():
        first.subscribe(b"topic")
        gets(s, first, b"topic")
        assert not s._leader()      # it was taken from the loop
        leaves.close()
        until(lambda: len(s.peers()) == 1, LIMIT)
        new = zsock("SUB")
        monitor = new.get_monitor_socket()
        new.connect(url)
        until(lambda: "HANDSHAKE_SUCCEEDED" in seen(monitor), LIMIT)
        new.subscribe(b"other")
        gets(s, new, b"other")
        monitor.close()

    blocked(s, changes)


def test_the_loop_leads_again(ctx, zsock):
    """What came while it was busy is received, and then it reads for itself."""
    s = ctx.socket("pair", bind="tcp://127.0.0.1:0")
    peer = zsock("PAIR", connect=s.endpoints[0].url)
    s.wait_peers(1, LIMIT)

    async def main():
        for _ in range(3):
            task = asyncio.ensure_future(s.arecv(timeout=LIMIT))
            while s._leader() < 2:
                await asyncio.sleep(0)
            peer.send(b"x")
            until(lambda: not s._leader(), LIMIT)
            assert await task == b"x"

    asyncio.run(main())
