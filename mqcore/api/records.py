"""The records that the public face takes from the rooms below as they are."""

from mqcore.control.records import CloseReport, Event, Peer, PeerStats, Stats
from mqcore.spi.plugin_info import PluginInfo

__all__ = ["CloseReport", "Event", "Peer", "PeerStats", "PluginInfo", "Stats"]
