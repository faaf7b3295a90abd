"""Handshakes that are Python: sans-I/O classes, driven by the control thread.

NULL is served by the native codec; these classes do the same and carry the other mechanisms.
"""

from mqcore.wire.handshake.greeting import Greeting
from mqcore.wire.handshake.mechanism import Mechanism, Refused
from mqcore.wire.handshake.null import Null
from mqcore.wire.handshake.zmtp import Handshake, Peer, Us

MECHANISMS: dict[str, type[Mechanism]] = {"NULL": Null}

__all__ = ["MECHANISMS", "Greeting", "Handshake", "Mechanism", "Null", "Peer", "Refused", "Us"]
