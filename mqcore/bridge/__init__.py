"""Bridges: messages from one system into another, at least once.

    from mqcore import bridge

    with bridge.Bridge("redis://127.0.0.1:6379?stream=orders",
                       "queue:tcp://127.0.0.1:5559?queue=orders") as running:
        running.wait_stopped()

A source is acknowledged when the target has taken the message. `mq bridge` is the same as a
command. `spi.py` beside this file says how to write a bridge for another system.
"""

from __future__ import annotations

from mqcore.bridge.bridge import Bridge
from mqcore.bridge.errors import BridgeError, BridgeRefused, BridgeStopped
from mqcore.bridge.message import Message
from mqcore.bridge.plugins import names, plugin
from mqcore.bridge.runner import Stats, run
from mqcore.bridge.spi import Plugin, Setting, Source, Target

__all__ = ["Bridge", "BridgeError", "BridgeRefused", "BridgeStopped", "Message", "Plugin",
           "Setting", "Source", "Stats", "Target", "names", "plugin", "run"]
