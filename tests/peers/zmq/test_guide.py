"""Programs in the style of ZeroMQ's guide, unchanged: all parts under the alias, and each side
against pyzmq's at the other.

Their parts run as threads of two processes, which a test tells what to play
(programs/guide/stage.py): `python -m mqcore.zmq stage.py` and `python stage.py`.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from importlib.util import find_spec
from pathlib import Path

import pytest

GUIDE = Path(__file__).parent / "programs" / "guide"
LIMIT = 20      # seconds for a scene

#: program: parts as (side, part, what it gives); side 0 is the server's or broker's
SCENES = {
    "hello": [(0, "server", None), (1, "client", [f"World {n}" for n in range(10)])],
    "weather": [(0, "server", None), (1, "client", [["10001"], 60])],
    "pipeline": [(0, "ventilator", None), (0, "sink", sum(n * n for n in range(60))),
                 (1, "worker", "killed"), (1, "worker", "killed")],
    "sources": [(0, "tasks", None), (0, "weather", None),
                (1, "reader", [["task 0", "task 9"], ["10001 0", "10001 9"]])],
    "brokers": [(0, "broker", None), (0, "queue", "terminated"), (1, "worker", None),
                (1, "client", [f"World {n}" for n in range(5)] * 2)],
    "forwarder": [(0, "proxy", "ended"), (1, "publisher", None),
                  (1, "subscriber", [["B", "wanted"]] * 3)],
    "threads": [(0, "server", 12), (1, "client", ["0 World", "1 World", "2 World"]),
                (1, "relay", "ready 1 2")],
    "syncpub": [(0, "publisher", None), (1, "subscriber", 1000), (1, "subscriber", 1000)],
    "identities": [(0, "router", [[5, False, "ROUTER uses ours"],
                                  [5, True, "ROUTER uses a generated id"]]),
                   (1, "anonymous", [10, [5, 5]])],
    "lbbroker": [(0, "broker", ["worker-0", "worker-1"]), (1, "worker", None),
                 (1, "client", [f"OK to client-{n}" for n in range(4)])],
    "asyncsrv": [(0, "server", "terminated"), (1, "client", [10, 10, 10])],
    "peering": [(0, "busy", 4), (1, "idle", 4),
                (1, "client", [f"task {n} done in DC2" for n in range(4)])],
    "pirates": [(0, "server", None), (1, "lazy", [["1", "2", "3"], True])],
    "pirates.queue": [(0, "queue", None), (1, "worker", None),
                      (1, "simple", [["1", "2", "3"], True])],
    "paranoid": [(0, "queue", True), (1, "worker", None), (1, "mute", True),
                 (1, "client", ["1", "2", "3"])],
    "majordomo": [(0, "broker", None), (1, "worker", True),
                  (1, "client", ["Hello", "World", "200", "404"])],
    "binarystar": [(0, "primary", [1, 3]), (1, "backup", [2, 3]),
                   (1, "client", [["1", "2", "3"], 1])],
    "espresso": [(0, "proxy", ["\0A", "\0B", "\1A", "\1B",
                               *(f"{topic}-{n}" for topic in "AB" for n in range(4))]),
                 (1, "publisher", [["A", "B"], True]),
                 (1, "subscriber", [f"{topic}-{n}" for n in range(4) for topic in "AB"])],
    "snail": [(0, "publisher", "ended"), (1, "subscriber", "subscriber cannot keep up, aborting")],
    "lastvalue": [(0, "cache", 10), (1, "publisher", None),
                  (1, "subscriber", [["007", "value 97"]] * 2)],
    "clone": [(0, "server", None), (1, "client", [0, True]), (1, "client", [0, True])],
    "freelance": [(0, "server", None),
                  (1, "client", [["echo", "", "1", "OK"], True, "PONG", ["7", "OK"]])],
}
ADDRESSES = {"hello": 1, "threads": 1, "identities": 1, "majordomo": 1, "pipeline": 3, "brokers": 4,
             "forwarder": 3, "peering": 3, "binarystar": 4, "pirates.queue": 4, "paranoid": 4,
             "espresso": 3, "lastvalue": 3, "clone": 3, "freelance": 3}


def environment():
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


class Stage:
    """One of the two processes."""

    def __init__(self, how):
        self.process = subprocess.Popen(
            [sys.executable, *(["-m", "mqcore.zmq"] if how == "ours" else []), GUIDE / "stage.py"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment())
        self.answers = queue.Queue()
        self.reader = threading.Thread(target=self.read)
        self.reader.start()
        name = self.answers.get(timeout=LIMIT)
        assert name == ("mqcore.zmq" if how == "ours" else "zmq")

    def read(self):
        for line in self.process.stdout:
            self.answers.put(json.loads(line))

    def play(self, number, program, part, arguments):
        print(json.dumps([number, program, part, arguments]), file=self.process.stdin, flush=True)

    def end(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture(scope="module")
def stages():
    found = {}
    yield found
    for stage in found.values():
        stage.end()


@pytest.fixture(scope="module", autouse=True)
def before_the_watch(stages):
    """They are the module's, not the first test's."""
    for how in ("ours", "real") if find_spec("zmq") else ("ours",):
        stages[how] = Stage(how)


def play(stages, sides, program, addresses):
    """What each part gave, in order."""
    on = [stages[side] for side in sides]
    scene = SCENES[program]
    for number, (side, part, _) in enumerate(scene):
        on[side].play(number, program.partition(".")[0], part, addresses)
    found = {}
    for side, stage in enumerate(on):
        if side and stage is on[0]:
            continue
        for _ in [1 for at, *_ in scene if on[at] is stage]:
            try:
                number, result, *failure = stage.answers.get(timeout=LIMIT)
            except queue.Empty:
                found.setdefault("late", "a part did not end")
                break
            found[number] = failure[0] if failure else result
    if len(found) < len(scene) or "late" in found:
        for how in dict.fromkeys(sides):    # its threads are in the way
            stages.pop(how).end()
            stages[how] = Stage(how)
    return [found.get(number, "it did not end") for number in range(len(scene))]


@pytest.mark.parametrize("sides", ["ours-ours", "ours-real", "real-ours"])
@pytest.mark.parametrize("program", SCENES)
def test_scene(stages, program, sides):
    if "real" not in stages and "real" in sides:
        pytest.skip("no pyzmq")
    with tempfile.TemporaryDirectory(prefix="mq-") as folder:
        addresses = [f"ipc://{folder}/{name}" for name in "abcd"[:ADDRESSES.get(program, 2)]]
        found = play(stages, sides.split("-"), program, addresses)
    assert found == [expected for _, _, expected in SCENES[program]]


@pytest.mark.parametrize("how", ["recv", "poll", "socket"])
def test_interrupt(how):
    program = subprocess.Popen([sys.executable, "-m", "mqcore.zmq", GUIDE / "interrupt.py", how],
                               stdout=subprocess.PIPE, text=True, env=environment())
    assert program.stdout.readline() == "waits\n"
    # the signal may come before the wait has begun: what it then interrupts is the same
    program.send_signal(signal.SIGINT)
    said, _ = program.communicate(timeout=LIMIT)
    assert said == "W: interrupt received, stopping\nmqcore.zmq\n"
    assert program.returncode == 0


def test_every_program_is_played():
    names = {path.stem for path in GUIDE.glob("*.py")} - {"stage", "interrupt"}
    assert names == {program.partition(".")[0] for program in SCENES}
