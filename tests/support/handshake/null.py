"""NULL: no security. Each side sends READY with its properties, in no particular order."""

from __future__ import annotations

from handshake.mechanism import (
    Mechanism,
    Refused,
    command,
    pack_properties,
    printable,
    split_command,
    unpack_properties,
)


class Null(Mechanism):
    """Sends READY at once and is done when the peer's has come."""

    name = b"NULL"
    old_peers = True

    def start(self) -> list[bytes]:
        return [command(b"READY", pack_properties(self.ours))]

    def command(self, body: bytes) -> list[bytes]:
        self.check_error(body)
        name, data = split_command(body)
        if name != b"READY":
            if not name:
                raise Refused("the peer sent something else than READY")
            raise Refused(f"the peer sent {printable(name)} instead of READY")
        self.theirs = unpack_properties(data)
        self.done = True
        return []
