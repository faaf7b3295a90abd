"""Power cuts of every operation: what the disk may hold then, made and checked; and the same after
a kill at any point, once another process has gone on. support/crash_states has the tool.

A failure names the scenario, its seed, where it was killed, and the cut. `again()` repeats it."""

import logging
from dataclasses import replace

import pytest
from crash_states.recording import Op, Recording, record
from crash_states.running import Count, Unsound, check
from crash_states.scenarios import SCENARIOS
from crash_states.states import Disk, choices, tree_of

MANY = 3100             # states of a scenario in the slow run, if its seeds have as many
MOST = {"writer": 25_000}
SEEDS = 12


@pytest.fixture(scope="module", autouse=True)
def quiet():
    """Almost every state is one of which the journal logs something."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def recorded(memory, names, seed, kills=0):
    folder = memory / f"recorded{len(list(memory.iterdir()))}"
    folder.mkdir()
    return record(names, seed, kills, folder)


def again(memory, name, seed, kill):
    """The run that a failure names, and all of its cuts."""
    found = [one for one in recorded(memory, [name], seed, None) if one.kill == kill]
    check(found[0], memory / "state", set(), Count(), some=100)


def test_a_sample(memory, rng):
    """Some states of each scenario, whole and killed."""
    count, seen, seed = Count(), set(), rng.randrange(1 << 30)
    names = [name for name in SCENARIOS if not name.startswith("spark")]
    for one in recorded(memory, names, seed, 1):
        check(one, memory / "state", seen, count, some=3, cuts=5, each=3)
    assert count.states > 100


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SCENARIOS)
def test_many_states(memory, rng, name, record_property):
    count, seen = Count(), set()
    most, seeds = MOST.get(name, MANY), 0
    while seeds < SEEDS and count.states < most:
        seeds += 1
        for one in recorded(memory, [name], rng.randrange(1 << 30), 12):
            if count.states < most:
                check(one, memory / "state", seen, count, some=8)
    print(f"{name}: {count} of {seeds} seeds")
    record_property("states", count.states)


# -- the tool itself -------------------------------------------------------------------------------


def without(recording, lost):
    """The same, on a disk that passes over some operations."""
    return replace(recording, steps=[step for step in recording.steps
                                     if not (isinstance(step, Op) and lost(step))])


@pytest.mark.parametrize("lost", ["files", "folders"])
def test_a_disk_without_fsync_is_noticed(memory, lost):
    [one] = recorded(memory, ["writer"], 1)
    folders = {number for _, _, number, data in one.tree if data is None} | {one.root}
    folders |= {step.b for step in one.steps if isinstance(step, Op) and step.kind == "D"}
    bad = without(one, lambda op: op.kind == "S" and (op.a in folders) == (lost == "folders"))
    with pytest.raises(Unsound, match="scenario writer, seed 1"):
        check(bad, memory / "state", set(), Count())


def test_an_early_acknowledgement_is_noticed(memory):
    [one] = recorded(memory, ["groups"], 1)
    at = one.steps.index(["committed", ["g", 5]])
    syncs = [i for i in range(at) if isinstance(one.steps[i], Op) and one.steps[i].kind == "S"]
    one.steps.insert(syncs[-1], one.steps.pop(at))
    with pytest.raises(Unsound, match="group g is at 2, behind 5"):
        check(one, memory / "state", set(), Count())


def test_what_persists(rng):
    """Files and names each have their fsync, and a rename is there or not."""
    disk = Disk.of(Recording("", 0, 0, 1, [(1, "old", 2, b"old")]))
    for op in (Op("C", 1, 3, name="new"), Op("W", 3, n=0, data=b"fresh"), Op("S", 3),
               Op("N", 1, 1, 3, "new", "old"), Op("W", 3, n=5, data=b" more")):
        disk.apply(op)
    found = {tuple(sorted(tree_of(disk, *choice, rng).items()))
             for choice in choices(disk, rng, 200)}
    names = {tuple(name for name, _ in tree) for tree in found}
    assert names == {("old",), ("new", "old")}
    contents = {data for tree in found for _, data in tree}
    assert contents >= {b"old", b"fresh", b"fresh more", b"fresh\0\0\0\0\0"}
    assert all(data.startswith(b"fresh") or data == b"old" for data in contents)
    disk.apply(Op("S", 1))
    disk.apply(Op("S", 3))
    assert {str(tree_of(disk, *choice, rng)) for choice in choices(disk, rng, 20)} == \
        {str({"old": b"fresh more"})}
