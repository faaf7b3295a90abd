"""Programs that others wrote, with their packages as they are: Jupyter's kernel and client, a
cluster of ipyparallel, a server in tornado's loop."""

import os
import subprocess
import sys
import uuid
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from mqcore.testing import until
from mqcore.zmq import SocketType
from mqcore.zmq.run import SHIM
from mqcore.zmq.shared import PATTERNS

PROGRAMS = Path(__file__).parent / "programs"
MARK = "MQCORE_TEST_PROGRAM"
LIMIT = 60  # seconds


def needs(*packages):
    gone = [name for name in packages if find_spec(name) is None]
    return pytest.mark.skipif(bool(gone), reason=f"needs {', '.join(gone)}")


def of(pair):
    """The marks of a pair of "ours" and "real". Real needs pyzmq, and takes long like the other."""
    return [needs("zmq"), pytest.mark.slow] if "real" in pair else []


def sides(*pairs):
    return [pytest.param(*pair, id="-".join(pair), marks=of(pair)) for pair in pairs]


class World:
    """Programs of one test, and the processes that these start: an environment of their own."""

    def __init__(self, home):
        self.mark = uuid.uuid4().hex
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self.env = {**kept, MARK: self.mark, "HOME": str(home), "IPYTHONDIR": str(home / "ipython"),
                    "JUPYTER_RUNTIME_DIR": str(home / "run"), "JUPYTER_CONFIG_DIR": str(home),
                    "JUPYTER_DATA_DIR": str(home), "PYDEVD_DISABLE_FILE_VALIDATION": "1"}

    def start(self, side, program, *args):
        how = ["-m", "mqcore.zmq"] if side == "ours" else []
        return subprocess.Popen([sys.executable, *how, PROGRAMS / f"{program}.py", *args],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=self.env)

    def run(self, side, program, *args):
        """What it prints, line by line."""
        with self.start(side, program, *args) as process:
            return self.ended(process)

    @staticmethod
    def ended(process):
        out, error = process.communicate(timeout=LIMIT)
        assert process.returncode == 0 and "Traceback" not in error, out + error
        assert "could not be delivered" not in error, error
        return out.splitlines()

    def left(self):
        """Processes of this test that run."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark:
                    found.append(process)
            except psutil.Error:
                pass  # gone, or another's
        return found


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    try:
        until(lambda: not made.left(), 10)
    finally:
        for process in made.left():
            process.kill()


def path_of(side):
    return SHIM if side == "ours" else ""


def kernels(*pairs):
    """Of client and kernel."""
    stream = SocketType.STREAM in PATTERNS
    return [pytest.param(*pair, id="-".join(pair), marks=[
        *of(pair), needs("jupyter_client", "ipykernel"),
        pytest.mark.skipif(pair[1] == "ours" and not stream, reason="ipykernel opens a STREAM")])
        for pair in pairs]


NAME = {"ours": "mqcore.zmq", "real": "zmq"}


@pytest.mark.parametrize("client, kernel", kernels(("ours", "ours"), ("ours", "real"),
                                                   ("real", "ours")))
def test_kernel(world, client, kernel):
    assert world.run(client, "kernel", path_of(kernel)) == [
        f"{NAME[client]} ['text', '{NAME[kernel]}'] ok ['42']", "['me']", "2000 ok", "3000000",
        "KeyboardInterrupt", "NameError", "0 False"]


@pytest.mark.parametrize("client, kernel", kernels(("ours", "ours")))
def test_asynchronous_manager(world, client, kernel):
    assert world.run(client, "async_kernel", path_of(kernel)) == [
        f"{NAME[client]} ['{NAME[kernel]}\\n']", "KeyboardInterrupt", "incomplete", "0 False"]


@pytest.mark.slow
@needs("ipyparallel")
def test_cluster(world, tmp_path):
    assert world.run("ours", "cluster", str(tmp_path / "profile")) == [
        "mqcore.zmq ['mqcore.zmq', 'mqcore.zmq'] [0, 1]", "3",
        str([x * x for x in range(10)]), "[0, 1, 2, 3, 4, 5, 6] 21", "[3000000, 3000000]", "True",
        "[3, 3]", "CompositeError 2"]


@needs("tornado")
@pytest.mark.parametrize("server, client", sides(("ours", "ours"), ("ours", "real"),
                                                 ("real", "ours")))
def test_streams(world, server, client):
    with world.start(server, "echo", "server") as process:
        port = process.stdout.readline().strip()
        assert world.run(client, "echo", "client", port) == ["asked 500"]
        assert world.ended(process) == ["echoed 500 True"]
