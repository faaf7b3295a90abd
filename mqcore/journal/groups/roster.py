"""Roster: who is a member of a consumer group, and which partitions each member has. No I/O: the
caller brings the time.

A partition has one owner. When the shares change, an answer tells an owner that a partition is no
longer its own, and the next one gets it only after the first has let go, its lease has ended, or
its connection is gone. Each grant has a token, which the owner shows with a commit: what comes late
from a former owner is refused. Tokens grow with time. After a restart the members say what they
have; if two claim a partition, the later token is right.

A member lets go by leaving the partition out of the list that it sends with a beat. It may not have
seen the latest answer by then, so answers are numbered, and a beat says which one the member has
seen last.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

MOST = 2000             # partitions of one member: all are named in each of its beats
NONE = -1               # a token that no member has
_random = random.SystemRandom().getrandbits


@dataclass(eq=False)
class Grant:
    """A partition as one member's own."""

    partition: int
    owner: Member
    token: int
    told: int | None = None         # the first answer that had it
    revoked: float | None = None    # since when the owner shall let go
    dropped: int | None = None      # the first answer without it
    claimed: bool = False           # the member had it when it came


@dataclass(eq=False)
class Member:
    name: str
    link: int                       # the connection that its last beat came over
    session: float = 0.0            # seconds that its lease lasts after a beat
    handling: float = 0.0           # seconds that it may take to let a partition go
    heard: float = 0.0
    # the latest answer; the first has a random number, so that no other life's can be meant
    answers: int = field(default_factory=lambda: _random(52))
    grants: dict[int, Grant] = field(default_factory=dict)      # by partition

    def __post_init__(self) -> None:
        self._before = self.answers

    def knows(self, seen: int) -> bool:
        """Whether this is the number of one of its answers, which only this member has seen."""
        return self._before < seen <= self.answers

    @property
    def kept(self) -> list[Grant]:
        """What it shall not let go."""
        return [grant for grant in self.grants.values() if grant.revoked is None]


