"""Public names that lower layers define, and empty()."""

from __future__ import annotations

from mqcore.binding.batch import Batch
from mqcore.binding.message import Message
from mqcore.binding.pinned import Pinned
from mqcore.control.endpoint import Endpoint
from mqcore.control.events import Event
from mqcore.control.stats import CloseReport, Peer, PeerStats, Stats
from mqcore.errors import UsageError
from mqcore.spi.plugin_info import PluginInfo
from mqcore.spi.registry import filters, patterns, resolvers, strategies, transports

__all__ = ["Batch", "CloseReport", "Endpoint", "Event", "Message", "Peer", "PeerStats", "Pinned",
           "PluginInfo", "Stats", "empty", "filters", "patterns", "resolvers", "strategies",
           "transports"]


def empty(n: int) -> memoryview:
    """A writable buffer of n bytes to fill and send. send() copies it; send_ref() does not."""
    if isinstance(n, bool) or not isinstance(n, int) or n < 0:
        raise UsageError(f"n must be a number of bytes, not {n!r}")
    return memoryview(bytearray(n))
