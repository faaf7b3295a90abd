"""Files in which nng runs have a process of their own, whose end fails one test."""

import os
import re
import select
import subprocess
import sys

import apart
import pytest
from nested import PYTEST
from sources import ROOT

CONFTEST = '''
import pathlib, sys
sys.path.append({support!r})
import apart, pytest
apart.FILES = frozenset([pathlib.Path(__file__).with_name("test_nng.py")])

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    return apart.protocol(item, nextitem) if apart.wanted(item) else None
'''
NNG = '''
import os, pytest
PARENT = {parent!r}

@pytest.fixture(scope="module", autouse=True)
def begun():
    with open("begun", "a") as file:
        file.write("x")
    yield
    with open("ended", "a") as file:
        file.write("x")

def test_before():
    assert os.environ["MQCORE_TESTS_APART"]
@pytest.mark.skip(reason="as it happens")
def test_skipped(): pass
def test_fails(): assert 1 == 2, "seen from afar"
def test_death(): os.kill(os.getpid(), {number})
def test_after(): pass
'''
HERE = '''
import os
def test_here(): assert "MQCORE_TESTS_APART" not in os.environ
'''


@pytest.mark.parametrize(("arguments", "number"), [
    ((), 11), (("-n", "2", "--dist", "loadfile"), 9)], ids=["alone", "workers"])
def test_a_death_fails_one_test(tmp_path, arguments, number):
    (tmp_path / "conftest.py").write_text(CONFTEST.format(support=str(ROOT / "tests" / "support")))
    (tmp_path / "test_nng.py").write_text(NNG.format(parent=0, number=number))
    (tmp_path / "test_here.py").write_text(HERE)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = foreign\n slow\n brokers\n")
    done = subprocess.run(
        [*PYTEST, "-p", "no:mqcore", "-rA", *arguments, "."], cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False)
    assert "2 failed, 3 passed, 1 skipped" in done.stdout, done.stdout
    assert "seen from afar" in done.stdout and "as it happens" in done.stdout
    assert f"in which this test and nng ran ended with status -{number}" in done.stdout
    assert (tmp_path / "begun").read_text() == "xx"     # the file's fixtures: of both children
    assert (tmp_path / "ended").read_text() == "x"


def test_a_child_that_closes_its_end_and_stays_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(apart, "PATIENCE", 0.1)
    program = "import os, time; os.close(int(os.environ['FD'])); time.sleep(1000)"
    child = object.__new__(apart.Child)
    child.answers, answers = os.pipe()
    child.errors = open(tmp_path / "errors", "w+")
    child.process = subprocess.Popen([sys.executable, "-c", program], pass_fds=[answers],
                                     env={**os.environ, "FD": str(answers)})
    os.close(answers)
    assert select.select([child.answers], [], [], 60)[0]
    assert "did not answer" in child.how_it_died()
    os.close(child.answers)
    child.errors.close()


def test_every_file_in_which_nng_or_librdkafka_runs_is_listed():
    makes = r"\bpynng\.[A-Z]\w+\(|getattr\(pynng|from kafka_mock import"
    found = {path for path in (ROOT / "tests").rglob("test_*.py")
             if re.search(makes, path.read_text())}
    found |= set((ROOT / "tests" / "peers" / "nng").glob("test_*.py"))
    found -= {path for path in found if path.name in ("test_apart.py", "test_packaging.py")}
    assert found == apart.FILES


def test_the_next_test_lies_elsewhere(tmp_path):
    """Of the folders of the test before, which the two share, nothing is left set up."""
    for name in ("a/test_here.py", "b/test_other.py"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(HERE)
    (tmp_path / "conftest.py").write_text(
        CONFTEST.format(support=str(ROOT / "tests" / "support")).replace(
            'with_name("test_nng.py")', 'parent / "a" / "test_nng.py"'))
    (tmp_path / "a" / "test_nng.py").write_text("def test_there(): pass")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = foreign\n slow\n brokers\n")
    done = subprocess.run(
        [*PYTEST, "-p", "no:mqcore", "a/test_here.py", "a/test_nng.py", "b/test_other.py"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
        check=False)
    assert "3 passed" in done.stdout, done.stdout
