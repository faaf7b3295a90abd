"""The lease's tables against the code: an engine in every state is left every event."""

import pytest
from mqcore.link.lease import NOTES, STATES, TRANSITIONS
from mqcore.testing.native.lease_bench import Bench

TABLE = {(state, event): (then, does) for state, event, then, does in TRANSITIONS}
EVENTS = [name for name, *_ in NOTES if name not in ("HELD", "ASKED")] + [
    "ASKED, nothing", "ASKED, close", "ASKED, reset", "ASKED, shut", "TIMER, late", "shaken",
    "broken", "ended"]
NAMES = [name for name, *_ in STATES]


def test_the_tables_speak_of_the_same_things():
    bits = [bit for _, bit, _, _ in NOTES]
    assert len(TABLE) == len(TRANSITIONS), "a pair is there twice"
    assert sum(bits) == (1 << len(bits)) - 1, "each note has a bit of its own, none is left out"
    assert sorted(number for _, number, _ in STATES) == list(range(len(STATES)))
    assert {event for _, event, *_ in TRANSITIONS} <= {*EVENTS, "made", "HUP, held up"}
    assert {name for state, _, then, _ in TRANSITIONS for name in (state, then)} == set(NAMES)


@pytest.mark.parametrize("state", NAMES)
@pytest.mark.parametrize("event", EVENTS)
def test_an_event_does_what_the_table_says(state, event):
    with Bench() as bench:
        bench.reach(state)
        does = bench.leave(event)
        assert (bench.state, does) == TABLE.get((state, event), (state, ""))
        assert not bench.held


def test_a_peer_that_hangs_up_while_it_is_not_read():
    with Bench() as bench:
        bench.reach("ACTIVE")
        does = bench.leave("HUP, held up")
        assert (bench.state, does) == TABLE["ACTIVE", "HUP, held up"]


def test_a_peer_that_sends_on_and_on_is_read_for_ten_minutes():
    """Though the socket never reads all of it: what our kernel had then is the last of it."""
    with Bench() as bench:
        bench.reach("READING")
        bench.hold_up(True)
        bench.leave("TIMER")                # there is room in our kernel from here on
        for _ in range(2):
            bench.wait(400)
            bench.leave("TIMER")
            assert bench.state == "READING"
        bench.hold_up(False)
        bench.leave("IN")
        assert bench.state == "DEAD"


def test_a_peer_that_is_read_slowly_keeps_its_link():
    with Bench() as bench:
        bench.reach("READING")
        bench.hold_up(True)
        bench.leave("TIMER")
        bench.wait(400)
        bench.leave("TIMER")
        bench.hold_up(False)
        bench.leave("IN")
        assert bench.state == "READING"


def test_a_slot_is_used_again():
    with Bench() as bench:
        bench.reach("FREE")
        bench.make()
        assert bench.state == TABLE["FREE", "made"][0]


def test_notes_that_came_with_the_start_are_heeded():
    """A peer may have hung up before the engine starts: it must not be forgotten."""
    with Bench() as bench:
        bench.reach("NEW")
        assert bench.leave_all("START", "HUP") == "read, write"
        assert bench.hung_up
    with Bench() as bench:
        bench.reach("NEW")
        assert bench.leave_all("START", "TERM") == "finish"
        assert bench.state == "DEAD"
