"""Handshakes that are Python: sans-I/O classes, driven by the control thread.

NULL is served by the native codec; these classes do the same and carry the other mechanisms.
"""

from handshake.greeting import Greeting
from handshake.mechanism import Mechanism, Refused
from handshake.null import Null
from handshake.zmtp import Handshake, Peer, Us

MECHANISMS: dict[str, type[Mechanism]] = {"NULL": Null}

__all__ = ["MECHANISMS", "Greeting", "Handshake", "Mechanism", "Null", "Peer", "Refused", "Us"]
