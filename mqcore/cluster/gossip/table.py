"""The table of members, and the rules by which updates change it (Das et al. 2002, section 4.2).

An update of a higher incarnation wins. Of the same incarnation, the worse state wins: alive,
suspect, dead or left. A member that hears itself called suspect or dead answers with a higher
incarnation; only its owner raises it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection
from random import Random
from typing import NamedTuple

from mqcore.cluster.gossip.broadcasts import Broadcasts
from mqcore.cluster.gossip.config import Config
from mqcore.cluster.gossip.lifeguard import Health, Suspicion, suspicion_bounds
from mqcore.cluster.gossip.messages import MAX_INCARNATION, Claim, Record, State, replace

ALIVE, SUSPECT, DEAD, LEFT = State.ALIVE, State.SUSPECT, State.DEAD, State.LEFT


class Event(NamedTuple):
    """`kind` happened to the member that `record` describes.

    "joined", "updated" (its record changed), "suspected", "recovered" (it was suspected), "failed"
    (it counts as dead), "left" (by its own will).
    """

    kind: str
    record: Record
    time: float


class Member:
    """A member as this node sees it. `incarnation` may be ahead of the record's: then, or if the
    record came without its metadata, the member is `stale`, and an exchange brings the rest."""

    __slots__ = ("changed", "incarnation", "place", "record", "stale", "state", "suspicion")

    def __init__(self, record: Record, now: float) -> None:
        self.record = record
        self.incarnation = record.incarnation
        self.state = ALIVE
        self.changed = now              # when the state did
        self.suspicion: Suspicion | None = None
        self.place = -1                 # in Table.others
        self.stale = False


class Table:
    """All members but those that are forgotten. `others` lists the ids of those that are alive or
    suspect and not this node."""

    def __init__(self, me: Record, config: Config, rng: Random, broadcasts: Broadcasts,
                 health: Health, refused: Counter[str]) -> None:
        self.me = me
        self.leaving = False
        self.banned: Collection[bytes] = frozenset()
        self.members: dict[bytes, Member] = {}      # without this node
        self.others: list[bytes] = []
        self.suspects: dict[bytes, Member] = {}
        self.stale: set[bytes] = set()
        self.gone: dict[bytes, Member] = {}         # dead or left, in the order they went
        self.events: deque[Event] = deque()
        self.news = 0                               # counts changes
        self.on_join: Callable[[bytes], None] = lambda _: None
        self._config = config
        self._rng = rng
        self._broadcasts = broadcasts
        self._health = health
        self._refused = refused

    @property
    def size(self) -> int:
        """How many members there are, alive or suspect, this node included."""
        return len(self.others) + 1

    # -- updates -----------------------------------------------------------------------------------

    def alive(self, record: Record, now: float, spread: bool = True) -> None:
        """A record has come. `spread`: it is worth telling others."""
        if record.id == self.me.id:
            self._own_record(record)
            return
        if record.id in self.banned:
            self._refused["banned"] += 1
            return
        member = self.members.get(record.id)
        if member is None:
            if not self._room():
                self._refused["table_full"] += 1
                return
            member = self.members[record.id] = Member(record, now)
            self._enter(member, now)
        elif record.incarnation > member.incarnation:
            self._renew(member, record, now)
        elif record.incarnation == member.incarnation and member.stale and record.meta is not None:
            member.record = record
            if member.state < DEAD:
                self._event("updated", record, now)
        else:
            return
        self._settle(member)
        self.news += 1
        if spread:
            self._broadcasts.add(record)

    def claim(self, claim: Claim, now: float, spread: bool = True) -> None:
        """A peer reports that a member is suspect, dead or gone."""
        if claim.id == self.me.id:
            self._own_claim(claim)
            return
        member = self.members.get(claim.id)
        if member is None:
            self._refused["unknown_member"] += 1
            return
        if claim.incarnation < member.incarnation or claim.state == ALIVE:
            return
        if claim.state == LEFT and claim.by != claim.id:
            self._refused["foreign_leave"] += 1
            return
        if member.state >= DEAD:
            changed = member.state == DEAD and claim.state == LEFT or \
                claim.incarnation > member.incarnation
            if changed:
                member.state = claim.state if claim.state != SUSPECT else DEAD
        elif claim.state == SUSPECT:
            changed = self._suspect(member, claim, now)
        else:
            self._depart(member, claim.state, now)
            changed = True
        if claim.incarnation > member.incarnation:
            member.incarnation = claim.incarnation
            self._settle(member)
        if changed:
            self.news += 1
            if spread:
                self._broadcasts.add(claim)

    def doubt(self, member_id: bytes, now: float) -> None:
        """This node knows that nothing listens at the member's address: no one need confirm it, and
        only the shortest time is left to the member for its say."""
        member = self.members.get(member_id)
        if member is None or member.state >= DEAD:
            return
        self.claim(Claim(member_id, member.incarnation, SUSPECT, self.me.id), now)
        assert member.suspicion is not None
        member.suspicion.sure = min(member.suspicion.sure, now)

    def expire(self, now: float, shift: float = 0.0) -> None:
        """Members that were suspect long enough are dead. `shift`: so many seconds in which this
        node was stopped do not count."""
        for member in list(self.suspects.values()):
            suspicion = member.suspicion
            assert suspicion is not None
            suspicion.since += shift
            suspicion.sure += shift
            if suspicion.deadline <= now:
                self.claim(Claim(member.record.id, member.incarnation, DEAD, self.me.id), now)
        self._forget(now)

    def next_expiry(self) -> float:
        """When `expire` has something to do; infinity without suspects."""
        return min((member.suspicion.deadline for member in self.suspects.values()
                    if member.suspicion), default=float("inf"))

    def renew_me(self, record: Record) -> None:
        """This node describes itself anew, to all."""
        self.me = record
        self.news += 1
        self._broadcasts.add(record)

    def remove(self, member_id: bytes, now: float) -> None:
        """Takes out a member that was banned."""
        member = self.members.pop(member_id, None)
        if member is None:
            return
        if member.state < DEAD:
            self._depart(member, DEAD, now)
        self.gone.pop(member_id, None)
        self.stale.discard(member_id)
        self._broadcasts.discard(member_id)
        self.news += 1

    # -- this node ---------------------------------------------------------------------------------

    def _own_record(self, record: Record) -> None:
        """A peer repeats this node's record. A later incarnation comes from an earlier process
        with this id, or is false: outbid it."""
        if record.incarnation > self.me.incarnation or \
                record.incarnation == self.me.incarnation and record != self.me and \
                record.meta is not None:
            self._outbid(record.incarnation)

    def _own_claim(self, claim: Claim) -> None:
        if claim.state == ALIVE or self.leaving:
            return
        if claim.incarnation < self.me.incarnation:
            self._broadcasts.add(self.me)       # refuted before, but not heard there
            return
        self._health.add(1)
        self._refused["refuted"] += 1
        self._outbid(claim.incarnation)

    def _outbid(self, incarnation: int) -> None:
        self.renew_me(replace(self.me, incarnation=min(incarnation + 1, MAX_INCARNATION - 1)))

    # -- other members -----------------------------------------------------------------------------

    def _enter(self, member: Member, now: float) -> None:
        member.place = len(self.others)
        self.others.append(member.record.id)
        self.on_join(member.record.id)
        self._event("joined", member.record, now)

    def _renew(self, member: Member, record: Record, now: float) -> None:
        old, state = member.record, member.state
        if record.meta is None and old.meta is not None:
            # the metadata of before, until an exchange brings those of now
            member.record = replace(record, meta=old.meta, incarnation=old.incarnation)
        else:
            member.record = record
        member.incarnation = record.incarnation
        member.suspicion = None
        self.suspects.pop(record.id, None)
        if state >= DEAD:
            self.gone.pop(record.id, None)
            member.state, member.changed = ALIVE, now
            self._enter(member, now)
            return
        if state == SUSPECT:
            member.state, member.changed = ALIVE, now
            self._event("recovered", member.record, now)
        if _content(old) != _content(member.record):
            self._event("updated", member.record, now)

    def _settle(self, member: Member) -> None:
        record = member.record
        member.stale = record.meta is None or record.incarnation < member.incarnation
        if member.stale:
            self.stale.add(record.id)
        elif self.stale:
            self.stale.discard(record.id)

    def _suspect(self, member: Member, claim: Claim, now: float) -> bool:
        if member.state == SUSPECT and claim.incarnation == member.incarnation:
            assert member.suspicion is not None
            return member.suspicion.confirm(claim.by)
        config = self._config
        # in a small cluster, no one is left to confirm: the shortest time applies at once
        expected = config.confirmations if self.size - 2 >= config.confirmations else 0
        bounds = suspicion_bounds(self.size, config.period, config.alpha, config.beta)
        member.suspicion = Suspicion(now, claim.by, bounds, expected)
        if member.state != SUSPECT:
            member.state, member.changed = SUSPECT, now
            self.suspects[claim.id] = member
            self._event("suspected", member.record, now)
        return True

    def _depart(self, member: Member, state: State, now: float) -> None:
        member_id = member.record.id
        last = self.others[-1]
        self.others[member.place] = last
        if last in self.members:
            self.members[last].place = member.place
        self.others.pop()
        member.place = -1
        self.suspects.pop(member_id, None)
        member.suspicion = None
        member.state, member.changed = state, now
        self.gone[member_id] = member
        self._event("failed" if state == DEAD else "left", member.record, now)

    def _room(self) -> bool:
        """Whether a member fits. If the table is full, the one that has been gone longest goes."""
        if len(self.members) < self._config.max_members:
            return True
        oldest = next(iter(self.gone), None)
        if oldest is None:
            return False
        self._erase(oldest)
        return True

    def _erase(self, member_id: bytes) -> None:
        """Forgets a member that is gone."""
        del self.gone[member_id], self.members[member_id]
        self.stale.discard(member_id)
        self._broadcasts.discard(member_id)

    def _forget(self, now: float) -> None:
        config = self._config
        for member_id, member in list(self.gone.items()):
            age = now - member.changed
            if age < config.forget_left:
                break           # those behind it went later
            if member.state == LEFT or age > config.forget_dead:
                self._erase(member_id)

    def _event(self, kind: str, record: Record, now: float) -> None:
        if len(self.events) >= self._config.max_events:
            self.events.popleft()
            self._refused["events_lost"] += 1
        self.events.append(Event(kind, record, now))

    def choose(self, count: int, without: Collection[bytes] = ()) -> list[Member]:
        """So many other members by chance, fewer if there are not as many."""
        if len(self.others) <= count + len(without):
            ids = [one for one in self.others if one not in without]
            self._rng.shuffle(ids)
        else:
            ids = [one for one in self._rng.sample(self.others, count + len(without))
                   if one not in without]
        return [self.members[one] for one in ids[:count]]


def _content(record: Record) -> tuple[str, int, str, str, bytes | None]:
    return record.host, record.port, record.link, record.zone, record.meta
