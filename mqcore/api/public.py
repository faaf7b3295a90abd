"""What the public face takes from the rooms below as it is."""

from mqcore.control.endpoint import Endpoint
from mqcore.sock.batch import Batch
from mqcore.sock.message import Message
from mqcore.sock.pinned import Pinned
from mqcore.spi.plugin_info import PluginInfo
from mqcore.spi.registry import filters, patterns, resolvers, strategies, transports

version = "0.1.0"

__all__ = ["Batch", "Endpoint", "Message", "Pinned", "PluginInfo", "filters", "patterns",
           "resolvers", "strategies", "transports", "version"]
