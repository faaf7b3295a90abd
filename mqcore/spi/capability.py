"""The capabilities of plug-ins beyond the common contract, as data.

The conformance suites (`mqcore.testing`) read them to select their tests, and `mq info` to show
what is missing; the core does not use them. A name always has a positive meaning: a plug-in with
the name promises it, and a test verifies that.

A transport has the capabilities of its kind (`GIVEN`) and those in its own `capabilities`. Its
`gaps` map each capability that it lacks, although its kind has it, to the reason as text. An
optional method `unavailable() -> str` returns why the transport cannot work on this system ("this
kernel has no SCTP"), or "". Tests with live sockets are then skipped.

A pattern's capabilities are its flags (`PatternFlag` of spi/pattern.pxd), under the names below.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Capability(NamedTuple):
    """One row. `tested`: a promise that the suite tests, so that its absence is a gap. Otherwise it
    is a property that some transports legitimately lack."""

    name: str
    tested: bool
    doc: str


#: of transports
CAPABILITIES: Mapping[str, Capability] = {row.name: row for row in (
    Capability("duplex", True, "messages go both ways"),
    Capability("multipart", True, "a message may have several parts"),
    Capability("large", True, "a message may have any size up to max_message_size"),
    Capability("reliable", True, "messages written to a peer that stays connected arrive"),
    Capability("ordered", True, "the messages of one peer arrive in the order they were sent"),
    Capability("backpressure", True, "a peer that does not read makes the sender wait"),
    Capability("connection", True, "a peer is a connection: each end notices when the other ends"),
    Capability("many", True, "one bound address serves any number of peers"),
    Capability("reconnect", True, "a lost connection is restored as soon as the peer listens"),
    Capability("refused", True, "connecting without a listener fails at once"),
    Capability("busy", True, "an address in use is refused"),
    Capability("rebind", True, "an address is free again as soon as it is unbound"),
    Capability("limit", True, "a message above the receiver's max_message_size is refused"),
    Capability("processes", True, "peers may be in different processes"),
    Capability("handshake", True, "each end learns what pattern the other one is"),
    Capability("raw", True, "its descriptors carry only the protocol's bytes"),
    Capability("names", False, "addresses have names that are resolved at every attempt"),
    Capability("network", False, "peers may be on other machines"),
    Capability("wildcard", True, "binding to a wildcard returns the actual address"),
    Capability("pid", True, "the peer's process id is known"),
    Capability("unacked", False,
               "the kernel tells how much the peer has not acknowledged (SIOCOUTQ)"),
)}

STREAM = frozenset({"duplex", "multipart", "large", "reliable", "ordered", "backpressure",
                    "connection", "many", "reconnect", "refused", "busy", "rebind", "limit",
                    "processes", "handshake", "raw"})

#: the capabilities of each kind of transport
GIVEN: Mapping[str, frozenset[str]] = {
    "stream": STREAM,
    "stack": STREAM - {"raw"},
    "inproc": STREAM - {"refused", "limit", "processes", "raw"},
    "engine": frozenset(),  # lists all its capabilities: `STREAM - {...} | {...}` reads best
}

#: bit of PatternFlag, name, meaning
PATTERN_FLAGS: tuple[tuple[int, str, str], ...] = (
    (1, "sends", "supports send()"),
    (2, "receives", "supports recv()"),
    (4, "waits", "without any peer, messages wait in the socket for the first one"),
    (8, "reroutes", "messages not yet sent to a lost peer may go to another"),
    (16, "identity", "announces its routing id in the handshake"),
    (32, "fans-out", "one send reaches many peers; `unmatched` counts"),
    (64, "exchanges", "strict order of send and recv"),
    (128, "conflates", "supports the conflate option"),
    (256, "serviced", "its inbound pipes need service even without a call of the application"),
    (512, "exclusive", "has at most one peer and refuses a second one"),
    (1024, "addresses", "a message goes to the peer that send_to(), or its first part, names"),
    (2048, "groups", "a message is one part, sent to a group"),
    (4096, "words", "a message is an envelope, an empty part, and a body"),
    (8192, "hops", "a message counts the links that it has passed"),
    (16384, "single", "a message has one part"),
    (32768, "raw", "its peers are byte streams; a message is a piece of one"),
)


def capabilities_of(plugin: Any) -> frozenset[str]:
    """All capabilities of a transport."""
    given = GIVEN.get(plugin.kind, frozenset())
    own = frozenset(getattr(plugin, "capabilities", ()))
    return (given | own) - frozenset(getattr(plugin, "gaps", {}))


def declared_gaps(plugin: Any) -> dict[str, str]:
    """The gaps that a transport declares, and the reasons, in the table's order."""
    has = capabilities_of(plugin)
    why = getattr(plugin, "gaps", {})
    return {row.name: why.get(row.name) or f"without: {row.doc}"
            for row in CAPABILITIES.values() if row.tested and row.name not in has}


def unavailable(plugin: Any) -> str:
    """Why the transport cannot work on this system; "" if it can."""
    ask = getattr(plugin, "unavailable", None)
    return "" if ask is None else str(ask())


def pattern_capabilities(plugin: Any) -> frozenset[str]:
    """The names of a pattern's flags."""
    return frozenset(name for bit, name, _ in PATTERN_FLAGS if plugin.flags & bit)


def complaints(plugin: Any) -> list[str]:
    """Mistakes in a transport's own table: unknown names, a promise that is also a gap, a gap
    without a reason."""
    own = frozenset(getattr(plugin, "capabilities", ()))
    gaps: Mapping[str, str] = getattr(plugin, "gaps", {})
    found = [f"no capability is called {name!r}"
             for name in sorted((own | gaps.keys()) - CAPABILITIES.keys())]
    found += [f"{name!r} is both promised and a gap" for name in sorted(own & gaps.keys())]
    found += [f"the gap {name!r} has no reason" for name, why in gaps.items() if not why]
    return found