class Roster:
    """One group of one topic. `generation` grows whenever the shares change. Until `grace`, a
    moment on the caller's clock, partitions are given only to members that claim to have them: the
    server was restarted, and their leases are not over."""

    def __init__(self, grace: float = 0.0, clock: Callable[[], float] = time.time) -> None:
        self.members: dict[str, Member] = {}
        self.generation = 0
        self.forced = 0             # partitions taken from members that did not let go in time
        self.expired = 0            # members that were not heard of in time
        self._grace = grace
        self._clock = clock         # seconds since 1970
        self._token = 0             # the latest that was made here
        self._partitions: tuple[int, ...] = ()
        self._grants: dict[int, Grant] = {}
        self._last: dict[int, int] = {}     # the latest token of partitions without an owner

    @property
    def session(self) -> float:
        """The longest lease, seconds."""
        return max((member.session for member in self.members.values()), default=0.0)

    # -- what happens --

    def beat(self, now: float, name: str, link: int, session: float, handling: float,
             held: Iterable[tuple[int, int]], seen: int) -> Member:
        """A member is there and has these partitions, as (partition, token). `seen`: the latest
        answer that it knows; 0: none."""
        member = self.members.get(name)
        if member is None:
            member = self.members[name] = Member(name, link)
            self.generation += 1
        member.link, member.session, member.handling = link, session, handling
        member.heard = now
        tokens = dict(held)
        self._claim(now, member, tokens)
        self._let_go(member, tokens, seen if seen <= member.answers else 0)
        self.settle(now)
        return member

    def _claim(self, now: float, member: Member, tokens: dict[int, int]) -> None:
        """It has what no other member was given since."""
        for partition, token in tokens.items():
            last = self._last.get(partition)
            grant = self._grants.get(partition)
            if grant is not None and self._older(now, grant, token):
                self._free(grant)
                self.generation += 1
            elif grant is not None or token != last and (last is not None or now >= self._grace):
                continue
            if partition in self._partitions:
                grant = self._give(partition, member, token)
                grant.told, grant.claimed = member.answers, True

    def _older(self, now: float, grant: Grant, token: int) -> bool:
        """The grant was claimed after the restart, with an older token than this one."""
        return grant.claimed and now < self._grace and grant.token < token

    def _let_go(self, member: Member, tokens: dict[int, int], seen: int) -> None:
        for grant in list(member.grants.values()):
            if tokens.get(grant.partition) == grant.token:
                continue
            since = grant.told if grant.revoked is None else grant.dropped
            if grant.told is None and grant.revoked is not None:
                self._free(grant)       # it has never heard of it
            elif since is not None and seen >= since:
                self._free(grant)

    def leave(self, name: str, link: int | None = None) -> bool:
        """The member goes, and its partitions are free. With `link` only if its last beat came over
        that connection. False: this member is unknown."""
        member = self.members.get(name)
        if member is None or link is not None and member.link != link:
            return False
        del self.members[name]
        for grant in list(member.grants.values()):
            self._free(grant)
        self.generation += 1
        return True

    def pardon(self, now: float, away: float) -> None:
        """For so long nothing that the members said was read."""
        for member in self.members.values():
            member.heard = min(now, member.heard + away)
        for grant in self._grants.values():
            if grant.revoked is not None:
                grant.revoked = min(now, grant.revoked + away)

    def expire(self, now: float) -> None:
        """Members whose lease has ended, and partitions that were not let go in time."""
        for member in list(self.members.values()):
            if now - member.heard > member.session:
                self.leave(member.name)
                self.expired += 1
        for grant in list(self._grants.values()):
            if grant.revoked is not None and now - grant.revoked > grant.owner.handling:
                self._free(grant)
                self.forced += 1
        self.settle(now)

    def partitions(self, now: float, found: Iterable[int]) -> None:
        """The topic has these."""
        found = tuple(sorted(found))
        if found == self._partitions:
            return
        self._partitions = found
        self.generation += 1
        for grant in list(self._grants.values()):
            if grant.partition not in found:
                self._free(grant)
                self._last[grant.partition] = NONE
        self.settle(now)

    def renew(self, now: float, partition: int) -> None:
        """It is another one than before, so that its owner has it anew."""
        grant = self._grants.get(partition)
        if grant is not None:
            self._free(grant)
            self.generation += 1
        self._last[partition] = NONE
        self.settle(now)

    # -- shares --

    def settle(self, now: float) -> None:
        """Each member gets an equal share, and keeps what it has of that."""
        if not self.members:
            return
        most_first = sorted(self.members.values(), key=lambda one: (-len(one.kept), one.name))
        base, extra = divmod(len(self._partitions), len(most_first))
        room = []
        for rank, member in enumerate(most_first):
            share = min(base + (rank < extra), MOST)
            kept = member.kept
            for grant in kept[share:]:
                grant.revoked = now
                self.generation += 1
            room += [(at, member) for at in range(len(kept), share)]
        if now < self._grace:
            return
        free = [one for one in self._partitions if one not in self._grants]
        room.sort(key=lambda one: (one[0], one[1].name))
        for partition, (_, member) in zip(free, room, strict=False):
            fresh = int(1000 * self._clock()) << 20 | _random(20)
            self._token = max(self._token + 1, fresh % (1 << 62))
            self._give(partition, member, self._token)
            self.generation += 1

    def _give(self, partition: int, member: Member, token: int) -> Grant:
        grant = Grant(partition, member, token)
        self._grants[partition] = member.grants[partition] = grant
        self._last.pop(partition, None)
        return grant

    def _free(self, grant: Grant) -> None:
        del self._grants[grant.partition]
        grant.owner.grants.pop(grant.partition, None)
        self._last[grant.partition] = grant.token

    # -- answers --

    def answer(self, member: Member) -> tuple[int, list[Grant]]:
        """The number of this answer, and what is the member's own now."""
        member.answers += 1
        for grant in member.grants.values():
            if grant.revoked is None:
                grant.told = member.answers if grant.told is None else grant.told
            elif grant.dropped is None:
                grant.dropped = member.answers
        return member.answers, member.kept

    def lost(self, member: Member, held: Iterable[tuple[int, int]]) -> list[int]:
        """Which of these are not the member's any more."""
        tokens = {grant.partition: grant.token for grant in member.grants.values()}
        return [partition for partition, token in held if tokens.get(partition) != token]

    def owner(self, now: float, partition: int, token: int) -> bool | None:
        """Whether the partition is this token's. None: its owner may not have come back yet."""
        grant = self._grants.get(partition)
        if now < self._grace and (partition not in self._last if grant is None
                                  else self._older(now, grant, token)):
            return None
        return grant is not None and grant.token == token

    def waits(self, now: float) -> bool:
        """Members of a server before this one may still come."""
        return now < self._grace

    def shares(self) -> dict[str, list[int]]:
        """The partitions of each member, those that it shall let go included."""
        return {name: sorted(member.grants) for name, member in sorted(self.members.items())}
