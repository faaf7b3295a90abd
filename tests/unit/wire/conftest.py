"""What the tests of the codec share: the captured byte strings, and probes past their handshake."""

import json
from pathlib import Path

import pytest
from mqcore.testing.native.probe import Probe

SIGNATURE = bytes.fromhex("ff00000000000000017f")
FITS = {
    "PAIR": ("PAIR",), "PUB": ("SUB", "XSUB"), "SUB": ("PUB", "XPUB"), "REQ": ("REP", "ROUTER"),
    "REP": ("REQ", "DEALER"), "DEALER": ("REP", "DEALER", "ROUTER"),
    "ROUTER": ("REQ", "DEALER", "ROUTER"), "PULL": ("PUSH",), "PUSH": ("PULL",),
    "XPUB": ("SUB", "XSUB"), "XSUB": ("PUB", "XPUB"), "RADIO": ("DISH",), "DISH": ("RADIO",),
}
NUMBERS = {name: i for i, name in enumerate(FITS)}
NUMBERS |= {"PULL": 7, "PUSH": 8, "XPUB": 9, "XSUB": 10, "RADIO": -1, "DISH": -1}


def make_probe(pattern="PAIR", **more):
    more.setdefault("announce_id", pattern in ("REQ", "DEALER", "ROUTER"))
    more.setdefault("publishes", pattern in ("PUB", "XPUB"))
    more.setdefault("groups", pattern in ("RADIO", "DISH"))
    return Probe(pattern, FITS[pattern], number=NUMBERS[pattern], **more)


def make_greeting(version=(3, 1), mechanism=b"NULL"):
    return SIGNATURE + bytes(version) + mechanism.ljust(20, b"\0") + bytes(32)


def make_ready(*properties, name=b"READY", flags=4):
    """A READY command of (name, value) pairs; a lone bytes object goes in as it is."""
    body = bytes([len(name)]) + name
    for item in properties:
        if isinstance(item, bytes):
            body += item
        else:
            body += bytes([len(item[0])]) + item[0] + len(item[1]).to_bytes(4, "big") + item[1]
    if len(body) > 255:
        return bytes([flags | 2]) + len(body).to_bytes(8, "big") + body
    return bytes([flags, len(body)]) + body


def make_peer(version=(3, 1), pattern="PAIR", **more):
    """A probe whose peer is of that version, as if it had said nothing but its handshake."""
    probe = make_probe(pattern, **more)
    probe.start()
    fitting = FITS[pattern][0]
    if version >= (3, 0):
        text = make_greeting(version) + make_ready((b"Socket-Type", fitting.encode()))
    elif version == (2, 0):
        text = SIGNATURE + bytes([1, NUMBERS[fitting]]) + b"\0\0"
    else:
        text = b"\x01\x00"
    assert probe.feed(text)[0] == "done", probe.reason
    return probe


@pytest.fixture(scope="session")
def vectors():
    """Captured byte strings of real peers, by name."""
    rows = json.loads((Path(__file__).parents[2] / "vectors.json").read_text())
    return {row["name"]: bytes.fromhex(row["hex"]) for row in rows}


@pytest.fixture
def probe():
    return make_probe


@pytest.fixture
def greeting():
    return make_greeting


@pytest.fixture
def ready():
    return make_ready


@pytest.fixture
def peer():
    return make_peer
