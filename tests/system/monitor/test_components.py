"""What a program runs beside its sockets: devices, journals, servers, queues, nodes, bridges."""

import asyncio
import json
import logging
import math
import os
from contextlib import ExitStack
from pathlib import Path

import pytest
import uvloop
from monitored import child, end
from programs import mq as command
from programs import run
from waiting import until

import mqcore as mq
from mqcore import bridge, cluster, http, journal, monitor
from mqcore.base.components import COMPONENTS, State, numbers
from mqcore.monitor.components import components

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
LIMIT = 60
uvloop.run(asyncio.sleep(0))        # opens what it never closes: before anything is counted


@pytest.fixture
def context():
    with mq.Context(monitor=True) as context:
        yield context
    mq.Context.default().close(0)       # sockets of bridges and gateways


def seen(kind):
    """The components of this process of that kind, by name, as another process gets them. They may
    be a moment old: an answer is good for a while."""
    with monitor.Client() as client:
        answer, = client.components(timeout=LIMIT)
    assert answer.process.pid == os.getpid()
    return {one.name: one for one in answer.components if one.kind == kind}


def found(kind, name="", **counts):
    """The one of that kind with these counters, once it is listed."""
    return until(lambda: next((one for one in seen(kind).values() if name in one.name and all(
        one.counts.get(what, 0) == count for what, count in counts.items())), None))


def gone(*kinds):
    """Wait until none of these kinds is listed."""
    for kind in kinds:
        until(lambda kind=kind: not seen(kind))


def test_a_device_is_shown_until_it_ends(context):
    front = mq.Pull(bind="inproc://front", context=context)
    back = mq.Push(bind="inproc://back", context=context)
    with mq.device(front, back), mq.Push(connect="inproc://front", context=context) as source, \
            mq.Pull(connect="inproc://back", context=context) as sink:
        source.send(b"job")
        assert sink.recv(timeout=LIMIT) == b"job"
        assert found("device", "pull 1 and push 2", forth=1, forth_bytes=3).state == "running"
    gone("device")


def test_a_device_that_failed_says_why_until_it_is_stopped(context):
    def broken(message):
        raise ValueError("a bad apple")

    front = mq.Pull(bind="inproc://front", context=context)
    back = mq.Push(bind="inproc://back", context=context)
    device = mq.device(front, back, hooks=[mq.Hook.transform(broken, on_error="stop")])
    with mq.Push(connect="inproc://front", context=context) as source, \
            mq.Pull(connect="inproc://back", context=context):
        source.send(b"job")
        with pytest.raises(mq.HookError):
            device.wait_stopped(LIMIT)
    until(lambda: found("device", "pull 1 and push 2").state == "failed")
    assert "a bad apple" in found("device").error
    device.stop()
    gone("device")


def test_journals_with_their_devices_and_members(context, tmp_path):
    with journal.open(tmp_path, "a", topic="orders") as log, \
            mq.Rep(bind="inproc://orders", context=context) as front, mq.device(front, log), \
            mq.Req(connect="inproc://orders", context=context) as client, \
            journal.serve(tmp_path, "tcp://127.0.0.1:0", groups=True, context=context) as server, \
            journal.join(f"{server.urls[0]}/orders", "billing", context=context) as member:
        client.request(b"two coffees", timeout=LIMIT)
        assert member.read(timeout=LIMIT).to_list() == [b"two coffees"]
        assert found("journal writer", next=1).name.startswith(str(tmp_path))
        assert found("recorder", acknowledged=1)
        assert found("journal server", f"{tmp_path} at {server.urls[0]}").counts["peers"] >= 1
        assert found("group member", "billing of orders at ", messages=1, partitions=1)
    gone("journal writer", "recorder", "journal server", "group member")


def test_a_queue_server_and_its_queues(context, tmp_path):
    with journal.serve_queues(tmp_path, "tcp://127.0.0.1:0", context=context) as server, \
            journal.queue(server.urls[0], "resize", context=context) as queue:
        queue.put_many([b"1", b"2", b"3"])
        job = queue.get(timeout=LIMIT)
        assert found("queue", f"resize of {tmp_path}", ready=2, held=1, put=3)
        job.ack()
        assert found("queue server", f"{tmp_path} at {server.urls[0]}", queues=1)
    gone("queue", "queue server")


def test_a_bridge_says_which_side_is_away(context, tmp_path):
    with bridge.Bridge(f"pull+bind:ipc://{tmp_path}/in", f"journal:{tmp_path}/data?topic=x"), \
            mq.Push(connect=f"ipc://{tmp_path}/in", context=context) as push:
        push.send(b"17 pears")
        assert found("bridge", acknowledged=1).state == "running"
        with bridge.Bridge(f"journal:{tmp_path}/data?topic=x&group=g",
                           "redis://127.0.0.1:1?stream=x"):
            until(lambda: any(one.error and "target" in one.state
                              for one in seen("bridge").values()))
    gone("bridge")


def test_a_bridge_that_has_failed_is_shown(context, tmp_path, caplog):
    caplog.set_level(logging.CRITICAL, "mqcore.bridge")     # a record would keep its frames

    class Broken(bridge.Target):
        confirms = True

        async def open(self):
            raise ValueError("a bad apple")

        def explain(self):
            return "a broken target"

    with bridge.Bridge(f"pull+bind:ipc://{tmp_path}/in", Broken()) as failing:
        with mq.Push(connect=f"ipc://{tmp_path}/in", context=context) as push:
            push.send(b"x")
            with pytest.raises(ValueError, match="a bad apple"):
                failing.wait_stopped(LIMIT)
        until(lambda: found("bridge").state == "failed")
        assert "a bad apple" in found("bridge").error


