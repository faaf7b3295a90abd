"""inproc://name: between sockets of one context.

There is no stream: the core lays two pipes between the sockets, whoever of them comes first. This
file only says so, and which names are good: any text of 1 to 255 bytes.
"""

from __future__ import annotations

from mqcore.errors import AddressError
from mqcore.spi.transport import TRANSPORT_ABI

NAME_MAX = 255  # bytes, as ZeroMQ has it


class Inproc:
    abi = TRANSPORT_ABI
    kind = "inproc"
    scheme = "inproc"
    doc = "between sockets of one context, without copies"
    capabilities = frozenset({"pid"})
    gaps = {
        "refused": "a connect waits until the name is bound",
        "limit": "messages are handed over as they are, not read",
        "processes": "both ends are sockets of one context",
        "raw": "there is no descriptor",
        "wildcard": "every name is the caller's to choose",
    }
    options = ()

    def check(self, address: str, role: str) -> None:
        size = len(address.encode("utf-8", "surrogateescape"))
        if not 1 <= size <= NAME_MAX:
            raise AddressError(f"an inproc name has 1 to {NAME_MAX} bytes, this one {size}")


transport = Inproc()
