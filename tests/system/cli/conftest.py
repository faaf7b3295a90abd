"""Each command runs as a process of its own, as people run it."""

import pytest
from programs import starter


@pytest.fixture
def start():
    with starter() as function:
        yield function


@pytest.fixture
def url(tmp_path):
    """An address that nobody else has."""
    return f"ipc://{tmp_path}/s"
