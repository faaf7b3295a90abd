"""All states of a recording: each is made once, and checked."""

import contextlib
import random
import time
from dataclasses import dataclass

from crash_states.recording import Op
from crash_states.scenarios import SCENARIOS
from crash_states.states import Disk, build, choices, digest, tree_of
from mqcore.journal.store import recovery


@dataclass
class Count:
    states: int = 0
    equal: int = 0
    seconds: float = 0.0


class Unsound(AssertionError):
    """A state from which the journal does not come back as it promises."""


def check(recording, where, seen, count, *, some=0, cuts=None, each=None, keep=False):
    """Make and check the states of a recording. where: a folder in memory, which is made anew for
    each. seen: digests of states that were checked. some: further states at each cut, by chance.
    cuts, each: at how many cuts, and how many states of each, by chance; None: all. keep: go on
    with the next cut after a failure, and return the texts."""
    scenario = SCENARIOS[recording.scenario]
    rng = random.Random(f"{recording.seed} {recording.scenario} {recording.kill}")
    disk, marks, failures = Disk.of(recording), [], []
    points = [at for at, step in enumerate(recording.steps)
              if isinstance(step, Op) and at >= recording.killed]
    wanted = set(points) if cuts is None or cuts >= len(points) else \
        set(rng.sample(points, cuts))
    for at, step in enumerate(recording.steps):
        if isinstance(step, Op):
            disk.apply(step)
        else:
            marks.append(step)
        if at in wanted:
            known = marks + following(recording.steps, at)
            found = list(choices(disk, rng, some))
            if each is not None and each < len(found):
                found = rng.sample(found, each)
            for chosen, data in found:
                tree = tree_of(disk, chosen, data, rng)
                mark = digest(tree, known)
                if mark in seen:
                    count.equal += 1
                    continue
                seen.add(mark)
                why = judge(scenario, tree, where, known, count)
                if why is not None:
                    failures.append(told(recording, at, step, disk, chosen, data, tree, why))
                    if not keep:
                        raise Unsound(failures[0]) from why
                    break
    return failures


@contextlib.contextmanager
def at_once():
    """verify() waits for writers that may be at work. Here are none."""
    before, recovery.QUIET = recovery.QUIET, 0.0
    try:
        yield
    finally:
        recovery.QUIET = before


def following(steps, at):
    """The marks between this operation and the next one: what was acknowledged before the cut."""
    found = []
    for step in steps[at + 1:]:
        if isinstance(step, Op):
            break
        found.append(step)
    return found


def judge(scenario, tree, where, marks, count):
    begun = time.perf_counter()
    build(tree, where)
    count.states += 1
    try:
        with at_once():
            scenario.check(where, marks)
    except Exception as error:
        return error
    finally:
        count.seconds += time.perf_counter() - begun
    return None


def told(recording, at, step, disk, chosen, data, tree, why):
    pending = "\n".join(f"    {'kept' if i in chosen else 'lost'}: {change.text}"
                        for i, change in enumerate(disk.pending))
    files = "\n".join(f"    {path}: {len(what) if isinstance(what, bytes) else what}"
                      for path, what in sorted(tree.items()))
    return (f"scenario {recording.scenario}, seed {recording.seed}, killed in front of operation "
            f"{recording.kill}, cut behind step {at} ({step}), data {data}\n"
            f"  changes of names that were not durable:\n{pending}\n  on the disk:\n{files}\n"
            f"  {type(why).__name__}: {why}")
