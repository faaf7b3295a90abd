"""SP's protocol numbers as a table (nanomsg's RFCs): family * 16 + role, a socket announces its own
and takes one from the peer."""

from __future__ import annotations

#: number: (the name that nng and nanomsg give it, the number that the peer must announce)
PROTOCOLS: dict[int, tuple[str, int]] = {
    0x10: ("PAIR", 0x10),
    0x11: ("PAIR1", 0x11),
    0x20: ("PUB", 0x21),
    0x21: ("SUB", 0x20),
    0x30: ("REQ", 0x31),
    0x31: ("REP", 0x30),
    0x50: ("PUSH", 0x51),
    0x51: ("PULL", 0x50),
    0x62: ("SURVEYOR", 0x63),
    0x63: ("RESPONDENT", 0x62),
    0x70: ("BUS", 0x70),
}


def peer_of(number: int) -> int:
    """The number that a peer of this one must announce. Of one that is in no table: its own, as
    PAIR and BUS do; -1 (no SP) stays."""
    return PROTOCOLS[number][1] if number in PROTOCOLS else number


def name_of(number: int) -> str:
    """The name, like "REQ"; "protocol 0x42" if it has none."""
    return PROTOCOLS[number][0] if number in PROTOCOLS else f"protocol {number:#x}"
