"""inproc://name: messages between sockets of one context.

No bytes are exchanged: the core joins the sockets with two pipes, whichever is bound or connected
first. This plug-in only declares that, and checks names: any text of 1 to 255 bytes.
"""

from __future__ import annotations

from mqcore.errors import AddressError
from mqcore.spi.transport import TRANSPORT_ABI

NAME_MAX = 255  # bytes, as in ZeroMQ


class Inproc:
    abi = TRANSPORT_ABI
    kind = "inproc"
    scheme = "inproc"
    doc = "between sockets of one context, without copies"
    capabilities = frozenset({"pid"})
    gaps = {
        "refused": "a connect waits until the name is bound",
        "limit": "messages are passed by reference, not read",
        "processes": "both ends are sockets of one context",
        "raw": "inproc has no descriptor",
        "wildcard": "the caller chooses the name",
    }
    options = ()

    def check(self, address: str, role: str) -> None:
        size = len(address.encode("utf-8", "surrogateescape"))
        if not 1 <= size <= NAME_MAX:
            raise AddressError(f"an inproc name has 1 to {NAME_MAX} bytes, this one {size}")


transport = Inproc()
