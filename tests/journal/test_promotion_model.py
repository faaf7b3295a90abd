"""Copies of a journal against a model of them: random appends, mirrors and promotions, of three
folders, in any order.

The model is a list of messages for each folder, each message unlike all others. After each step
every folder holds what its list says, so nothing was overwritten. What a refusal says is checked
against the lists: the offsets that only one copy has, to the message.

MQCORE_ROUNDS=1000 for long runs; MQCORE_SEED repeats one.
"""

import contextlib
import os
import random
import shutil

import pytest
from copies import epochs, fill, mirror, mirroring, read_all
from waiting import until

from mqcore import journal
from mqcore.errors import UsageError
from mqcore.journal.errors import JournalDiverged, JournalFenced
from mqcore.journal.store import place

ROUNDS = int(os.environ.get("MQCORE_ROUNDS", "12"))
STEPS = 25
NAMES = "abc"


@pytest.fixture
def tmp_path(memory):
    return memory


def shared(one, other):
    """How many messages two copies have in common from the beginning."""
    n = 0
    while n < min(len(one), len(other)) and one[n] == other[n]:
        n += 1
    return n


class Model:
    def __init__(self, where, rng, serve, ctx):
        self.where, self.rng, self.serve, self.ctx = where, rng, serve, ctx
        self.messages = {name: [] for name in NAMES}
        self.made = 0
        self.fill("a")

    def folder(self, name):
        return self.where / name

    def state(self, name):
        """None: the folder is empty."""
        return epochs(self.folder(name)) if self.messages[name] else None

    def fresh(self):
        found = []
        for _ in range(self.rng.choice((1, 2, 5))):
            self.made += 1
            found.append(b"%d" % self.made)
        return found

    def pick(self, n=1):
        return self.rng.sample(NAMES, n)

    def fill(self, name):
        new = self.fresh()
        fill(self.folder(name), *new, block_bytes=1024)
        self.messages[name] += new

    # -- steps --

    def append(self):
        [name] = self.pick()
        state = self.state(name)
        if state is None or state.mirror:
            return
        if not state.fenced:
            self.fill(name)
            return
        with pytest.raises(JournalFenced) as error:
            journal.open(self.folder(name), "a")
        self.alone(name, error.value)

    def come_back(self):
        """As a primary that asks another copy first."""
        name, other = self.pick(2)
        state, theirs = self.state(name), self.state(other)
        if state is None or state.mirror or state.fenced or theirs is None:
            return
        new = self.fresh()
        try:
            with journal.open(self.folder(name), "a",
                              replicas=self.serve(self.folder(other)).urls[0],
                              replica_options={"context": self.ctx}) as log:
                log.append_many(new)
        except JournalFenced as error:
            assert self.ahead(theirs, state)
            self.alone(name, error)
        except JournalDiverged:
            assert self.apart(state, theirs)
        else:
            assert not self.ahead(theirs, state)
            self.messages[name] += new

    def mirror(self):
        source, into = self.pick(2)
        theirs, ours = self.state(source), self.state(into)
        if theirs is None:
            return
        try:
            if self.rng.random() < 0.3 and not theirs.fenced and not theirs.mirror:
                self.mirror_and_append(source, into)
            else:
                mirror(self.folder(source), self.folder(into))
        except JournalFenced:
            assert theirs.fenced or self.ahead(ours, theirs) or \
                theirs.mirror and not ours.mirror
        except JournalDiverged as error:
            if not self.apart(ours, theirs):
                assert error.first == shared(self.messages[into], self.messages[source])
                assert error.end == len(self.messages[into])
        except UsageError:              # a copy that is ahead of its source, which was set back
            assert len(self.messages[into]) > len(self.messages[source])
        else:
            end = len(read_all(self.folder(into)))
            assert end >= len(self.messages[into])
            assert self.messages[source][:len(self.messages[into])] == self.messages[into]
            self.messages[into] = self.messages[source][:end]
            assert epochs(self.folder(into)).own == epochs(self.folder(source)).own

    def mirror_and_append(self, source, into):
        """The primary goes on meanwhile, and the mirror ends at any moment."""
        with mirroring(self.folder(source), self.folder(into)) as (device, writer):
            self.fill(source)
            if self.rng.random() < 0.5:
                until(lambda: device.error is not None
                      or writer.next == len(self.messages[source]))
        if device.error is not None:
            raise device.error

    def promote(self):
        name, old = self.pick(2)
        state, former = self.state(name), self.state(old)
        if state is None:
            return
        old = old if former is not None and self.rng.random() < 0.5 else None
        faults = self.rng.choice((0, 0, 0, 1, 2, 3, 4))
        try:
            with self.faulty(faults):
                done = journal.promote(self.folder(name), old=old and self.folder(old))
        except (UsageError, JournalFenced, JournalDiverged):
            assert state.own and not state.mirror or state.fenced or old
        except OSError:
            assert faults
        else:
            assert not self.state(name).mirror and self.state(name).number == done.epoch
            if old:
                assert self.state(old).fenced
        if old and not state.fenced:    # what was copied stays, whatever came of the promotion
            mine, theirs = self.messages[name], self.messages[old]
            found = read_all(self.folder(name))
            assert found == mine or found == theirs[:len(found)] and theirs[:len(mine)] == mine
            self.messages[name] = found

    @contextlib.contextmanager
    def faulty(self, number):
        """The disk is full at the given replacement of a file."""
        real, left = place.replace, [number]

        def replace(path, raw):
            left[0] -= 1
            if left[0] == 0:
                raise OSError(28, "no space left")
            real(path, raw)
        place.replace = replace
        try:
            yield
        finally:
            place.replace = real

    # -- what must hold --

    def ahead(self, one, other):
        return len(one.own) + len(one.newer) > len(other.own) \
            and (one.own + one.newer)[:len(other.own)] == other.own

    def apart(self, one, other):
        """They were promoted separately."""
        theirs = other.own + other.newer
        n = min(len(one.own), len(theirs))
        return one.own[:n] != theirs[:n]

    def alone(self, name, error):
        """The error names the messages that only this copy has."""
        mine = self.messages[name]
        assert error.end == len(mine) and error.first <= error.end
        heirs = [other for other in NAMES if other != name and self.state(other) is not None
                 and self.ahead(self.state(other), self.state(name))]
        # no heir: its promotion was interrupted when it had taken everything over
        assert error.first in [shared(mine, self.messages[other]) for other in heirs] \
            or error.first == error.end

    def check(self):
        for name, messages in self.messages.items():
            if messages:
                assert read_all(self.folder(name)) == messages, name
        writable = [state.own for name in NAMES if (state := self.state(name)) is not None
                    and not state.mirror and not state.fenced]
        assert len(writable) == len(set(writable)), "two primaries of one epoch"

    STEPS = (append, append, come_back, mirror, mirror, mirror, promote, promote)

    def step(self):
        self.rng.choice(self.STEPS)(self)
        self.check()


@pytest.mark.timeout(300 + 10 * ROUNDS)
@pytest.mark.parametrize("rounds", [4, pytest.param(ROUNDS, marks=pytest.mark.slow)])
def test_copies_against_the_model(tmp_path, seed, serve, ctx, rounds):
    for i in range(rounds):
        print(f"round {i}: MQCORE_SEED={seed + i}")
        model = Model(tmp_path / f"m{i}", random.Random(seed + i), serve, ctx)
        for _ in range(STEPS):
            model.step()
        shutil.rmtree(model.where)
