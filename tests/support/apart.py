"""Test files that run in a process of their own, because nng or librdkafka runs in it too.

nng's threads end their process with a segmentation fault once in a while, also in programs without
mqcore; a client of librdkafka may wait for lost brokers for ever. The process of the suite, or a
worker of it, hands the tests of such a file one by one to a child, which has collected the file
with the same conftest.py and sends the reports back. If the child dies, that test has failed and
its report says how; the next test gets a new child.

A file that makes clients of Kafka, or sockets of pynng's, not through support/nngpeer.py, stands in
FILES.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
FILES = frozenset(TESTS / name for name in (
    "bridge/test_kafka.py",
    "peers/nng/test_behaviour.py",
    "peers/nng/test_concurrent_ends.py",
    "peers/nng/test_names.py",
    "peers/nng/test_programs.py",
    "peers/nng/test_users.py",
    "peers/interop/test_contexts.py",
    "peers/interop/test_either.py",
    "peers/interop/test_one_port.py",
    "peers/interop/test_requests_together.py",
    "peers/interop/test_sp_patterns.py",
    "peers/interop/test_traces.py",
    "peers/test_compared.py",
    "system/topology/test_devices.py",
))
INSIDE = "MQCORE_TESTS_APART"   # in the child's environment: the descriptors to read and write
LIMIT = 900.0   # seconds for one test; pytest's own time-out, in the child, comes first
PATIENCE = 60   # and for the child's own end
TOLD = 30       # lines of the child's stderr that are shown
EVERYTHING = "foreign or not foreign or slow or brokers"    # the parent has chosen already
CHILD = pytest.StashKey["Child"]()


def wanted(item):
    return item.path in FILES and INSIDE not in os.environ


class Child:
    """The process for one file."""

    def __init__(self, config, path):
        self.path = path
        self.errors = tempfile.TemporaryFile("w+", errors="replace")
        asks, self.asks = os.pipe()
        self.answers, answers = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, __file__, path, "-m", EVERYTHING, f"--rootdir={config.rootpath}",
             "-p", "no:xdist", "-p", "no:cacheprovider", "-q"],
            cwd=config.invocation_params.dir, stdin=subprocess.DEVNULL, stdout=self.errors,
            stderr=self.errors, pass_fds=(asks, answers),
            env={**os.environ, INSIDE: f"{asks} {answers}"})
        os.close(asks)
        os.close(answers)

    def run(self, test, following):
        """The reports of this test as pytest serializes them, or None if the process died."""
        try:
            os.write(self.asks, json.dumps([test, following]).encode() + b"\n")
        except BrokenPipeError:
            return None
        got, end = bytearray(), time.monotonic() + LIMIT
        while not got.endswith(b"\n"):
            if not select.select([self.answers], [], [], max(0.0, end - time.monotonic()))[0]:
                return None
            piece = os.read(self.answers, 1 << 16)
            if not piece:
                return None
            got += piece
        return json.loads(got)

    def how_it_died(self):
        """Ends it, if it still runs; what it said last, and with which status it ended."""
        hung = self.process.poll() is None and not select.select([self.answers], [], [], 0)[0]
        if not hung:
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:   # it has closed its end, and does not end
                hung = True
        if hung:
            self.process.kill()
        status = self.process.wait()
        self.errors.seek(0)
        said = self.errors.read().splitlines()[-TOLD:]
        what = "did not answer" if hung else f"ended with status {status}"
        return "\n".join([f"the process in which this test and nng ran {what}", *said])

    def end(self):
        os.close(self.asks)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.answers)
        self.errors.close()


def run(item, nextitem):
    """Run one test in its file's child, and yield its reports."""
    config = item.config
    child = config.stash.get(CHILD, None)
    if child is None:
        child = config.stash[CHILD] = Child(config, item.path)
    last = nextitem is None or nextitem.path != item.path
    started = time.time()
    reports = child.run(item.nodeid, None if last else nextitem.nodeid)
    if reports is None:
        yield pytest.TestReport(
            item.nodeid, item.location, {}, "failed", child.how_it_died(), "call",
            duration=time.time() - started, start=started, stop=time.time())
    if reports is None or last:
        config.stash[CHILD] = None
        child.end()
    for data in reports or ():
        report = config.hook.pytest_report_from_serializable(config=config, data=data)
        if isinstance(report.longrepr, list):   # a skip's: JSON has no tuples
            report.longrepr = tuple(report.longrepr)
        yield report


def protocol(item, nextitem):
    """pytest_runtest_protocol() of the process that has no nng."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in run(item, nextitem):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    # what is set up here is the folders that the last test shared with this one
    item.session._setupstate.teardown_exact(nextitem)
    return True


class Served:
    """The child's plug-in: it runs what it is asked for."""

    def __init__(self, asks, answers):
        self.asks, self.answers = open(asks), open(answers, "w")
        self.reports = []

    def pytest_collection_finish(self):
        """nng's threads start with its first socket and stay: now, before a test counts."""
        with contextlib.suppress(ImportError):
            import pynng
            pynng.Pair0(listen="tcp://127.0.0.1:0").close()

    def pytest_runtestloop(self, session):
        items = {item.nodeid: item for item in session.items}
        for line in self.asks:
            test, following = json.loads(line)
            self.reports.clear()
            item = items[test]
            item.ihook.pytest_runtest_protocol(item=item, nextitem=items.get(following))
            hook = session.config.hook
            print(json.dumps([hook.pytest_report_to_serializable(config=session.config, report=one)
                              for one in self.reports]), file=self.answers, flush=True)
        return True

    def pytest_runtest_logreport(self, report):
        self.reports.append(report)


if __name__ == "__main__":
    sys.path[0] = os.getcwd()
    sys.exit(pytest.main(sys.argv[1:], plugins=[Served(*map(int, os.environ[INSIDE].split()))]))
