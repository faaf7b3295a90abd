"""Packets that no NORM source sends. libnorm may end its process: ours goes on, with its memory.

What tells a source, its place in the stream and its timing is not changed, nor are sizes and
numbers of our messages: with these a packet is well formed, and forged ones can silence a source.
NORM has no authentication, as libnorm has it. test_forged.py is about sizes and numbers."""

import os
import socket
import struct
import time

import processes
import pytest
from mqcore_norm import norm

import mqcore as mq

pytestmark = [
    pytest.mark.skipif("MULTICAST_LIBZMQ" not in os.environ,
                       reason="`make test-multicast` runs it: it takes long"),
    pytest.mark.skipif(bool(norm.unavailable()), reason=norm.unavailable() or "-")]

GROUP, PORT = "239.192.8.2", 21_556
PACKETS = 100_000
ROUND = 500
NAMES = 20              # bytes of a packet until then
DATA = 2                # the kind of packets with pieces of the stream
PLACE, HEAD = 8, 12     # bytes in front of a piece; of a message's size and number
LIMIT = 60.0


def resident(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * 4096


def capture(pub, seconds=2.0):
    """Packets of a real source, of each kind and size."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((GROUP, PORT))
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
                        socket.inet_aton(GROUP) + socket.inet_aton("127.0.0.1"))
        sock.settimeout(0.2)
        found = {}
        end = time.monotonic() + seconds
        while time.monotonic() < end or len(found) < 2:
            pub.send_parts([b"captured", bytes(300)])
            try:
                packet = sock.recv(2000)
            except TimeoutError:
                continue
            found.setdefault((packet[:2], len(packet)), packet)
        return list(found.values())


def places(packet):
    """(the bytes that may change, those in front of a piece of the stream)"""
    if packet[0] & 15 != DATA:
        return [0, 1, *range(NAMES, len(packet))], len(packet)
    piece = 4 * packet[1] + PLACE
    kept = set(range(piece - PLACE, piece))
    [first] = struct.unpack_from("!H", packet, piece - PLACE + 2)
    at = piece + first - 1 if first else len(packet)        # where a message begins; 0: nowhere
    while at < len(packet):
        kept |= set(range(at, at + HEAD))
        at += HEAD + int.from_bytes(packet[at:at + 4], "big")
    return [at for at in (0, *range(NAMES, len(packet))) if at not in kept], piece


def forged(chance, real):
    """Noise, or a real packet with some bytes changed, cut, or filled up."""
    kind = chance.randrange(5)
    if kind == 0:
        return chance.randbytes(chance.randrange(200))
    packet = bytearray(chance.choice(real))
    free, piece = places(packet)
    for _ in range(chance.randrange(1, 6)):
        packet[chance.choice(free)] = chance.randrange(256)
    if kind == 1:                   # of a piece nothing: the rest would read as zeros
        packet = packet[:chance.randrange(piece)]
    if kind == 2:
        packet += chance.randbytes(chance.randrange(100))
    return bytes(packet)


def test_malformed_packets_end_nothing_and_keep_no_memory(mq_context, chance):
    url = f"norm://lo;{GROUP}:{PORT}"
    pub = mq_context.socket("pub", bind=url)
    sub = mq_context.socket("sub", topics=[b"real"], bind=url, max_message_size=1 << 20)
    real = capture(pub)
    alive(pub, sub)
    memory = resident("self")
    seen = set(processes.all_of(url))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        for _ in range(PACKETS // ROUND):
            for _ in range(ROUND):
                sock.sendto(forged(chance, real), (GROUP, PORT))
            found = processes.all_of(url)
            seen |= set(found)
            assert max(map(resident, found)) < 1 << 30
    alive(pub, sub)
    print(f"libnorm ended {len(seen) - 4} of its processes")
    assert resident("self") - memory < 32 << 20
    assert len(processes.all_of(url)) == 4


def alive(pub, sub):
    """A message gets through."""
    for _ in range(int(LIMIT * 20)):
        pub.send(b"real")
        try:
            sub.recv(timeout=0.05)
            return
        except mq.RecvTimeout:
            pass
    raise AssertionError("nothing arrives any more")
