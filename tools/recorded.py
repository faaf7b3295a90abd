"""pytest with a record of what it did: `python tools/recorded.py FILE [pytest's arguments ...]`.

FILE gets a line of JSON for each fact as it happens, so that it is there if pytest ends halfway:
    {"collected": N}                       tests that were to run
    {"passed": N, "skipped": N}            at the end
    {"seconds": {file: S}}                 at the end: of test time
    {"failed": test, "text": ...}          a test that failed, or a file that could not be
                                           collected; "disturbed": an earlier test of its worker
                                           had hung, or left threads or descriptors behind;
                                           "seed": the one that it printed, or null
    {"lost": test}                         a test that no worker ran, since its worker had died
    {"run": text}                          something that failed and belongs to no test
tools/suite.py reads it.
"""

import json
import os
import re
import sys
from collections import defaultdict
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

DISTURBING = "Timeout (>", "the test left something behind"
SEED = re.compile(r"\bMQCORE_SEED=(\d+)")
SUPPORT = Path(__file__).resolve().parent.parent / "tests" / "support"


class Recorder:
    """A plug-in of the process that leads the run; the workers' reports arrive there."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("a", buffering=1)
        self.expected: set[str] = set()
        self.seen: set[str] = set()
        self.passed: set[str] = set()
        self.skipped: set[str] = set()
        self.seconds: dict[str, float] = defaultdict(float)
        self.deaths = 0     # of workers outside of tests
        self.disturbed: dict[str, str] = {}     # worker: the test that has left it in disorder

    def note(self, **fact: object) -> None:
        self.file.write(json.dumps(fact) + "\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seen.add(report.nodeid)
        self.seconds[report.nodeid.partition("::")[0]] += report.duration
        if report.failed:
            text, worker = report.longreprtext, getattr(report, "worker_id", "")
            by = self.disturbed.get(worker, report.nodeid)
            self.note(failed=report.nodeid, text=text, disturbed=by != report.nodeid,
                      seed=self.seed_of(report))
            if any(words in text for words in DISTURBING):
                self.disturbed.setdefault(worker, report.nodeid)
        elif report.skipped:
            self.skipped.add(report.nodeid)
        elif report.when == "call":
            self.passed.add(report.nodeid)

    @staticmethod
    def seed_of(report: pytest.TestReport) -> str | None:
        """The last one that the test printed."""
        said = [report.longreprtext, *(text for _, text in report.sections)]
        return next(reversed(SEED.findall("\n".join(said))), None)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.note(failed=report.nodeid, text=report.longreprtext)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.expected.update(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self.expected.update(ids)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        if config.getvalue("dist") != "loadfile":
            return None
        # not earlier: pytest rewrites xdist's assertions
        return import_module("by_file").ByFile(config, log)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, error: object) -> None:
        self.deaths += error is not None

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self) -> None:
        """It was a test that died."""
        self.deaths -= 1

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        for fact in getattr(session.config, "failed_as_a_run", ()):
            self.note(run=fact)
        if self.deaths > 0:
            self.note(run=f"{self.deaths} workers died while they ran no test")
        if not session.config.option.collectonly and not session.shouldstop:
            for test in sorted(self.expected - self.seen):
                self.note(lost=test)
        self.note(collected=len(self.expected))
        self.note(passed=len(self.passed), skipped=len(self.skipped))
        self.note(seconds=dict(self.seconds))


def main(arguments: list[str]) -> Any:
    sys.path[0] = os.getcwd()   # as `python -m pytest` has it, and not this folder
    sys.path.append(str(SUPPORT))   # as pyproject.toml says; tests of this program run elsewhere
    return pytest.main(["-p", "worker_ends", *arguments[1:]],
                       plugins=[Recorder(Path(arguments[0]))])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
