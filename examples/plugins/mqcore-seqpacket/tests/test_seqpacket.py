"""The suite of all transports, and what is peculiar to packets."""

import itertools
import os
import socket

import pytest

from mqcore.testing import TransportSuite

COUNT = itertools.count()


def fresh():
    return f"seqpacket://test-{os.getpid()}-{next(COUNT)}"


class TestSeqpacket(TransportSuite):
    scheme = "seqpacket"
    bad = ("x" * 200,)

    def url(self, tmp_path):
        return fresh()


def test_what_no_packet_holds_is_dropped_and_counted(mq_context):
    pull, push = mq_context.socket("pull"), mq_context.socket("push")
    push.connect(pull.bind(fresh()).url, wait=20)
    push.send(bytes(64 << 20))
    push.send(b"after")
    assert pull.recv(timeout=20) == b"after"
    [peer] = push.stats().peers.values()
    assert peer.dropped_out == {"unsendable": 1}


def stranger(url):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.connect(b"\0seqpacket/" + url.partition("://")[2].encode())
    return sock


HELLO = b"mqcore seqpacket 1"
FORGED = {
    "another protocol": b"GET / HTTP/1.1",
    "an unknown kind": b"\x07\0\0\0\0",
    "a kind and nothing": b"\0",
    "a length that is cut": b"\0\0\0",
    "a part that is cut": b"\0\0\0\0\x05hell",
    "a part that is too long": b"\0\xff\xff\xff\xff" + b"x" * 100,
    "bytes behind the last part": b"\0\0\0\0\x01x\0",
}


@pytest.mark.parametrize("case", FORGED)
def test_a_forged_packet_ends_that_peer_and_no_other(mq_context, case):
    pull, push = mq_context.socket("pull"), mq_context.socket("push")
    url = pull.bind(fresh()).url
    push.connect(url, wait=20)
    with stranger(url) as sock:
        if case != "another protocol":
            sock.send(HELLO)
        sock.send(FORGED[case])
        sock.settimeout(20)
        while sock.recv(100):  # its hello, then the end
            pass
    push.send(b"still there")
    assert pull.recv(timeout=20) == b"still there"
