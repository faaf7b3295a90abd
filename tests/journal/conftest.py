"""Copies of a journal, as a crash would leave it."""

import shutil

import pytest


@pytest.fixture
def copy(tmp_path):
    """copy(where) -> another folder with the same journal, as a power cut would leave it."""
    made = []

    def make(where):
        made.append(tmp_path / f"copy{len(made)}")
        shutil.copytree(where, made[-1])
        return made[-1]
    return make
