"""Looking at a socket's accounts: the laws that hold at any moment."""

from __future__ import annotations

from typing import Any

from mqcore.spi import registry
from mqcore.spi.capability import pattern_capabilities


def laws(sock: Any) -> Any:
    """The socket's Stats, after holding them against the laws of accounting:

    per peer    offered == written + queued_out + dropped_out
                read == delivered + queued_in + dropped_in
    per socket  sent == sum(offered) + waiting + dropped, where each message goes to one peer
    """
    stats = sock.stats()
    for peer, p in stats.peers.items():
        out, inn = sum(p.dropped_out.values()), sum(p.dropped_in.values())
        numbers = (p.offered, p.written, p.queued_out, p.read, p.delivered, p.queued_in, out, inn)
        assert min(numbers) >= 0, (peer, p)
        assert p.offered == p.written + p.queued_out + out, (peer, p)
        assert p.read == p.delivered + p.queued_in + inn, (peer, p)
    has = pattern_capabilities(registry.pattern(sock.pattern))
    if {"sends", "waits"} <= has and not has & {"fans-out", "exchanges"}:
        offered = sum(p.offered for p in stats.peers.values())
        assert stats.sent == offered + stats.waiting + sum(stats.dropped.values()), stats
    # notifications of XPUB and STREAM are not messages of a peer
    if "raw" not in has and ("serviced" not in has or "receives" not in has):
        assert stats.received <= sum(p.delivered for p in stats.peers.values()), stats
    return stats


def heard(sock: Any, timeout: float | None) -> list[bytes]:
    """The parts of the next message that a suite sent: without address and envelope, and what is no
    message of the suites' (an XPUB's notice of a subscription) passed over."""
    while True:
        parts = [bytes(part) for part in sock.recv_msg(timeout=timeout).parts]
        if parts[0].startswith(b"mq"):
            return parts
