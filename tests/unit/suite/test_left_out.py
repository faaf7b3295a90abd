"""Tests that need brokers run with `-m brokers`, slow ones with `-m slow` or by the name of their
file, and neither with another `-m` or with none."""

import subprocess
import sys

import longest
import pytest
from doc_examples import ROOT


def collected(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider",
         *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120).stdout


@pytest.mark.parametrize("how, chosen", [
    ((), False), (("-m", "packaging"), False), (("-m", "brokers"), True)], ids=str)
def test_which_runs_have_those_with_brokers(how, chosen):
    found = collected(*how, "tests/brokers/test_redis.py")
    assert ("test_nothing_is_lost_when_redis_is_killed" in found) == chosen, found
    assert ("deselected" in found) != chosen


@pytest.mark.parametrize("how, chosen", [
    (("tests/system/perf",), False), (("tests/system/perf", "-m", "packaging"), False),
    (("tests/system/perf", "-m", "slow"), True), (("tests/system/perf/test_versus.py",), True),
], ids=str)
def test_which_runs_have_slow_ones(how, chosen):
    found = collected(*how)
    assert ("test_versus.py::" in found) == chosen, found


@pytest.mark.parametrize("name", (*longest.SLOW, *longest.LONGEST))
def test_files_of_the_tables_are_there(name):
    assert (longest.TESTS / name).is_file()
