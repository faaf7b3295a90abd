"""Runs the tests as `make test` does: several files at a time, then what failed once more, alone.

    python tools/suite.py [pytest's arguments ...]

A test that fails is run once more at the end, in a fresh process with nothing beside it. If it
passes there, with the seed that it had printed, it is *unsteady*: the last lines of the run name it
with its first failure, and build/unsteady.json has the whole text. The run is green if nothing
failed twice and at most five tests were unsteady, not counting those whose worker an earlier test
had left in disorder: it had hung, or left threads or descriptors behind. A worker that dies is
replaced, and the test that it ran counts as failed, as do tests that no worker came to. A failure
that belongs to no test is not run again.

UNSTEADY=0 in the environment is strict: nothing is run again.

The environment is made here, not inherited: signals at their defaults, umask, time zone, locale, a
short folder for temporary files, none of Python's own variables. Exits with 0 if the run was green,
with 1 if tests failed, otherwise with pytest's own status.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).resolve().parent
# Five files at a time, since many tests wait; the long ones begin first (tests/support/longest.py)
SIDE_BY_SIDE = ["-n", "5", "--dist", "loadfile", "--no-loadscope-reorder",
                "--max-worker-restart", "20"]
MOST_UNSTEADY = 5
MOST_AGAIN = 60     # with more failures than these, running them again would only take time
AGAIN_LIMIT = 900.0     # seconds that one test may take alone, what it starts included
LONG = 20   # files that are listed
LISTED = 3  # lines of a first failure that are shown
REPORT = Path("build/unsteady.json")
SECONDS = Path("build/seconds.json")


@dataclass
class Run:
    """What one run of pytest said."""

    status: int
    passed: int = 0
    skipped: int = 0
    failed: dict[str, str] = field(default_factory=dict)    # test: the text of its first failure
    disturbed: set[str] = field(default_factory=set)    # of these, those in a disturbed worker
    seeds: dict[str, str] = field(default_factory=dict)     # of these, what MQCORE_SEED repeats
    others: list[str] = field(default_factory=list)     # failures that belong to no test
    seconds: dict[str, float] = field(default_factory=dict)     # file: of test time

    def read(self, path: Path) -> None:
        for line in path.read_text().splitlines() if path.exists() else ():
            fact: dict[str, Any] = json.loads(line)
            if "failed" in fact:
                if fact.get("disturbed") and fact["failed"] not in self.failed:
                    self.disturbed.add(fact["failed"])
                self.failed.setdefault(fact["failed"], fact["text"])
                if fact.get("seed") is not None:
                    self.seeds.setdefault(fact["failed"], fact["seed"])
            elif "lost" in fact:
                self.failed.setdefault(fact["lost"], "no worker ran it: its worker had died")
            elif "run" in fact:
                self.others.append(fact["run"])
            elif "passed" in fact:
                self.passed, self.skipped = fact["passed"], fact["skipped"]
            elif "seconds" in fact:
                self.seconds = fact["seconds"]


def default_signals() -> None:
    """A shell's background job, nohup and cron leave signals ignored or blocked, and what this
    program starts would inherit that."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD,
                   signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


@contextmanager
def environment() -> Iterator[dict[str, str]]:
    """The variables for pytest, with a folder for temporary files that exists as long as they do.
    An address of a Unix socket has 107 bytes, so that folder is short."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "PYTEST_", "LC_", "LANG"))}
    place = "/tmp" if os.access("/tmp", os.W_OK | os.X_OK) else None
    folder = tempfile.mkdtemp(prefix="mq-", dir=place)
    os.chmod(folder, 0o755)     # tests become another user
    try:
        yield {**kept, "TZ": "UTC", "LC_ALL": "C.UTF-8", "TMPDIR": folder,
               "PIP_CONSTRAINT": str(TOOLS / "lock.txt")}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def pytest_run(arguments: list[str], variables: dict[str, str], limit: float | None = None,
               quiet: bool = False) -> Run:
    """pytest in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="mq-suite-") as folder:
        record = Path(folder) / "record"
        out = subprocess.DEVNULL if quiet else None
        command = [sys.executable, str(TOOLS / "recorded.py"), str(record), *arguments]
        with subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, stdout=out,
                              stderr=out, umask=0o022, start_new_session=quiet) as process:
            try:
                run = Run(process.wait(limit))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                run = Run(1, others=[f"still running after {limit:.0f} s"])
            except KeyboardInterrupt:
                run = Run(process.wait())
        run.read(record)
        return run


