"""tools/steady.py: what it prints of runs that do not all pass, and that its load ends with it."""

import os
import signal
import subprocess
import sys

from longest import LONGEST, TESTS, rank
from sources import ROOT

from mqcore.testing import until

TOOL = ROOT / "tools" / "steady.py"
FLAKY = """
from pathlib import Path

def test_first_time():
    seen = Path(__file__).with_name("seen")
    there = seen.exists()
    seen.touch()
    assert there, "never seen before"

class TestGroup:
    def test_always(self):
        pass
"""


LATE = """
import ctypes
import os
import select

def test_late():
    wakes = ctypes.CDLL(None).late_wakes
    with select.epoll() as found:
        r, w = os.pipe()
        os.write(w, b"x")
        found.register(r, select.EPOLLIN)
        for _ in range(10_000):     # one in twelve is late
            assert found.poll(0)
            if wakes() >= 3:
                break
        assert wakes() >= 3
"""


def steady(folder, *arguments):
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_flaky.py").write_text(FLAKY)
    return [sys.executable, TOOL, *arguments, "-n0", "--rootdir", folder, folder]


def test_it_names_what_failed_in_some_run_and_what_took_long(tmp_path):
    done = subprocess.run(steady(tmp_path, "--runs", "2", "--spinners", "1"), capture_output=True,
                          text=True, check=False)
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("run 1 of 2: 2 tests, 1 failed")
    assert lines[1].startswith("run 2 of 2: 2 tests, 0 failed")
    assert "test_flaky::test_first_time: failed in 1 of 2 runs (1)" in lines
    assert "never seen before" in done.stdout and "test_always" not in done.stdout
    assert lines[-1] == "1 of 2 runs passed, beside 1 busy processes"
    assert any(line.endswith(" s  test_flaky.py") for line in lines), done.stdout


def test_threads_wake_late(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_late.py").write_text(LATE)
    done = subprocess.run([sys.executable, TOOL, "--late", "--runs", "1", "-n0", "--rootdir",
                           tmp_path, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == (
        "1 of 1 runs passed, beside 0 busy processes, with threads that wake late")


def test_a_killed_run_leaves_no_load_behind(tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(steady(tmp_path, "--runs", "1000", "--spinners", "2"), env=environment,
                          stdout=subprocess.DEVNULL) as program:
        below = until(lambda: busy_below(program.pid), 60)
        program.kill()
    until(lambda: not any(map(spins, below)), 30)


def test_children_can_be_interrupted():
    assert ends_by_sigint(sys.executable, "-c", "import time; print(flush=True); time.sleep(100)")


def test_a_run_in_the_background_can_interrupt_its_children():
    """A shell without job control starts a program that ends with & so that it ignores SIGINT."""
    name = f"{__file__}::{test_children_can_be_interrupted.__name__}"
    done = subprocess.run(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-m", "pytest", "-q", "-p",
         "no:cacheprovider", "-p", "no:xdist", name], cwd=ROOT, capture_output=True, text=True,
        check=False)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


def ends_by_sigint(*command):
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as program:
        program.stdout.readline()
        program.send_signal(signal.SIGINT)
        try:
            return program.wait(60) == -signal.SIGINT
        finally:
            program.kill()


def busy_below(pid):
    """The two busy processes, or None before both are there."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        found = [int(word) for word in file.read().split() if spins(int(word))]
    return found if len(found) == 2 else None


def spins(pid):
    """Whether this is still one of the busy processes."""
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return "10_000_000" in file.read()
    except FileNotFoundError:
        return False


def test_every_row_of_the_longest_files_is_a_file():
    assert [name for name in LONGEST if not (TESTS / name).is_file()] == []
    assert len(set(LONGEST)) == len(LONGEST)


def test_long_files_come_first_and_no_file_is_torn():
    class Item:
        def __init__(self, path):
            self.path = path
    first, last = (Item(TESTS / LONGEST[i]) for i in (0, -1))
    other = Item(TESTS / "test_check.py")
    items = [other, last, first, other, last]
    assert sorted(items, key=rank) == [first, last, last, other, other]
