"""Runs the tests again and again while other programs keep every core busy, and lists what was
unsteady: each test that failed in at least one run, in how many runs, and the end of its output.
Last come the files that took longest, for the table in tests/support/longest.py.

    python tools/steady.py [--runs 10] [--spinners N] [--late] [--since COMMIT]
                           [pytest's arguments ...]

With --since only the test files that differ from that commit run, without their slow tests unless
there is a `-m`. Each run has other seeds.

The load is one spinning process for each core. The tool starts them before the first run and ends
them after the last; a spinner whose parent has died ends by itself. With --late there are none:
instead, threads of all processes wake up to 30 ms late now and then (tests/support/late.c), which
finds a test or a program that relies on being quick in one run. Nothing is run again within a run,
and no limit is widened. Exits with 1 if any run failed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from suite import SIDE_BY_SIDE, TOOLS, default_signals, mark

ROOT = Path(__file__).resolve().parent.parent
TAIL = 25  # lines of a failure that are shown
FILES = 20  # how many are listed at the end
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
    files: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # file: seconds


def file_of(classname: str) -> str:
    """tests.unit.base.test_slab.TestPool -> tests/unit/base/test_slab.py"""
    words = classname.split(".")
    last = next((i for i, word in enumerate(words) if word.startswith("test_")), len(words) - 1)
    return "/".join(words[:last + 1]) + ".py"


def read_report(path: Path, run: Run) -> None:
    """pytest's JUnit report into `run`."""
    for case in ElementTree.parse(path).iter("testcase"):
        run.tests += 1
        run.files[file_of(case.get("classname", ""))] += float(case.get("time", 0))
        bad = [part for part in case if part.tag in ("failure", "error")]
        if bad:
            name = f"{case.get('classname', '').replace('.', '/')}::{case.get('name')}"
            texts = [part.text or part.get("message") or "" for part in bad]
            texts += [part.text or "" for part in case if part.tag.startswith("system-")]
            run.failures[name] = "\n".join(texts)


def changed(commit: str) -> list[str]:
    """The test files that differ from those of a commit, new ones included."""
    found: set[str] = set()
    for command in (["diff", "--name-only", "--diff-filter=d", commit],
                    ["ls-files", "--others", "--exclude-standard"]):
        found.update(subprocess.run(["git", *command, "--", "tests/**/test_*.py"], cwd=ROOT,
                                    text=True, check=True, stdout=subprocess.PIPE
                                    ).stdout.splitlines())
    return sorted(found)


def late_library(folder: Path) -> Path:
    """Compiled from tests/support/late.c, to be preloaded."""
    made = folder / "late.so"
    compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")
    subprocess.run([*compiler, "-O1", "-shared", "-fPIC", "-o", made,
                    ROOT / "tests" / "support" / "late.c", "-ldl"], check=True)
    return made


def one_run(arguments: list[str], environment: dict[str, str]) -> Run:
    with tempfile.TemporaryDirectory(prefix="mq-steady-") as folder:
        report = Path(folder) / "report.xml"
        started = time.monotonic()
        done = subprocess.run(
            [sys.executable, TOOLS / "recorded.py", os.devnull, *arguments,
             f"--junitxml={report}", "-o", "junit_logging=all", "-p", "no:cacheprovider"],
            cwd=ROOT, text=True, check=False, env={**os.environ, **environment},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
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


def list_longest(runs: list[Run]) -> None:
    """The files that took most seconds, in the mean of the runs."""
    total: Counter[str] = Counter()
    for run in runs:
        total.update(run.files)  # a sum would leave out what took no time
    print("\nthe longest files:")
    for name, seconds in total.most_common(FILES):
        print(f"{seconds / len(runs):7.1f} s  {name}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--spinners", type=int, default=None,
                        help="busy processes beside the tests (default: one for each core, none "
                             "with --late)")
    parser.add_argument("--late", action="store_true",
                        help="let threads wake up to 30 ms late now and then")
    parser.add_argument("--since", metavar="COMMIT",
                        help="only the test files that differ from that commit")
    options, arguments = parser.parse_known_args()
    default_signals()
    if options.since is not None:
        files = changed(options.since)
        if not files:
            print(f"no test file differs from {options.since}")
            return 0
        arguments += files if mark(arguments) else ["-m", "not slow", *files]
    arguments = [*SIDE_BY_SIDE, *arguments]
    if options.spinners is None:
        options.spinners = 0 if options.late else os.cpu_count() or 1
    runs: list[Run] = []
    with (tempfile.TemporaryDirectory(prefix="mq-late-") as folder, busy(options.spinners)):
        environment = {}
        if options.late:
            environment["LD_PRELOAD"] = str(late_library(Path(folder)))
        for number in range(1, options.runs + 1):
            runs.append(one_run(arguments, environment))
            run = runs[-1]
            print(f"run {number} of {options.runs}: {run.tests} tests, {len(run.failures)} failed, "
                  f"{run.seconds:.0f} s, exit code {run.code}", flush=True)
    list_unsteady(runs)
    list_longest(runs)
    good = sum(run.code == 0 for run in runs)
    print(f"\n{good} of {len(runs)} runs passed, beside {options.spinners} busy processes"
          + ", with threads that wake late" * options.late)
    return 0 if good == len(runs) else 1


if __name__ == "__main__":
    sys.exit(main())
