"""What every test gets: a watch for hangs, a count of what it left behind, printed seeds.

Leaks: `mq_leaks = true` in pyproject.toml, so the plug-in (mqcore/testing/plugin.py) looks after
each test whether the counters of `mqcore.testing.leaks()` are zero and the process has as many
descriptors and threads as before. A test that must leave something says so:
`@pytest.mark.keeps(fds=1, threads=1, why="...")`.

Locks: the order in which mqcore's code takes its locks is watched through the whole run
(support/lock_order.py). A test in which an order shows that can deadlock fails.

Hangs: pytest-timeout interrupts a test at 300 s or at its own limit; if that does not help (a call
that cannot be interrupted), faulthandler prints every thread's stack ten minutes later and ends the
process. `kill -USR1` prints them too.

nng: the files in which it runs have a process of their own (support/apart.py), which its threads
end now and then.

Order: files that take long come first (support/longest.py), so that no worker of a parallel run is
left with one of them at the end.

Ports: mqcore's listeners take theirs from a range that is the worker's own (support/ports.py).

Ctrl-C: a run that a shell has started in the background inherits that SIGINT is ignored, and so
would all programs that its tests start and interrupt. Here it is handled again.

Left out: tests marked `brokers`, `foreign` or `slow` run only with an `-m` that names the mark
(make test-brokers, make test-foreign, make test-full); slow ones also if their file is named on the
command line. Files that are slow as a whole are in support/longest.py. A test in which pyzmq or
pynng runs alone is `foreign` (support/foreign.py).

Skips: with CI=true a test that is skipped for a reason that is not in support/skips.py has failed.
"""

import faulthandler
import gc
import os
import random
import signal

import apart
import foreign
import hangs
import hypothesis
import lock_order
import longest
import numpy  # noqa: F401  its threads start with the import: have them before anything is counted
import ports
import pytest
import rewriting
from skips import forbidden

from mqcore.base import waits
from mqcore.testing.plugin import DECLARED

hypothesis.settings.register_profile(
    "mqcore", deadline=None, print_blob=True,
    max_examples=int(os.environ.get("MQCORE_EXAMPLES", "60")),
    suppress_health_check=[hypothesis.HealthCheck.too_slow,
                           hypothesis.HealthCheck.function_scoped_fixture])
hypothesis.settings.load_profile("mqcore")


lock_order.install()
APART = "brokers", "foreign"
ALL_LOCKS = lock_order.Graph()     # what the workers of a parallel run have seen
ports.install()
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    stderr = hangs.open_screen()    # the real one: pytest takes over 2
    faulthandler.register(signal.SIGUSR1, file=stderr, all_threads=True)

    def undo():
        faulthandler.unregister(signal.SIGUSR1)
        stderr.close()
    config.add_cleanup(undo)
    rewriting.share(config)


def refuse_skip(report):
    """A skip that is not allowed becomes a failure."""
    where = report.longrepr
    why = where[2] if isinstance(where, tuple) else str(where)
    wrong = forbidden(why.removeprefix("Skipped: "))
    if wrong:
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid}: {wrong}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    if (os.environ.get("CI") == "true" and report.skipped and not hasattr(report, "wasxfail")
            and DECLARED not in item.stash):
        refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report():
    report = yield
    if os.environ.get("CI") == "true" and report.skipped:
        refuse_skip(report)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    """Tests in which nng runs do so in a process of their own."""
    return apart.protocol(item, nextitem) if apart.wanted(item) else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    hangs.allow(item)


def pytest_terminal_summary(terminalreporter):
    for cycle in ALL_LOCKS.found:
        terminalreporter.section("FAILED: the workers' tests together take locks in a cycle")
        terminalreporter.write_line(cycle)
    states = sum(value for report in terminalreporter.stats.get("passed", ())
                 for name, value in report.user_properties if name == "states")
    if states:
        terminalreporter.write_line(f"{states} states of disks after a power cut were checked")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    leave_out(config, items)
    items.sort(key=longest.rank)
    for item in filter(apart.wanted, items):
        item.add_marker(pytest.mark.timeout(0), append=False)   # the child watches the time


def leave_out(config, items):
    """Deselect the tests with a mark of their own, unless `-m` names that mark. An `-m` for another
    mark does not bring them in, as it would if `-m 'not brokers'` stood in pyproject.toml."""
    for item in filter(longest.slow, items):
        item.add_marker("slow")
    for item in filter(foreign.runs_alone, items):
        item.add_marker("foreign")
    wanted = config.option.markexpr or ""
    named = {config.invocation_params.dir / arg.partition("::")[0] for arg in config.args}
    out = {item for item in items
           if any(item.get_closest_marker(mark) and mark not in wanted for mark in APART)
           or longest.slow(item) and "slow" not in wanted and item.path not in named}
    if out:
        config.hook.pytest_deselected(items=list(out))
        items[:] = [item for item in items if item not in out]


def pytest_collection_finish(session):
    """What is imported by now stays: later collections need not look at it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def quick_collections():
    """The same for what earlier files have imported and made: each test ends with a collection,
    which would take tens of milliseconds after a file that draws or starts Spark."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def same_environment():
    """What a file sets and leaves in the environment would reach those that come after it."""
    before = dict(os.environ)
    yield
    after = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    before.pop("PYTEST_CURRENT_TEST", None)
    assert after == before


@pytest.fixture(autouse=True)
def lock_orders():
    """No test shows an order of locks that can deadlock, or leaves its thread where nothing may
    wait: later ones would close nothing."""
    yield
    lock_order.GRAPH.check()
    assert not waits.guest() and not waits.interrupting(), waits._why()


def pytest_sessionfinish(session):
    """Orders that deadlock may show in two workers' tests, half in each."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["locks"] = lock_order.GRAPH.rows()
    elif ALL_LOCKS.found:
        session.config.failed_as_a_run = ALL_LOCKS.found    # for tools/recorded.py
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    ALL_LOCKS.join(getattr(node, "workeroutput", {}).get("locks", ()))


@pytest.fixture
def seed():
    """A new number each run, printed (pytest shows it when the test fails); MQCORE_SEED repeats
    one."""
    value = int(os.environ.get("MQCORE_SEED") or random.SystemRandom().getrandbits(31))
    print(f"MQCORE_SEED={value}")
    return value


@pytest.fixture
def rng(seed):
    return random.Random(seed)


@pytest.fixture
def ctx(mq_context):
    """Sockets of a context of their own, without linger, closed after the test."""
    return mq_context


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    """Certificates of all kinds, as files; see support/certificates.py."""
    pytest.importorskip("cryptography")  # has no wheel for CPython 3.13t
    from certificates import Authority
    return Authority(tmp_path_factory.mktemp("authority"))
