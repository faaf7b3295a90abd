"""Copies of a journal, as a crash would leave it."""

import shutil

import pytest

try:        # its threads start with the first array: have them before anything is counted
    import pyarrow
    pyarrow.array([b"x"]).validate()
except ImportError:
    pass


@pytest.fixture
def copy(tmp_path):
    """copy(where) -> another folder with the same journal, as a power cut would leave it."""
    made = []

    def make(where):
        made.append(tmp_path / f"copy{len(made)}")
        shutil.copytree(where, made[-1], ignore=shutil.ignore_patterns(".*"))     # half written
        return made[-1]
    return make
