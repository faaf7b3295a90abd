"""What every test gets: a watch for hangs, a count of what it left behind, printed seeds.

Leak watch (`nothing_left`, for each test): after the test, the counters of `mqcore.testing.leaks()`
must be zero and the process must have as many descriptors and threads as before. Ending takes a
moment in other threads, so it polls for up to two seconds, and passes as soon as all is well.
A test that must leave something says so: `@pytest.mark.keeps(fds=1, threads=1, why="...")`.

Hangs: pytest-timeout interrupts a test at 120 s; if that does not help (a call that cannot be
interrupted), faulthandler prints every thread's stack and ends the run. `kill -USR1` prints them
too.
"""

import faulthandler
import gc
import importlib
import os
import random
import signal
import sys
import time

import hypothesis
import numpy  # noqa: F401  its threads start with the import: have them before anything is counted
import pytest

GRACE = 2.0

hypothesis.settings.register_profile(
    "mqcore", deadline=None, print_blob=True,
    max_examples=int(os.environ.get("MQCORE_EXAMPLES", "60")),
    suppress_health_check=[hypothesis.HealthCheck.too_slow,
                           hypothesis.HealthCheck.function_scoped_fixture])
hypothesis.settings.load_profile("mqcore")


def pytest_configure(config):
    stderr = os.fdopen(os.dup(sys.__stderr__.fileno()), "w")  # the real one: pytest takes over 2
    faulthandler.register(signal.SIGUSR1, file=stderr, all_threads=True)

    def undo():
        faulthandler.unregister(signal.SIGUSR1)
        stderr.close()
    config.add_cleanup(undo)


def pytest_collection_finish(session):
    """What is imported by now is no garbage: later collections need not look at it."""
    gc.collect()
    gc.freeze()


def descriptors() -> dict[int, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:  # the one that lists
            pass
    return found


def threads() -> dict[int, str]:
    found = {}
    for name in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{name}/comm") as f:
                found[int(name)] = f.read().strip()
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


def counters() -> dict[str, int]:
    """What mqcore itself says is still alive; nothing if it has no such counters."""
    if "mqcore" not in sys.modules:
        return {}
    try:
        testing = importlib.import_module("mqcore.testing")
    except ImportError:
        return {}
    leaks = getattr(testing, "leaks", None)
    return {} if leaks is None else {name: n for name, n in leaks().items() if n}


def left_behind(fds, tasks, more_fds=0, more_threads=0) -> list[str]:
    """One line for each kind of thing that is there now and was not before."""
    lines = [f"{n} x {name} alive in mqcore" for name, n in counters().items()]
    for kind, before, now, more in (("descriptor", fds, descriptors(), more_fds),
                                    ("thread", tasks, threads(), more_threads)):
        if len(now) > len(before) + more:
            new = {key: name for key, name in now.items() if before.get(key) != name}
            lines.append(f"{len(now) - len(before)} more {kind}s than before: {new}")
    return lines


def wait_until_clean(*args, grace=GRACE) -> list[str]:
    end = time.monotonic() + grace
    gc.collect()
    while lines := left_behind(*args):
        if time.monotonic() > end:
            break
        time.sleep(0.01)
        if time.monotonic() > end - grace / 2:
            gc.collect()
    return lines


@pytest.fixture(autouse=True)
def nothing_left(request):
    """Fails a test that leaves handles, descriptors or threads."""
    mark = request.node.get_closest_marker("keeps")
    keeps = mark.kwargs if mark else {}
    fds, tasks = descriptors(), threads()
    yield
    lines = wait_until_clean(fds, tasks, keeps.get("fds", 0), keeps.get("threads", 0))
    if lines:
        pytest.fail("the test left something behind:\n  " + "\n  ".join(lines), pytrace=False)


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


class Sockets:
    """A context and its sockets, kept until the test is over: none is found unclosed before that.
    pytest holds what fixtures gave until the leak watch has looked, so this lets go of them."""

    def __init__(self, **defaults):
        import mqcore
        self.context = mqcore.Context(**defaults)
        self.held = []

    def socket(self, pattern, **kw):
        self.held.append(self.context.socket(pattern, **kw))
        return self.held[-1]

    def close(self):
        if self.context is not None:
            self.context.close()
            self.context = None
            self.held.clear()


@pytest.fixture
def ctx():
    """Sockets of a context of their own, without linger, closed after the test."""
    sockets = Sockets(linger=0)
    yield sockets
    sockets.close()


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    """Certificates of all kinds, as files; see support/certificates.py."""
    from certificates import Authority
    return Authority(tmp_path_factory.mktemp("authority"))
