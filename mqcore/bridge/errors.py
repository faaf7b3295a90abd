"""The exceptions of bridges."""

from __future__ import annotations

from mqcore.errors import Error


class BridgeError(Error):
    """A bridge failed."""

    code = "bridge"


class BridgeLost(BridgeError):
    """The connection to one side of a bridge was lost. The bridge connects again."""

    code = "bridge_lost"


class BridgeRefused(BridgeError):
    """A target refused a message, and the bridge has no dead-letter target."""

    code = "bridge_refused"
    hint = "give dead=, the address of a target for such messages, or dead=\"discard\""


class BridgeStopped(BridgeError):
    """The bridge has stopped."""

    code = "bridge_stopped"