def test_nodes_of_clusters(context):
    class Adder:
        def request(self, req):
            return b"42"

    key = cluster.Key.generate()
    with cluster.join(key) as server, server.serve("adder", Adder()), \
            cluster.join(key, seeds=[server.url]) as client:
        assert client.request("adder", b"", timeout=LIMIT) == b"42"
        assert found("cluster node", client.url, members=2, **{"requests.answered": 1})
        assert found("cluster node", server.url, members=2)
    gone("cluster node")


def test_an_http_gateway(context):
    with http.serve({"/jobs": "push+bind:inproc://jobs"}, bind="http://127.0.0.1:0") as server:
        assert found("HTTP gateway", server.url)
    gone("HTTP gateway")


def test_one_that_fails_does_not_hide_the_others():
    class Good:
        def _mq_components(self):
            return [State("good", "a", counts={"n": 1, "none": 0})]

    class Changing:
        def _mq_components(self):
            raise RuntimeError("dictionary changed size during iteration")

    class Bad:
        def _mq_components(self):
            raise ValueError("oops \x00")

    kept = [Good(), Changing(), Bad()]
    for one in kept:
        COMPONENTS.add(one)
    listed = {one.kind: one for one in components().components}
    assert (listed["good"].name, listed["good"].counts) == ("a", {"n": 1})
    assert listed["Changing"].state == "busy"
    assert listed["Bad"].error == "ValueError: oops \x00"


def test_more_than_an_answer_holds_are_counted(monkeypatch):
    class Many:
        def _mq_components(self):
            return [State("many", str(number)) for number in range(10)]

    kept = Many()
    COMPONENTS.add(kept)
    monkeypatch.setattr("mqcore.monitor.components.MOST_COMPONENTS", 4)
    answer = components()
    assert len(answer.components) == 4 and answer.left_out >= 6


def test_a_forked_child_runs_none(context, tmp_path):
    with journal.open(tmp_path, "a", topic="x"):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(write, str(len(list(COMPONENTS))).encode())
            os._exit(0)
        os.waitpid(pid, 0)
        assert os.read(read, 10) == b"0"
        os.close(read)
        os.close(write)


@pytest.mark.parametrize("stats, counts", [
    ({"a": 1, "b": True, "c": "text", "d": None}, {"a": 1, "b": True}),
    ({"outer": {"inner": {"n": 2}}}, {"outer.inner.n": 2}),
    ({"rows": [{"n": 1}, {"n": 2}]}, {"rows.n": 3}),
    ([{"n": 1}, {"n": 2}], {"n": 3}),
    (State("kind", "name", counts={"n": 1}), {"counts.n": 1}),
])
def test_counters_become_numbers_by_name(stats, counts):
    assert numbers(stats) == counts


def test_the_example_prints_sockets_and_components(context):
    front = mq.Pull(bind="inproc://front", context=context)
    with mq.device(front, mq.Push(bind="inproc://back", context=context)):
        status, out, said = run(EXAMPLES / "watch.py")
    assert status == 0, said
    lines = out.decode().splitlines()
    assert "  pull: 0 sent, 0 received, 0 connected" in lines
    assert any(line.endswith(": device pull 1 and push 2 running") for line in lines)


PROGRAM = """
import sys, mqcore as mq
from mqcore import bridge
sys.argv[0] = "mover.py"
with bridge.Bridge(f"journal:{sys.argv[1]}?topic=x&group=g", f"journal:{sys.argv[1]}?topic=y"):
    print("ready", flush=True)
    sys.stdin.readline()
"""


def test_the_command_shows_a_program_that_has_no_socket(tmp_path):
    """A bridge between two journals is all that it runs."""
    with journal.open(tmp_path, "a", topic="x") as log:
        log.append(b"17 pears")
    with ExitStack() as stack:
        process = child(PROGRAM, str(tmp_path), MQCORE_MONITOR="1")
        stack.callback(end, process)

        def shown():
            status, out, said = run(*command("components", "--kind", "bridge", "--format", "json"))
            assert status == 0, said
            return [row for row in json.loads(out)["components"]
                    if row["counts"].get("acknowledged") == 1]

        row, = until(shown)
        assert (row["program"], row["pid"]) == ("mover", process.pid)
        status, table, said = run(*command("components"))
        assert status == 0, said
        assert b"mover" in table and b"acknowledged 1" in table


class Odd:
    """A component of a plug-in, whose counters are what it likes."""

    def __init__(self, *states):
        self.states = states

    def _mq_components(self):
        return self.states


def test_a_faulty_component_hides_no_other(context):
    odd = [Odd(State("odd", "numbers", counts={
        "nan": math.nan, "inf": math.inf, "huge": 1 << 70, "low": -(1 << 70), "true": True,
        "small": 0.5, 7: 1})), Odd("no state"), Odd(None), Odd(State("odd", None, "\udcff")),
        Odd(State("odd", "text", counts={"x": "y"})), Odd(State("odd", "none", counts=None))]
    for one in odd:
        COMPONENTS.add(one)
    found = seen("odd")
    assert found["numbers"].counts == {"huge": (1 << 63) - 1, "low": -(1 << 63), "true": 1,
                                       "small": 0.5, "7": 1}
    assert found["None"].state == "\\udcff"
    unknown = [one for one in components().components if one.kind == "Odd"]
    assert [one.state for one in unknown] == ["unknown"] * 4
    assert context._monitor.counts["failed"] == 0
