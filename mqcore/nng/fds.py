"""send_fd: the sending counterpart of fileno()."""

from __future__ import annotations

from mqcore.api.poll import Level


class SendLevel(Level):
    """A descriptor that is readable as long as send() would not wait."""

    side = 1
