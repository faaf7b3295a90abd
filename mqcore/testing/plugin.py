"""The pytest plug-in, which every pytest run finds where mqcore is installed.

It changes nothing for tests that do not ask: its fixtures are

    mq_context   a Context without linger; it and its sockets are closed after the test
    mq_url       where to bind, in turn: inproc, tcp, ipc
    mq_leaks     fails a test that leaves connections, messages, descriptors or threads behind;
                 for all tests with `mq_leaks = true` in pytest's ini file
    mq_scripted  a ScriptedTransport, installed as "scripted" while the test lasts
    mq_clock     a ManualClock
    mq_network   makes simulated networks with the seed of the run; `@pytest.mark.mq_seeds(100)`
                 runs the test with so many seeds, MQCORE_SEED=7 with that one

and its hooks add the simulated networks to the report of a test that failed, and look at the tests
of the conformance suites. There a skip is an error unless the plug-in under test declares what the
test needs as absent (mqcore/spi/capability.py).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.register_assert_rewrite(
    "mqcore.testing.suite", "mqcore.testing.watch", "mqcore.testing.contract",
    "mqcore.testing.transport_suite", "mqcore.testing.pattern_suite", "mqcore.testing.traffic",
    "mqcore.testing.bed", "mqcore.testing.filter_suite",
    "mqcore.testing.churn", "mqcore.testing.peer")

#: set on a test item by its suite, with the reason, when the skip is a declared one
DECLARED = pytest.StashKey[str]()
#: the simulated networks that a test has made
NETWORKS = pytest.StashKey[list[Any]]()

MARKERS = (
    "keeps(fds=0, threads=0, why=''): what the test rightly leaves behind, for mq_leaks",
    "mq_needs(*capabilities): of a conformance suite: what the plug-in must have for this test",
    "mq_seeds(count): how many seeds mq_network runs the test with, from 0 on; 1 without it",
    "mq_live: of a conformance suite: needs a system on which the transport works",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("mq_leaks", "fail tests that leave something of mqcore, descriptors or threads "
                              "behind", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    for line in MARKERS:
        config.addinivalue_line("markers", line)
    if config.getini("mq_leaks"):
        config.pluginmanager.register(_Always(), "mqcore-leaks")


class _Always:
    @pytest.fixture(autouse=True)
    def mq_leaks_always(self, mq_leaks: None) -> None:
        """mq_leaks, for every test."""


# -- fixtures --------------------------------------------------------------------------------------


@pytest.fixture
def mq_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves handles, descriptors or threads behind. A test that must leave some
    declares it: `@pytest.mark.keeps(fds=1, threads=1, why="...")`."""
    from mqcore.testing import watch

    mark = request.node.get_closest_marker("keeps")
    keeps = mark.kwargs if mark else {}
    was = watch.before()
    yield
    lines = watch.wait_until_clean(was, keeps.get("fds", 0), keeps.get("threads", 0))
    if lines:
        pytest.fail("the test left something behind:\n  " + "\n  ".join(lines), pytrace=False)


@pytest.fixture
def mq_context(mq_leaks: None) -> Iterator[Any]:
    """A Context without linger. It holds its sockets, so that a test need not, and is closed after
    the test."""
    from mqcore.testing.keeper import Keeper

    context = Keeper(linger=0)
    yield context
    context.finish()


@pytest.fixture
def mq_folder() -> Iterator[Path]:
    """A fresh folder with a short path: a Unix socket's has 107 bytes at most, and tmp_path of a
    test with a long name leaves few of them."""
    with tempfile.TemporaryDirectory(prefix="mq-") as folder:
        yield Path(folder)


@pytest.fixture(params=["inproc", "tcp", "ipc"])
def mq_url(request: pytest.FixtureRequest, mq_folder: Path) -> str:
    """Where to bind; connect to the URL of the endpoint that comes back."""
    return {"inproc": "inproc://mq", "tcp": "tcp://127.0.0.1:0",
            "ipc": f"ipc://{mq_folder}/socket"}[request.param]


@pytest.fixture
def mq_clock() -> Any:
    """A ManualClock; `mq_clock.govern(mq_context)` before the first socket."""
    from mqcore.testing.clock import ManualClock

    return ManualClock()


@pytest.fixture
def mq_scripted(mq_leaks: None) -> Iterator[Any]:
    """A ScriptedTransport, installed as "scripted" while the test lasts."""
    from mqcore.testing import installed
    from mqcore.testing.scripted import ScriptedTransport

    transport = ScriptedTransport()
    with installed("transport", transport):
        yield transport
        transport.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "mq_network" not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker("mq_seeds")
    given = os.environ.get("MQCORE_SEED")
    seeds = range(mark.args[0] if mark else 1) if given is None else [int(given)]
    metafunc.parametrize("mq_network", seeds, indirect=True, ids=lambda seed: f"seed{seed}")


@pytest.fixture
def mq_network(request: pytest.FixtureRequest, mq_leaks: None) -> Iterator[Any]:
    """`mq_network(delay=0.01, loss=0.1)` makes a mqcore.testing.network.Network with the seed of
    this run of the test, and closes it afterwards."""
    from mqcore.testing.network import Network

    made = request.node.stash.setdefault(NETWORKS, [])

    def make(**options: Any) -> Network:
        net = Network(request.param, **options)
        made.append(net)
        return net

    yield make
    for net in made:
        net.close()
    made.clear()


def _explained(item: pytest.Item, report: pytest.TestReport) -> None:
    """How a test with simulated networks failed, and how to replay it."""
    for net in item.stash.get(NETWORKS, ()):
        name = item.nodeid.partition("[")[0]
        report.sections.append((
            "simulated network", f"{net.explain()}\nReplay: MQCORE_SEED={net.seed} "
                                 f"python -m pytest '{name}'"))


# -- conformance -----------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport,
                                                              pytest.TestReport]:
    """A suite's test that was skipped, or is expected to fail, has proved nothing."""
    report = yield
    if report.when == "call" and report.failed:
        _explained(item, report)
    suite = getattr(item, "cls", None)
    if report.skipped and getattr(suite, "mq_suite", False) and DECLARED not in item.stash:
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        why = getattr(report, "wasxfail", "") or why
        report.outcome = "failed"
        report.longrepr = (
            f"{item.nodeid} did not run to its end ({why}), and the plug-in does not declare why.\n"
            "A conformance suite skips only what the plug-in's `capabilities` lack, or lists in "
            "`gaps`,\nor its unavailable() gives a reason for: see mqcore/spi/capability.py.")
        vars(report).pop("wasxfail", None)
    return report
