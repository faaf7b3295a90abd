import tempfile
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def folder(monkeypatch):
    """A short path: the address of a Unix socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="mq") as path:
        monkeypatch.setenv("XDG_RUNTIME_DIR", path)
        monkeypatch.delenv("MQCORE_MONITOR", raising=False)
        yield Path(path, "mqcore")
