"""What can be set about membership: times in seconds, the papers' parameters, bounds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The defaults suit 2 to 1,000 nodes in one data center."""

    period: float = 1.0             # between two probes (SWIM's T')
    timeout: float = 0.5            # of the direct ping; then helpers ping
    helpers: int = 3                # members that ping on behalf of this one (SWIM's k)
    alpha: float = 4.0              # shortest suspicion: alpha * log10(members) * period
    beta: float = 6.0               # longest suspicion: beta times the shortest
    confirmations: int = 3          # further accusers that make a suspicion shortest
    retransmit: int = 3             # an update is sent retransmit * log2(members + 1) times
    gossip_interval: float = 0.7    # between packets with updates alone, while there are any
    sync_soonest: float = 0.4       # between exchanges over links, while they bring news
    sync_latest: float = 30.0       # and while they bring none
    dead_interval: float = 1.0      # between pings to members that count as dead
    seed_interval: float = 2.0      # between pings to seeds that no known member lives at
    forget_left: float = 600.0      # how long members that left are remembered
    forget_dead: float = 86400.0    # how long dead members are pinged
    datagram: int = 1200            # bytes, the longest packet sent
    max_members: int = 4096         # in the table, dead ones included
    max_relays: int = 256           # pings on behalf of others at a time
    max_events: int = 65536         # kept until they are taken
