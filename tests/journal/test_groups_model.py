"""Consumer groups as a simulation: the server's Roster and the members' Holdings, with a clock and
a network that the test turns. Beats and answers take their time, connections break, members are
slow, stall or die, the server is killed and comes back, partitions are added.

At each moment a partition is read by one member at most. The exceptions are those that the guide
names: a member whose connection has broken, and one that was given `handling` seconds to let go and
took longer. Both are found out by their next commit.
"""

import itertools
import os
import random

import pytest

from mqcore.journal.groups.holding import Holding
from mqcore.journal.groups.roster import Roster

SESSION, HANDLING, PACE = 4.0, 9.0, 1.0
ROUNDS = 400 if os.environ.get("MQCORE_ROUNDS") else 40
STEPS = 400


class Reader:
    """A member, as its two threads act."""

    def __init__(self, name, link):
        self.name, self.link = name, link
        self.holding = Holding(SESSION)
        self.due = 0.0
        self.reading = {}           # share: the moment from which on it looks at its shares again
        self.broken = False         # it has lost a connection, and no answer came since
        self.alive = True

    def look(self, now, slow):
        """What iteration does between two batches."""
        for share, until in list(self.reading.items()):
            if share.lost:
                del self.reading[share]
            elif share.revoked and now >= until:
                del self.reading[share]
                self.holding.release(share)
                self.due = now
        if now >= self.holding.expires or self.broken:
            return
        for share in list(self.holding.shares.values()):
            if share not in self.reading and self.holding.take(share):
                self.reading[share] = now + slow

    def reads(self, now):
        if not self.alive or now >= self.holding.expires:
            return {}
        return {share.partition: share for share in self.reading if not share.lost}


class World:
    def __init__(self, choose):
        self.choose = choose
        self.now = 100.0
        self.links = itertools.count(1)
        self.names = itertools.count(1)
        self.found = list(range(choose.randrange(1, 7)))
        self.members = []
        self.wires = {}             # link: [(when, what)] to the server and back, in order
        self.lease = 0.0            # what the group's file says
        self.roster = Roster(clock=lambda: self.now)
        self.roster.partitions(self.now, self.found)

    def join(self):
        link = next(self.links)
        self.members.append(Reader(f"m{next(self.names)}", link))
        self.wires[link] = ([], [])

    def send(self, link, way, what):
        wire = self.wires[link][way]
        when = self.now + self.choose.random() * 0.5
        wire.append((max(when, wire[-1][0] if wire else 0), what))

    def step(self):
        self.now += self.choose.random() * 0.3
        self.roster.partitions(self.now, self.found)
        self.roster.expire(self.now)
        for member in self.members:
            if member.alive:
                member.holding.expire(self.now)
                member.look(self.now, self.choose.choice([0, 0.2, 2.0, 2.0]))
                if self.now >= member.due:
                    member.due = self.now + PACE
                    self.send(member.link, 0, (member.name, self.now, member.holding.held,
                                               member.holding.seen))
        self.deliver()

    def deliver(self):
        for link, (up, down) in self.wires.items():
            while up and up[0][0] <= self.now:
                name, sent, held, seen = up.pop(0)[1]
                found = self.roster.beat(self.now, name, link, SESSION, HANDLING, held, seen)
                self.lease = max(self.lease, self.roster.session)
                lost = self.roster.lost(found, held)
                number, grants = self.roster.answer(found)
                self.send(link, 1, (sent, number,
                                    [(one.partition, one.token) for one in grants], lost))
            while down and down[0][0] <= self.now:
                answer = down.pop(0)[1]
                member = next(one for one in self.members if one.link == link)
                before = set(member.holding.shares)
                member.broken = False
                member.holding.heard(*answer)
                if before != set(member.holding.shares):
                    member.due = self.now

    def cut(self, member):
        """Its connection breaks; it connects again at once. The server notices."""
        old, member.link = member.link, next(self.links)
        del self.wires[old]
        self.wires[member.link] = ([], [])
        member.broken = True
        member.due = self.now
        for share in member.reading:
            share.broken = True     # of the model: what it reads now may be given away
        self.roster.leave(member.name, old)
        self.roster.settle(self.now)

    def kill(self, member):
        member.alive = False
        del self.wires[member.link]
        self.members.remove(member)
        self.roster.leave(member.name, member.link)
        self.roster.settle(self.now)

    def stall(self, member):
        """It stops for longer than its lease, and finds so when it goes on."""
        self.roster.leave(member.name)      # as expire() does
        self.now += SESSION
        self.roster.settle(self.now)

    def restart(self):
        """kill -9 of the server. All connections break, but it gives nothing away."""
        self.roster = Roster(grace=self.now + self.lease, clock=lambda: self.now)
        for member in self.members:
            del self.wires[member.link]
            member.link = next(self.links)
            self.wires[member.link] = ([], [])
            member.due = self.now
        self.roster.partitions(self.now, self.found)

    def check(self):
        readers = {}
        for member in self.members:
            for partition, share in member.reads(self.now).items():
                if getattr(share, "broken", False):
                    continue
                readers.setdefault(partition, []).append((member, share))
        for partition, who in readers.items():
            mine = [member.name for member, share in who
                    if self.roster.owner(self.now, partition, share.token) is not False]
            assert len(mine) <= 1, (partition, mine)
            late = [member.name for member, share in who if member.name not in mine]
            assert not late or self.roster.forced, (partition, [one.name for one, _ in who])


def even(world):
    shares = [len(member.reads(world.now)) for member in world.members]
    return sum(shares) == len(world.found) and max(shares) - min(shares) <= 1


@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_partition_has_one_reader(seed, number):
    choose = random.Random(seed + number)
    world = World(choose)
    world.join()
    for _ in range(STEPS):
        what = choose.random()
        if what < 0.02 and len(world.members) < 8:
            world.join()
        elif what < 0.03 and len(world.members) > 1:
            world.kill(choose.choice(world.members))
        elif what < 0.04:
            world.cut(choose.choice(world.members))
        elif what < 0.045:
            world.restart()
        elif what < 0.05 and len(world.found) < 12:
            world.found.append(len(world.found))
        world.step()
        world.check()
    for _ in range(300):
        world.step()
        world.check()
    assert even(world), world.roster.shares()


def test_a_stalled_member_loses_what_it_had(rng):
    world = World(rng)
    world.found = [0, 1]
    world.join()
    while not even(world):
        world.step()
    [member] = world.members
    shares = list(member.reading)
    world.stall(member)
    assert member.reads(world.now) == {}
    for _ in range(100):
        world.step()
    assert even(world) and all(share.lost for share in shares)


def test_whoever_does_not_let_go_is_found_out(rng):
    """The partition goes to the next member after `handling` seconds."""
    world = World(rng)
    world.found = [0, 1]
    world.join()
    while not even(world):
        world.step()
    [slow] = world.members
    for share in slow.reading:
        slow.reading[share] = world.now + 1000
    world.join()
    while not world.roster.forced:
        world.step()
        world.check()
    for _ in range(50):
        world.step()
    assert even(world)
