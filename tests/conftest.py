"""What every test gets: a watch for hangs, a count of what it left behind, printed seeds.

Leaks: `mq_leaks = true` in pyproject.toml, so the plug-in (mqcore/testing/plugin.py) looks after
each test whether the counters of `mqcore.testing.leaks()` are zero and the process has as many
descriptors and threads as before. A test that must leave something says so:
`@pytest.mark.keeps(fds=1, threads=1, why="...")`.

Locks: the order in which mqcore's code takes its locks is watched through the whole run
(support/lock_order.py). A test in which an order shows that can deadlock fails.

Hangs: pytest-timeout interrupts a test at 120 s; if that does not help (a call that cannot be
interrupted), faulthandler prints every thread's stack and ends the run. `kill -USR1` prints them
too.

Ctrl-C: a run that a shell has started in the background inherits that SIGINT is ignored, and so
would all programs that its tests start and interrupt. Here it is handled again.

Foreign libraries: a test in which pyzmq or pynng runs alone runs with `-m foreign` only
(support/foreign.py).

Skips: with CI=true a test that is skipped for a reason that is not in support/skips.py has failed.
"""

import faulthandler
import gc
import os
import random
import signal
import sys

import foreign
import hypothesis
import lock_order
import numpy  # noqa: F401  its threads start with the import: have them before anything is counted
import pytest
from skips import forbidden

from mqcore.testing.plugin import DECLARED

hypothesis.settings.register_profile(
    "mqcore", deadline=None, print_blob=True,
    max_examples=int(os.environ.get("MQCORE_EXAMPLES", "60")),
    suppress_health_check=[hypothesis.HealthCheck.too_slow,
                           hypothesis.HealthCheck.function_scoped_fixture])
hypothesis.settings.load_profile("mqcore")


lock_order.install()
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    stderr = os.fdopen(os.dup(sys.__stderr__.fileno()), "w")  # the real one: pytest takes over 2
    faulthandler.register(signal.SIGUSR1, file=stderr, all_threads=True)

    def undo():
        faulthandler.unregister(signal.SIGUSR1)
        stderr.close()
    config.add_cleanup(undo)


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
def pytest_collection_modifyitems(config, items):
    foreign.leave_out(config, items)


def pytest_collection_finish(session):
    """What is imported by now is no garbage: later collections need not look at it."""
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
    """No test shows an order of locks that can deadlock."""
    yield
    lock_order.GRAPH.check()


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
    from certificates import Authority
    return Authority(tmp_path_factory.mktemp("authority"))
