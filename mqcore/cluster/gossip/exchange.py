"""Anti-entropy: two members compare their tables over a link (Demers et al. 1987, section 1.3;
push-pull in Dadgar et al.'s implementation).

    A -> B   Digest   ids, incarnations, states
    B -> A   Delta    what A lacks, and which records B lacks
    A -> B   Delta    those records

The digest costs about 30 bytes a member, so that comparing two equal tables of 1,000 nodes takes
30 KB and no more. What comes in this way is not gossiped on.

That a member is dead comes out of an exchange as a suspicion only: the table at the other end may
be of the far side of a partition, and the member, being told, says otherwise within the shortest
suspicion.
"""

from __future__ import annotations

from mqcore.cluster.gossip.messages import (
    Claim,
    Delta,
    Digest,
    Entry,
    Record,
    State,
    decode_exchange,
    encode,
)
from mqcore.cluster.gossip.table import Member, Table


def digest(table: Table) -> bytes:
    """The first message of an exchange."""
    me = table.me
    entries = [Entry(me.id, me.incarnation, State.LEFT if table.leaving else State.ALIVE)]
    entries += [Entry(member.record.id, 0 if member.stale else member.incarnation, member.state)
                for member in table.members.values()]
    return encode(Digest(me.id, tuple(entries)))


def answer(table: Table, data: bytes, now: float) -> bytes | None:
    """Merges a message and returns the answer, None at the end. Raises Malformed."""
    message = decode_exchange(data)
    if message.sender in table.banned:
        return None
    if isinstance(message, Digest):
        return _compare(table, message, now)
    for record in message.records:
        table.alive(record, now, spread=False)
    for claim in message.claims:
        table.claim(_softened(claim, table), now, spread=False)
    records: list[Record] = []
    claims: list[Claim] = []
    for member_id in message.wanted:
        _tell(table, member_id, records, claims)
    return encode(Delta(table.me.id, tuple(records), tuple(claims), ())) \
        if records or claims else None


def _compare(table: Table, message: Digest, now: float) -> bytes:
    records: list[Record] = []
    claims: list[Claim] = []
    wanted: list[bytes] = []
    theirs = {entry.id for entry in message.entries}
    me = table.me
    members = table.members
    for entry in message.entries:
        member = members.get(entry.id)
        if member is not None and entry.incarnation == member.incarnation \
                and entry.state is member.state and not member.stale:
            continue                # the same at both ends: most are
        if entry.id == me.id:
            if entry.incarnation < me.incarnation:
                records.append(me)
            if entry.state != State.ALIVE:      # an entry of incarnation 0 is stale, not a claim
                table.claim(Claim(me.id, entry.incarnation, entry.state, message.sender), now)
            continue
        if member is None:
            if entry.state < State.DEAD and entry.id not in table.banned:
                wanted.append(entry.id)
        elif entry.incarnation > member.incarnation or \
                member.stale and entry.incarnation == member.incarnation:
            wanted.append(entry.id)
        elif entry.incarnation < member.incarnation:
            _tell(table, entry.id, records, claims)
        elif entry.state > member.state:
            by = entry.id if entry.state == State.LEFT else table.me.id
            table.claim(_softened(Claim(entry.id, entry.incarnation, entry.state, by), table), now,
                        spread=False)
        elif entry.state < member.state:
            claims.append(_claim(table, member))
    for member_id, member in members.items():
        if member_id not in theirs and member.state < State.DEAD:
            _tell(table, member_id, records, claims)
    if me.id not in theirs:
        records.append(me)
    return encode(Delta(me.id, tuple(records), tuple(claims), tuple(wanted)))


def _tell(table: Table, member_id: bytes, records: list[Record], claims: list[Claim]) -> None:
    """Adds all that is known of a member."""
    if member_id == table.me.id:
        records.append(table.me)
        return
    member = table.members.get(member_id)
    if member is None:
        return
    if not member.stale:
        records.append(member.record)
    if member.state != State.ALIVE:
        claims.append(_claim(table, member))


def _claim(table: Table, member: Member) -> Claim:
    by = member.record.id if member.state == State.LEFT else table.me.id
    return Claim(member.record.id, member.incarnation, member.state, by)


def _softened(claim: Claim, table: Table) -> Claim:
    """A death that the peer declared becomes a suspicion, and this node its accuser."""
    if claim.state == State.LEFT or claim.id == table.me.id:
        return claim
    return Claim(claim.id, claim.incarnation, State.SUSPECT, table.me.id)
