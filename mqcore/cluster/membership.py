"""Who is in the cluster: SWIM with Lifeguard's refinements, without I/O.

    Das, Gupta, Motivala: SWIM: Scalable Weakly-consistent Infection-style Process Group Membership
    Protocol. DSN 2002.
    Dadgar, Phillips, Currey: Lifeguard: SWIM-ing with Situational Awareness. arXiv:1707.00788,
    2017.

`Membership` reads no socket and no clock of its own. Its owner brings datagrams, the time and the
messages of exchanges, and takes away what is to be sent and what has happened:

    membership.on_datagram(address, data)           # a datagram came in
    membership.tick()                               # at the latest at membership.next_tick()
    for address, data in membership.datagrams(): ...    # send these
    for wanted in membership.syncs(): ...           # exchange tables over a link, see `Sync`
    for event in membership.events(): ...           # joined, updated, suspected, recovered ...

An exchange goes over a link, which is reliable. The one that begins sends `begin_sync()`. Both give
each message that comes in to `on_sync` and send what it returns, until it returns None.

All calls must come from one thread or under one lock. The same clock, random numbers and input give
the same output, except for the random parts of the seal.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import Any, NamedTuple

from mqcore.cluster.gossip import exchange
from mqcore.cluster.gossip.broadcasts import Broadcasts
from mqcore.cluster.gossip.config import Config
from mqcore.cluster.gossip.detector import FOREVER, Address, Detector
from mqcore.cluster.gossip.lifeguard import Health
from mqcore.cluster.gossip.messages import (
    MAX_META,
    MAX_UPDATE,
    Ack,
    Claim,
    Gossip,
    Malformed,
    Nack,
    Packet,
    Ping,
    Record,
    Request,
    State,
    decode_packet,
    encode_packet,
    encode_update,
    replace,
)
from mqcore.cluster.gossip.seal import OVERHEAD, Refused, Seal
from mqcore.cluster.gossip.table import Event, Table

__all__ = ["Address", "Config", "Event", "Membership", "Record", "State", "Sync"]

FRAME = 64              # bytes of a packet beside its updates, at most
MAX_DATAGRAM = 9000     # bytes of a datagram that is looked at


class Sync(NamedTuple):
    """An exchange that is due: with that member over its `link`, or, if `record` is None, with the
    seed at that address."""

    address: Address
    record: Record | None


class Membership:
    """One node's view of the cluster.

    Args:
        me: how this node describes itself. The incarnation is chosen here: it begins with the time,
            so that a node that returns under its old id overrides what its peers remember.
        keys: `Key.gossip_keys()`.
        seeds: where to look for members.
        clock: seconds that never go back.
        wall: seconds since 1970.
        rng: all choices come from it.
    """

    def __init__(self, me: Record, keys: Sequence[bytes], *, seeds: Sequence[Address] = (),
                 clock: Callable[[], float] = time.monotonic,
                 wall: Callable[[], float] = time.time, rng: Random | None = None,
                 config: Config | None = None, banned: Collection[bytes] = ()) -> None:
        self.config = config or Config()
        self.refused: Counter[str] = Counter()      # what was refused or lost, by reason
        self.counters: Counter[str] = Counter()     # packets and exchanges, by kind
        self._clock = clock
        self._rng = rng or Random()
        self._health = Health()
        self._seal = Seal(keys, wall)
        self._broadcasts = Broadcasts(self.config.retransmit)
        now = clock()
        me = replace(me, incarnation=max(me.incarnation, int(wall() * 1000)))
        _check(me)
        self._table = Table(me, self.config, self._rng, self._broadcasts, self._health,
                            self.refused)
        self._table.banned = frozenset(banned)
        self._detector = Detector(self._table, self._health, self.config, self._rng,
                                  self._send, self.refused, now)
        self._out: list[tuple[Address, bytes]] = []
        self._syncs: deque[Sync] = deque(maxlen=64)
        self._seeds = list(dict.fromkeys(seeds))
        self._next_gossip = FOREVER
        self._next_sync = now
        self._sync_wait = self.config.sync_soonest
        self._sync_news = 0
        self._next_dead = self._next_seed = now
        self._due = now
        self._departing = 0
        self._table.renew_me(me)
        self._wake_gossip(now)

    def __repr__(self) -> str:
        return (f"<Membership {self.me.id.hex()[:8]}, {self._table.size} members, "
                f"health {self._health.score}>")

    # -- what is known -----------------------------------------------------------------------------

    @property
    def me(self) -> Record:
        """This node's own record."""
        return self._table.me

    @property
    def health(self) -> int:
        """Lifeguard's local health: 0 is well, 8 is worst."""
        return self._health.score

    @property
    def rtt(self) -> float:
        """Seconds from ping to ack, smoothed; 0.0 before the first."""
        return self._detector.rtt

    def members(self) -> list[Record]:
        """Records of all members that are alive or suspect, this node's first."""
        table = self._table
        return [table.me, *(table.members[one].record for one in table.others)]

    def state(self, member: bytes) -> State | None:
        """What is believed of a member, None if nothing is known."""
        if member == self.me.id:
            return State.LEFT if self._table.leaving else State.ALIVE
        known = self._table.members.get(member)
        return None if known is None else known.state

    def view(self) -> dict[bytes, tuple[int, State]]:
        """Incarnation and state of each member that is alive or suspect: what must be the same
        everywhere in the end."""
        table = self._table
        known = {one: (table.members[one].incarnation, table.members[one].state)
                 for one in table.others}
        known[table.me.id] = (table.me.incarnation, State.ALIVE)
        return known

    def stats(self) -> dict[str, Any]:
        """Sizes, counters and refusals, for `explain()`."""
        table = self._table
        return {"members": table.size, "suspect": len(table.suspects), "gone": len(table.gone),
                "queued_updates": len(self._broadcasts), "sessions": self._seal.sessions,
                "health": self._health.score, "rtt": self._detector.rtt,
                "counters": dict(self.counters), "refused": dict(self.refused)}

    # -- what to do --------------------------------------------------------------------------------

    def datagrams(self) -> list[tuple[Address, bytes]]:
        """Takes what is to be sent."""
        out, self._out = self._out, []
        return out

    def events(self) -> list[Event]:
        """Takes what has happened, oldest first."""
        events = list(self._table.events)
        self._table.events.clear()
        return events

    def syncs(self) -> list[Sync]:
        """Takes the exchanges that are due. To skip one is allowed: others follow."""
        syncs = list(self._syncs)
        self._syncs.clear()
        return syncs

    def link_probes(self) -> list[bytes]:
        """Takes the members that do not answer datagrams: ping them over a link, if there is one,
        and report an answer with `heard`."""
        probes, self._detector.link_probes = self._detector.link_probes, []
        return probes

    # -- what happens ------------------------------------------------------------------------------

    def update(self, *, host: str | None = None, port: int | None = None, link: str | None = None,
               zone: str | None = None, meta: bytes | None = None) -> None:
        """Describes this node anew; None leaves a field as it is. `meta` has 16 KiB at most. Raises
        ValueError for a record that cannot be spread."""
        given = {"host": host, "port": port, "link": link, "zone": zone, "meta": meta}
        record = replace(self.me, incarnation=self.me.incarnation + 1,
                         **{name: value for name, value in given.items() if value is not None})
        _check(record)
        self._table.renew_me(record)
        self._wake_gossip(self._clock())
        if record.meta and encode_update(record) == encode_update(replace(record, meta=None)):
            self._hurry_sync()      # too long for datagrams

    def leave(self) -> None:
        """Tells the others that this node goes by its own will. Go on until `departed`."""
        table = self._table
        if table.leaving:
            return
        table.leaving = True
        claim = Claim(table.me.id, table.me.incarnation, State.LEFT, table.me.id)
        self._broadcasts.add(claim)
        # at once to as many as it takes for the news to live on, should this be the last word
        for member in table.choose(self.config.retransmit * 2):
            record = member.record
            self._send((record.host, record.port), record.id, Gossip, ())
        self._wake_gossip(self._clock())

    @property
    def departed(self) -> bool:
        """Whether a node that leaves has told enough others."""
        return self._table.leaving and (self.me.id not in self._broadcasts
                                        or not self._table.others)

    def heard(self, member: bytes) -> None:
        """The member was heard on an authenticated link just now: it lives."""
        self._detector.alive(member, self._clock())

    def suspect_link(self, member: bytes) -> None:
        """A link to the member broke: probe it next."""
        self._detector.hurry(member, self._clock())

    def refused_link(self, member: bytes) -> None:
        """Nothing listens at the member's address: its process has ended, most likely. It becomes
        suspect at once, and counts as dead after the shortest time unless it says otherwise."""
        self._table.doubt(member, self._clock())
        self._wake_gossip(self._clock())

    def set_keys(self, keys: Sequence[bytes]) -> None:
        """Goes on with other keys, after a rotation."""
        self._seal.replace_keys(keys)

    def set_banned(self, banned: Collection[bytes]) -> None:
        """Forgets these members and refuses them from now on."""
        self._table.banned = frozenset(banned)
        for member in self._table.banned:
            self._table.remove(member, self._clock())

    def add_seeds(self, seeds: Sequence[Address]) -> None:
        """Further addresses to look at; at most 1,024 are kept, the newest."""
        self._seeds = list(dict.fromkeys([*self._seeds, *seeds]))[-1024:]
        self._next_seed = self._clock()

    # -- datagrams in ------------------------------------------------------------------------------

    def on_datagram(self, address: Address, data: bytes) -> None:
        """A datagram came from that address. Never raises: what does not count is counted in
        `refused`."""
        if len(data) > MAX_DATAGRAM:
            self.refused["long"] += 1
            return
        try:
            packet = decode_packet(self._seal.open(data))
        except Refused as error:
            self.refused[error.args[0]] += 1
            return
        except Malformed:
            self.refused["malformed"] += 1
            return
        if packet.sender in self._table.banned:
            self.refused["banned"] += 1
        elif packet.sender == self.me.id:
            self.refused["own"] += 1        # a node that pings its own address as a seed
        else:
            self._on_packet(packet, address, self._clock())

    def _on_packet(self, packet: Packet, address: Address, now: float) -> None:
        self.counters[f"{type(packet).__name__.lower()}_in"] += 1
        table = self._table
        for update in packet.updates:
            if isinstance(update, Record):
                table.alive(update, now)
            else:
                table.claim(update, now)
        if isinstance(packet, Ping):
            if packet.target is not None and packet.target != self.me.id:
                self.refused["not_for_us"] += 1     # another node had this address
            else:
                known = packet.sender in table.members
                self._send(address, packet.sender, Ack, (packet.number, self.me.id, known),
                           introduce=packet.target is None)
        elif isinstance(packet, Ack):
            if not packet.known:
                self._broadcasts.add(table.me)
            self._detector.on_ack(packet, now)
        elif isinstance(packet, Nack):
            self._detector.on_nack(packet)
        elif isinstance(packet, Request):
            self._detector.on_request(packet, address, now)
        self._wake_gossip(now)

    # -- time --------------------------------------------------------------------------------------

    def next_tick(self) -> float:
        """When `tick` must be called at the latest, on the clock that was given."""
        due, now = self._earliest(), self._clock()
        if now <= self._due:        # news may be due at once, without anything being late
            self._due = max(due, now)
        return due

    def _earliest(self) -> float:
        due = min(self._next_gossip, self._table.next_expiry())
        if not self._table.leaving:
            due = min(due, self._detector.due(), self._next_sync, self._next_seed,
                      self._next_dead if self._table.gone else FOREVER)
        return due

    def tick(self, now: float | None = None) -> None:
        """Does whatever is due. To call it early or often does no harm."""
        now = self._clock() if now is None else now
        late = now - self._due
        shift = 0.0
        if late > self.config.period:
            # this process was stopped: its clock went on, its peers are not to blame
            shift = late
            self._health.add(1)
            self.counters["stopped"] += 1
            self._detector.shift(shift)
        if not self._table.leaving:
            self._detector.tick(now)
            self._tick_seeds(now)
            self._tick_sync(now)
            self._tick_dead(now)
        self._table.expire(now, shift)
        self._tick_gossip(now)
        self._due = max(self._earliest(), now)

    def _tick_gossip(self, now: float) -> None:
        if now < self._next_gossip:
            return
        self._next_gossip = FOREVER
        if self._broadcasts:
            for member in self._table.choose(1):
                record = member.record
                self._send((record.host, record.port), record.id, Gossip, ())
        self._wake_gossip(now)

    def _wake_gossip(self, now: float) -> None:
        if self._broadcasts and self._next_gossip == FOREVER:
            self._next_gossip = now + self.config.gossip_interval

    def _tick_dead(self, now: float) -> None:
        """One of the dead may have been behind a partition: tell it what is believed of it."""
        gone = self._table.gone
        if now < self._next_dead or not gone:
            return
        self._next_dead = now + self._jitter(self.config.dead_interval)
        dead = [member for member in gone.values() if member.state == State.DEAD]
        if dead:
            record = self._rng.choice(dead).record
            self._send((record.host, record.port), record.id, Ping, (0, record.id))

    def _tick_seeds(self, now: float) -> None:
        """Looks for the seeds that no member lives at."""
        if now < self._next_seed:
            return
        self._next_seed = FOREVER
        if not self._seeds:
            return
        table = self._table
        there = {(record.host, record.port) for record in self.members()}
        missing = [seed for seed in self._seeds if seed not in there]
        # while alone, ask all; later one now and then
        if missing and table.others:
            missing = [self._rng.choice(missing)]
        for seed in missing[:16]:
            self._send(seed, None, Ping, (0, None), introduce=True)
            if not table.others:
                self._syncs.append(Sync(seed, None))
        wait = self.config.seed_interval if table.others else self.config.sync_soonest
        self._next_seed = now + self._jitter(wait)

    def _tick_sync(self, now: float) -> None:
        if now < self._next_sync:
            return
        table, config = self._table, self.config
        news = table.news != self._sync_news or bool(table.stale)
        self._sync_news = table.news
        self._sync_wait = config.sync_soonest if news else \
            min(config.sync_latest, 2 * self._sync_wait)
        self._next_sync = now + self._jitter(self._sync_wait)
        for member in table.choose(1):
            self._syncs.append(Sync((member.record.host, member.record.port), member.record))

    def _hurry_sync(self) -> None:
        self._sync_wait = self.config.sync_soonest
        self._next_sync = min(self._next_sync, self._clock() + self._jitter(self._sync_wait))

    def _jitter(self, seconds: float) -> float:
        return seconds * self._rng.uniform(0.75, 1.25)

    # -- exchanges ---------------------------------------------------------------------------------

    def begin_sync(self) -> bytes:
        """The first message of an exchange."""
        self.counters["sync_begun"] += 1
        return exchange.digest(self._table)

    def on_sync(self, data: bytes) -> bytes | None:
        """A message of an exchange came over an authenticated link; returns the answer, or None at
        the end. Bytes that are no such message count as "malformed_sync" and end it."""
        now = self._clock()
        before = self._table.news
        try:
            answer = exchange.answer(self._table, data, now)
        except Malformed:
            self.refused["malformed_sync"] += 1
            return None
        self.counters["sync_in"] += 1
        if self._table.news != before:
            self._hurry_sync()
        self._wake_gossip(now)
        return answer

    # -- datagrams out -----------------------------------------------------------------------------

    def _send(self, address: Address, member: bytes | None, kind: Any, fields: tuple[Any, ...],
              introduce: bool = False) -> None:
        """Seals a packet with as many updates as fit. What the receiver must know comes first: that
        this node believes it suspect or dead (Lifeguard's buddy system), or this node's record."""
        table = self._table
        updates = []
        if introduce:
            updates.append(encode_update(table.me))
        known = table.members.get(member) if member is not None else None
        if known is not None and known.state in (State.SUSPECT, State.DEAD):
            updates.append(encode_update(Claim(known.record.id, known.incarnation, known.state,
                                               table.me.id)))
        room = self.config.datagram - OVERHEAD - FRAME - sum(map(len, updates))
        updates += self._broadcasts.take(room, table.size, 32)
        self.counters[f"{kind.__name__.lower()}_out"] += 1
        self._out.append((address, self._seal.seal(
            encode_packet(kind, (table.me.id, *fields), updates))))


def _check(record: Record) -> None:
    """An own record that cannot be spread is a mistake of the caller's."""
    if len(record.id) != 16:
        raise ValueError(f"a node id of {len(record.id)} bytes; it has 16")
    if record.meta is None or len(record.meta) > MAX_META:
        raise ValueError(f"metadata must be bytes, at most {MAX_META}")
    if not (0 < len(record.host) <= 128 and 0 <= record.port < 65536
            and len(record.link) <= 128 and len(record.zone) <= 128):
        raise ValueError(f"host, link and zone take 128 characters, a port 16 bits: {record}")
    size = len(encode_update(replace(record, meta=None)))
    if size > MAX_UPDATE:
        raise ValueError(f"host, link and zone have {size} bytes together; {MAX_UPDATE} fit")
