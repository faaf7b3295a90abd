"""The records that the public face takes from the control plane as they are."""

from mqcore.control.records import CloseReport, Event, Peer, PeerStats, Stats

__all__ = ["CloseReport", "Event", "Peer", "PeerStats", "Stats"]
