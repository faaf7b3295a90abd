"""The watch's table against the code: a socket in every state is told every event."""

import pytest
from mqcore.sock.watch import STATES, TRANSITIONS
from mqcore.testing.native.watch_bench import WatchBench

import mqcore as mq

TABLE = {(state, inside, event): then for state, inside, event, then in TRANSITIONS}
PLACES = [("ARMED", "nobody"), ("PARKED", "a leader"), ("PARKED", "nobody"), ("LED", "a leader"),
          ("LED", "nobody")]
LEAVES = ["it leaves within a tick's time", "it leaves later", "it leaves, an engine cannot wait"]
EVENTS = ["an engine cannot wait", "a backlog is received", "a tick, none entered since the last",
          "a tick, one entered since the last"]


@pytest.fixture
def bench(tmp_path):
    with mq.Context(lead_tick=3600) as context, mq.Pull(context=context) as socket:
        socket.bind(f"ipc://{tmp_path}/watch")
        bench = WatchBench(socket)
        yield bench
        bench.close()


def test_the_tables_speak_of_the_same_things():
    assert len(TABLE) == len(TRANSITIONS), "a case is there twice"
    assert {row[:2] for row in TRANSITIONS} <= set(PLACES)
    assert {row[2] for row in TRANSITIONS} <= {"a leader enters", *LEAVES, *EVENTS}
    names = {name for name, *_ in STATES}
    assert {row[0] for row in TRANSITIONS} == names == {row[3] for row in TRANSITIONS}


@pytest.mark.parametrize(("state", "inside", "event"), [
    (state, inside, event) for state, inside in PLACES
    for event in (["a leader enters"] if inside == "nobody" else LEAVES) + EVENTS])
def test_an_event_leads_where_the_table_says(bench, state, inside, event):
    bench.reach(state, inside)
    bench.tell(event)
    assert bench.state == TABLE.get((state, inside, event), state)
