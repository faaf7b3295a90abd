"""What libzmq 4.3.5 says in its handshakes, recorded between a PUSH and a PULL of its own; ours say
the same, but for the byte of the greeting that tells a server (libzmq leaves it 0)."""

import socket

import pytest
from rawzmtp import RawPeer

import mqcore as mq

GREETING = {name: b"\xff" + bytes(7) + b"\1\x7f\3\1" + name.ljust(52, b"\0")
            for name in (b"NULL", b"PLAIN", b"CURVE")}
PUSH = b"\x0bSocket-Type\0\0\0\4PUSH"
PULL = b"\x0bSocket-Type\0\0\0\4PULL"
HELLO, INITIATE = b"\4\x0d\5HELLO\3ann\2pw", b"\4\x1d\x08INITIATE" + PUSH
WELCOME, READY = b"\4\x08\7WELCOME", b"\4\x1a\5READY"
#: PLAIN's ERROR is misspelt there ("\x05E" in its source is one character), NULL's is not
PLAIN_ERROR, NULL_ERROR = bytes.fromhex("04095e52524f5203343030"), b"\4\x0a\5ERROR\x03400"
#: HELLO to a server whose secret key is this
SECRET = "7^EzFDZH:K{v:O<kE>u/UX*a<PRO0pSYOF8U^J]7"
CURVE_HELLO = bytes.fromhex(
    "04c8 0548454c4c4f 0100" + 72 * "00"
    + "1679c81f8b51b575698d1d082ed6d36106d061ccb8e74347511553fc0d31ea6c 0000000000000001"
    "bdf081de260f404c20f7fbd5b495f110f0d0b397753ade920e1439f8d869c8ac971f6d05edee5d3c64d3a3676d67"
    "df016a474058f2db45231fbe6e9a01a7e443a77cf5805b7b43d7c9a05a30bce157c6")


@pytest.fixture
def met(ctx):
    """met(security=): a PULL of ours, and libzmq's PUSH by hand."""
    ends = []

    def run(mechanism, **options):
        pull = mq.Pull(context=ctx, **options)
        raw = RawPeer.connect(pull.bind("tcp://127.0.0.1:0").url)
        ends.extend((pull, raw))
        raw.say(GREETING[mechanism])
        said = bytearray(raw.hear(64))
        said[32] = 0
        assert bytes(said) == GREETING[mechanism]
        return raw
    yield run
    for end in ends:
        end.close()


def test_a_plain_server(met):
    raw = met(b"PLAIN", security=mq.security.Plain(allow={"ann": "pw"}))
    raw.say(HELLO)
    assert raw.hear(len(WELCOME)) == WELCOME
    raw.say(INITIATE)
    assert raw.hear(len(READY + PULL)) == READY + PULL


@pytest.mark.parametrize("allow", [{"ann": "?"}, lambda asking: False])
def test_a_plain_server_that_refuses(met, allow):
    raw = met(b"PLAIN", security=mq.security.Plain(allow=allow))
    raw.say(HELLO)
    assert raw.hear(len(PLAIN_ERROR)) == PLAIN_ERROR and raw.ended()


def test_null_that_refuses(met):
    raw = met(b"NULL", security=mq.security.Null(allow=lambda asking: False))
    raw.say(READY + PUSH)
    assert raw.hear(len(NULL_ERROR)) == NULL_ERROR and raw.ended()


def test_a_curve_server_opens_its_hello(met):
    raw = met(b"CURVE", security=mq.security.Curve(secret_key=SECRET, allow=mq.security.ANY))
    raw.say(CURVE_HELLO)
    assert raw.hear(10) == b"\4\xa8\7WELCOME" and len(raw.hear(160)) == 160


@pytest.mark.parametrize("error, why", [(WELCOME, ""), (PLAIN_ERROR, "the peer refused: 400")])
def test_a_plain_client(ctx, told, error, why):
    with socket.create_server(("127.0.0.1", 0)) as server, \
            mq.Push(context=ctx, security=mq.security.Plain("ann", "pw")) as push:
        reason = told(push)
        push.connect(f"tcp://127.0.0.1:{server.getsockname()[1]}", reconnect=None)
        with RawPeer(server.accept()[0]) as raw:
            raw.say(GREETING[b"PLAIN"])
            assert raw.hear(64 + len(HELLO)) == GREETING[b"PLAIN"] + HELLO
            raw.say(error)
            if why:
                assert why in reason()
                return
            assert raw.hear(len(INITIATE)) == INITIATE
            raw.say(READY + PULL)
            push.wait_peers(timeout=10)
