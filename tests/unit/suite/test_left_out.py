"""Tests that need brokers run with `-m brokers`, slow ones with `-m slow` or by the name of their
file, and neither with another `-m` or with none."""

import subprocess

import longest
import pytest
from doc_examples import ROOT
from nested import PYTEST


def collected(*arguments):
    return subprocess.run(
        [*PYTEST, "--collect-only", "-q", *arguments], cwd=ROOT, capture_output=True, text=True,
        timeout=120).stdout


@pytest.mark.parametrize("how, brokers, slow", [
    ((), False, False), (("-m", "packaging"), False, False), (("-m", "brokers"), True, False),
    (("-m", "slow"), False, True)], ids=str)
def test_which_runs_have_those_with_brokers_and_slow_ones(how, brokers, slow):
    found = collected(*how, "tests/brokers/test_redis.py", "tests/system/perf")
    assert ("test_nothing_is_lost_when_redis_is_killed" in found) == brokers, found
    assert ("test_versus.py::" in found) == slow, found
    assert "deselected" in found


def test_a_file_of_slow_ones_runs_by_its_name():
    found = collected("tests/system/perf/test_versus.py")
    assert "test_versus.py::" in found and "deselected" not in found


@pytest.mark.parametrize("name", (*longest.SLOW, *longest.LONGEST))
def test_files_of_the_tables_are_there(name):
    assert (longest.TESTS / name).is_file()
