"""The pytest plug-in in somebody else's project: a run of pytest in a process of its own."""

import os
import subprocess
import sys

import pytest
from nested import PYTEST

HEAD = """
import pytest
import mqcore as mq
"""


@pytest.fixture
def run(tmp_path):
    """run(text, *arguments): pytest's exit status and output over a file of tests."""
    def run(text, *arguments, ini=""):
        (tmp_path / "pytest.ini").write_text("[pytest]\n" + ini)
        (tmp_path / "test_it.py").write_text(HEAD + text)
        done = subprocess.run(
            [*PYTEST, "-q", *arguments, "."],
            cwd=tmp_path, capture_output=True, text=True, timeout=200,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
        return done.returncode, done.stdout + done.stderr
    return run


def test_fixtures(run):
    rc, out = run("""
def test_exchange(mq_context, mq_url):
    r = mq_context.socket("pull", bind=mq_url)
    s = mq_context.socket("push", connect=r.endpoints[0])
    s.send(b"x", timeout=10)
    assert r.recv(timeout=10) == b"x"

def test_scripted(mq_scripted, mq_clock, mq_context):
    mq_clock.govern(mq_context)
    s = mq_context.socket("push", connect="scripted://nowhere")
    mq_clock.advance(0)
""")
    assert rc == 0 and "4 passed" in out, out


LEAK = """
import os
def test_leak(%s):
    os.dup(0)
"""


def test_leaks_are_looked_for_on_demand_only(run):
    assert run(LEAK % "")[0] == 0
    for text, ini in ((LEAK % "mq_leaks", ""), (LEAK % "", "mq_leaks = true\n")):
        rc, out = run(text, ini=ini)
        assert rc == 1 and "1 more descriptors than before" in out, out


def test_an_unrelated_run_sees_nothing_of_it(run):
    rc, out = run("""
def test_plain():
    pass

@pytest.mark.skip(reason="no")
def test_skipped():
    pass

class TestOwn:
    def test_skips(self):
        pytest.skip("its own business")
""", "-W", "error", "--strict-markers", "--strict-config")
    assert rc == 0 and "1 passed, 2 skipped" in out and "mq" not in out, out


SUITE = """
from mqcore.testing import TransportSuite

class TestTcp(TransportSuite):
    scheme = "tcp"
    bad = ("nothing",)

    def url(self, tmp_path):
        return "tcp://127.0.0.1:0"
"""


def test_an_unrelated_run_does_not_import_the_library(tmp_path):
    """Every pytest run of a machine with mqcore loads the plug-in, and nothing more of it."""
    (tmp_path / "test_other.py").write_text("""
import sys

def test_modules():
    assert sorted(name for name in sys.modules if name.startswith("mqcore")) == [
        "mqcore", "mqcore.testing", "mqcore.testing.plugin"]
""")
    done = subprocess.run(
        [*PYTEST, "-q", "test_other.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_suite_passes_in_ten_lines(run):
    rc, out = run(SUITE + """
    def wildcard(self, tmp_path):
        return "tcp://*:0"
""", "-W", "error")
    assert rc == 0 and "'pid' is a declared gap" not in out and " skipped" in out, out


def test_a_skip_that_is_not_declared_is_a_failure(run):
    rc, out = run(SUITE + """
    def test_small_messages(self):
        pytest.skip("not today")

    @pytest.mark.xfail(reason="someday")
    def test_names_of_both_ends(self):
        assert False

    test_a_huge_message = pytest.mark.skip(reason="too long")(TransportSuite.test_a_huge_message)
""", "-k", "small_messages or names_of_both_ends or huge")
    assert rc == 1 and "2 failed" in out and "1 error" in out and " skipped" not in out, out
    for why in ("not today", "someday", "too long"):
        assert f"({why})" in out or f"Skipped: {why})" in out, out
    assert "does not declare why" in out


def test_a_suite_cannot_run_without_its_plugin(run):
    rc, out = run(SUITE, "-p", "no:mqcore", "-k", "names_of_both_ends")
    assert rc == 1 and "fixture 'mq_context' not found" in out, out


UNAVAILABLE = """
from mqcore.spi.transport import StreamTransport
from mqcore.testing import TransportSuite, installed

class Sctp(StreamTransport):
    scheme = "sctp0"
    doc = "a transport that this kernel has not"

    def unavailable(self):
        return "this kernel has no SCTP"

class TestSctp(TransportSuite):
    scheme = "sctp0"

    @pytest.fixture
    def mq_installed(self):
        with installed("transport", Sctp()):
            yield

    def url(self, tmp_path):
        return "sctp0://here"
"""


def test_a_system_that_cannot(run):
    """The contract is tested, the rest skipped with the plug-in's own reason."""
    rc, out = run(UNAVAILABLE, "-rs")
    assert rc == 0 and "this kernel has no SCTP" in out and " passed" in out, out


def test_importing_the_plugin_is_cheap():
    """pytest, hypothesis and NumPy are not imported because of it."""
    script = ("import sys; before = set(sys.modules); import mqcore.testing.plugin; "
              "print(sorted(m for m in set(sys.modules) - before if m.startswith('mqcore')))"
              "; assert not {'numpy', 'hypothesis', 'asyncio.base_events'} & set(sys.modules)")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['mqcore', 'mqcore.testing', 'mqcore.testing.plugin']"


def test_the_library_looks_the_same_under_pytest(run):
    """pytest rewrites the modules of a package that brings a plug-in."""
    rc, out = run("""
def test_names():
    assert [name for name in mq.__all__ if not name.isidentifier()] == []
""")
    assert rc == 0, out


NETWORK = """
@pytest.mark.mq_seeds(3)
def test_seeds(mq_network):
    net = mq_network(delay=0.5)
    pull = net.host("a").socket("pull", bind="sim://a/x")
    with pytest.raises(mq.RecvTimeout):
        pull.recv(timeout=1000)
    assert net.now == 1000 and net.seed != 2
"""


def test_a_simulated_network_has_the_seed_of_the_run_and_shows_it(run, monkeypatch):
    monkeypatch.delenv("MQCORE_SEED", raising=False)
    rc, out = run(NETWORK)
    assert rc == 1 and "1 failed, 2 passed" in out and "test_seeds[seed2]" in out, out
    assert "seed 2, 1000 s, 1 events" in out, out
    assert "MQCORE_SEED=2 python -m pytest 'test_it.py::test_seeds'" in out, out
    monkeypatch.setenv("MQCORE_SEED", "2")
    rc, out = run(NETWORK)
    assert rc == 1 and "1 failed in" in out, out
