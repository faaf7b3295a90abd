"""The records of the public face that need nothing else; most come from the rooms below as they
are."""

from __future__ import annotations

from dataclasses import dataclass

from mqcore.control.records import CloseReport, Event, Peer, PeerStats, Stats
from mqcore.spi.plugin_info import PluginInfo


@dataclass(frozen=True)
class DeviceStats:
    """What has passed. forth: front to back. `refused`: could never be passed on (a reply to a peer
    that had left); `captured` and `missed`: copies for the capture socket, and those it had no room
    for; `hop_limit`: what had passed more than `max_hops` devices, mostly because it went round in
    a circle of them."""

    forth: int = 0
    forth_bytes: int = 0
    forth_refused: int = 0
    back: int = 0
    back_bytes: int = 0
    back_refused: int = 0
    captured: int = 0
    missed: int = 0
    hop_limit: int = 0


__all__ = ["CloseReport", "DeviceStats", "Event", "Peer", "PeerStats", "PluginInfo", "Stats"]
