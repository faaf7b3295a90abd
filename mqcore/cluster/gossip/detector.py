"""The failure detector: one probe at a time, first direct, then through others.

SWIM (Das et al. 2002, section 3.1) with round-robin targets (4.3), and Lifeguard's local health and
nacks (Dadgar et al. 2017, section IV-A). The buddy system (IV-C) is in `Membership._send`: whatever
goes to a member that is suspect says so first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from mqcore.cluster.gossip.config import Config
from mqcore.cluster.gossip.lifeguard import Health
from mqcore.cluster.gossip.messages import Ack, Claim, Nack, Ping, Request, State
from mqcore.cluster.gossip.table import Table

Address = tuple[str, int]
# (where to, the member if known, the kind of packet, its fields except the updates)
Send = Callable[[Address, bytes | None, Any, tuple[Any, ...]], None]
FOREVER = float("inf")


@dataclass(slots=True)
class Probe:
    """One member being probed."""

    target: bytes
    number: int
    indirect_at: float      # when helpers get a request; infinity afterwards
    ends: float
    asked: int = 0
    nacks: set[bytes] = field(default_factory=set)


@dataclass(slots=True)
class Relay:
    """A ping on behalf of another member."""

    address: Address
    asker: bytes
    number: int             # of the asker's request
    nack_at: float
    ends: float


class Detector:
    """Probes the members of a table in turn."""

    def __init__(self, table: Table, health: Health, config: Config, rng: Random, send: Send,
                 refused: Counter[str], now: float) -> None:
        self._table = table
        self._health = health
        self._config = config
        self._rng = rng
        self._send = send
        self._refused = refused
        self._order: list[bytes] = []       # whom to probe next, from the end
        self._first: list[bytes] = []       # whom before those
        self._number = rng.getrandbits(32)
        self._probe: Probe | None = None
        self._relays: dict[int, Relay] = {}
        self.next_probe = now + rng.uniform(0, config.period)
        self.rtt = 0.0                      # seconds, smoothed (RFC 6298, section 2)
        self._sent_at = 0.0
        self.link_probes: list[bytes] = []  # members to be pinged over a link, too
        table.on_join = self._joined

    # -- time --------------------------------------------------------------------------------------

    def due(self) -> float:
        """When `tick` has something to do."""
        due = self.next_probe
        if self._probe is not None:
            due = min(due, self._probe.indirect_at, self._probe.ends)
        return min(due, min((min(relay.nack_at, relay.ends) for relay in self._relays.values()),
                            default=FOREVER))

    def shift(self, seconds: float) -> None:
        """This node was stopped for so many seconds, which do not count against its peers."""
        if self._probe is not None:
            self._probe.ends += seconds
            self._probe.indirect_at += seconds

    def tick(self, now: float) -> None:
        """Whatever is due."""
        self._tick_relays(now)
        probe = self._probe
        if probe is not None and probe.indirect_at <= now:
            self._ask_others(probe, now)
        if probe is not None and probe.ends <= now:
            self._failed(probe, now)
        if self.next_probe <= now:
            if self._probe is not None:
                self._failed(self._probe, now)
            self.next_probe = now + self._health.scale(self._config.period)
            self._start(now)

    def hurry(self, member: bytes, now: float) -> None:
        """Probes that member next: something is wrong with it, such as a link that broke."""
        if len(self._first) < 64 and member not in self._first:
            self._first.append(member)
        if self._probe is None:
            self.next_probe = min(self.next_probe, now)

    # -- the probe ---------------------------------------------------------------------------------

    def _start(self, now: float) -> None:
        target = self._next_target()
        if target is None:
            return
        timeout = self._health.scale(self._config.timeout)
        self._probe = Probe(target, self._next_number(), now + timeout, self.next_probe)
        self._sent_at = now
        record = self._table.members[target].record
        self._send((record.host, record.port), target, Ping, (self._probe.number, target))

    def _next_target(self) -> bytes | None:
        members = self._table.members
        while self._first:
            target = self._first.pop()
            if target in members and members[target].state < State.DEAD:
                return target
        for _ in range(2):
            while self._order:
                target = self._order.pop()
                if target in members and members[target].state < State.DEAD:
                    return target
            self._order = list(self._table.others)
            self._rng.shuffle(self._order)
        return None

    def _joined(self, member: bytes) -> None:
        """A new member takes a random place in this round (section 4.3)."""
        if len(self._order) < self._config.max_members:
            place = int(self._rng.random() * (len(self._order) + 1))
            self._order.append(member)
            self._order[place], self._order[-1] = self._order[-1], self._order[place]

    def _ask_others(self, probe: Probe, now: float) -> None:
        probe.indirect_at = FOREVER
        # a suspect is a poor helper, unless there are no others
        helpers = self._table.choose(self._config.helpers, {probe.target, *self._table.suspects})
        probe.asked = len(helpers)
        for helper in helpers:
            record = helper.record
            self._send((record.host, record.port), record.id, Request,
                       (probe.number, probe.target))
        if len(self.link_probes) < 64:
            self.link_probes.append(probe.target)

    def _failed(self, probe: Probe, now: float) -> None:
        self._probe = None
        missed = probe.asked - len(probe.nacks)
        member = self._table.members.get(probe.target)
        found_dead = member is not None and (
            member.state >= State.DEAD or member.suspicion is not None
            and member.suspicion.sure < FOREVER)
        if not found_dead:
            self._health.add(missed if probe.asked else 1)
        if member is not None:
            self._table.claim(Claim(probe.target, member.incarnation, State.SUSPECT,
                                    self._table.me.id), now)

    def alive(self, member: bytes, now: float) -> None:
        """The member has answered, by whatever way."""
        if self._probe is not None and self._probe.target == member:
            self._probe = None
            self._health.add(-1)

    # -- packets -----------------------------------------------------------------------------------

    def on_ack(self, ack: Ack, now: float) -> None:
        """An answer to this node's probe, or to one on behalf of another."""
        probe = self._probe
        if probe is not None and ack.number == probe.number and ack.subject == probe.target:
            if ack.sender == probe.target:
                sample = now - self._sent_at
                self.rtt += (sample - self.rtt) / 8 if self.rtt else sample
            self.alive(probe.target, now)
            return
        relay = self._relays.pop(ack.number, None)
        if relay is None:
            self._refused["late_ack"] += 1
        else:
            self._send(relay.address, relay.asker, Ack, (relay.number, ack.subject, True))

    def on_nack(self, nack: Nack) -> None:
        """A helper is alive, though the target has not answered it."""
        probe = self._probe
        if probe is not None and nack.number == probe.number:
            if len(probe.nacks) < probe.asked:
                probe.nacks.add(nack.sender)

    def on_request(self, request: Request, address: Address, now: float) -> None:
        """Pings a member on behalf of another."""
        member = self._table.members.get(request.target)
        if member is None:
            self._refused["unknown_member"] += 1
            return
        if len(self._relays) >= self._config.max_relays:
            self._refused["too_many_relays"] += 1
            return
        number = self._next_number()
        self._relays[number] = Relay(address, request.sender, request.number,
                                     now + 0.8 * self._config.timeout, now + self._config.period)
        record = member.record
        self._send((record.host, record.port), request.target, Ping, (number, request.target))

    def _tick_relays(self, now: float) -> None:
        for number, relay in list(self._relays.items()):
            if relay.nack_at <= now:
                relay.nack_at = FOREVER
                self._send(relay.address, relay.asker, Nack, (relay.number,))
            if relay.ends <= now:
                del self._relays[number]

    def _next_number(self) -> int:
        self._number = (self._number + 1) & 0xFFFFFFFF
        return self._number
