"""Run pyzmq's and pynng's own test suites against those libraries and against mqcore's aliases.

    python tools/foreign_tests.py [pyzmq] [pynng] [--only real|alias] [-k EXPRESSION] [--verbose]

Each suite comes from the library's source distribution: pip downloads it into a temporary folder,
and only its tests are unpacked. Every test runs twice, in two processes: against the installed
library, and with `zmq` or `pynng` replaced by `mqcore.zmq` or `mqcore.nng`. Nothing is stubbed.
The script prints the counts and every test that does not end the same way in both runs. It exits
with 1 if the alias fails a test that EXPECTED does not list.

This file is also the pytest plug-in of the runs: it installs the alias and records each outcome as
it happens, so that a crash keeps what came before.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

ALIAS, RESULTS = "MQCORE_FOREIGN_ALIAS", "MQCORE_FOREIGN_RESULTS"
RUN_LIMIT = 1200  # seconds for one suite, against one library
TEST_LIMIT = 60  # seconds for one test


class Suite(NamedTuple):
    """A library's tests: its requirement, its module and ours, the folders of the source
    distribution that the tests need, and where the tests are."""

    requirement: str
    module: str
    ours: str
    unpack: tuple[str, ...]
    tests: str


SUITES = {
    "pyzmq": Suite("pyzmq==27.3.*", "zmq", "mqcore.zmq",
                   ("tests/", "mypy_tests/", "examples/", "pytest.ini", "mypy.ini"), "tests"),
    "pynng": Suite("pynng==0.9.*", "pynng", "mqcore.nng", ("test/",), "test"),
}
#: pytest plug-ins that these suites need and mqcore's own tests do without
PLUGINS = ("pytest-asyncio", "pytest-trio")
MULTIPART_TRACKER = "several parts are copied, so that their tracker is done at once"
GREEN_TIMEOUTS = "RCVTIMEO and SNDTIMEO work under gevent; there is nothing to warn of"
RAW = "mqcore has no raw sockets"
#: tests that the alias does not pass: the reason
EXPECTED: dict[str, dict[str, str]] = {
    "pyzmq": {
        "tests/test_future.py::TestFutureSocket::test_close_all_fds":
            "pyzmq's futures register with tornado's loop, which may close them; ours do not",
        "tests/test_log.py::TestPubLog::test_blank_root_topic":
            "a race in the test, which fails with pyzmq under load, too: it logs at once after "
            "SUBSCRIBE over tcp",
        "tests/test_message.py::TestFrame::test_bytes":
            "a Frame of bytes keeps them; pyzmq copies them",
        "tests/test_message.py::TestFrame::test_noncopying_memoryview":
            "a received Frame is read-only: several sockets may have the same message",
        "tests/test_mypy.py::test_mypy_example":
            "mypy and NumPy's stubs; fails with pyzmq, too",
        "tests/test_socket.py::TestSocket::test_tracker": MULTIPART_TRACKER,
        "tests/test_socket.py::TestSocketGreen::test_tracker": MULTIPART_TRACKER,
        "tests/test_socket.py::TestSocketGreen::test_warn_get_timeo": GREEN_TIMEOUTS,
        "tests/test_socket.py::TestSocketGreen::test_warn_set_timeo": GREEN_TIMEOUTS,
        "tests/test_zmqstream.py::test_shadow_socket_close":
            "a ZMQStream learns that its socket was closed; nothing is left to warn of",
    },
    "pynng": {
        "test/test_options.py::test_can_read_sock_raw": RAW,
        "test/test_protocols.py::test_can_instantiate_socket_with_raw_opener": RAW,
    },
}


# -- the plug-in -----------------------------------------------------------------------------------


def _install(ours: str) -> None:
    """The alias, under the library's name."""
    if ours == "mqcore.zmq":
        importlib.import_module("mqcore.zmq").install()
        return
    package = importlib.import_module(ours)
    for found in pkgutil.iter_modules(package.__path__, f"{ours}."):
        importlib.import_module(found.name)
    for name in tuple(sys.modules):
        if name == ours or name.startswith(f"{ours}."):
            sys.modules["pynng" + name[len(ours):]] = sys.modules[name]


if __name__ != "__main__" and os.environ.get(ALIAS):
    _install(os.environ[ALIAS])


def pytest_runtest_logreport(report: Any) -> None:
    """Append what became of a phase of a test that says something."""
    if report.when == "call" or report.outcome != "passed":
        crash = getattr(report.longrepr, "reprcrash", None)
        text = crash.message if crash is not None else str(report.longrepr or "")
        _record(report.nodeid, report.outcome, text)


def pytest_collectreport(report: Any) -> None:
    """A file that cannot be imported, or that skips itself, counts as one test."""
    if report.outcome != "passed":
        _record(report.nodeid, report.outcome, str(report.longrepr or ""))


