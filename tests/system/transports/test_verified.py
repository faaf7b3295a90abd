"""Peer.verified: what a handshake has proven, and nothing that a peer says of itself."""

import pytest

import mqcore as mq

FORGED = {name: b"forged" for name in (
    "tls-subject", "TLS-Names", "tls-version", "Tls-Cipher", "ws-origin", "WS-Path", "mechanism",
    "MECHANISM", "tls-", "ws-anything")}


def peers(ctx, url, listening=None, connecting=None, **metadata):
    """(the connecting socket as the listening one sees it, and the other way round)"""
    push = ctx.socket("push", metadata={**FORGED, "colour": b"blue", **metadata})
    pull = ctx.socket("pull", metadata={**FORGED, "colour": b"red"})
    at = pull.bind(url, **(listening or {}))
    push.connect(at, wait=10, **(connecting or {}))
    pull.wait_peers(1, 10)
    return pull.peers()[0], push.peers()[0]


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:0", "ipc://*", "shm://*", "inproc://verified"])
def test_forged_facts_are_not_shown(ctx, url):
    for peer, colour in zip(peers(ctx, url), (b"blue", b"red"), strict=True):
        assert dict(peer.verified) == {} and peer.user is None
        assert dict(peer.metadata) == {"colour": colour}


def test_over_websocket_only_the_request_says_them(ctx):
    peer, other = peers(ctx, "ws://127.0.0.1:0/x")
    assert dict(peer.verified) == dict(other.verified) == {}
    assert peer.metadata["ws-path"] == b"/x" and peer.metadata["colour"] == b"blue"
    assert b"forged" not in {*peer.metadata.values(), *other.metadata.values()}


def test_over_tls_the_certificate_says_them(ctx, authority):
    peer, server = peers(ctx, "tls+tcp://127.0.0.1:0", authority.server | authority.ca,
                         authority.alice | authority.ca)
    assert peer.user == "alice" and peer.verified["tls-subject"] == b"O=Tests, CN=alice"
    assert set(peer.verified) == {"tls-subject", "tls-names", "tls-version", "tls-cipher"}
    assert server.user == "server" and server.verified["tls-version"] == b"TLSv1.3"
    for one in (peer, server):
        assert b"forged" not in one.metadata.values()
        assert one.metadata.items() >= one.verified.items()


def test_over_tls_that_checks_nothing_nobody_is_verified(ctx, authority):
    peer, server = peers(ctx, "tls+tcp://127.0.0.1:0", authority.server, {"tls_verify": "none"})
    assert peer.verified["tls-subject"] == server.verified["tls-subject"] == b""
    assert peer.user is None and server.user is None


def test_a_mechanism_and_its_verdict_are_verified(ctx):
    def allow(asking):
        return mq.security.AuthResult(user="ann", metadata={"team": b"birds"})

    peer, server = peers(ctx, "tcp://127.0.0.1:0", {"security": mq.security.Plain(allow=allow)},
                         {"security": mq.security.Plain("ann", "x")}, team=b"forged", role=b"admin")
    assert peer.user == "ann"
    assert dict(peer.verified) == {"mechanism": b"PLAIN", "team": b"birds"}
    assert peer.metadata["team"] == b"birds" and peer.metadata["role"] == b"admin"
    assert dict(server.verified) == {"mechanism": b"PLAIN"}
