"""The socket types of ZMTP as a table (ZMTP 3.1, section 3.5; numbers: ZMTP 2.0, section 2.2.1),
and what a pattern that announces one may claim."""

from __future__ import annotations

#: Socket-Type: (its number in ZMTP 2.0, the types that it accepts)
TYPES: dict[str, tuple[int, tuple[str, ...]]] = {
    "PAIR": (0, ("PAIR",)),
    "PUB": (1, ("SUB", "XSUB")),
    "SUB": (2, ("PUB", "XPUB")),
    "REQ": (3, ("REP", "ROUTER")),
    "REP": (4, ("REQ", "DEALER")),
    "DEALER": (5, ("REP", "DEALER", "ROUTER")),
    "ROUTER": (6, ("REQ", "DEALER", "ROUTER")),
    "PULL": (7, ("PUSH",)),
    "PUSH": (8, ("PULL",)),
    "XPUB": (9, ("SUB", "XSUB")),
    "XSUB": (10, ("PUB", "XPUB")),
    "RADIO": (-1, ("DISH",)),  # ZeroMQ RFC 48; they need the commands of ZMTP 3
    "DISH": (-1, ("RADIO",)),
    "CLIENT": (-1, ("SERVER",)),  # RFC 41; these have one part, and no number in ZMTP 2.0 either
    "SERVER": (-1, ("CLIENT",)),
    "SCATTER": (-1, ("GATHER",)),  # RFC 49
    "GATHER": (-1, ("SCATTER",)),
    "PEER": (-1, ("PEER",)),  # RFC 51
    "CHANNEL": (-1, ("CHANNEL",)),  # RFC 52
}

NAME_MAX = 23  # bytes of a Socket-Type that this implementation takes from a peer


def faults(name: str, zmtp: str, number: int, peers: tuple[str, ...]) -> list[str]:
    """What contradicts itself or the table, in words; the names are those of a PatternPlugin."""
    found = []
    if zmtp and not (len(zmtp) <= NAME_MAX and all(32 < ord(c) < 127 for c in zmtp)):
        found.append(f"announces {zmtp!r}, which is no Socket-Type: up to {NAME_MAX} visible ASCII "
                     "characters")
    of_type = TYPES.get(zmtp, (-1, ()))[0]
    if number not in (-1, of_type):
        found.append(f"says that {zmtp or 'no type'} has number {number}, which is "
                     f"{of_type if of_type >= 0 else 'not in ZMTP 2.0: -1'}")
    for peer in peers:
        taken = TYPES.get(peer.upper())
        if taken is not None and zmtp not in taken[1]:
            found.append(f"names the peer {peer!r}, which would refuse it: a {peer.upper()} takes "
                         f"{' and '.join(taken[1])}, this announces {zmtp or 'nothing'}")
    return found
