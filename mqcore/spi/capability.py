"""What a plug-in promises beyond the common contract, as data.

The conformance suites (`mqcore.testing`) read it to know which of their tests apply, `mq info` to
say what is missing; the core asks for nothing here. A name always has the positive meaning: who has
it promises it, and a test holds it to that.

A transport has what its kind gives (`GIVEN`), and what it lists itself in `capabilities`. What it
cannot do though its kind gives it, it says in `gaps`: a mapping from the name to the reason, in
words for people. An optional method `unavailable() -> str` tells why the transport cannot work on
this system ("this kernel has no SCTP"), "" if it can; tests of live sockets are skipped then.

A pattern's capabilities are its flags (`PatternFlag` of spi/pattern.pxd), under the names below.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Capability(NamedTuple):
    """One row. `tested`: a promise that the suite has tests for, so that its absence is a gap;
    otherwise a fact, which some transports rightly have nothing of."""

    name: str
    tested: bool
    doc: str


#: of transports
CAPABILITIES: Mapping[str, Capability] = {row.name: row for row in (
    Capability("duplex", True, "messages go both ways"),
    Capability("multipart", True, "a message may have several parts"),
    Capability("large", True, "a message may have any size up to max_message_size"),
    Capability("reliable", True, "what was written for a peer that stays arrives"),
    Capability("ordered", True, "the messages of one peer arrive in the order they were sent in"),
    Capability("backpressure", True, "a peer that does not read makes the sender wait at its mark"),
    Capability("connection", True, "a peer is a connection: each end notices when the other goes"),
    Capability("many", True, "one bound address serves any number of peers"),
    Capability("reconnect", True, "a lost connection is made anew, as soon as somebody listens"),
    Capability("refused", True, "a connect to where nobody listens fails at once"),
    Capability("busy", True, "an address where somebody listens is refused to others"),
    Capability("rebind", True, "an address is free again as soon as it is unbound"),
    Capability("limit", True, "a message above the receiver's max_message_size is refused"),
    Capability("processes", True, "peers may be in different processes"),
    Capability("handshake", True, "each end learns what pattern the other one is"),
    Capability("raw", True, "what is on its descriptors is the wire's bytes and nothing else"),
    Capability("names", False, "addresses hold names that are looked up anew at every attempt"),
    Capability("network", False, "peers may be on other machines"),
    Capability("wildcard", True, "bind to a wildcard gives the real address back"),
    Capability("pid", True, "the peer's process id is known"),
    Capability("unacked", False,
               "the kernel tells how much the peer has not acknowledged (SIOCOUTQ)"),
)}

STREAM = frozenset({"duplex", "multipart", "large", "reliable", "ordered", "backpressure",
                    "connection", "many", "reconnect", "refused", "busy", "rebind", "limit",
                    "processes", "handshake", "raw"})

#: what a transport has by its kind: a byte stream under our engine is all of this
GIVEN: Mapping[str, frozenset[str]] = {
    "stream": STREAM,
    "stack": STREAM - {"raw"},
    "inproc": STREAM - {"refused", "limit", "processes", "raw"},
    "engine": frozenset(),  # lists all it has: `STREAM - {...} | {...}` reads best
}

#: bit of PatternFlag, name, meaning
PATTERN_FLAGS: tuple[tuple[int, str, str], ...] = (
    (1, "sends", "send() means something"),
    (2, "receives", "recv() means something"),
    (4, "waits", "with no peer at all, messages wait in the socket for the first one"),
    (8, "reroutes", "what a dead peer had not been sent may go to another"),
    (16, "identity", "announces its routing id in the handshake"),
    (32, "fans-out", "one send reaches many peers; `unmatched` counts"),
    (64, "exchanges", "strict order of send and recv"),
    (128, "conflates", "the conflate option means something"),
    (256, "serviced", "its inbound pipes want looking at even if the application calls not"),
    (512, "exclusive", "has one peer at most and refuses a second one"),
    (1024, "addresses", "a message goes to the peer that send_to(), or its first part, names"),
    (2048, "groups", "a message is one part, sent to a group"),
    (4096, "words", "a message is an envelope, an empty part, and a body"),
    (8192, "hops", "a message counts the links that it has passed"),
    (16384, "single", "a message has one part"),
    (32768, "raw", "its peers are streams of bytes; a message is a piece of one"),
)


def capabilities_of(plugin: Any) -> frozenset[str]:
    """All that a transport promises."""
    given = GIVEN.get(plugin.kind, frozenset())
    own = frozenset(getattr(plugin, "capabilities", ()))
    return (given | own) - frozenset(getattr(plugin, "gaps", {}))


def declared_gaps(plugin: Any) -> dict[str, str]:
    """What a transport says it cannot do, and why: name and reason, in the table's order."""
    has = capabilities_of(plugin)
    why = getattr(plugin, "gaps", {})
    return {row.name: why.get(row.name) or f"without: {row.doc}"
            for row in CAPABILITIES.values() if row.tested and row.name not in has}


def unavailable(plugin: Any) -> str:
    """Why the transport cannot work on this system, "" if it can."""
    ask = getattr(plugin, "unavailable", None)
    return "" if ask is None else str(ask())


def pattern_capabilities(plugin: Any) -> frozenset[str]:
    """What a pattern's flags say, by name."""
    return frozenset(name for bit, name, _ in PATTERN_FLAGS if plugin.flags & bit)


def complaints(plugin: Any) -> list[str]:
    """What is wrong with a transport's own table: names that nobody knows, a promise that is also
    a gap, a gap without a reason."""
    own = frozenset(getattr(plugin, "capabilities", ()))
    gaps: Mapping[str, str] = getattr(plugin, "gaps", {})
    found = [f"no capability is called {name!r}"
             for name in sorted((own | gaps.keys()) - CAPABILITIES.keys())]
    found += [f"{name!r} is both promised and a gap" for name in sorted(own & gaps.keys())]
    found += [f"the gap {name!r} has no reason" for name, why in gaps.items() if not why]
    return found
