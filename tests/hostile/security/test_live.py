"""Sockets behind CURVE among forgers, and before peers that never finish."""

import os
import resource
import socket
import threading

import pytest
from rawcurve import Client, greeting
from rawzmtp import COMMAND, RawPeer, command, dial, frame
from waiting import until

import mqcore as mq
from mqcore.security import ANY, Curve, Plain

HALF_OPEN = int(os.environ.get("MQCORE_HALF_OPEN", "500"))


def raw_client(url, keys, server_keys):
    """A peer by hand, past its handshake."""
    raw = RawPeer.connect(url)
    client = Client(keys.raw, server_keys.raw[0])
    raw.say(greeting(b"CURVE"))
    raw.hear(64)
    raw.say(frame(client.hello(), COMMAND))
    client.welcome(raw.frame()[1])
    raw.say(frame(client.initiate(), COMMAND))
    client.ready(raw.frame()[1])
    return raw, client


@pytest.mark.parametrize("forge, why", [
    (lambda c: frame(c.message(b"x")[:-1] + b"?"), "does not open"),
    (lambda c: frame(b"x"), "in the clear"),
    (lambda c: 2 * frame(c.message(b"")), "replayed"),
])
def test_a_forged_packet_ends_its_link_alone(
        ctx, told, server_keys, client_keys, other_keys, forge, why):
    with mq.Pull(context=ctx, heartbeat=None, security=Curve(   # raw peers answer none
            secret_key=server_keys.secret, allow=ANY)) as server:
        reason = told(server)
        url = server.bind("tcp://127.0.0.1:0").url
        honest, sealed = raw_client(url, other_keys, server_keys)
        raw, client = raw_client(url, client_keys, server_keys)
        with raw, honest:
            raw.say(frame(client.message(b"true")))
            assert server.recv() == b"true"
            raw.say(forge(client))
            assert why in reason("Disconnected")
            assert raw.ended() and server.stats().broken_peers == 1
            honest.say(frame(sealed.message(b"still here")))
            while (got := server.recv()) == b"":      # the first of the two that were the same
                pass
            assert got == b"still here"


def test_nothing_readable_is_on_the_wire(ctx, server_keys):
    """All bytes between two sockets of mqcore, seen by a relay."""
    seen = []
    secret, topic = b"the treasure is under the oak", b"a-topic-of-some-length"

    def pass_on(source, sink):
        while data := source.recv(65536):
            seen.append(data)
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    with mq.Pub(context=ctx, security=Curve(
            secret_key=server_keys.secret, allow=ANY)) as pub, \
            socket.create_server(("127.0.0.1", 0)) as between:
        url = pub.bind("tcp://127.0.0.1:0").url
        with mq.Sub(context=ctx, topics=topic, security=Curve(server_keys.public),
                    connect=f"tcp://127.0.0.1:{between.getsockname()[1]}") as sub:
            here, there = between.accept()[0], dial(url)
            here.settimeout(10)
            threads = [threading.Thread(target=pass_on, args=ends)
                       for ends in ((here, there), (there, here))]
            for thread in threads:
                thread.start()
            pub.wait_subscribers(topic, 1)
            for _ in range(3):
                pub.send_parts([topic, secret])
                assert sub.recv_parts() == [topic, secret]
        for thread in threads:
            thread.join()
        here.close()
        there.close()
    wire = b"".join(seen)
    assert b"MESSAGE" in wire and secret not in wire and topic not in wire
    assert b"Socket-Type" not in wire


def test_links_that_break_lose_nothing_that_was_not_begun(ctx, server_keys):
    """What was sealed for one connection, and not sent, is sealed anew for the next."""
    demands = Curve(secret_key=server_keys.secret, allow=ANY)
    total, body = 300, b"x" * 100_000
    with mq.Push(context=ctx, security=Curve(server_keys.public), reconnect=0.01, linger=10,
                 send_hwm_bytes=None) as push:
        with mq.Pull(context=ctx, security=demands, recv_hwm=2) as pull:
            url = pull.bind("tcp://127.0.0.1:0").url
            push.connect(url)
            push.wait_peers()
            for i in range(total):
                push.send_parts([b"%d" % i, body])
            first = [int(pull.recv_parts()[0]) for _ in range(20)]
        with mq.Pull(context=ctx, security=demands, bind=url) as pull:
            rest = []
            while not rest or rest[-1] != total - 1:
                number, data = pull.recv_parts()
                assert data == body
                rest.append(int(number))
            assert first == list(range(20)) and rest == list(range(rest[0], total))
            old, new = sorted(push.stats().peers.items(), key=lambda item: item[0].id)
            assert new[1].offered == len(rest)
            assert old[1].written + old[1].dropped.get("half_written", 0) == rest[0]


def memory():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize()


def openings(mechanism, hello, initiate):
    """What a peer may have said when it stops, at each step of a handshake."""
    said = greeting(mechanism)
    return (b"", said[:10], said, said + hello[:-1], said + hello, said + hello + initiate[:-1])


def test_half_open_handshakes(ctx, server_keys, client_keys):
    """They delay no other peer, take little memory, end at the time-out, and are counted. Each
    takes two of the process's descriptors."""
    hello = Client(client_keys.raw, server_keys.raw[0]).hello()
    initiate = frame(b"\x08INITIATE" + bytes(300), COMMAND)
    with mq.Pull(context=ctx, handshake_timeout=2.0, backlog=4096) as server:
        doors = [
            (server.bind("tcp://127.0.0.1:0", security=demands).url, demand, said)
            for demands, demand, said in (
                (Curve(secret_key=server_keys.secret, allow=ANY),
                 Curve(server_keys.public),
                 openings(b"CURVE", frame(hello, COMMAND), initiate)),
                (Plain(allow={"ann": "pw"}), Plain("ann", "pw"),
                 openings(b"PLAIN", command(b"HELLO", b"\3ann\2pw"), initiate)))]
        held, before = [], memory()
        try:
            for i in range(HALF_OPEN):
                url, _, said = doors[i % 2]
                held.append(dial(url))
                held[-1].sendall(said[i // 2 % len(said)])
            for url, demand, _ in doors:
                with mq.Push(context=ctx, connect=url, security=demand) as honest:
                    honest.send(b"in spite of them")
                    assert server.recv() == b"in spite of them"
            assert until(lambda: server.stats().failed_handshakes == HALF_OPEN, 60)
            assert memory() - before < HALF_OPEN * 32768
            assert all(RawPeer(sock).ended() for sock in held)
        finally:
            for sock in held:
                sock.close()
