"""Runs the tests again and again while other programs keep every core busy, and lists what was
unsteady: each test that failed in at least one run, in how many runs, and the end of its output.

    python tools/steady.py [--runs 10] [--spinners N] [pytest's arguments ...]

The load is one spinning process for each core. The tool starts them before the first run and ends
them after the last; a spinner whose parent has died ends by itself. Nothing is run again within a
run, and no limit is widened. Exits with 1 if any run failed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from suite import SIDE_BY_SIDE, TOOLS, default_signals

ROOT = Path(__file__).resolve().parent.parent
TAIL = 25  # lines of a failure that are shown
SPINNER = """
import os, sys
parent = int(sys.argv[1])
while os.getppid() == parent:
    for _ in range(10_000_000):
        pass
"""


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """Keeps so many cores busy."""
    spinners = [subprocess.Popen([sys.executable, "-c", SPINNER, str(os.getpid())])
                for _ in range(count)]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
        for spinner in spinners:
            spinner.wait()


@dataclass
class Run:
    code: int
    seconds: float
    tests: int = 0
    failures: dict[str, str] = field(default_factory=dict)  # test: the end of its output


def read_report(path: Path, run: Run) -> None:
    """pytest's JUnit report into `run`."""
    for case in ElementTree.parse(path).iter("testcase"):
        run.tests += 1
        bad = [part for part in case if part.tag in ("failure", "error")]
        if bad:
            name = f"{case.get('classname', '').replace('.', '/')}::{case.get('name')}"
            texts = [part.text or part.get("message") or "" for part in bad]
            texts += [part.text or "" for part in case if part.tag.startswith("system-")]
            run.failures[name] = "\n".join(texts)


def one_run(arguments: list[str]) -> Run:
    with tempfile.TemporaryDirectory(prefix="mq-steady-") as folder:
        report = Path(folder) / "report.xml"
        started = time.monotonic()
        done = subprocess.run(
            [sys.executable, TOOLS / "recorded.py", os.devnull, *arguments,
             f"--junitxml={report}", "-o", "junit_logging=all", "-p", "no:cacheprovider"],
            cwd=ROOT, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        run = Run(done.returncode, time.monotonic() - started)
        if report.exists():
            read_report(report, run)
        if run.code and not run.failures:
            run.failures["(the run itself)"] = done.stdout
        return run


def list_unsteady(runs: list[Run]) -> None:
    """Each test that failed, with the end of its latest failure."""
    latest: dict[str, str] = {}
    times: dict[str, list[int]] = {}
    for number, run in enumerate(runs, 1):
        for name, text in run.failures.items():
            latest[name] = text
            times.setdefault(name, []).append(number)
    for name in sorted(times, key=lambda name: -len(times[name])):
        where = ", ".join(map(str, times[name]))
        print(f"\n{name}: failed in {len(times[name])} of {len(runs)} runs ({where})")
        for line in latest[name].rstrip().splitlines()[-TAIL:]:
            print(f"    {line}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--spinners", type=int, default=os.cpu_count() or 1,
                        help="busy processes beside the tests (default: one for each core)")
    options, arguments = parser.parse_known_args()
    default_signals()
    if not any(argument.startswith("-n") for argument in arguments):
        arguments = [*SIDE_BY_SIDE, *arguments]
    runs: list[Run] = []
    with busy(options.spinners):
        for number in range(1, options.runs + 1):
            runs.append(one_run(arguments))
            run = runs[-1]
            print(f"run {number} of {options.runs}: {run.tests} tests, {len(run.failures)} failed, "
                  f"{run.seconds:.0f} s, exit code {run.code}", flush=True)
    list_unsteady(runs)
    good = sum(run.code == 0 for run in runs)
    print(f"\n{good} of {len(runs)} runs passed, beside {options.spinners} busy processes")
    return 0 if good == len(runs) else 1


if __name__ == "__main__":
    sys.exit(main())