def tell_seconds(run: Run) -> None:
    """The longest files of a whole run, for the tables of tests/support/longest.py."""
    rows = sorted(run.seconds.items(), key=lambda row: -row[1])
    if len(rows) > LONG:
        SECONDS.parent.mkdir(exist_ok=True)
        SECONDS.write_text(json.dumps(dict(rows), indent=0))
        whole = sum(run.seconds.values())
        print(f"\n{whole:.0f} s of test time in {len(rows)} files ({SECONDS}); the longest:")
        for name, seconds in rows[:LONG]:
            print(f"{seconds:7.1f} s  {name}")


def mark(arguments: list[str]) -> list[str]:
    """The `-m EXPRESSION` among pytest's arguments; a test that is run again needs it as well."""
    return next((arguments[at:at + 2] for at, word in enumerate(arguments) if word == "-m"), [])


def again(first: Run, arguments: list[str], variables: dict[str, str]) -> list[str]:
    """Run each test that failed once more, alone and with the same seed; returns those that failed
    again."""
    print(f"\nonce more, alone: {len(first.failed)} of {first.passed + len(first.failed)} tests",
          flush=True)
    twice = []
    for test in first.failed:
        started = time.monotonic()
        seeded = {"MQCORE_SEED": first.seeds[test]} if test in first.seeds else {}
        run = pytest_run([*mark(arguments), "-q", test], {**variables, **seeded}, AGAIN_LIMIT,
                         quiet=True)
        good = run.status == 0
        print(f"  {'passed' if good else 'FAILED'} in {time.monotonic() - started:.0f} s  {test}",
              flush=True)
        if not good:
            twice.append(test)
            for text in (*run.others, *run.failed.values()):
                print("".join(f"      {line}\n" for line in text.splitlines()[-40:]), end="")
    return twice


def last_lines(text: str) -> list[str]:
    """What a failure said, without the source around it."""
    lines = [line for line in text.splitlines() if line.strip()]
    said = [line for line in lines if line.startswith("E ")] or lines[-LISTED:]
    return said[:LISTED]


def verdict(first: Run, twice: list[str]) -> int:
    """Print the end of the run, write the report, return the status."""
    unsteady = {test: text for test, text in first.failed.items() if test not in twice}
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps({"unsteady": unsteady, "failed": twice}, indent=1))
    lucky = len(unsteady.keys() - first.disturbed)
    if unsteady:
        print(f"\n{lucky} unsteady, {len(unsteady) - lucky} disturbed, whole in {REPORT}:")
    for test, text in unsteady.items():
        print(f"{'disturbed' if test in first.disturbed else 'unsteady'}: {test}")
        print("".join(f"    {line}\n" for line in last_lines(text)), end="")
    for test in twice:
        print(f"FAILED twice: {test}")
    for other in first.others:
        print(f"FAILED: {other}")
    if lucky > MOST_UNSTEADY:
        print(f"FAILED: {lucky} unsteady tests are more than {MOST_UNSTEADY}")
    print(f"{first.passed + len(unsteady)} passed, {len(twice)} failed, {first.skipped} skipped")
    return int(bool(twice or first.others or lucky > MOST_UNSTEADY))


def main(arguments: list[str]) -> int:
    default_signals()
    REPORT.unlink(missing_ok=True)
    arguments = [*SIDE_BY_SIDE, *arguments]     # of two -n the last one counts
    with environment() as variables:
        first = pytest_run(arguments, variables)
        tell_seconds(first)
        strict = os.environ.get("UNSTEADY") == "0"
        if strict or first.status not in (0, 1) or not first.failed:
            for other in first.others:
                print(f"FAILED: {other}")
            return first.status or int(bool(first.failed or first.others))
        if len(first.failed) > MOST_AGAIN:
            print(f"{len(first.failed)} tests failed: too many to run them again")
            return 1
        return verdict(first, again(first, arguments, variables))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
