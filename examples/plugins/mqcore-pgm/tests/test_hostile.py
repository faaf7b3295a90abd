"""Packets that no PGM source sends: nothing ends, and memory stays as it is.

Sequence numbers and the source's name are not changed: with those a packet is well formed,
and forged ones can use up a source's window. PGM has no authentication."""

import random
import socket
import struct

import network
import pytest
from mqcore_pgm import epgm

import mqcore as mq

pytestmark = [
    pytest.mark.skipif(not network.LIBZMQ, reason="`make test-multicast` runs it: it takes long"),
    pytest.mark.skipif(bool(epgm.unavailable()), reason=epgm.unavailable() or "-")]

GROUP, PORT = "239.192.6.1", 21_555
PACKETS = 100_000
ROUND = 500
LIMIT = 30.0


def checksum(data):
    """Of RFC 1071, as PGM has it."""
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff or 0xffff


def sealed(packet):
    """With the right checksum, so that it gets past the first look."""
    if len(packet) < 8:
        return packet
    bare = packet[:6] + b"\0\0" + packet[8:]
    return packet[:6] + struct.pack("!H", checksum(bare)) + packet[8:]


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def capture(pub):
    """Packets of a real source, of several kinds."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(("0.0.0.0", PORT))
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
                        socket.inet_aton(GROUP) + socket.inet_aton("127.0.0.1"))
        sock.settimeout(1)
        found = {}
        while len(found) < 2:
            pub.send_parts([b"captured", bytes(300)])
            try:
                packet = sock.recv(2000)
            except TimeoutError:
                continue
            found.setdefault(packet[4], packet)
        return list(found.values())


def forged(chance, real):
    """Noise, or a real packet with some bytes changed, cut, or filled up."""
    kind = chance.randrange(5)
    if kind == 0:
        return chance.randbytes(chance.randrange(200))
    packet = bytearray(chance.choice(real))
    for _ in range(chance.randrange(1, 6)):
        body = 24 if packet[4] == 4 else 28
        at = chance.choice([*range(2, 8), 14, 15, *range(body, len(packet))])
        packet[at] = chance.randrange(256)
    if kind == 1:
        packet = packet[:chance.randrange(len(packet))]
    if kind == 2:
        packet += chance.randbytes(chance.randrange(100))
    return sealed(bytes(packet)) if kind != 3 else bytes(packet)


def test_malformed_packets_end_nothing_and_keep_no_memory(mq_context):
    chance = random.Random(1)
    url = f"epgm://lo;{GROUP}:{PORT}"
    forged_one, pub = mq_context.socket("pub", bind=url), mq_context.socket("pub", bind=url)
    sub = mq_context.socket("sub", topics=[b"real"], bind=url, max_message_size=1 << 20)
    real = capture(forged_one)
    memory = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        for n in range(PACKETS // ROUND):
            for _ in range(ROUND):
                sock.sendto(forged(chance, real), (GROUP, PORT))
            alive(pub, sub)
            if n == PACKETS // ROUND // 4:
                memory = resident()
    assert resident() - memory < 32 << 20
    alive(forged_one, mq_context.socket("sub", topics=[b"real"], bind=url))


def alive(pub, sub):
    """A message of a source that was not forged gets through."""
    for _ in range(int(LIMIT * 20)):
        pub.send(b"real")
        try:
            sub.recv(timeout=0.05)
            return
        except mq.RecvTimeout:
            pass
    raise AssertionError("nothing arrives any more")