def _record(test: str, outcome: str, text: str) -> None:
    with open(os.environ[RESULTS], "a") as file:
        file.write(json.dumps([test, outcome, text]) + "\n")


# -- the runner ------------------------------------------------------------------------------------


class Result(NamedTuple):
    outcome: str
    text: str


def pip(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words],
                   check=True, stdin=subprocess.DEVNULL)


def fetch(suite: Suite, folder: Path) -> Path:
    """Download the source distribution and unpack its tests; the folder they are in."""
    name = suite.requirement.partition("==")[0]
    pip("download", "--no-binary", name, "--no-deps", "--dest", str(folder), suite.requirement)
    (packed,) = folder.glob(f"{name}-*.tar.gz")
    with tarfile.open(packed) as archive:
        members = [member for member in archive.getmembers()
                   if member.name.partition("/")[2].startswith(suite.unpack)]
        archive.extractall(folder, members, filter="data")
    return folder / packed.name.removesuffix(".tar.gz")


def run(suite: Suite, folder: Path, plugins: Path, ours: bool, options: argparse.Namespace
        ) -> dict[str, Result]:
    """Every test's result against the library, or against the alias."""
    results = folder.parent / f"{suite.module}-{'alias' if ours else 'real'}.jsonl"
    results.touch()
    environment = {**os.environ, RESULTS: str(results), "PYTHONPATH": os.pathsep.join(
        [str(Path(__file__).parent), str(plugins)])}
    environment.pop(ALIAS, None)
    if ours:
        environment[ALIAS] = suite.ours
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "foreign_tests", "-p",
               "no:cacheprovider", "-p", "no:xdist", f"--timeout={TEST_LIMIT}", suite.tests]
    if options.k:
        command += ["-k", options.k]
    if options.verbose:
        command += ["-v", "--tb=short"]
    try:
        ended = subprocess.run(command, cwd=folder, env=environment, timeout=RUN_LIMIT,
                               stdin=subprocess.DEVNULL,
                               stdout=None if options.verbose else subprocess.DEVNULL,
                               stderr=None if options.verbose else subprocess.DEVNULL)
        if ended.returncode not in (0, 1):
            print(f"  pytest ended with {ended.returncode}: the rest of the suite did not run")
    except subprocess.TimeoutExpired:
        print(f"  pytest was ended after {RUN_LIMIT} s: the rest of the suite did not run")
    found: dict[str, Result] = {}
    for line in results.read_text().splitlines():
        test, outcome, text = json.loads(line)
        if test not in found or outcome == "failed":  # an error in teardown counts
            found[test] = Result(outcome, text)
    return found


def show(name: str, runs: dict[str, dict[str, Result]]) -> bool:
    """Print a suite's counts and differences. Is every failure of the alias expected?"""
    print(f"\n{name:<8} {'passed':>8} {'failed':>8} {'skipped':>8} {'of':>8}")
    for kind, found in runs.items():
        count = Counter(result.outcome for result in found.values())
        print(f"  {kind:<6} " + " ".join(
            f"{number:>8}" for number in (count["passed"], count["failed"], count["skipped"],
                                          len(found))))
    real, alias = runs.get("real", {}), runs.get("alias", {})
    absent = Result("not run", "")
    fine = True
    for test in sorted({*real, *alias}):
        one, other = real.get(test, absent), alias.get(test, absent)
        failed = "alias" in runs and other.outcome in ("failed", "not run")
        reason = EXPECTED[name].get(test.partition("[")[0])
        if failed and reason is None:
            fine = False
        if failed or (len(runs) == 2 and one.outcome != other.outcome):
            print(f"    {test}: real {one.outcome}, alias {other.outcome}")
            why = reason or (other.text or one.text).strip().partition("\n")[0][:160]
            if why:
                print(f"        {why}")
    return fine


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=" or ".join(SUITES))
    parser.add_argument("--only", choices=("real", "alias"), help="run against one of them")
    parser.add_argument("-k", metavar="EXPRESSION", help="pytest's: some of the tests")
    parser.add_argument("--verbose", action="store_true", help="show what pytest prints")
    options = parser.parse_args()
    if unknown := set(options.suites) - set(SUITES):
        parser.error(f"no suite {', '.join(unknown)}: {' or '.join(SUITES)}")
    fine = True
    with tempfile.TemporaryDirectory(prefix="mqcore-foreign-") as made:
        plugins = Path(made, "plugins")
        pip("install", "--no-deps", "--target", str(plugins), *PLUGINS)
        for name in options.suites or SUITES:
            place = Path(made, name)
            place.mkdir()
            folder = fetch(SUITES[name], place)
            runs = {kind: run(SUITES[name], folder, plugins, kind == "alias", options)
                    for kind in ("real", "alias") if options.only in (None, kind)}
            fine = show(name, runs) and fine
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
